package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Marked has iptables accept forwarded packets that have a bit of the mark set,
// for a backend that marks what may pass and can't accept it for good: a later
// chain, such as FORWARD with policy DROP, still drops it.
//
// The rules are the same for all attachments and stay. They are in each flavour
// that has a chain FORWARD, and if none has, in that of the plain program, so
// that a program started later, such as Docker, does not cut the containers off:
//
//	-A FORWARD -m comment --comment "cnibox firewall" -j CNIBOX-FORWARD
//	-A CNIBOX-FORWARD -j CNI-ADMIN
//	-A CNIBOX-FORWARD -m mark --mark 0x1000/0x1000 -j ACCEPT
type Marked struct {
	Mark       uint32
	Addrs      []netip.Addr // whose families are meant
	AdminChain string       // "" is CNI-ADMIN

	// Conn is what nf_tables is asked over.
	Conn *nft.Conn
}

const (
	markedChain = "CNIBOX-FORWARD"
	hookChain   = "FORWARD"
)

// Accept makes the rules that are missing. If none is, no program of iptables-nft runs.
func (m Marked) Accept(ctx context.Context) error {
	tables, err := m.tables(ctx)
	if err != nil || len(tables) == 0 {
		return err
	}
	return locked(ctx, func() error {
		for _, t := range tables {
			if err := t.edit(ctx, func(l *listing) ([]string, error) { return m.missing(t.family, l), nil }); err != nil {
				return err
			}
		}
		return nil
	})
}

// Check makes sure that no rule is missing.
func (m Marked) Check(ctx context.Context) error {
	tables, err := m.tables(ctx)
	if err != nil {
		return err
	}
	for _, t := range tables {
		l, err := t.list(ctx)
		if err != nil {
			return err
		}
		if lines := m.missing(t.family, l); len(lines) > 0 {
			return plugin.Errorf("something changed it after ADD (a flush, a restart of a firewall?): the ADD of any container makes it again",
				"%s: what lets containers' packets pass is not complete: missing is %q", t, lines)
		}
	}
	return nil
}

func (m Marked) admin() string {
	if m.AdminChain == "" {
		return defaultAdminChain
	}
	return m.AdminChain
}

// missing returns what makes the rules of a table complete.
func (m Marked) missing(f *family, l *listing) []string {
	return change{chains: []string{markedChain, m.admin()}, shared: []rule{
		{family: f, chain: markedChain, spec: "-j " + m.admin(), first: true},
		{family: f, chain: markedChain, spec: fmt.Sprintf("-m mark --mark %#x/%#x -j ACCEPT", m.Mark, m.Mark)},
		{family: f, chain: hookChain, spec: `-m comment --comment "cnibox firewall" -j ` + markedChain, first: true},
	}}.lines(l)
}

// tables returns those in which rules may be missing.
func (m Marked) tables(ctx context.Context) (list []*table, err error) {
	if err := validateChain("iptablesAdminChainName", m.admin()); err != nil {
		return nil, err
	}
	for _, f := range families() {
		if !slices.ContainsFunc(m.Addrs, func(a netip.Addr) bool { return familyOf(a) == f }) {
			continue
		}
		isNFT, complete, err := m.inNFT(f)
		if err != nil {
			return nil, err
		}
		var programs []program
		if isNFT && !complete {
			p, err := flavouredProgram(ctx, f, nfTables)
			if err != nil && m.drops(f) {
				return nil, fmt.Errorf("chain %s of iptables (%s, %s) drops what it does not know, and can't be told to let containers' packets pass: %w", hookChain, nfTables, f.name, err)
			}
			programs = append(programs, p)
		}
		if hasLegacy(f, filterTable) {
			p, _ := flavouredProgram(ctx, f, legacy)
			programs = append(programs, p)
		} else if !isNFT {
			p, _ := plainProgram(f)
			programs = append(programs, p)
		}
		for _, p := range programs {
			if p != "" { // without a program, nothing here drops packets
				list = append(list, &table{family: f, name: filterTable, program: p})
			}
		}
	}
	return list, nil
}

// inNFT reports whether nf_tables has chain FORWARD, and all rules, without a program.
func (m Marked) inNFT(f *family) (there, complete bool, err error) {
	if m.Conn == nil {
		return false, false, nil
	}
	t := nftTable(f, filterTable)
	chains, err := m.Conn.HasChains(t, hookChain, markedChain, m.admin())
	if err != nil || slices.Contains(chains, false) {
		return chains[0], false, err
	}
	var targets []string
	for _, chain := range []string{hookChain, markedChain} {
		rules, err := m.Conn.GetRules(&t, &nftables.Chain{Name: chain})
		if err != nil {
			return true, false, err
		}
		for _, r := range rules {
			for _, e := range r.Exprs {
				if v, ok := e.(*expr.Verdict); ok {
					targets = append(targets, chain+" "+v.Chain)
				}
			}
		}
	}
	complete = !slices.ContainsFunc([]string{hookChain + " " + markedChain, markedChain + " " + m.admin(), markedChain + " "}, func(want string) bool {
		return !slices.Contains(targets, want)
	})
	return true, complete, nil
}

// drops reports whether chain FORWARD of nf_tables has that policy.
func (m Marked) drops(f *family) bool {
	t := nftTable(f, filterTable)
	c, err := m.Conn.ListChain(&t, hookChain)
	return err == nil && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
}
