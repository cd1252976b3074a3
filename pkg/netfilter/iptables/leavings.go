package iptables

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/state"
)

// Leavings is what a table has for all attachments, ours and the reference plugins', and still has when they are gone.
type Leavings struct {
	table  *table
	chains []string
	rules  []rule // in chains of others: those that lead to our chains, and the guard of 127.0.0.0/8
	Kept   []string
}

// FindLeavings looks into all tables.
func FindLeavings(ctx context.Context) (list []*Leavings, err error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for _, f := range families() {
		for _, name := range []string{natTable, filterTable, guardTable} {
			tables, err := On(conn, nil).tablesWithLeavings(ctx, f, name)
			if err != nil {
				return nil, err
			}
			for _, t := range tables {
				l := &Leavings{table: t}
				err := l.read(ctx)
				if err != nil && name == guardTable {
					continue // it has rules that iptables does not understand: it is somebody else's
				}
				if err != nil {
					return nil, err
				}
				if len(l.chains)+len(l.rules)+len(l.Kept) > 0 {
					list = append(list, l)
				}
			}
		}
	}
	return list, nil
}

// tablesWithLeavings returns those in which there may be something.
func (b *Backend) tablesWithLeavings(ctx context.Context, f *family, name string) ([]*table, error) {
	there, err := b.conn.HasTables(nftTable(f, name))
	if err != nil {
		return nil, err
	}
	var names []string
	if there[0] {
		chains, err := b.conn.ListChainsOfTableFamily(f.nft)
		if err != nil {
			return nil, fmt.Errorf("list the chains of iptables: %w", err)
		}
		for _, c := range chains {
			isMeant := isLeft(c.Name) || name == guardTable && c.Name == guardChain
			if c.Table.Name == name && isMeant {
				names = append(names, c.Name)
			}
		}
	}
	return b.tables(ctx, f, name, false, names)
}

const defaultAdminChain = "CNI-ADMIN"

// isLeft reports whether a chain is for all attachments, or for one of those that are gone.
func isLeft(chain string) bool {
	shared := []string{dnatChain, markChain, masqChain, "CNI-HOSTPORT-SNAT", forwardChain, stage1, stage2, markedChain, defaultAdminChain}
	return slices.Contains(shared, chain) || Masquerading.isChain(chain) || PortMapping.isChain(chain)
}

// read finds what there is. The administrator's chain stays if it has rules, or is used by others.
func (l *Leavings) read(ctx context.Context) error {
	t := l.table
	if err := t.read(ctx); err != nil {
		return err
	}
	l.chains, l.rules, l.Kept = nil, nil, nil
	for _, chain := range slices.Sorted(maps.Keys(t.chains)) {
		isUsed := slices.ContainsFunc(t.rules, func(r rule) bool { return r.chain == chain || r.target() == chain && !isLeft(r.chain) })
		switch {
		case chain == defaultAdminChain && isUsed:
			l.Kept = append(l.Kept, chain)
		case isLeft(chain):
			l.chains = append(l.chains, chain)
		}
	}
	for _, r := range t.rules {
		isGuard := r.chain == guardChain && strings.Contains(r.spec, `"cnibox: route_localnet"`)
		if isGuard || slices.Contains(l.chains, r.target()) && !slices.Contains(l.chains, r.chain) {
			l.rules = append(l.rules, r)
		}
	}
	return nil
}

// String says what it is, for people.
func (l *Leavings) String() string {
	var parts, shared []string
	for _, chain := range l.chains {
		if !Masquerading.isChain(chain) && !PortMapping.isChain(chain) {
			shared = append(shared, chain)
		}
	}
	if len(shared) > 0 {
		parts = append(parts, "chains "+strings.Join(shared, ", "))
	}
	if own := len(l.chains) - len(shared); own > 0 {
		parts = append(parts, fmt.Sprintf("%d chains of containers", own))
	}
	if len(l.rules) > 0 {
		parts = append(parts, fmt.Sprintf("%d rules of other chains", len(l.rules)))
	}
	return l.table.String() + ": " + strings.Join(parts, ", ")
}

// IsEmpty reports whether there is nothing to remove.
func (l *Leavings) IsEmpty() bool { return len(l.chains)+len(l.rules) == 0 }

// Remove removes it, and the table of iptables-nft if nothing is in it then.
func (l *Leavings) Remove(ctx context.Context) error {
	lock, err := state.LockRun(ctx, lockFile)
	if err != nil {
		return err
	}
	defer lock.Release()
	l.table.ids = nil // it may have changed since
	if err := l.read(ctx); err != nil || l.IsEmpty() {
		return err
	}
	var lines []string
	for _, r := range l.rules {
		lines = append(lines, r.remove())
	}
	for _, command := range []string{"-F ", "-X "} { // one may lead to another
		for _, chain := range l.chains {
			lines = append(lines, command+chain)
		}
	}
	if err := l.table.restoreLines(ctx, lines); err != nil {
		return err
	}
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.RemoveIfEmpty(nftables.Table{Family: l.table.family.nft, Name: l.table.name})
}

// Table says which table it is.
func (l *Leavings) Table() string { return l.table.String() }
