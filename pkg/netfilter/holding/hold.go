package holding

import (
	"context"

	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Hold gives the holder things, in place of what it held. It just tries, which
// is one message to the kernel; what can be missing or in the way is looked at
// when the kernel says so.
func (t *Table) Hold(ctx context.Context, h Holder, things []Thing) error {
	if len(things) == 0 {
		return t.Release(ctx, h)
	}
	entries, elements, common := t.entries(h, things), h.elements(things), shared(things)
	var obsolete []nftables.Element
	var create []*nftables.Set
	var before []Thing // held, and dropped by the transaction
	build, looked := false, false
	var last error
	for range nftables.Tries {
		if err := ctx.Err(); err != nil {
			return err
		}
		tx := &nftables.Transaction{}
		if build {
			t.appendTo(tx)
		}
		for _, g := range create {
			tx.CreateSet(makeGroup, g)
		}
		tx.RemoveElements(removeElements, obsolete)
		tx.AddElements(entries)
		tx.AddElements(elements)
		tx.AddElements(common)
		last = t.Conn.Commit(tx)
		var err error
		missing, taken := isMissing(last), nftables.Taken(last)
		switch at := tx.Failed(last); {
		case last == nil:
			return t.disband(ctx, dropped(before, things))
		case at == addElements && missing:
			build, err = t.absent(t.Owners)
			create = groups(things)
			if err == nil && !build {
				create, err = t.absentGroups(things)
			}
		case at == makeRuleset && taken: // by another process, with the same
			build = false
			create, err = t.absentGroups(things)
		case at == makeGroup && taken, at == addToGroup && missing:
			create, err = t.absentGroups(things)
		case taken, at == removeElements && missing:
			since := nftables.Clock()
			before, obsolete, err = t.obsolete(ctx, h, elements)
			if err == nil && taken && (looked || len(obsolete) == 0) {
				nftables.AwaitTick(since) // what can't be looked up is about to expire
			}
			looked = true
		default:
			return t.explain(tx, last)
		}
		if err != nil {
			return t.explain(nil, err)
		}
	}
	return t.contended(last)
}

// dropped returns the things before whose group is none of those now.
func dropped(before, now []Thing) []Thing {
	kept := map[string]bool{}
	for _, g := range groups(now) {
		kept[g.Name] = true
	}
	var out []Thing
	for _, thing := range before {
		if thing.Group != nil && !kept[thing.Group.Name] {
			out = append(out, thing)
		}
	}
	return out
}

func (t *Table) absent(s *nftables.Set) (bool, error) {
	found, err := t.Conn.HasSet(s)
	return !found, err
}

func (t *Table) absentGroups(things []Thing) ([]*nftables.Set, error) {
	var out []*nftables.Set
	for _, g := range groups(things) {
		missing, err := t.absent(g)
		if err != nil {
			return nil, err
		}
		if missing {
			out = append(out, g)
		}
	}
	return out, nil
}

// obsolete returns what the holder has, and what must go so that the wanted
// elements can be added: that, and what another one was given before and never
// gave back, such as an address that has been leased anew.
func (t *Table) obsolete(ctx context.Context, h Holder, wanted []nftables.Element) ([]Thing, []nftables.Element, error) {
	held, _, err := t.held(ctx, h.ID)
	if err != nil {
		return nil, nil, err
	}
	candidates := nftables.Distinct(append(wanted[:len(wanted):len(wanted)], h.elements(held)...))
	there, err := t.Conn.Look(candidates)
	if err != nil {
		return nil, nil, err
	}
	out := t.entries(h, held)
	for i, e := range candidates {
		if f := there[i]; f.There && (i < len(wanted) || f.Comment == h.Comment) {
			out = append(out, e)
		}
	}
	return held, nftables.BySet(out), nil
}

// held returns what a holder has, and tells whether some of what it had is about
// to expire.
func (t *Table) held(ctx context.Context, id plugin.ID) (things []Thing, expiring bool, err error) {
	// The kernel stops at the first entry that is not there, so that asking
	// for more than there are costs only their bytes. Most have one to three.
	const atOnce = 8
	for {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		wanted := make([]nftables.Element, 0, atOnce)
		for i := range atOnce {
			wanted = append(wanted, t.entry(id, len(things)+i))
		}
		found, some, err := t.Conn.Prefix(wanted)
		if err != nil {
			return nil, false, t.explain(nil, err)
		}
		expiring = expiring || some
		for _, f := range found {
			thing, ok := t.Read(f.Data)
			if !ok {
				return nil, false, t.foreign()
			}
			things = append(things, thing)
		}
		if len(found) < atOnce {
			return things, expiring, nil
		}
	}
}

func (t *Table) foreign() error {
	return t.mismatch("%s has data that is not ours", t.Owners.Name)
}
