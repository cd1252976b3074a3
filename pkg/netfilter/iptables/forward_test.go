package iptables

import (
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
)

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
