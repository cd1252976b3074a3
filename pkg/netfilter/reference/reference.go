// Package reference removes what the reference plugins
// (github.com/containernetworking/plugins, 1.6.0 to 1.9.1) have left in
// nftables: rules in tables of their own, one or more for each attachment, that
// tell by their comments whose they are.
//
// Whoever has asked for their tables (MasqueradeTables, HostPortTables) and found
// none need not call. Where their tables are, their rules are listed, which takes
// the longer the more of them there are, until the last is gone: the table goes
// with it. The reference plugins never remove a table, but make what they need of
// it in the transaction of each ADD, so that they don't miss it.
package reference

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/nftables"
)

// furniture is a table of the reference plugins.
type furniture struct {
	nftables.Table
	perAttachment []string // chains of attachments' rules
	static        []string // chains whose rules lead to those
}

// isStatic tells whether all attachments share the rules of a chain.
func (f furniture) isStatic(chain string) bool { return slices.Contains(f.static, chain) }

// isKnown tells whether the reference plugins make a chain of the name.
func (f furniture) isKnown(chain string) bool {
	return slices.Contains(f.perAttachment, chain) || f.isStatic(chain)
}

func tablesOf(list []furniture) []nftables.Table {
	tables := make([]nftables.Table, len(list))
	for i, f := range list {
		tables[i] = f.Table
	}
	return tables
}

// doomed says whether a rule has to go.
type doomed func(nftables.Installed) (bool, error)

// remove removes rules of attachments from the tables that are there, and those
// tables in which nobody has anything then. A kernel without nf_tables has none.
func remove(ctx context.Context, tables []furniture, is doomed) error {
	conn, err := nftables.Open()
	if err != nil {
		if nftables.Lacking(err) {
			return nil
		}
		return err
	}
	defer conn.Close()
	return removeOver(ctx, conn, tables, is)
}

func removeOver(ctx context.Context, conn *nftables.Conn, tables []furniture, is doomed) error {
	there, err := conn.HasTables(tablesOf(tables)...)
	if err != nil {
		return err
	}
	var errs []error
	for i, t := range tables {
		if there[i] {
			errs = append(errs, clean(ctx, conn, t, is))
		}
	}
	return errors.Join(errs...)
}

func clean(ctx context.Context, conn *nftables.Conn, t furniture, is doomed) error {
	var last error
	for range nftables.Tries {
		if err := ctx.Err(); err != nil {
			return err
		}
		generation, err := conn.Generation()
		if err != nil {
			return err
		}
		tx, left, err := selectRules(conn, t, is)
		if err != nil || tx.Empty() && left {
			return err
		}
		last = conn.Commit(tx)
		switch {
		case errors.Is(last, unix.ENOENT):
			// Another process removed one of the rules: look again.
		case last != nil || left && isNext(conn, generation):
			return last
		default:
			return removeUnused(ctx, conn, t)
		}
	}
	return last
}

// isNext tells whether there has been one transaction since a generation. If
// there were more, what was left then may be gone.
func isNext(conn *nftables.Conn, generation uint32) bool {
	now, err := conn.Generation()
	return err == nil && now == generation+1
}

// selectRules returns the removal of the rules that have to go, and whether
// something is left then that is not static.
func selectRules(conn *nftables.Conn, t furniture, is doomed) (tx *nftables.Transaction, left bool, err error) {
	rules, err := conn.Rules(t.Table, "")
	if err != nil {
		return nil, false, err
	}
	tx = &nftables.Transaction{}
	for _, r := range rules {
		if t.isStatic(r.Chain) {
			continue
		}
		gone := false
		if slices.Contains(t.perAttachment, r.Chain) {
			if gone, err = is(r); err != nil {
				return nil, false, err
			}
		}
		if gone {
			tx.RemoveRule(0, t.Table, r)
		} else {
			left = true
		}
	}
	return tx, left, nil
}

// removeUnused removes a table that has chains of the reference plugins alone
// and no rule of an attachment. An ADD at the same moment changes the generation
// and so keeps the table, or comes after and makes a new one. Where nf_tables
// changes all the time the table stays for the next DEL or GC to remove.
func removeUnused(ctx context.Context, conn *nftables.Conn, t furniture) error {
	for range nftables.Tries {
		if err := ctx.Err(); err != nil {
			return err
		}
		generation, err := conn.Generation()
		if err != nil {
			return err
		}
		unused, err := isUnused(conn, t)
		if err != nil || !unused {
			return err
		}
		tx := &nftables.Transaction{}
		tx.RemoveTable(0, t.Table)
		err = conn.CommitIf(tx, generation)
		switch {
		case errors.Is(err, unix.ENOENT):
			return nil // another process was faster
		case !errors.Is(err, unix.ERESTART):
			return err
		}
	}
	return nil
}

func isUnused(conn *nftables.Conn, t furniture) (bool, error) {
	chains, err := conn.Chains(t.Table, "")
	if err != nil || slices.ContainsFunc(chains, func(name string) bool { return !t.isKnown(name) }) {
		return false, err
	}
	rules, err := conn.Rules(t.Table, "")
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(rules, func(r nftables.Installed) bool { return !t.isStatic(r.Chain) }), nil
}
