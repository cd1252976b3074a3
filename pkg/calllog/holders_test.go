package calllog

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// history makes calls out of "VERB plugin network container [address …]" at one second after the other; a verb that ends in "!" fails.
func history(text string) (all []Call) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		verb, failed := strings.CutSuffix(f[0], "!")
		c := Call{
			Time: time.Unix(int64(len(all)), 0), Took: time.Millisecond, Verb: verb, Plugin: f[1],
			Key: plugin.Key{Network: f[2], ContainerID: f[3], IfName: "eth0"}, Addresses: f[4:], Pod: "default/" + f[3],
		}
		if failed {
			c.Error = &types.Error{}
		}
		all = append(all, c)
	}
	return all
}

func TestHolders(t *testing.T) {
	tests := []struct{ name, history, want string }{
		{"nobody", "", ""},
		{"another address", "ADD bridge demo a 10.88.0.70/24", ""},
		{"still", "ADD bridge demo a 10.88.0.7/24", "demo/a 0-"},
		{"until its DEL", "ADD bridge demo a 10.88.0.7/24\n DEL bridge demo a", "demo/a 0-1.001"},
		{"of several", "ADD bridge demo a fd00::7/64 10.88.0.7/24", "demo/a 0-"},
		{"a list of plugins", `
			ADD bridge demo a 10.88.0.7/24
			ADD portmap demo a 10.88.0.7/24
			CHECK bridge demo a
			DEL portmap demo a
			DEL bridge demo a`, "demo/a 0-4.001"},
		{"a DEL that got half-way", `
			ADD bridge demo a 10.88.0.7/24
			ADD portmap demo a 10.88.0.7/24
			DEL portmap demo a
			DEL! bridge demo a`, "demo/a 0-"},
		{"and was repeated", `
			ADD bridge demo a 10.88.0.7/24
			DEL! bridge demo a
			DEL bridge demo a
			DEL bridge demo a`, "demo/a 0-2.001"},
		{"an ADD that failed", "ADD! bridge demo a 10.88.0.7/24", ""},
		{"one after the other", `
			ADD bridge demo a 10.88.0.7/24
			ADD bridge demo b 10.88.0.8/24
			DEL bridge demo a
			ADD bridge demo c 10.88.0.7/24
			DEL bridge demo b`, "demo/a 0-2.001, demo/c 3-"},
		{"twice the same", `
			ADD bridge demo a 10.88.0.7/24
			DEL bridge demo a
			ADD bridge demo a 10.88.0.7/24`, "demo/a 0-1.001, demo/a 2-"},
		{"without a DEL", "ADD bridge demo a 10.88.0.7/24\n ADD bridge demo b 10.88.0.7/24", "demo/a 0-1 replaced, demo/b 1-"},
		{"attached again without a DEL", "ADD bridge demo a 10.88.0.7/24\n ADD bridge demo a 10.88.0.9/24", "demo/a 0-1 replaced"},
		{"on two networks", `
			ADD bridge demo a 10.88.0.7/24
			ADD bridge other b 10.88.0.7/16
			DEL bridge demo a`, "demo/a 0-2.001, other/b 1-"},
		{"IPAM as a process of its own", `
			ADD bridge demo a 10.88.0.7/24
			ADD host-local demo a 10.88.0.7/24
			DEL bridge demo a
			DEL host-local demo a`, "demo/a 0-2.001"},
		{"IPAM of an ADD that failed", `
			ADD! bridge demo a
			ADD host-local demo a 10.88.0.7/24
			DEL host-local demo a`, "demo/a 1-2.001"},
		{"a DEL of another", "ADD bridge demo a 10.88.0.7/24\n DEL bridge other a\n DEL bridge demo b", "demo/a 0-"},
		{"IPv4 in IPv6", "ADD bridge demo a ::ffff:10.88.0.7/120", "demo/a 0-"},
		{"no address", "ADD bridge demo a 10.88.0.7\n ADD bridge demo b x/y", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, h := range Holders(history(tt.history), netip.MustParseAddr("10.88.0.7")) {
				text := fmt.Sprintf("%s/%s %d-", h.Network, h.ContainerID, h.From.Unix())
				if !h.To.IsZero() {
					text += fmt.Sprint(float64(h.To.UnixMilli()) / 1000)
				}
				if h.Replaced {
					text += " replaced"
				}
				if got = append(got, text); h.Pod != "default/"+h.ContainerID || h.IfName != "eth0" {
					t.Errorf("got %+v", h)
				}
			}
			if list := strings.Join(got, ", "); list != tt.want {
				t.Errorf("got %s\nwant %s", list, tt.want)
			}
		})
	}
}
