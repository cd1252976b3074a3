package iptables

import (
	"context"
	"fmt"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// lockFile is locked by whoever changes rules, from the look at what is there until the change is made.
const lockFile = "iptables.lock"

// Backend is the backend on iptables, in the network namespace of the thread that calls it.
type Backend struct {
	conn     *nft.Conn // nil if there is nothing of iptables-nft
	listings *Listings // that CHECK may take; changes are made from new ones
}

// On returns the backend, which asks nf_tables over a connection. That is nil if the caller knows that none of
// iptables-nft's tables is there.
func On(conn *nft.Conn, listings *Listings) *Backend { return &Backend{conn, listings} }

// Available reports whether the host has the programs that change rules, and they run. Whether the kernel has what rules need
// is only seen by adding one, but for nf_tables, of which the caller knows whether it is lacking.
func (*Backend) Available(lacksNFTables bool) error {
	plain, err := plainTable(&ipv4, filterTable)
	if err != nil {
		return err
	}
	if lacksNFTables {
		if _, err := flavouredTable(context.Background(), &ipv4, filterTable, legacy); err != nil {
			return plain.withoutNFTables()
		}
	}
	_, err = open(ipv4.program)
	return err
}

// Add gives an attachment what it is to have of a kind, in place of what it had.
func (b *Backend) Add(ctx context.Context, r Rules) (err error) {
	if r.err != nil {
		return r.err
	}
	if len(r.shared)+len(r.own) == 0 {
		_, err := b.Del(ctx, r.owner.kind, r.owner.key, nil)
		return err
	}
	lock, err := state.LockRun(ctx, lockFile)
	if err != nil {
		return err
	}
	defer lock.Release()
	defer b.listings.forget()
	before, err := readOwned()
	if err != nil {
		return err
	}
	tables, err := r.tables(ctx, before)
	if err != nil {
		return err
	}
	leaving, err := evict(before, tables, r.owner, r.ports, false)
	if err != nil {
		return err
	}
	own := r.ownIn(tables, before)
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	undo.Push("remove the rules of iptables again", func(ctx context.Context) error {
		_, err := removeFrom(ctx, tables, map[owner]bool{r.owner: true}, nil)
		return err
	})
	after := append(filter(before, func(o rule) bool { return !leaving[o.owner] }), own...)
	if err := writeOwned(after); err != nil {
		return err
	}
	for _, t := range tables {
		c := t.changeTo(before, after, leaving)
		c.chains, c.shared, c.wanted = r.chains, ofFamily(t.family, r.shared), append(c.wanted, ofFamily(t.family, own)...)
		if err := t.edit(ctx, c); err != nil {
			return err
		}
	}
	if r.localhost == "" {
		return nil
	}
	return allowLocalhost(ctx, r.localhost)
}

// ownIn returns the rules that an attachment is to have for itself: not what somebody else has made for himself.
func (r Rules) ownIn(tables []*table, owned []rule) []rule {
	own, ours := slices.Clone(r.own), ids(owned)
	for i := range own {
		own[i].owner = r.owner
	}
	for _, t := range tables {
		own = filter(own, func(r rule) bool { return !r.common || !t.hasRule(r) || ours[r.id()] })
	}
	return own
}

// tables returns those in which an attachment has rules, or is to have some. The kernel may lack others.
func (r Rules) tables(ctx context.Context, owned []rule) (list []*table, err error) {
	for _, f := range families() {
		isHeld := slices.ContainsFunc(owned, func(o rule) bool { return o.owner == r.owner && o.family == f })
		if !isHeld && len(r.ofFamily(f)) == 0 {
			continue
		}
		t, err := usedTable(ctx, f, r.owner.kind.table())
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// Check makes sure that an attachment has what it is to have, in either flavour. It changes nothing.
func (b *Backend) Check(ctx context.Context, r Rules) error {
	if r.err != nil {
		return r.err
	}
	owned, err := b.listings.readOwned()
	if err != nil {
		return err
	}
	isHeld := slices.ContainsFunc(owned, func(o rule) bool { return o.owner == r.owner })
	for _, f := range families() {
		// Versions of the reference plugin differ in what they make for all.
		lacking := filter(r.ofFamily(f), func(r rule) bool { return isHeld || !r.common })
		name := r.owner.kind.table()
		tables, err := b.tables(ctx, f, name, false, append(r.owner.chains(), r.chains...))
		if err != nil {
			return err
		}
		where := "table " + name + " of " + f.program
		for _, t := range tables {
			where = t.String()
			if lacking, err = b.lacking(ctx, t, lacking); err != nil {
				return err
			}
		}
		if len(lacking) > 0 {
			return plugin.Errorf("something removed it after ADD, such as a reload of the host's firewall: "+plugin.RepairRemedy+
				fmt.Sprintf("; see `%s-save -t %s`", f.program, name), "%s lacks the rule of %s: %s", where, r.owner.key, lacking[0])
		}
	}
	if r.localhost == "" {
		return nil
	}
	return b.checkLocalhost(ctx, r.localhost, isHeld)
}
