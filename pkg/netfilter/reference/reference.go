// Package reference removes what the reference plugins (github.com/containernetworking/plugins, 1.6.0 to 1.9.1) have left in
// nftables: rules in tables of their own, whose comments and chains say whose they are. The tables stay, as with those plugins: an
// ADD of theirs may be about to use one.
package reference

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

// remove removes some rules from chains of tables. What is not there has none.
func remove(ctx context.Context, c *nft.Conn, tables []nftables.Table, chains []string, isStale func(*nftables.Rule) bool) error {
	there, err := c.HasTables(tables...)
	if err != nil || !slices.Contains(there, true) {
		return err
	}
	return change(ctx, c, func() error {
		var stale []*nftables.Rule
		for _, t := range tables {
			for _, name := range chains {
				rules, err := c.GetRules(&t, &nftables.Chain{Name: name})
				if err != nil {
					return fmt.Errorf("list the rules of chain %s of table %s: %w", name, t.Name, err)
				}
				stale = append(stale, slices.DeleteFunc(rules, func(r *nftables.Rule) bool { return !isStale(r) })...)
			}
		}
		deleteRules(c, stale)
		return nil
	})
}

func deleteRules(c *nft.Conn, rules []*nftables.Rule) {
	for _, r := range rules {
		_ = c.DelRule(r) // fails for a rule without a handle only
	}
}

// change commits what prepare looks up to be removed. A reference plugin may remove the same at the same time, which makes a second
// look worth while.
func change(ctx context.Context, c *nft.Conn, prepare func() error) error {
	try := func() error {
		if err := errors.Join(ctx.Err(), prepare()); err != nil {
			return err
		}
		if err := c.Flush(); err != nil {
			return fmt.Errorf("remove what the reference plugins made in nftables: %w", err)
		}
		return nil
	}
	return nft.Locked(ctx, func() error {
		err := try()
		if errors.Is(err, unix.ENOENT) {
			err = try()
		}
		return err
	})
}

func commentOf(r *nftables.Rule) string {
	text, _ := userdata.GetString(r.UserData, userdata.TypeComment)
	return text
}

// targetOf returns the chain that a rule jumps to, "" if it does not.
func targetOf(r *nftables.Rule) (chain string) {
	for _, e := range r.Exprs {
		if v, ok := e.(*expr.Verdict); ok {
			chain = v.Chain
		}
	}
	return chain
}
