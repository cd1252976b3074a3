package main

import (
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

func TestAge(t *testing.T) {
	for want, d := range map[string]time.Duration{"0s": -time.Hour, "59s": 59 * time.Second, "1m": 119 * time.Second, "3h": 200 * time.Minute, "47h": 47 * time.Hour, "8d": 200 * time.Hour} {
		if got := age(time.Now().Add(-d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestShortIDs(t *testing.T) {
	short := shortIDs([]*node.Attachment{{ContainerID: "web"}, {ContainerID: "0123456789abcdef"}, {ContainerID: "0123456789abcdef"}})
	assertEqual(t, "short", short["0123456789abcdef"], "0123456789ab")
	short = shortIDs([]*node.Attachment{{ContainerID: "web"}, {ContainerID: "0123456789abcdef"}, {ContainerID: "0123456789abcdff"}, {ContainerID: "0123456789abc"}})
	assertEqual(t, "as long as it takes", short["0123456789abcdef"], "0123456789abcde")
	assertEqual(t, "the shortest", short["web"], "web")
}
