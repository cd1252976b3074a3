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
		forward, complete, err := m.inNFT(f)
		if err != nil {
			return nil, err
		}
		var nft, other program // "" without one: nothing here drops packets
		if forward != nil && !complete {
			nft, err = flavouredProgram(ctx, f, nfTables)
			if err != nil && forward.Policy != nil && *forward.Policy == nftables.ChainPolicyDrop {
				return nil, fmt.Errorf("chain %s of iptables (%s, %s) drops what it does not know, and can't be told to let containers' packets pass: %w", hookChain, nfTables, f.name, err)
			}
		}
		if hasLegacy(f, filterTable) {
			other, _ = flavouredProgram(ctx, f, legacy)
		} else if forward == nil {
			other, _ = plainProgram(f)
		}
		for _, p := range []program{nft, other} {
			if p != "" {
				list = append(list, &table{family: f, name: filterTable, program: p})
			}
		}
	}
	return list, nil
}

// inNFT returns chain FORWARD of nf_tables, nil if there is none, and whether all rules
// are there. It needs no program.
func (m Marked) inNFT(f *family) (forward *nftables.Chain, complete bool, err error) {
	if m.Conn == nil {
		return nil, false, nil
	}
	t := nftTable(f, filterTable)
	there, err := m.Conn.HasChains(t, hookChain, markedChain, m.admin())
	if err != nil || !there[0] {
		return nil, false, err
	}
	if forward, err = m.Conn.ListChain(&t, hookChain); err != nil || slices.Contains(there, false) {
		return forward, false, err
	}
	jumps := map[[2]string]bool{}
	for _, chain := range []string{hookChain, markedChain} {
		rules, err := m.Conn.GetRules(&t, &nftables.Chain{Name: chain})
		if err != nil {
			return nil, false, err
		}
		for _, r := range rules {
			for _, e := range r.Exprs {
				if v, ok := e.(*expr.Verdict); ok {
					jumps[[2]string{chain, v.Chain}] = true // to "" is an accept
				}
			}
		}
	}
	return forward, jumps[[2]string{hookChain, markedChain}] && jumps[[2]string{markedChain, m.admin()}] && jumps[[2]string{markedChain, ""}], nil
}
