package operator

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestRepairInTheWay: what leads packets for a container elsewhere is named, nothing is said to be put back that does not help, and what the packet
// filter has stays as it is. Once that is taken away all is right.
func TestRepairInTheWay(t *testing.T) {
	t.Parallel()
	for _, network := range []struct{ name, plugin string }{{"bridge", harmtest.Usual}, {"ptp", harmtest.Ptp}} {
		for _, tt := range []struct{ name, in, out string }{
			{"a route", "ip route replace ADDRESS via " + netlab.OutsideIPv4, "ip route delete ADDRESS via " + netlab.OutsideIPv4},
			{"a route of a rule", "ip route add ADDRESS via " + netlab.OutsideIPv4 + " table 7; ip rule add pref 7 lookup 7", "ip rule delete pref 7"},
			{"an address", "ip address add ADDRESS dev lo", "ip address delete ADDRESS dev lo"},
			{"a hole", "ip route add blackhole ADDRESS table 7; ip rule add pref 7 lookup 7", "ip rule delete pref 7"},
		} {
			t.Run(network.name+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				p := newPatient(t)
				web := p.add(harmtest.Conflist(network.plugin), "web", port(8080, 80, "tcp"))
				way := strings.NewReplacer("ADDRESS", web.Address)
				p.script(way.Replace(tt.in))
				before := p.host.Snapshot(t)
				for range 2 {
					code, printed := p.cnictl("repair")
					t.Logf("%d\n%s", code, printed)
					if code != 1 || strings.Contains(printed, "put back") || !strings.Contains(printed, "ip route get "+web.Address) {
						t.Errorf("exit code %d\n%s", code, printed)
					}
				}
				if diff := before.Diff(p.host.Snapshot(t), harmtest.OfRepair...); diff != "" {
					t.Errorf("what changed:\n%s", diff)
				}
				p.script(way.Replace(tt.out))
				if code, printed := p.cnictl("repair"); code != 0 {
					t.Errorf("when that is gone: exit code %d\n%s", code, printed)
				}
			})
		}
	}
}

// TestRepairRenamed: a host end that somebody has renamed is the container's still, which need not be started again. What is taken from it comes back.
func TestRepairRenamed(t *testing.T) {
	t.Parallel()
	for name, network := range map[string]string{"bridge": harmtest.Usual, "ptp": harmtest.Ptp} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			web := p.add(harmtest.Conflist(network), "web", port(8080, 80, "tcp"))
			rename := func(from, to string) string {
				return strings.NewReplacer("FROM", from, "TO", to).Replace("ip link set FROM down; ip link set FROM name TO; ip link set TO up")
			}
			p.script(rename(web.End, "other7") + "; nft flush ruleset")
			code, printed := p.cnictl("repair")
			if code != 1 || strings.Contains(printed, "restart") || !strings.Contains(printed, rename("other7", web.End)) || !strings.Contains(printed, "put back: publish tcp/8080") {
				t.Errorf("exit code %d\n%s", code, printed)
			}
			web.Serve(t)
			harmtest.Dial(t, &p.outside.Namespace, netlab.HostIPv4+":8080")
			p.script(rename("other7", web.End))
			p.must("repair")
		})
	}
}
