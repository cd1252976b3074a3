// Package reference removes what the reference plugins (github.com/containernetworking/plugins, 1.6.0 to 1.9.1) have left in
// nftables: rules in tables of their own, whose comments and chains say whose they are. The tables stay, as with those plugins: an
// ADD of theirs may be about to use one.
package reference

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// purpose is what the reference plugins have nftables for: Masquerade, PortRules or SpoofCheck.
type purpose interface {
	Tables() []nftables.Table
	// chains returns the names of those in which attachments have rules.
	chains() []string
	// ownerIn returns what a rule says about whose it is, "" if it is not the reference plugins'.
	ownerIn(r *nftables.Rule) string
}

const removing = "remove what the reference plugins made in nftables"

// remove removes the rules of owners, and the chains that attachments have for themselves. Of several addresses of an owner hint is those
// that are meant, nil for all.
func remove(ctx context.Context, c *nft.Conn, p purpose, owners map[string]bool, hint []netip.Prefix) error {
	return nft.Change(ctx, removing, func() error {
		rules, err := rulesIn(ctx, c, p)
		if err != nil {
			return err
		}
		for _, r := range rules {
			if owners[p.ownerIn(r)] && (len(hint) == 0 || leadsTo(r, hint)) {
				c.DeleteRules([]*nftables.Rule{r})
			}
		}
		if _, hasChains := p.(SpoofChains); hasChains {
			err = removeChains(c, owners)
		}
		return errors.Join(err, c.Commit(removing))
	})
}

// leadTo reports whether an owner has rules for all of some addresses.
func leadTo(ctx context.Context, c *nft.Conn, p purpose, owner string, addrs []netip.Prefix) (bool, error) {
	rules, err := rulesIn(ctx, c, p)
	rules = slices.DeleteFunc(rules, func(r *nftables.Rule) bool { return p.ownerIn(r) != owner })
	lacksRule := func(a netip.Prefix) bool {
		return !slices.ContainsFunc(rules, func(r *nftables.Rule) bool { return leadsTo(r, []netip.Prefix{a}) })
	}
	return err == nil && len(addrs) > 0 && !slices.ContainsFunc(addrs, lacksRule), err
}

// rulesIn lists the rules of all attachments. A missing table or chain has none.
func rulesIn(ctx context.Context, c *nft.Conn, p purpose) (rules []*nftables.Rule, err error) {
	for _, t := range p.Tables() {
		for _, name := range p.chains() {
			list, err := c.GetRules(&t, &nftables.Chain{Name: name})
			if err := errors.Join(ctx.Err(), err); err != nil {
				return nil, fmt.Errorf("list the rules of chain %s of table %s: %w", name, t.Name, err)
			}
			rules = append(rules, list...)
		}
	}
	return rules, nil
}

// owners lists those that have rules, each once.
func owners(ctx context.Context, p purpose) ([]string, error) {
	c, err := nft.Open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	there, err := c.HasTables(p.Tables()...)
	if err != nil || !slices.Contains(there, true) {
		return nil, err
	}
	rules, err := rulesIn(ctx, c, p)
	found := map[string]bool{}
	for _, r := range rules {
		found[p.ownerIn(r)] = true
	}
	delete(found, "")
	return slices.Sorted(maps.Keys(found)), err
}

// release removes what is in a list of a store.
func release(ctx context.Context, p purpose, list []plugin.Held) error {
	c, err := nft.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	owners := map[string]bool{}
	for _, h := range list {
		owners[h.Own.(string)] = true
	}
	return remove(ctx, c, p, owners, nil)
}
