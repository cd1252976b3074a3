// Package reference removes what the reference plugins (github.com/containernetworking/plugins, 1.6.0 to 1.9.1) have left in
// nftables: rules in tables of their own, whose comments and chains say whose they are. The tables stay, as with those plugins: an
// ADD of theirs may be about to use one.
package reference

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Use is what the reference plugins have nftables for. Del and GC are for when one of the tables is there.
type Use struct {
	Tables []nftables.Table
	// Del removes what an attachment has. hint is the addresses that it had, nil if they are not known.
	Del func(ctx context.Context, c *nft.Conn, key plugin.Key, hint []netip.Prefix) error
	// GC removes what attachments of the network have that are not valid.
	GC func(ctx context.Context, c *nft.Conn, network string, valid []plugin.Key) error
}

// stale is what is to be removed: rules, and chains that attachments have for themselves.
type stale struct {
	rule  func(*nftables.Rule) bool
	chain func(name string) bool // nil if there are none
}

// remove removes what is stale in tables. Rules are in some chains that all attachments have in common; what is not there has none.
func (s stale) remove(ctx context.Context, c *nft.Conn, tables []nftables.Table, common ...string) error {
	const what = "remove what the reference plugins made in nftables"
	return nft.Change(ctx, what, func() error {
		var rules []*nftables.Rule
		var chains []*nftables.Chain
		for _, t := range tables {
			for _, name := range common {
				list, err := c.GetRules(&t, &nftables.Chain{Name: name})
				if err := errors.Join(ctx.Err(), err); err != nil {
					return fmt.Errorf("list the rules of chain %s of table %s: %w", name, t.Name, err)
				}
				rules = append(rules, slices.DeleteFunc(list, func(r *nftables.Rule) bool { return !s.rule(r) })...)
			}
			if s.chain == nil {
				continue
			}
			list, err := c.ListChainsOfTableFamily(t.Family)
			if err != nil {
				return fmt.Errorf("list the chains of table %s: %w", t.Name, err)
			}
			chains = append(chains, slices.DeleteFunc(list, func(c *nftables.Chain) bool { return c.Table.Name != t.Name || !s.chain(c.Name) })...)
		}
		c.DeleteRules(rules)
		for _, chain := range chains { // one may jump to another
			c.FlushChain(chain)
		}
		for _, chain := range chains {
			c.DelChain(chain)
		}
		return c.Commit(what)
	})
}
