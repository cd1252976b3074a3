package iptables

import (
	"net/netip"
	"strings"
	"testing"

	netfilter "github.com/cnibox/cnibox/pkg/netfilter/spec"
)

func (n *node) forward(t testing.TB, id string, f netfilter.Forward) {
	t.Helper()
	n.do(t, func() error { return New().AddForward(ctx, keyOf(id), f) })
}

func (n *node) unforward(t testing.TB, id string, hint ...netip.Prefix) {
	t.Helper()
	n.do(t, func() error { return New().DelForward(ctx, keyOf(id), hint) })
}

const sharedForward = ":CNI-ADMIN\n:CNI-FORWARD\n" +
	"-A FORWARD -m comment --comment \"CNI firewall plugin rules\" -j CNI-FORWARD\n" +
	"-A CNI-FORWARD -m comment --comment \"CNI firewall plugin admin overrides\" -j CNI-ADMIN\n"

func forAddress(a string) string {
	text := ""
	for _, r := range addressRules(netip.MustParseAddr(a)) {
		text += "-A " + r.chain + " " + r.spec + "\n"
	}
	return text
}

func TestForward(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		dual := netfilter.Forward{Addrs: addrs("10.88.0.2", "10.88.0.3", "fd00::2")}
		for range 3 {
			n.forward(t, "a", dual)
		}
		want := sharedForward + forAddress("10.88.0.2") + forAddress("10.88.0.3")
		same(t, "filter", n.rules(t, &ipv4, "filter"), want)
		same(t, "filter of IPv6", n.rules(t, &ipv6, "filter"), sharedForward+forAddress("fd00::2"))
		n.do(t, func() error { return New().CheckForward(ctx, keyOf("a"), dual) })
		for _, tt := range []struct{ damage, want string }{
			{"-F FORWARD", "-A FORWARD"},
			{"-D CNI-FORWARD -s 10.88.0.3/32 -j ACCEPT", "-A CNI-FORWARD -s 10.88.0.3/32 -j ACCEPT"},
			{"-F CNI-FORWARD", "-A CNI-FORWARD"},
		} {
			n.restore(t, "filter", tt.damage)
			before := n.rules(t, &ipv4, "filter")
			wantError(t, n.try(func() error { return New().CheckForward(ctx, keyOf("a"), dual) }), "lacks the rule of net/a/eth0", tt.want)
			same(t, "CHECK changes nothing", n.rules(t, &ipv4, "filter"), before)
			n.forward(t, "a", dual)
			same(t, "repaired", sorted(n.rules(t, &ipv4, "filter")), sorted(want))
		}
		n.unforward(t, "a")
		same(t, "filter after DEL", n.rules(t, &ipv4, "filter")+n.kept(t), sharedForward)
		same(t, "filter of IPv6 after DEL", n.rules(t, &ipv6, "filter"), sharedForward)

		back := n.hidePrograms(t)
		n.unforward(t, "a")
		n.do(t, func() error { return New().GCForward(ctx, "net", nil) })
		back()
	})
}

// Rules of an address are the newest owner's.
func TestForwardLateDel(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		f := netfilter.Forward{Addrs: addrs("10.88.0.2")}
		n.forward(t, "a", f)
		n.forward(t, "b", f)
		want := sharedForward + forAddress("10.88.0.2")
		same(t, "two owners", n.rules(t, &ipv4, "filter"), want)
		n.unforward(t, "a", prefixes("10.88.0.2/16")...)
		same(t, "late DEL", n.rules(t, &ipv4, "filter"), want)
		n.unforward(t, "a", prefixes("10.88.0.2/16")...) // and once more, without a record
		same(t, "late DEL", n.rules(t, &ipv4, "filter"), want)
		n.do(t, func() error { return New().CheckForward(ctx, keyOf("b"), f) })
		n.unforward(t, "b")
		same(t, "both gone", n.rules(t, &ipv4, "filter")+n.kept(t), sharedForward)
	})
}

// Rules that the reference plugin left for the address are not made twice.
func TestForwardLeftOver(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		f := netfilter.Forward{Addrs: addrs("10.88.0.2"), AdminChain: "DOCKER-USER"}
		n.restore(t, "filter", "-N CNI-FORWARD", "-A CNI-FORWARD -s 10.88.0.2/32 -j ACCEPT", "-A FORWARD -j ACCEPT")
		n.forward(t, "a", f)
		if got := n.rules(t, &ipv4, "filter"); strings.Count(got, "-s 10.88.0.2/32 -j ACCEPT") != 1 || !strings.Contains(got, "-A CNI-FORWARD -m comment --comment \"CNI firewall plugin admin overrides\" -j DOCKER-USER") {
			t.Errorf("after ADD:\n%s", got)
		}
		n.unforward(t, "a")
		if got := n.rules(t, &ipv4, "filter"); strings.Contains(got, "10.88.0.2") {
			t.Errorf("after DEL:\n%s", got)
		}
	})
}

