package holding

import (
	"context"
	"errors"
	"slices"

	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Release removes what the holder has, except what has passed to another one.
func (t *Table) Release(ctx context.Context, h Holder) error {
	var last error
	for range nftables.Tries {
		held, err := t.held(ctx, h.ID)
		if err != nil || len(held) == 0 {
			return err
		}
		elements := h.elements(held)
		there, err := t.Conn.Look(elements)
		if err != nil {
			return t.explain(nil, err)
		}
		var own []nftables.Element
		for i, e := range elements {
			if there[i].There && there[i].Comment == h.Comment {
				own = append(own, e)
			}
		}
		tx := &nftables.Transaction{}
		tx.RemoveElements(removeElements, own)
		tx.RemoveElements(removeElements, t.entries(h, held))
		last = t.Conn.Commit(tx)
		if last == nil {
			return t.disband(ctx, held)
		}
		if !isMissing(last) {
			return t.explain(tx, last)
		}
		// Another process released some of it: look again.
	}
	return t.contended(last)
}

// disband removes groups that have no holder left, and what they share. The
// kernel refuses to remove one that has: that a holder may come at any moment
// does not matter, since it makes the group again when that is gone.
func (t *Table) disband(ctx context.Context, things []Thing) error {
	for _, g := range groups(things) {
		var elements []nftables.Element
		for _, thing := range things {
			if thing.Group != nil && thing.Group.Name == g.Name {
				elements = append(elements, thing.Shared...)
			}
		}
		if err := t.disbandOne(ctx, g, nftables.Distinct(elements)); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) disbandOne(ctx context.Context, group *nftables.Set, common []nftables.Element) error {
	var last error
	for range nftables.Tries {
		if err := ctx.Err(); err != nil {
			return err
		}
		tx := &nftables.Transaction{}
		tx.RemoveEmptySet(makeGroup, group)
		tx.RemoveElements(removeElements, common)
		last = t.Conn.Commit(tx)
		switch at := tx.Failed(last); {
		case last == nil:
			return nil
		case at == makeGroup && (isMissing(last) || nftables.Taken(last)):
			return nil // gone, or in use
		case at == removeElements && isMissing(last):
			there, err := t.Conn.Look(common)
			if err != nil {
				return t.explain(nil, err)
			}
			n := 0
			common = slices.DeleteFunc(common, func(nftables.Element) bool { n++; return !there[n-1].There })
		default:
			return t.explain(tx, last)
		}
	}
	return t.contended(last)
}

// Collect releases what holders of a network have for a use, except those to
// keep, and removes groups that a killed DEL has left empty.
func (t *Table) Collect(ctx context.Context, network, use string, keep []plugin.Key) error {
	valid := make(map[plugin.ID]bool, len(keep))
	for _, k := range keep {
		valid[k.ID(use)] = true
	}
	hash := plugin.NetworkHash(network)
	stale := map[plugin.ID]Holder{}
	err := t.Conn.List(t.Owners, func(key []byte, f nftables.Found) {
		thing, ok := t.Read(f.Data)
		if !ok || thing.Use != use || len(key) != 16+4 || [8]byte(key) != hash {
			return
		}
		id := plugin.ID(key[:16])
		if !valid[id] {
			stale[id] = Holder{ID: id, Comment: f.Comment}
		}
	})
	if err != nil {
		return t.explain(nil, err)
	}
	var errs []error
	for _, h := range stale {
		errs = append(errs, t.Release(ctx, h))
	}
	return errors.Join(append(errs, t.collectGroups(ctx))...)
}

func (t *Table) collectGroups(ctx context.Context) error {
	if t.OfGroup == nil {
		return nil
	}
	names, err := t.Conn.Sets(t.Table, "")
	if err != nil {
		return t.explain(nil, err)
	}
	var things []Thing
	for _, name := range names {
		if thing, ok := t.OfGroup(name); ok {
			things = append(things, thing)
		}
	}
	return t.disband(ctx, things)
}
