package nft

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// wanted is what the n-th attachment wants, of each purpose.
func wanted(n int) map[string]Wants {
	addr := netip.AddrFrom4([4]byte{10, 88, byte(n >> 8), byte(n)})
	return map[string]Wants{
		"masquerade": ToMasquerade([]netip.Prefix{netip.PrefixFrom(addr, 16)}),
		"portmap":    ToPublish(spec.PortNeeds{Maps: []spec.PortMap{{Protocol: 6, HostPort: uint16(1000 + n), Container: netip.AddrPortFrom(addr, 80)}}}),
		"forward": ToForward(spec.ForwardNeeds{
			Addrs: []netip.Addr{addr}, Ingress: spec.Isolated, Bridge: "cni0",
		}),
		"spoof check": ToCheckSpoofing(fmt.Sprintf("veth%d", n), [6]byte{2, 0, 0, 0, byte(n >> 8), byte(n)}),
		"egress": ToJudge(spec.EgressNeeds{HostEnd: fmt.Sprintf("veth%d", n), Addrs: []netip.Prefix{netip.PrefixFrom(addr, 16)},
			Lists: reach.Lists{Closed: true, Allow: []reach.Entry{{Prefix: netip.PrefixFrom(addr, 32)}}}}), // a list each
	}
}

// allocations returns how many pieces of memory f takes, which is how much it does.
func allocations(t *testing.T, f func() error) int {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must(t, f())
	runtime.ReadMemStats(&after)
	return int(after.Mallocs - before.Mallocs)
}

// TestLinear counts what GC, ADD and DEL do among a hundred attachments and among a thousand: GC some ten times as
// much, ADD and DEL the same.
func TestLinear(t *testing.T) {
	h := netlab.NewHost(t)
	c := open(t, h)
	for name := range wanted(0) {
		t.Run(name, func(t *testing.T) {
			did := map[string][]int{}
			count := func(verb string, f func() error) {
				t.Helper()
				h.Do(func() { did[verb] = append(did[verb], allocations(t, f)) })
			}
			for _, n := range []int{100, 1000} {
				var keys []plugin.Key
				h.Do(func() {
					for i := range n {
						keys = append(keys, keyOf(fmt.Sprint("c", i)))
						must(t, c.Add(ctx, keys[i], wanted(i)[name]))
					}
				})
				p := wanted(0)[name].Purpose
				count("GC that removes nothing", func() error { return gc(p, "net", keys...) })
				// Not of the first, whose name is at what the attachments have in common.
				count("DEL", func() error { _, err := c.Del(ctx, keys[1], p); return err })
				count("ADD", func() error { return c.Add(ctx, keyOf("one more"), wanted(n)[name]) })
				count("GC that removes half", func() error { return gc(p, "net", keys[:n/2]...) })
				count("GC that removes the rest", func() error { return gc(p, "net") })
			}
			for verb, n := range did {
				most := 25 * n[0] // it may have to ask again whether all is gone
				if verb == "DEL" || verb == "ADD" {
					most = 3 * n[0] / 2
				}
				t.Logf("%s: %d", verb, n)
				if n[1] > most {
					t.Errorf("%s does %d among 100 attachments, and %d among 1,000", verb, n[0], n[1])
				}
			}
		})
	}
}
