package iptables

import (
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
)

// Rules of an address are the newest owner's. What protects a bridge is there as long as somebody on it wants it.
func TestForwardLateDel(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		a, b := kinds(t, keyOf("a"))["published"], kinds(t, keyOf("b"))["same-bridge"]
		shared := slices.Concat(a.shared, b.shared)
		n.add(t, a)
		n.add(t, b)
		for range 2 { // the second time without a record
			n.del(t, Forwarding, keyOf("a"), prefixes("10.88.0.2/16", "fd00::2/64")...)
			n.has(t, "late DEL", "filter", slices.Concat(shared, b.own)...)
			must(t, n.check(t, b))
		}
		n.del(t, Forwarding, keyOf("b"))
		n.has(t, "both DELs", "filter", shared...)
	})
}

// Rules that the reference plugin left for the address are not made twice.
func TestForwardLeftOver(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.restore(t, "filter", "-N CNI-FORWARD", "-A CNI-FORWARD -s 10.88.0.2/32 -j ACCEPT", "-A FORWARD -j ACCEPT")
		n.add(t, ForwardRules(keyOf("a"), spec.ForwardNeeds{Addrs: addrs("10.88.0.2"), AdminChain: "DOCKER-USER"}))
		got := n.rules(t, &ipv4, "filter")
		if strings.Count(got, "-s 10.88.0.2/32 -j ACCEPT") != 1 || !strings.Contains(got, "admin overrides\" -j DOCKER-USER") {
			t.Errorf("after ADD:\n%s", got)
		}
		n.del(t, Forwarding, keyOf("a"))
		same(t, "after DEL", lines(n.rules(t, &ipv4, "filter"), "10.88.0.2"), "")
	})
}

// A bridge that the reference plugin has protected stays so.
func TestIsolationOfReference(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		theirs := ForwardRules(keyOf("a"), spec.ForwardNeeds{Addrs: addrs("10.88.0.2"), Ingress: spec.SameBridge, Bridge: "br0"})
		made := []string{"-N " + stage1, "-N " + stage2}
		want := ""
		for _, r := range filter(theirs.own, func(r rule) bool { return r.common }) {
			made, want = append(made, r.String()), want+r.String()+"\n"
		}
		n.restore(t, "filter", made...)
		for _, ingress := range []spec.Ingress{spec.SameBridge, spec.Isolated} {
			n.add(t, ForwardRules(keyOf("b"), spec.ForwardNeeds{Addrs: addrs("10.88.0.2"), Ingress: ingress, Bridge: "br0"}))
			n.del(t, Forwarding, keyOf("b"))
			same(t, "left", sorted(lines(n.rules(t, &ipv4, "filter"), " br0")), sorted(want))
		}
	})
}
