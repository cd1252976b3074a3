package iptables

import (
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/state"
)

func (n *node) repair(t testing.TB, r Rules) error {
	return n.try(func() error { return on(t).Repair(ctx, r) })
}

// A flush has taken the rules of all; the repair of one brings all back.
func TestRepairBringsBackAll(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		web, db := PortMapRules(keyOf("web"), publish(t, "tcp/8080=10.88.0.2:80", "tcp/8080=[fd00::2]:80")), PortMapRules(keyOf("db"), publish(t, "tcp/5432=10.88.0.3:5432"))
		masquerade := MasqueradeRules(keyOf("web"), prefixes("10.88.0.2/16"))
		for _, r := range []Rules{web, db, masquerade} {
			n.add(t, r)
		}
		before := sorted(n.both(t, natTable)) + sorted(n.kept(t))
		n.MustRun(t, "iptables-"+n.flavour, "-t", "nat", "-F")
		n.MustRun(t, "ip6tables-"+n.flavour, "-t", "nat", "-F")
		must(t, n.repair(t, web))
		must(t, n.check(t, db))
		for range 2 {
			must(t, n.repair(t, masquerade))
			must(t, n.repair(t, web))
			same(t, "after the repairs", sorted(n.both(t, natTable))+sorted(n.kept(t)), before)
		}
	})
}

// What somebody else has that needs a chain which is gone with the table keeps nobody from a repair.
func TestRepairWithoutOthersChains(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.restore(t, natTable, ":KUBE-MARK - [0:0]")
		others := publish(t, "tcp/5432=10.88.0.3:5432")
		others.SetMarkChain = "KUBE-MARK"
		web := PortMapRules(keyOf("web"), publish(t, "tcp/8080=10.88.0.2:80"))
		n.add(t, PortMapRules(keyOf("db"), others))
		n.add(t, web)
		n.MustRun(t, "iptables-"+n.flavour, "-t", "nat", "-F")
		n.MustRun(t, "iptables-"+n.flavour, "-t", "nat", "-X")
		must(t, n.repair(t, web))
		must(t, n.check(t, web))
	})
}

// A port that another attachment has by now stays its own, whatever the address.
func TestRepairTakesNoPort(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.add(t, PortMapRules(keyOf("late"), publish(t, "tcp/8080=10.88.0.2:80")))
		before := n.both(t, natTable) + n.kept(t)
		wantError(t, n.repair(t, PortMapRules(keyOf("early"), publish(t, "tcp/8080=10.88.0.2:80"))), "already published by net/late/eth0")
		same(t, "after the repair", n.both(t, natTable)+n.kept(t), before)
	})
}

// Listings that are kept are those of before a change only until that.
func TestKeptListings(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		n.add(t, MasqueradeRules(keyOf("db"), prefixes("10.88.0.3/16")))
		web := MasqueradeRules(keyOf("web"), prefixes("10.88.0.2/16"))
		n.Do(func() {
			b := on(t)
			b.listings = &Listings{}
			if err := b.Check(ctx, web); err == nil {
				t.Error("CHECK finds rules where there are none")
			}
			must(t, b.Check(ctx, MasqueradeRules(keyOf("db"), prefixes("10.88.0.3/16")))) // which lists the table
			must(t, b.Repair(ctx, web))
			must(t, b.Check(ctx, web))
		})
	})
}

// Has knows what an attachment has by the file of owners, or by the chain of its container.
func TestHas(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		rules := func(id string) Rules { return MasqueradeRules(keyOf(id), prefixes("10.88.0.2/16", "10.88.0.3/16")) }
		has := func(r Rules) (has bool) {
			must(t, n.try(func() (err error) { has, err = on(t).Has(ctx, r); return err }))
			return has
		}
		forward := ForwardRules(keyOf("web"), spec.ForwardNeeds{Addrs: addrs("10.88.0.2")})
		if has(rules("web")) || has(forward) {
			t.Error("it has rules that nobody made")
		}
		n.add(t, rules("web"))
		n.add(t, forward)
		if !has(rules("web")) || !has(forward) || has(rules("db")) {
			t.Error("it has no rules, or somebody else's")
		}
		n.MustRun(t, "rm", state.RunFile(ownersFile))
		if !has(rules("web")) || !has(forward) {
			t.Error("without the file of owners it has no rules")
		}
	})
}
