package ui

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// Age says how long ago a time is, as people do: 12s, 5m, 3h, 8d.
func Age(since time.Time) string {
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

// Counted returns "1 thing", "2 things".
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ShortIDs returns the ids of containers as people write them: the first 12 characters, or as many more as it takes to tell all apart.
func ShortIDs(list []*node.Attachment) map[string]string {
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

// Dash stands for what there is none of.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// ShortText writes the long ids of containers as people do.
func ShortText(s string) string { return longID.ReplaceAllString(s, "$1") }

var longID = regexp.MustCompile(`\b([0-9a-f]{12})[0-9a-f]{52}\b`)

// AddressesOf returns the addresses of an attachment, with the lengths of their prefixes if wide is set.
func AddressesOf(a *node.Attachment, wide bool) string {
	var texts []string
	for _, p := range a.Addresses {
		if wide {
			texts = append(texts, p.String())
		} else {
			texts = append(texts, p.Addr().String())
		}
	}
	return strings.Join(texts, ", ")
}

// NonEmpty returns the texts that are not empty.
func NonEmpty(texts ...string) (list []string) {
	for _, t := range texts {
		if t != "" {
			list = append(list, t)
		}
	}
	return list
}
