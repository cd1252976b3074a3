package newnet

import (
	"net/netip"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/lint"
	"github.com/cnibox/cnibox/plugins/known"
)

// TestLint makes a network of each kind, plain and with all that its kind takes: lint has nothing to say against one, but that lists of one container
// come from programs over libcni alone.
func TestLint(t *testing.T) {
	host := &Host{
		Links: []Link{{Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24")}, Card: true, Up: true},
			{Name: "eth1", Card: true, Up: true}},
		Uplink:   "eth0",
		Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Taken:    []Taken{{netip.MustParsePrefix("192.0.2.0/24"), "eth0"}},
	}
	lan := []Range{{netip.MustParseAddr("192.0.2.200"), netip.MustParseAddr("192.0.2.219")}}
	for _, o := range []Options{
		{Kind: "bridge"},
		{Kind: "bridge", IPv6: true, Isolated: true, Limit: 50_000_000, Bridge: "web0"},
		{Kind: "bridge", NoPorts: true, Subnets: []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24")}},
		{Kind: "ptp"},
		{Kind: "ptp", IPv6: true, Limit: 1_000_000, Domain: "dns.podman"},
		{Kind: "ptp", Closed: true, Allow: []string{"192.0.2.7:443"}},
		{Kind: "bridge", Closed: true},
		{Kind: "macvlan", Ranges: lan},
		{Kind: "macvlan", DHCP: true},
		{Kind: "ipvlan", Ranges: lan},
		{Kind: "vlan", Master: "eth0", VLAN: 100, DHCP: true},
		{Kind: "host-device", Master: "eth1", DHCP: true},
		{Kind: "dummy"},
		{Kind: "dummy", IPv6: true},
		{Kind: "tap"},
		{Kind: "flannel"},
	} {
		o.CNIVersion, o.ConfDir = "1.0.0", t.TempDir()
		plan, err := Make(o, host)
		if err != nil {
			t.Errorf("%+v: %v", o, err)
			continue
		}
		for _, f := range lint.Text(plan.Path, plan.Text, lint.Options{Plugins: known.Plugins}) {
			if f.Code != "unsent-capability" {
				t.Errorf("%s: %v\n%s", o.Kind, f, plan.Text)
			}
		}
	}
}
