// Package reference removes what the reference plugins
// (github.com/containernetworking/plugins, 1.6.0 to 1.9.1) have left in
// nftables: rules in tables of their own, one or more for each attachment, that
// tell by their comments whose they are.
//
// Whoever has asked for their tables and found none need not call. The tables stay,
// as with those plugins: an ADD of theirs may be about to use one.
package reference

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

// furniture is a table of the reference plugins, and its chains that have rules of
// attachments.
type furniture struct {
	table  nftables.Table
	chains []string
}

// doomed says whether a rule has to go.
type doomed func(*nftables.Rule) (bool, error)

// remove removes rules of attachments. A reference plugin may remove the same at the
// same time, which makes a second look worth while.
func remove(ctx context.Context, c *nft.Conn, tables []furniture, is doomed) error {
	names := make([]nftables.Table, len(tables))
	for i, t := range tables {
		names[i] = t.table
	}
	there, err := c.HasTables(names...)
	if err != nil || !slices.Contains(there, true) {
		return err
	}
	return nft.Locked(ctx, func() error {
		var errs []error
		for _, t := range tables {
			err := clean(ctx, c, t, is)
			if errors.Is(err, unix.ENOENT) {
				err = clean(ctx, c, t, is)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

func clean(ctx context.Context, c *nft.Conn, t furniture, is doomed) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rules, err := rulesOf(c, t.table, t.chains...)
	if err != nil {
		return err
	}
	var gone []*nftables.Rule
	for _, r := range rules {
		remove, err := is(r)
		if err != nil {
			return err
		}
		if remove {
			gone = append(gone, r)
		}
	}
	for _, r := range gone {
		_ = c.DelRule(r) // fails for a rule without a handle only
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("remove what the reference plugins made from table %s: %w", t.table.Name, err)
	}
	return nil
}

// rulesOf lists the rules of those chains that are there, each once: a list that is
// interrupted by a change may have one twice.
func rulesOf(c *nft.Conn, t nftables.Table, chains ...string) ([]*nftables.Rule, error) {
	there, err := c.HasChains(t, chains...)
	if err != nil {
		return nil, err
	}
	var all []*nftables.Rule
	seen := map[uint64]bool{}
	for i, name := range chains {
		if !there[i] {
			continue
		}
		rules, err := c.GetRules(&t, &nftables.Chain{Name: name})
		if err != nil {
			return nil, fmt.Errorf("list the rules of chain %s of table %s: %w", name, t.Name, err)
		}
		for _, r := range rules {
			if !seen[r.Handle] {
				seen[r.Handle] = true
				all = append(all, r)
			}
		}
	}
	return all, nil
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

// addressesOf returns the address that a rule is for packets to, and that to which it
// makes connections go.
func addressesOf(r *nftables.Rule) (to, dnat netip.Addr) {
	constants := map[uint32][]byte{} // by register
	size := 0                        // of the address that was loaded last
	for _, e := range r.Exprs {
		was := size
		size = 0
		switch e := e.(type) {
		case *expr.Payload:
			size = destinationIn(e)
		case *expr.Cmp:
			if was > 0 && e.Op == expr.CmpOpEq && len(e.Data) >= was {
				to, _ = netip.AddrFromSlice(e.Data[len(e.Data)-was:])
			}
		case *expr.Immediate:
			constants[e.Register] = e.Data
		case *expr.NAT:
			if e.Type == expr.NATTypeDestNAT {
				dnat, _ = netip.AddrFromSlice(constants[e.RegAddrMin])
			}
		}
	}
	return to, dnat
}

// destinationIn returns the size of the destination address that a part of the
// packet ends with, 0 if there is none. nft compares both addresses at once where
// they fit into one register.
func destinationIn(p *expr.Payload) int {
	switch {
	case p.Base != expr.PayloadBaseNetworkHeader:
	case (p.Offset == 16 || p.Offset == 12) && p.Offset+p.Len == 20:
		return 4
	case (p.Offset == 24 || p.Offset == 8) && p.Offset+p.Len == 40:
		return 16
	}
	return 0
}
