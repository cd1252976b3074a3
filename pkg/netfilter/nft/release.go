package nft

import (
	"errors"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// release takes away what an owner has.
func (t *table) release(o owner) (removed []element, err error) {
	records, err := t.recordsOf(o)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	return t.releaseAll(map[owner][]record{o: records})
}

// releaseAll takes away what owners have, in one transaction, except what has passed to others, and what they have in common with others
// that still need it. Elements may match until the kernel's next tick: lookWhenExpired waits for that.
func (t *table) releaseAll(going map[owner][]record) (removed []element, err error) {
	removed, staying, err := t.leaving(going)
	if len(removed) == 0 {
		return nil, err
	}
	return removed, errors.Join(err, t.replaceOf(going, removed, staying))
}

// replaceOf is replace, which also takes out the rules that owners have for themselves.
func (t *table) replaceOf(going map[owner][]record, old, added []element) error {
	rules, err := t.rulesOf(going)
	if err != nil {
		return err
	}
	t.conn.DeleteRules(rules)
	return t.replace(old, added)
}

// leaving returns the elements that go when owners let go of what they have, and, of those, the ones that stay in the name of others. Nothing of owners
// goes whose ports 127.0.0.1 still leads to: they are taken out of going.
func (t *table) leaving(going map[owner][]record) (removed, staying []element, err error) {
	var errs []error
	for o, records := range going {
		if link, own := localhostLink(records); own { // before the guard goes
			if err := sysctl.ForbidLocalhost(link); err != nil {
				errs = append(errs, err)
				delete(going, o)
			}
		}
	}
	if len(going) == 0 {
		return nil, nil, errors.Join(errs...)
	}
	var list []element
	seen := map[string]bool{} // of what owners have in common
	for o, records := range going {
		for _, e := range t.elementsOf(o, records) {
			if e.sharing == single || !seen[e.id()] {
				list = append(list, e)
			}
			seen[e.id()] = e.sharing != single
		}
	}
	if _, err := t.look(list); err != nil {
		return nil, nil, err
	}
	needed := needs{table: t, going: going, elements: list}
	for _, e := range list {
		if e.there == nil || e.sharing == permanent || e.sharing == single && e.there.Comment != e.Comment {
			continue
		}
		if e.sharing == common {
			other, err := needed.neededBy(e)
			if err != nil {
				return nil, nil, err
			}
			if other != "" && other == e.there.Comment {
				continue
			}
			if other != "" {
				named := e
				named.Comment = other
				staying = append(staying, named)
			}
		}
		e.SetElement = *e.there
		removed = append(removed, e)
	}
	return removed, staying, errors.Join(errs...)
}

// needs finds out who else needs an element that several owners have in common, as they have in the table for forwarding. The element's
// comment is of one that does. So a list of all is only needed when that one goes and is
// not the last, or when its name is a shortened one.
type needs struct {
	table    *table
	going    map[owner][]record
	elements []element          // of those
	all      map[owner][]record // nil until it is listed
}

// neededBy returns the comment of an owner that needs an element and does not go, "" if there is none.
func (n *needs) neededBy(e element) (comment string, err error) {
	named := owner{comment: e.there.Comment}
	if key := plugin.ParseKey(named.keyText()); key.ContainerID != "" {
		named = ownerOf(key, e.record.kind.purpose())
		if _, goes := n.going[named]; !goes {
			records, err := n.table.recordsOf(named)
			if err != nil || slices.Contains(records, e.record) {
				return named.comment, err
			}
		}
	}
	if len(n.going) == 1 && e.isList() {
		if last, err := n.isLast(e); last || err != nil {
			return "", err
		}
	}
	if n.all == nil {
		if n.all, err = n.table.allRecords(); err != nil {
			return "", err
		}
	}
	for o, records := range n.all { // in no order, so that it is rarely the next one to go
		if _, goes := n.going[o]; !goes && slices.Contains(records, e.record) {
			return o.comment, nil
		}
	}
	return "", nil
}

// isLast reports whether nothing but the elements that go leads to a list.
func (n *needs) isLast(e element) (bool, error) {
	chain := listChain(unix.ByteSliceToString(e.Key))
	answers, err := n.table.conn.ask(chainQuestion(n.table.Table, chain))
	if err != nil {
		return false, err
	}
	rules, err := n.table.conn.GetRules(&n.table.Table, &nftables.Chain{Name: chain})
	own := 0
	for _, other := range n.elements {
		if other.there != nil && other.there.Comment == other.Comment && string(other.there.Val) == chain {
			own++
		}
	}
	return usesOf(answers[0]) == len(rules)+own, err
}
