package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// TestHost reads what a host has: each list at the first question, and once.
func TestHost(t *testing.T) {
	host := netlab.NewHost(t)
	host.Feed(t, `link add up1 type veth peer name up2
link add up0 type bridge
link add br0 type bridge
link set up1 master br0
link set up0 up
link set up1 up
link set br0 up
address add 192.0.2.2/24 dev up0
address add 198.51.100.2/24 dev br0
address add 169.254.7.7/16 dev br0 scope link
route add default via 198.51.100.1 metric 20
route add default via 192.0.2.1 metric 10
route add blackhole default metric 5
route add default table 99 dev br0
route add 203.0.113.0/24 table 99 dev br0
`, "ip", "-batch", "-")
	host.MustRun(t, "sh", "-c", "ip -6 route add default metric 9 nexthop via fe80::1 dev br0 nexthop via fe80::2 dev up0")
	host.Do(func() {
		var h Host
		links := ""
		for _, l := range h.Links() {
			links += fmt.Sprintf("%s %s %s %s %d; ", l.Name, l.Kind, l.Master, l.Parent, len(l.Global))
		}
		routes, err := h.Routes()
		uplinks, err2 := h.Uplinks()
		gateways, err3 := h.Gateways()
		if err := errors.Join(h.ReadLinks(), err, err2, err3); err != nil {
			t.Fatal(err)
		}
		if want := "lo device   0; up2 veth   0; up1 veth br0  0; up0 bridge   1; br0 bridge   1; "; links != want {
			t.Errorf("links %s, want %s", links, want)
		}
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Table == 99 && !IsDefault(r) }) {
			t.Errorf("of table 99 nothing is in %v", routes)
		}
		var names []string
		for _, l := range uplinks {
			names = append(names, l.Name)
		}
		if got, want := fmt.Sprint(names, gateways), "[up0 br0] [192.0.2.1 fe80::1]"; got != want {
			t.Errorf("uplinks and gateways %s, want %s", got, want)
		}
		host.MustRun(t, "ip", "link", "delete", "br0")
		if h.Link("br0") == nil || new(Host).Link("br0") != nil {
			t.Error("the links are read again, or never")
		}
	})
	mounts, err := new(Host).Mounts()
	if !slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool { return m.Mountpoint == "/proc" }) {
		t.Errorf("%d mounts, and not /proc: %v", len(mounts), err)
	}
}
