package iptables

import (
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// kinds is what an attachment has of each kind. Its text is compared in rules_test.go.
func kinds(t testing.TB, key plugin.Key) map[string]Rules {
	both := addrs("10.88.0.2", "fd00::2")
	return map[string]Rules{
		"masquerade":   MasqueradeRules(key, prefixes("10.88.0.2/16", "10.88.0.3/16", "fd00::2/64")),
		"ports":        PortMapRules(key, publish(t, "tcp/8080=10.88.0.2:80", "udp/192.0.2.1:53=10.88.0.2:53", "tcp/8080=[fd00::2]:80")),
		"forward":      ForwardRules(key, spec.ForwardNeeds{Addrs: both}),
		"same-bridge":  ForwardRules(key, spec.ForwardNeeds{Addrs: both, Ingress: spec.SameBridge, Bridge: "br0"}),
		"published":    ForwardRules(key, spec.ForwardNeeds{Addrs: both, Ingress: spec.Isolated, Bridge: "br0", Published: true}),
		"no addresses": ForwardRules(key, spec.ForwardNeeds{Ingress: spec.Isolated, Bridge: "br0"}),
	}
}

// has compares a table with what it is to have, and the order in containers' chains.
func (n *node) has(t *testing.T, what string, table string, wanted ...rule) {
	t.Helper()
	for _, f := range families() {
		got := leaving(n.rules(t, f, table), func(line string) bool { return !strings.HasPrefix(line, "-A ") })
		want := ""
		for _, r := range missing(ofFamily(f, wanted), nil) {
			want += r.String() + "\n"
		}
		same(t, what+" "+f.name, sorted(got), sorted(want))
	}
}

// Every kind is made once, is missed when a rule of it goes, is made again, and goes as a whole. Where there is nothing no program runs.
func TestKinds(t *testing.T) {
	for name, r := range kinds(t, keyOf("a")) {
		t.Run(name, func(t *testing.T) {
			eachFlavour(t, func(t *testing.T, n *node) {
				table := r.owner.kind.table()
				for range 2 {
					n.add(t, r)
					n.has(t, "ADD", table, slices.Concat(r.shared, r.own)...)
					must(t, n.check(t, r))
				}
				inChain := func(line string) bool { return !strings.HasPrefix(line, "-A CNI-") }
				for _, f := range families() {
					before := n.rules(t, f, table)
					for _, gone := range r.ofFamily(f) {
						n.restoreOf(t, f, table, gone.remove())
						wantError(t, n.check(t, r), "table "+table+" of "+f.program+"-"+n.flavour, "lacks the rule of net/a/eth0", gone.String())
						n.add(t, r)
					}
					for _, harm := range [][]string{{"-F"}, {"-F", "-X"}} {
						n.restoreOf(t, f, table, harm...)
						n.add(t, r)
						same(t, "repaired, the order in chains", sorted(leaving(n.rules(t, f, table), inChain)), sorted(leaving(before, inChain)))
					}
				}
				n.del(t, r.owner.kind, r.owner.key)
				n.has(t, "DEL", table, r.shared...)
				same(t, "records", n.kept(t), "")
				back := n.hidePrograms(t)
				n.del(t, r.owner.kind, r.owner.key)
				n.gc(t, "net")
				back()
			})
		})
	}
}

// What comes first in a chain is before the rest, also of another interface's and of what is made later: masquerading accepts what stays
// in a network first, and bridges are kept apart before anything is accepted.
func TestOrder(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		for _, r := range []Rules{
			MasqueradeRules(keyOf("a"), prefixes("10.88.0.2/16")), MasqueradeRules(second("a", "eth1"), prefixes("10.99.0.3/24")),
			kinds(t, keyOf("a"))["no addresses"], kinds(t, keyOf("b"))["forward"],
		} {
			n.add(t, r)
		}
		nat, filter := n.rules(t, &ipv4, "nat"), n.rules(t, &ipv4, "filter")
		if strings.Index(nat, "-d 10.99.0.0/24") > strings.Index(nat, "-j MASQUERADE") || strings.Index(filter, "-j "+stage1) > strings.Index(filter, "-j "+forwardChain) {
			t.Errorf("another order:\n%s%s", nat, filter)
		}
	})
}

// Another ADD takes the place of the first one's.
func TestReplaced(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.add(t, MasqueradeRules(keyOf("a"), prefixes("10.88.0.2/16", "fd00::2/64")))
		again := MasqueradeRules(keyOf("a"), prefixes("10.99.0.7/24"))
		n.add(t, again)
		n.has(t, "ADD again", "nat", again.own...)
		n.add(t, MasqueradeRules(keyOf("a"), nil))
		same(t, "ADD of nothing", n.both(t, "nat")+n.kept(t), "")
	})
}

// Interfaces of a container share chains, and rules of them look alike to ip6tables-legacy; each goes alone.
func TestTwoInterfaces(t *testing.T) {
	eth0, eth1 := keyOf("a"), second("a", "eth1")
	for name, pair := range map[string][2]Rules{
		"masquerade": {MasqueradeRules(eth0, prefixes("10.88.0.2/16", "fd00::2/64")), MasqueradeRules(eth1, prefixes("10.88.0.3/16", "fd00:1::2/64"))},
		"ports": {
			PortMapRules(eth0, publish(t, "tcp/8080=10.88.0.2:80", "tcp/8081=[fd00::2]:80", "tcp/8082=[fd00::2]:80")),
			PortMapRules(eth1, publish(t, "tcp/8090=10.88.0.3:80", "tcp/8091=[fd00::3]:80", "tcp/8092=[fd00::3]:80")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachFlavour(t, func(t *testing.T, n *node) {
				one, two := pair[0], pair[1]
				n.add(t, one)
				for range 2 {
					n.add(t, two)
					n.has(t, "both", "nat", slices.Concat(one.shared, one.own, two.own)...)
					must(t, n.check(t, one))
					must(t, n.check(t, two))
				}
				n.del(t, two.owner.kind, eth1)
				n.has(t, "one", "nat", slices.Concat(one.shared, one.own)...)
				wantError(t, n.check(t, two), "lacks the rule")
				n.add(t, two)
				for range 2 {
					n.del(t, one.owner.kind, eth0)
					n.has(t, "the other", "nat", slices.Concat(two.shared, two.own)...)
				}
				n.del(t, two.owner.kind, eth1)
				n.has(t, "none", "nat", two.shared...)
				same(t, "records", n.kept(t), "")
			})
		})
	}
}

// What a killed ADD, an administrator or another flavour leaves is removed too.
func TestDamaged(t *testing.T) {
	r := MasqueradeRules(keyOf("a"), prefixes("10.88.0.2/16"))
	for name, damage := range map[string]func(t *testing.T, n *node){
		"chains gone": func(t *testing.T, n *node) { n.restore(t, "nat", "-F", "-X") },
		"another jump": func(t *testing.T, n *node) {
			n.restore(t, "nat", "-A POSTROUTING -s 10.88.0.0/16 -j "+r.owner.chains()[0])
		},
		"record gone": func(t *testing.T, n *node) { n.MustRun(t, "rm", state.RunFile(ownersFile)) },
		"other flavour now": func(t *testing.T, n *node) {
			n.use(t, map[string]string{"nft": "legacy", "legacy": "nft"}[n.flavour])
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachFlavour(t, func(t *testing.T, n *node) {
				made := n.flavour
				n.add(t, r)
				damage(t, n)
				n.del(t, Masquerading, keyOf("a"))
				n.flavour = made
				same(t, "nat", n.rules(t, &ipv4, "nat")+n.kept(t), "")
			})
		})
	}
}
