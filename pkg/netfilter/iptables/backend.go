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
const lockFile = "/run/cnibox/iptables.lock"

// Backend is the backend on iptables, in the network namespace of the thread that calls it.
type Backend struct {
	conn *nft.Conn // nil if there is nothing of iptables-nft
}

// On returns the backend, which asks nf_tables over a connection. That is nil if the caller knows that none of
// iptables-nft's tables is there.
func On(conn *nft.Conn) *Backend { return &Backend{conn} }

// Available reports whether the host has the programs that change rules, and they run. Whether the kernel has what rules need
// is only seen by adding one.
func (*Backend) Available() error {
	if _, err := plainTable(&ipv4, filterTable); err != nil {
		return err
	}
	_, err := open(&ipv4)
	return err
}

// Add gives an attachment what it is to have of a kind, in place of what it had.
func (b *Backend) Add(ctx context.Context, key plugin.Key, r Rules) (err error) {
	if r.err != nil {
		return r.err
	}
	if len(r.shared)+len(r.own) == 0 {
		_, err := b.Del(ctx, r.kind, key, nil)
		return err
	}
	lock, err := state.Hold(ctx, lockFile)
	if err != nil {
		return err
	}
	defer lock.Release()
	before, err := readOwned()
	if err != nil {
		return err
	}
	mine := map[plugin.Key]bool{key: true}
	tables, err := r.tables(ctx, filter(before, func(o rule) bool { return o.owner.isOne(r.kind, mine) }))
	if err != nil {
		return err
	}
	leaving, err := evict(before, tables, key, r.ports)
	if err != nil {
		return err
	}
	own, ours := r.own, ids(before)
	for _, t := range tables { // what somebody else has made for himself is not this attachment's
		own = filter(own, func(r rule) bool { return !r.common || !t.has(r) || ours[r.id()] })
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	undo.Push("remove the rules of iptables again", func(ctx context.Context) error {
		_, err := removeFrom(ctx, tables, r.kind, mine, nil)
		return err
	})
	// What is evicted stays written down for a family of which no table is edited.
	after := filter(before, func(o rule) bool {
		isEdited := slices.ContainsFunc(tables, func(t *table) bool { return t.family == o.family })
		return !isEdited || !o.owner.isOne(r.kind, leaving)
	})
	for _, o := range own {
		o.owner = owner{r.kind.name, key}
		after = append(after, o)
	}
	if err := writeOwned(after); err != nil {
		return err
	}
	for _, t := range tables {
		c := t.replacing(before, after, r.kind.chainsOf(leaving))
		c.chains, c.shared, c.wanted = r.chains, ofFamily(t.family, r.shared), append(c.wanted, ofFamily(t.family, own)...)
		if err := t.edit(ctx, c); err != nil {
			return err
		}
	}
	if r.localhost == "" {
		return nil
	}
	return allowLocalhost(r.localhost)
}

// tables returns those in which an attachment has rules, or is to have some. The kernel may lack others.
func (r Rules) tables(ctx context.Context, held []rule) (list []*table, err error) {
	for _, f := range families() {
		if len(r.of(f))+len(ofFamily(f, held)) == 0 {
			continue
		}
		t, err := plainTable(f, r.kind.table)
		if err != nil {
			return nil, err
		}
		if err := t.read(ctx); err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// Check makes sure that an attachment has what it is to have, in either flavour. It changes nothing.
func (b *Backend) Check(ctx context.Context, key plugin.Key, r Rules) error {
	if r.err != nil {
		return r.err
	}
	owned, err := readOwned()
	if err != nil {
		return err
	}
	isHeld := slices.ContainsFunc(owned, func(o rule) bool { return o.owner == owner{r.kind.name, key} })
	for _, f := range families() {
		// Versions of the reference plugin differ in what they make for all.
		lacking := filter(r.of(f), func(r rule) bool { return isHeld || !r.common })
		tables, err := b.tables(ctx, f, r.kind.table, false, append(r.kind.chains(key), r.chains...))
		if err != nil {
			return err
		}
		where := "table " + r.kind.table + " of " + f.program
		for _, t := range tables {
			where = t.String()
			if lacking, err = t.lacking(ctx, lacking); err != nil {
				return err
			}
		}
		if len(lacking) > 0 {
			return plugin.Errorf("something removed it after ADD, such as a reload of the host's firewall: restart the container; "+
				fmt.Sprintf("see `%s-save -t %s`", f.program, r.kind.table), "%s lacks the rule of %s: %s", where, key, lacking[0])
		}
	}
	if r.localhost == "" {
		return nil
	}
	return checkLocalhost(r.localhost, isHeld)
}
