package iptables

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/state"
)

// TestLeavings removes what is there for all attachments, of the reference plugins too, and what is left of one, and nothing of others.
func TestLeavings(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		find := func() (list []*Leavings) {
			t.Helper()
			must(t, n.try(func() (err error) {
				list, err = FindLeavings(ctx)
				return err
			}))
			return list
		}
		fresh := n.Snapshot(t)
		if found := find(); found != nil {
			t.Errorf("on a fresh host: %v", found)
		}
		key := keyOf("a")
		for _, r := range []Rules{
			MasqueradeRules(key, prefixes("10.88.0.2/16", "fd00::2/64")), PortMapRules(key, publish(t, "tcp/8080=10.88.0.2:80", "tcp/8080=[fd00::2]:80")),
			ForwardRules(key, spec.ForwardNeeds{Addrs: addrs("10.88.0.2", "fd00::2"), Bridge: "br0", Ingress: spec.Isolated}),
		} {
			n.add(t, r)
		}
		n.restore(t, "nat", "-N CNI-HOSTPORT-SNAT", "-A POSTROUTING -j CNI-HOSTPORT-SNAT")
		n.restore(t, "filter", "-N CNIBOX-FORWARD", "-A CNIBOX-FORWARD -j CNI-ADMIN", "-A FORWARD -j CNIBOX-FORWARD")
		n.MustRun(t, "iptables-"+n.flavour, "-t", "raw", "-A", guardChain, "-d", "127.0.0.0/8", "!", "-i", "lo", "-m", "comment", "--comment", "cnibox: route_localnet", "-j", "DROP")
		n.MustRun(t, "rm", state.RunFile(ownersFile))
		remove := func() {
			t.Helper()
			for _, l := range find() {
				must(t, n.try(func() error { return l.Remove(ctx) }))
			}
		}
		others := func(verb string) {
			t.Helper()
			for _, rule := range []string{"-t nat " + verb + " POSTROUTING -s 198.51.100.0/24 -j MASQUERADE", verb + " CNI-ADMIN -s 198.51.100.1 -j DROP", "-t raw " + verb + " PREROUTING -s 198.51.100.1 -j DROP"} {
				n.MustRun(t, "iptables-"+n.flavour, strings.Fields(rule)...)
			}
		}
		others("-A")
		remove()
		all := n.MustRun(t, "iptables-"+n.flavour+"-save") + n.MustRun(t, "ip6tables-"+n.flavour+"-save")
		if left := lines(all, "CNI"); left != ":CNI-ADMIN - [0:0]\n-A CNI-ADMIN -s 198.51.100.1/32 -j DROP\n" || strings.Contains(all, "cnibox") {
			t.Errorf("left:\n%s", all)
		}
		if found := find(); len(found) != 1 || !found[0].IsEmpty() || len(found[0].Kept) != 1 || found[0].Kept[0] != "CNI-ADMIN" {
			t.Errorf("found after it: %v", found)
		}
		others("-D")
		remove()
		ignored := []string{"file /run/xtables.lock", "file /run/cnibox/"}
		if diff := fresh.Diff(n.Snapshot(t), ignored...); n.flavour == "nft" && strings.Contains(diff, "CNI") || n.flavour == "legacy" && diff != "" {
			t.Errorf("left:\n%s", diff)
		}
	})
}

// TestLeavingsLeaveNoTable: a table that is empty then goes.
func TestLeavingsLeaveNoTable(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		fresh := n.Snapshot(t)
		n.add(t, PortMapRules(keyOf("a"), publish(t, "tcp/8080=10.88.0.2:80", "tcp/8080=[fd00::2]:80")))
		must(t, n.try(func() error {
			list, err := FindLeavings(ctx)
			for _, l := range list {
				must(t, l.Remove(ctx))
			}
			return err
		}))
		if diff := fresh.Diff(n.Snapshot(t), "file /run/xtables.lock", "file /run/cnibox/"); diff != "" {
			t.Errorf("left:\n%s", diff)
		}
	})
}
