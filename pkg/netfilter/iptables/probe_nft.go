package iptables

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

// nftProbe looks into the tables of iptables-nft, which are tables of nftables.
type nftProbe struct {
	conn *nft.Conn

	asked []tableChain // by probes.ask
	there []bool       // which of them there are
}

// tableChain names a chain of a table.
type tableChain struct {
	table nftables.Table
	chain string
}

func (p *nftProbe) table(f family, name string) nftables.Table {
	if f == ipv6 {
		return nftables.Table{Family: nftables.TableFamilyIPv6, Name: name}
	}
	return nftables.Table{Family: nftables.TableFamilyIPv4, Name: name}
}

func (p *nftProbe) hasChain(f family, table, chain string) (bool, error) {
	t := p.table(f, table)
	if i := slices.Index(p.asked, tableChain{t, chain}); i >= 0 {
		return p.there[i], nil
	}
	there, err := p.conn.HasChains(t, chain)
	return err == nil && there[0], err
}

func (p *nftProbe) chains(f family, table string) ([]string, error) {
	list, err := p.list(f, table)
	var names []string
	for _, c := range list {
		if strings.HasPrefix(c.Name, "CNI-") {
			names = append(names, c.Name)
		}
	}
	return names, err
}

// list lists the chains of a table.
func (p *nftProbe) list(f family, table string) ([]*nftables.Chain, error) {
	t := p.table(f, table)
	there, err := p.conn.HasTables(t)
	if err != nil || !there[0] {
		return nil, err
	}
	all, err := p.conn.ListChainsOfTableFamily(t.Family)
	return slices.DeleteFunc(all, func(c *nftables.Chain) bool { return c.Table.Name != table }), err
}

func (p *nftProbe) rules(f family, table, chain string) ([]*nftables.Rule, error) {
	t := p.table(f, table)
	there, err := p.conn.HasChains(t, chain)
	if err != nil || !there[0] {
		return nil, err
	}
	return p.conn.GetRules(&t, &nftables.Chain{Name: chain})
}

// mentions lists the rules of one chain. An address is compared with in its own
// bytes; a list that can't be read may have it.
func (p *nftProbe) mentions(f family, table, chain string, addr netip.Addr) (bool, error) {
	rules, err := p.rules(f, table, chain)
	for _, r := range rules {
		for _, e := range r.Exprs {
			if c, ok := e.(*expr.Cmp); ok && bytes.Equal(c.Data, addr.AsSlice()) {
				return true, nil
			}
		}
	}
	return err != nil, nil
}

func (p *nftProbe) jumps(f family, chain string) ([]string, error) {
	rules, err := p.rules(f, filterTable, chain)
	targets := make([]string, len(rules))
	for i, r := range rules {
		for _, e := range r.Exprs {
			if v, ok := e.(*expr.Verdict); ok {
				targets[i] = v.Chain
			}
		}
	}
	return targets, err
}

func (p *nftProbe) drops(f family) (bool, error) {
	list, err := p.list(f, filterTable)
	return slices.ContainsFunc(list, func(c *nftables.Chain) bool {
		return c.Name == hookChain && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
	}), err
}
