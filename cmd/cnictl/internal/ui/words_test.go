package ui

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes
		for want, d := range map[string]time.Duration{"0s": -time.Hour, "59s": 59 * time.Second, "1m": 119 * time.Second, "3h": 200 * time.Minute, "47h": 47 * time.Hour, "8d": 200 * time.Hour} {
			if got := Age(time.Now().Add(-d)); got != want {
				t.Errorf("%v: %s, want %s", d, got, want)
			}
		}
	})
}

func TestShortIDs(t *testing.T) {
	short := ShortIDs([]*node.Attachment{{ContainerID: "web"}, {ContainerID: "0123456789abcdef"}, {ContainerID: "0123456789abcdef"}})
	if got := short["0123456789abcdef"]; got != "0123456789ab" {
		t.Errorf("short: %s", got)
	}
	short = ShortIDs([]*node.Attachment{{ContainerID: "web"}, {ContainerID: "0123456789abcdef"}, {ContainerID: "0123456789abcdff"}, {ContainerID: "0123456789abc"}})
	if got := short["0123456789abcdef"]; got != "0123456789abcde" {
		t.Errorf("as long as it takes: %s", got)
	}
	if got := short["web"]; got != "web" {
		t.Errorf("the shortest: %s", got)
	}
}
