package iptables

import (
	"context"

	"github.com/cnibox/cnibox/pkg/state"
)

// Repair puts back what an attachment lacks of a kind, in one step for each table, so that what is there stays in force. It takes nothing from
// another attachment. A flush of the table hits all attachments: what others lack, by the file of owners, comes back with it, as each run
// of the program takes as long as the table is.
func (b *Backend) Repair(ctx context.Context, r Rules) error {
	if r.err != nil {
		return r.err
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
	if _, err := evict(before, tables, r.owner, r.ports, true); err != nil {
		return err
	}
	after := append(filter(before, func(o rule) bool { return o.owner != r.owner }), r.ownIn(tables, before)...)
	if err := writeOwned(after); err != nil {
		return err
	}
	for _, t := range tables {
		lacking := map[owner]bool{r.owner: true}
		for _, o := range after {
			if o.owner.kind == r.owner.kind && o.family == t.family && !t.hasRule(o) {
				lacking[o.owner] = true
			}
		}
		err := t.edit(ctx, t.changeFor(r, after, lacking))
		if err != nil && len(lacking) > 1 && ctx.Err() == nil { // what others have may need chains that are gone
			err = t.edit(ctx, t.changeFor(r, after, map[owner]bool{r.owner: true}))
		}
		if err != nil {
			return err
		}
	}
	if r.localhost == "" {
		return nil
	}
	return allowLocalhost(ctx, r.localhost)
}

// changeFor returns the change that puts back what owners have, with all that is in the same containers' chains.
func (t *table) changeFor(r Rules, owned []rule, lacking map[owner]bool) change {
	chains := chainsOf(lacking)
	return change{chains: r.chains, shared: ofFamily(t.family, r.shared), containers: chains, wanted: filter(owned, func(o rule) bool {
		return o.family == t.family && o.owner.kind == r.owner.kind && (lacking[o.owner] || chains[o.chain] || chains[o.target()])
	})}
}
