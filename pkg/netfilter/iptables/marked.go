package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Marked has iptables accept forwarded packets that have a bit of the mark set, for a backend that marks what may pass and
// can't accept it for good: a later chain, such as FORWARD with policy DROP, still drops it.
//
// The rules are the same for all attachments and stay. They are in each flavour that has a chain FORWARD, and if none has,
// in that of the plain program, so that a program started later, such as Docker, does not cut the containers off:
//
//	-A FORWARD -m comment --comment "cnibox firewall" -j CNIBOX-FORWARD
//	-A CNIBOX-FORWARD -j CNI-ADMIN
//	-A CNIBOX-FORWARD -m mark --mark 0x1000/0x1000 -j ACCEPT
type Marked struct {
	Mark       uint32
	Addrs      []netip.Addr // whose families are meant
	AdminChain string       // "" is CNI-ADMIN
}

const (
	markedChain = "CNIBOX-FORWARD"
	hookChain   = "FORWARD"
)

// Accept makes the rules that are missing. If none is, no program of iptables-nft runs.
func (b *Backend) Accept(ctx context.Context, m Marked) error {
	tables, err := b.tablesOf(ctx, m)
	if err != nil || len(tables) == 0 {
		return err
	}
	lock, err := state.LockRun(ctx, lockFile)
	if err != nil {
		return err
	}
	defer lock.Release()
	defer b.listings.forget()
	for _, t := range tables {
		if err := t.edit(ctx, m.rules(t.family)); err != nil {
			return err
		}
	}
	return nil
}

// CheckAccepts makes sure that no rule is missing.
func (b *Backend) CheckAccepts(ctx context.Context, m Marked) error {
	tables, err := b.tablesOf(ctx, m)
	if err != nil {
		return err
	}
	for _, t := range tables {
		lacking, err := b.lacking(ctx, t, m.rules(t.family).shared)
		if err != nil {
			return err
		}
		if len(lacking) > 0 {
			return plugin.Errorf("something changed it after ADD (a flush, a restart of a firewall?): `cnictl repair`, or the ADD of any container, makes it again",
				"%s: what lets containers' packets pass is not complete: missing is %q", t, lacking)
		}
	}
	return nil
}

// rules are what must be in a table.
func (m Marked) rules(f *family) change {
	admin := adminChain(m.AdminChain)
	return change{chains: []string{markedChain, admin}, shared: []rule{
		{family: f, chain: markedChain, spec: "-j " + admin, first: true},
		{family: f, chain: markedChain, spec: fmt.Sprintf("-m mark --mark %#x/%#x -j ACCEPT", m.Mark, m.Mark)},
		{family: f, chain: hookChain, spec: `-m comment --comment "cnibox firewall" -j ` + markedChain, first: true},
	}}
}

// tablesOf returns those in which rules may be missing.
func (b *Backend) tablesOf(ctx context.Context, m Marked) (list []*table, err error) {
	if err := ValidateChain("iptablesAdminChainName", adminChain(m.AdminChain)); err != nil {
		return nil, err
	}
	for _, f := range families() {
		isMeant := slices.ContainsFunc(m.Addrs, func(a netip.Addr) bool { return familyOf(a) == f })
		if !isMeant || b.hasMarked(f, m) && !hasLegacy(f, filterTable) {
			continue
		}
		tables, err := b.tables(ctx, f, filterTable, false, []string{hookChain})
		if err != nil && b.drops(f) {
			return nil, fmt.Errorf("chain %s of iptables (%s, %s) drops what it does not know, and can't be told to let containers' packets pass: %w",
				hookChain, nfTables, f.name, err)
		}
		if t, notFound := plainTable(f, filterTable); err == nil && len(tables) == 0 && notFound == nil {
			tables = append(tables, t)
		}
		list = append(list, tables...) // none without a program: nothing drops packets
	}
	return list, nil
}

// hasMarked reports whether nf_tables has all rules. It needs no program.
func (b *Backend) hasMarked(f *family, m Marked) bool {
	jumps := map[string]bool{}
	for _, chain := range []string{hookChain, markedChain} {
		t := nftTable(f, filterTable)
		rules, _ := b.conn.GetRules(&t, &nftables.Chain{Name: chain}) // none if the chain is not there
		for _, r := range rules {
			for _, e := range r.Exprs {
				if v, ok := e.(*expr.Verdict); ok {
					jumps[chain+" "+v.Chain] = true // to "" is an accept
				}
			}
		}
	}
	return jumps[hookChain+" "+markedChain] && jumps[markedChain+" "+adminChain(m.AdminChain)] && jumps[markedChain+" "]
}

// drops reports whether chain FORWARD of nf_tables has that policy.
func (b *Backend) drops(f *family) bool {
	t := nftTable(f, filterTable)
	c, err := b.conn.ListChain(&t, hookChain)
	return err == nil && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
}