// policyRules are the rules of a bridge.
func policyRules(bridge, policy string) []rule {
	f := netfilter.Forward{Addrs: addrs("10.88.0.2"), Ingress: netfilter.SameBridge, Bridge: bridge}
	if policy == "isolated" {
		f.Ingress = netfilter.Isolated
	}
	return filter(Forward(f).own, func(r rule) bool { return r.common })
}

func protected(bridge, policy string) string {
	text := ""
	for _, r := range policyRules(bridge, policy) {
		text += "-A " + r.chain + " " + r.spec + "\n"
	}
	return text
}

func TestIsolation(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		ask := func(ingress netfilter.Ingress, bridge string, addr ...string) netfilter.Forward {
			return netfilter.Forward{Addrs: addrs(addr...), Ingress: ingress, Bridge: bridge}
		}
		policies := func() string {
			var lines []string
			for line := range strings.Lines(n.rules(t, &ipv4, "filter")) {
				if strings.Contains(line, " br") {
					lines = append(lines, line)
				}
			}
			return sorted(strings.Join(lines, ""))
		}
		n.forward(t, "a", ask(netfilter.SameBridge, "br0", "10.88.0.2"))
		got := n.rules(t, &ipv4, "filter")
		if strings.Index(got, "-j "+stage1) > strings.Index(got, "-j "+forwardChain) || strings.Index(got, "-i br0 ! -o br0") > strings.Index(got, "STAGE-1 -m comment --comment \"CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)\" -j RETURN") {
			t.Errorf("order:\n%s", got)
		}
		n.forward(t, "b", ask(netfilter.SameBridge, "br0", "10.88.0.3"))
		same(t, "same-bridge", policies(), sorted(protected("br0", "same-bridge")))
		n.do(t, func() error {
			return New().CheckForward(ctx, keyOf("b"), ask(netfilter.SameBridge, "br0", "10.88.0.3"))
		})
		n.forward(t, "c", ask(netfilter.Isolated, "br0", "10.88.0.4"))
		n.forward(t, "d", ask(netfilter.Isolated, "br1", "10.89.0.4"))
		n.unforward(t, "a")
		n.unforward(t, "c")
		same(t, "one of each", policies(), sorted(protected("br0", "same-bridge")+protected("br1", "isolated")))
		n.unforward(t, "b")
		same(t, "br0 gone", policies(), sorted(protected("br1", "isolated")))
		n.do(t, func() error { return New().GCForward(ctx, "net", nil) })
		same(t, "br1 gone", strings.TrimSpace(policies()), "")
		same(t, "left over", n.kept(t), "")
		if got := n.rules(t, &ipv6, "filter"); got != "" {
			t.Errorf("filter of IPv6:\n%s", got)
		}
	})
}

// A bridge that the reference plugin has protected stays so.
func TestIsolationOfReference(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		var lines []string
		for _, r := range policyRules("br0", "same-bridge") {
			lines = append(lines, "-A "+r.chain+" "+r.spec)
		}
		n.restore(t, "filter", append([]string{"-N " + stage1, "-N " + stage2}, lines...)...)
		f := netfilter.Forward{Addrs: addrs("10.88.0.2"), Ingress: netfilter.SameBridge, Bridge: "br0"}
		n.forward(t, "a", f)
		n.unforward(t, "a")
		g := netfilter.Forward{Addrs: addrs("10.88.0.2"), Ingress: netfilter.Isolated, Bridge: "br0"}
		n.forward(t, "b", g)
		n.unforward(t, "b")
		got := n.rules(t, &ipv4, "filter")
		for _, line := range lines {
			if strings.Count(got, line) != 1 {
				t.Errorf("%q is not there once:\n%s", line, got)
			}
		}
		if strings.Contains(got, "isolated)\" -j DROP") && strings.Contains(got, "-i br0 -o br0") {
			t.Errorf("the rules of b stay:\n%s", got)
		}
	})
}

// Without addresses, both families are protected.
func TestIsolationAlone(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		f := netfilter.Forward{Ingress: netfilter.Isolated, Bridge: "br0"}
		n.forward(t, "a", f)
		n.do(t, func() error { return New().CheckForward(ctx, keyOf("a"), f) })
		for _, fam := range families() {
			if got := n.rules(t, fam, "filter"); !strings.Contains(got, "-i br0 -o br0") || strings.Contains(got, forwardChain) {
				t.Errorf("%s:\n%s", fam.name, got)
			}
		}
		n.forward(t, "b", netfilter.Forward{Addrs: addrs("10.88.0.2")})
		if got := n.rules(t, &ipv4, "filter"); strings.Index(got, "-j "+stage1) > strings.Index(got, "-j "+forwardChain) {
			t.Errorf("accepted before it is kept apart:\n%s", got)
		}
		n.unforward(t, "a")
		n.unforward(t, "b")
		same(t, "left over", n.kept(t), "")
	})
}
