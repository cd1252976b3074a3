package nft

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// lockFile is locked by whoever changes one of our tables, or one of the reference
// plugins', from the look at what is there until the change is made. No other lock is
// taken meanwhile.
const lockFile = "/run/cnibox/nftables.lock"

// Locked does something while nobody else of us changes a table.
func Locked(ctx context.Context, do func() error) error {
	const wait = time.Minute
	if err := os.MkdirAll(filepath.Dir(lockFile), 0o755); err != nil {
		return err
	}
	lock, err := state.Acquire(ctx, lockFile, 0o600, wait)
	if err != nil {
		return err
	}
	defer lock.Release()
	return do()
}

// change makes a change that is decided on by a look at what is there. What
// others, who don't know the lock, change between the two makes it fail; then it
// is tried once more.
func (t *table) change(ctx context.Context, what string, try func() error) error {
	return Locked(ctx, func() error {
		err := try()
		if isContention(err) {
			err = try()
		}
		if isContention(err) {
			return &types.Error{
				Code:    types.ErrTryAgainLater,
				Msg:     fmt.Sprintf("%s in table %s: given up after 2 attempts: %v", what, t, err),
				Details: "another program changes that table at the same time; look which with `nft monitor`",
			}
		}
		return err
	})
}

func isContention(err error) bool {
	var shown *types.Error
	return !errors.As(err, &shown) && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY))
}

// hold gives an owner what it claims, in place of what it has. after, if it is not
// nil, is done at the end, before others may change anything.
func (t *table) hold(ctx context.Context, o owner, claims []claim, after func() error) error {
	if len(claims) == 0 {
		_, _, err := t.release(ctx, o)
		return err
	}
	var last error // of after
	err := t.change(ctx, "change what "+o.comment+" has", func() error {
		if err := t.complete(t.partsOf(recordsOf(claims))); err != nil {
			return err
		}
		records, err := t.held(o)
		if err != nil {
			return err
		}
		wanted := t.claimed(o, claims)
		there, err := t.lookWhenExpired(wanted)
		if err != nil {
			return err
		}
		missing, obsolete, err := t.compare(o, wanted, there)
		if err != nil {
			return err
		}
		old, err := t.removalOf(o, records)
		if err != nil {
			return err
		}
		old.elements = without(old.elements, wanted)
		t.removeRules(append(obsolete.rules, old.rules...))
		t.remove(append(obsolete.elements, old.elements...))
		t.add(missing, 0)
		if err := t.conn.commit("change what " + o.comment + " has in table " + t.String()); err != nil || after == nil {
			return err
		}
		last = after()
		return nil
	})
	if err != nil {
		return err
	}
	return last
}

// claimed returns all elements that an owner is to have for its claims.
func (t *table) claimed(o owner, claims []claim) []element {
	var list []element
	for n, c := range claims {
		entry := t.entry(o, n)
		entry.data = c.record.data()
		list = append(list, entry)
		elements := t.elements(c.record)
		elements[0].data = c.data
		for _, e := range elements {
			switch e.sharing {
			case alone:
				e.comment = o.comment
			case forGood:
				e.comment = guardComment
			}
			list = append(list, e)
		}
	}
	return distinct(list)
}

// removal is what is to be removed.
type removal struct {
	elements []element
	rules    []*nftables.Rule
}

// removalOf returns the elements that an owner has for its records, those that it
// has in common with others if no other has an equal record, and rules of its own.
func (t *table) removalOf(o owner, records []record) (r removal, err error) {
	var list []element
	for n, r := range records {
		list = append(append(list, t.entry(o, n)), t.elements(r)...)
	}
	list = distinct(slices.DeleteFunc(list, func(e element) bool { return e.sharing == forGood }))
	var others map[string]bool
	if slices.ContainsFunc(list, func(e element) bool { return e.sharing == common }) {
		if others, err = t.inCommon(o); err != nil {
			return r, err
		}
	}
	there, err := t.look(list)
	if err != nil {
		return r, err
	}
	for i, e := range list {
		isOwn := there[i].comment == o.comment
		if e.sharing == common {
			isOwn = !others[e.id()]
		}
		if isOwn && !there[i].isGone() {
			e.data, e.comment = there[i].data, there[i].comment
			r.elements = append(r.elements, e)
		}
	}
	if slices.ContainsFunc(records, record.hasOwnRules) {
		r.rules, err = t.ownRules(o)
	}
	return r, err
}

// inCommon returns the IDs of elements that others than the owner need too.
func (t *table) inCommon(o owner) (map[string]bool, error) {
	holdings, err := t.holdings()
	needed := map[string]bool{}
	for _, h := range holdings {
		if h.comment == o.comment && h.id == o.id {
			continue
		}
		for _, e := range t.elements(h.record) {
			needed[e.id()] = needed[e.id()] || e.sharing == common
		}
	}
	return needed, err
}

