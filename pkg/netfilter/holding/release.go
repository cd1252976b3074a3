package holding

import (
	"context"
	"errors"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter/expiry"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Release takes away what the holder has, except what has passed to another one,
// and returns when nothing of it matches any more.
//
// Where the kernel can do that it lets elements expire (see expiry), which takes
// until its next tick: 3.7 ms, DEL behind DEL (HZ=250). To remove them took 0.1 ms,
// 15 more to close the socket, and 14 for each of the others who committed
// something meanwhile.
func (t *Table) Release(ctx context.Context, h Holder) error {
	expiring, err := t.release(ctx, h)
	return errors.Join(err, t.settle(expiring))
}

// release returns what it has let expire, in the order of the transaction.
func (t *Table) release(ctx context.Context, h Holder) ([]nftables.Element, error) {
	refused := expiry.Way{}
	var last error
	for range nftables.Tries {
		held, expiring, err := t.held(ctx, h.ID)
		if err == nil && len(held) == 0 && expiring { // by another DEL, which was killed maybe
			return []nftables.Element{t.entry(h.ID, 0)}, nil
		}
		if err != nil || len(held) == 0 {
			return nil, err
		}
		own, way, err := t.own(h, held)
		if err != nil {
			return nil, t.explain(nil, err)
		}
		way = way.Except(refused)
		tx := &nftables.Transaction{}
		all := append(own, t.entries(h, held)...) // the entries last: they are there as long as anything matches
		way.Take(tx, all, t.Trials, expiry.Stages{Remove: removeElements, Expire: expireElements, Try: tryExpiry})
		last = t.Conn.Commit(tx)
		switch at := tx.Failed(last); {
		case last == nil && way.Expire:
			return all, nil
		case last == nil:
			return nil, t.disband(ctx, held)
		case at == expireElements:
			refused.Expire = true // the sets can't: they are from before there were any that can
		case at == tryExpiry:
			refused.Try = !nftables.Taken(last) // or else another process has just tried
		case !isMissing(last):
			return nil, t.explain(tx, last)
		}
		// Another process released some of it: look again.
	}
	return nil, t.contended(last)
}

// own returns the elements of things that are there and still belong to the
// holder, and the way to take them away.
func (t *Table) own(h Holder, things []Thing) ([]nftables.Element, expiry.Way, error) {
	elements := h.elements(things)
	n := len(elements)
	made, left := expiry.Trial(t.Trials, tryExpiry)
	there, err := t.Conn.Look(append(elements, made, left))
	if err != nil {
		return nil, expiry.Way{}, err
	}
	var own []nftables.Element
	for i, e := range elements {
		if there[i].There && there[i].Comment == h.Comment {
			own = append(own, e)
		}
	}
	way := expiry.WayBy(there[n], there[n+1])
	if len(groups(things)) > 0 {
		// A set is in use until the kernel has freed what expired, so that the
		// last holder could not tell that it is the last. To remove a part of
		// what is held would stall others as much as to remove all.
		way.Expire = false
	}
	if way.Try {
		// A table from before there were trials can't have any. To find that out
		// by a transaction that fails would have everybody wait, each time.
		way.Try, err = t.Conn.HasSet(t.Trials)
	}
	return own, way, err
}

// settle waits until nothing matches of what was just let expire.
func (t *Table) settle(elements []nftables.Element) error {
	if len(elements) == 0 {
		return nil
	}
	return t.explain(nil, expiry.Settle(t.Conn, elements, nil))
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
	var last []nftables.Element // what was let expire last expires last
	for _, h := range stale {
		expiring, err := t.release(ctx, h)
		errs = append(errs, err)
		if len(expiring) > 0 {
			last = expiring
		}
	}
	return errors.Join(append(errs, t.settle(last), t.collectGroups(ctx))...)
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
