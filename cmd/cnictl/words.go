package main

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/cnibox/cnibox/pkg/node"
)

// age says how long ago a time is, as people do: 12s, 5m, 3h, 8d.
func age(since time.Time) string {
	switch d := max(time.Since(since), 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	}
}

// counted returns "1 thing", "2 things".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// shortIDs returns the ids of containers as people write them: the first 12 characters, or as many more as it takes to tell all apart.
func shortIDs(list []*node.Attachment) map[string]string {
	for length := 12; ; length++ {
		short, full := map[string]string{}, map[string]string{}
		for _, a := range list {
			s := a.ContainerID[:min(length, len(a.ContainerID))]
			short[a.ContainerID], full[s] = s, a.ContainerID
		}
		if len(short) == len(full) {
			return short
		}
	}
}

// colourOf returns the colour of a state.
func colourOf(s node.State) text.Colors {
	return map[node.State]text.Colors{node.Alive: good, node.Gone: bad, node.Unknown: weak}[s]
}

// sizeText writes the size of a pool, that of one for IPv6 as a power of two.
func sizeText(size uint64) string {
	if size <= 1<<32 {
		return fmt.Sprint(size)
	}
	return fmt.Sprintf("2^%d", bits.Len64(size-1))
}

// bitRate writes bits per second.
func bitRate(rate uint64) string {
	for _, unit := range []struct {
		size uint64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if rate >= unit.size {
			return fmt.Sprintf("%g %sbit/s", float64(rate*100/unit.size)/100, unit.name)
		}
	}
	return fmt.Sprintf("%d bit/s", rate)
}