// compare returns which of the wanted elements have to be added, and what is in
// their way: what the owner had under the same keys, and what another one was given
// and never gave back, such as an address that has been leased anew. A published
// port is only taken away from an owner that is gone; otherwise that is an error.
func (t *table) compare(o owner, wanted []element, there []found) (missing []element, obsolete removal, err error) {
	released := map[string]bool{}
	for i, e := range wanted {
		f := there[i]
		switch {
		case !f.there:
			missing = append(missing, e)
			continue
		case e.sharing != alone || f.comment == e.comment && bytes.Equal(f.data, e.data) && !f.expiring:
			continue
		case f.comment != o.comment && e.set.Name == t.owners.Name:
			return nil, obsolete, plugin.Errorf("two names have the same hash: choose another container ID or another name for the network", "table %s: what %s has is kept under the same number as what %s has", t, o.comment, f.comment)
		case f.comment != o.comment && e.set.IsMap && !released[f.comment]:
			released[f.comment] = true
			theirs, err := t.leftBy(f.comment, e.what)
			if err != nil {
				return nil, obsolete, err
			}
			obsolete.elements, obsolete.rules = append(obsolete.elements, theirs.elements...), append(obsolete.rules, theirs.rules...)
		}
		missing, obsolete.elements = append(missing, e), append(obsolete.elements, e)
	}
	obsolete.elements = distinct(obsolete.elements)
	return missing, obsolete, nil
}

// lookWhenExpired is look, and waits until nothing of it is about to go.
func (t *table) lookWhenExpired(elements []element) ([]found, error) {
	const longest = time.Second // someone else's timeout
	for end := time.Now().Add(longest); ; time.Sleep(time.Millisecond) {
		there, err := t.look(elements)
		expiring := slices.ContainsFunc(there, func(f found) bool { return f.expiring })
		if err != nil || !expiring || time.Now().After(end) {
			return there, err
		}
	}
}

// partsOf returns those of the table that records need.
func (t *table) partsOf(records []record) (parts []part) {
	if t.onDemand == nil {
		return nil
	}
	done := map[string]bool{}
	for _, r := range records {
		for _, e := range t.elements(r) {
			if p, ok := t.onDemand(e.set.Name); ok && !done[e.set.Name] {
				done[e.set.Name] = true
				parts = append(parts, p)
			}
		}
	}
	return parts
}

// id tells elements apart.
func (e element) id() string { return e.set.Name + string(e.key) }

// distinct returns elements, each once.
func distinct(list []element) []element {
	seen := make(map[string]bool, len(list))
	var once []element
	for _, e := range list {
		if id := e.id(); !seen[id] {
			seen[id] = true
			once = append(once, e)
		}
	}
	return once
}

// without returns the elements of a list that are not in the other.
func without(list, other []element) []element {
	isIn := make(map[string]bool, len(other))
	for _, e := range other {
		isIn[e.id()] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(e element) bool { return isIn[e.id()] })
}

// add adds the addition of elements to the transaction. They are there for a
// time, or for good if it is 0.
func (t *table) add(elements []element, timeout time.Duration) {
	send(elements, func(s *nftables.Set, list []nftables.SetElement) error {
		for i := range list {
			list[i].Timeout = timeout
		}
		return t.conn.SetAddElements(s, list)
	})
}

// remove adds the removal of elements to the transaction.
func (t *table) remove(elements []element) {
	send(elements, func(s *nftables.Set, list []nftables.SetElement) error {
		for i := range list {
			list[i] = nftables.SetElement{Key: list[i].Key}
		}
		return t.conn.SetDeleteElements(s, list)
	})
}

// removeRules adds the removal of rules to the transaction.
func (t *table) removeRules(rules []*nftables.Rule) {
	for _, r := range rules {
		_ = t.conn.DelRule(r) // fails for a rule without a handle only
	}
}

// send calls a method of the library for elements of one set at a time, and not
// for more than fit into one attribute of 64 KiB: the kernel drops the rest without
// an error.
func send(elements []element, call func(*nftables.Set, []nftables.SetElement) error) {
	const atOnce = 200
	sorted := slices.Clone(elements)
	slices.SortStableFunc(sorted, func(x, y element) int { return cmp.Compare(x.set.Name, y.set.Name) })
	for len(sorted) > 0 {
		set := sorted[0].set
		var list []nftables.SetElement
		for len(sorted) > 0 && sorted[0].set.Name == set.Name && len(list) < atOnce {
			list = append(list, nftables.SetElement{Key: sorted[0].key, Val: sorted[0].data, Comment: sorted[0].comment})
			sorted = sorted[1:]
		}
		_ = call(set, list) // fails for lists of more than 64 KiB, and for anonymous sets
	}
}

// targetOf returns the chain that a rule jumps to, "" if it does not.
func targetOf(r rule) string {
	for _, word := range r {
		if v, ok := word.(*expr.Verdict); ok && v.Chain != "" {
			return v.Chain
		}
	}
	return ""
}
