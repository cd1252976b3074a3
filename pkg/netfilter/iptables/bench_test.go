package iptables

import (
	"fmt"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// What every DEL pays on a host without rules of iptables.
func BenchmarkDelNothing(b *testing.B) {
	h := netlab.NewHost(b)
	h.Do(func() {
		for b.Loop() {
			must(b, New().DelMasquerade(ctx, keyOf("a"), nil))
			_, err := New().DelPortMaps(ctx, keyOf("a"), nil)
			must(b, err)
			must(b, New().DelForward(ctx, keyOf("a"), prefixes("10.88.0.2/16")))
		}
	})
}

func BenchmarkPortMap(b *testing.B) {
	for _, fl := range []string{"nft", "legacy"} {
		for _, others := range []int{0, 100} {
			b.Run(fmt.Sprintf("%s/%d", fl, others), func(b *testing.B) {
				n := &node{netlab.NewHost(b), fl}
				n.use(b, fl)
				n.Do(func() {
					for i := range others {
						must(b, New().AddPortMaps(ctx, keyOf(fmt.Sprint("x", i)), publish(b, fmt.Sprintf("tcp/%d=10.88.0.2:80", 1000+i))))
					}
					for b.Loop() {
						must(b, New().AddPortMaps(ctx, keyOf("a"), publish(b, "tcp/8080=10.88.0.3:80")))
						_, err := New().DelPortMaps(ctx, keyOf("a"), nil)
						must(b, err)
					}
				})
			})
		}
	}
}
