package ranges

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// What is left of ranges is each address of theirs that is not excluded, once.
func TestWithout(t *testing.T) {
	subnet := netip.MustParsePrefix("10.1.2.0/27")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		first, last := rng.IntN(32), rng.IntN(32)
		left := []Range{{Subnet: subnet, First: address(min(first, last)), Last: address(max(first, last))}}
		var excluded []netip.Prefix
		for range rng.IntN(4) {
			excluded = append(excluded, netip.PrefixFrom(address(rng.IntN(32)), 27+rng.IntN(6)).Masked())
			left = without(left, excluded[len(excluded)-1])
		}
		for i := range 32 {
			a, want, got := address(i), 0, 0
			if i >= min(first, last) && i <= max(first, last) && !slices.ContainsFunc(excluded, func(p netip.Prefix) bool { return p.Contains(a) }) {
				want = 1
			}
			for _, r := range left {
				if r.Contains(a) {
					got++
				}
			}
			if got != want {
				t.Fatalf("%s without %v is %v: %s is in it %d times, want %d", subnet, excluded, left, a, got, want)
			}
		}
	}
}

// address returns the ith address of 10.1.2.0/24.
func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 2, byte(i)}) }
