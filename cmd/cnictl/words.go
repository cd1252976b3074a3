package main

import (
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/cnibox/cnibox/pkg/operator/node"
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
	return map[node.State]text.Colors{node.Alive: good, node.Gone: bad, node.Replaced: bad, node.Unknown: weak}[s]
}

// stateOf is an attachment's state, and whether its addresses are not its own.
func stateOf(a *node.Attachment) string {
	text := colourOf(a.State).Sprint(a.State)
	if a.Twice != nil {
		text += bad.Sprint(", address twice")
	}
	if a.Unleased != nil {
		text += bad.Sprint(", no lease")
	}
	return text
}
