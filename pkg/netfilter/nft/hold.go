package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// lockFile is locked by whoever changes one of our tables, or one of the reference plugins', from the look at what is there until
// the change is made. No other lock is taken meanwhile.
const lockFile = "/run/cnibox/nftables.lock"

// Locked does something while nobody else of us changes a table.
func Locked(ctx context.Context, do func() error) error { return state.Locked(ctx, lockFile, do) }

// change makes a change, under the lock, that is decided on by a look at what is there. What others, who don't know the lock, change
// between the two makes it fail; then it is tried once more.
func (t *table) change(what string, try func() error) error {
	for again := true; ; again = false {
		err := try()
		var shown *types.Error
		if errors.As(err, &shown) || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY) {
			return err
		}
		if !again {
			return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%s in table %s: given up after 2 attempts: %v", what, t, err),
				"another program changes that table at the same time; look which with `nft monitor`")
		}
	}
}

// hold gives an owner what records say, in place of what it has.
func (t *table) hold(o owner, records []record) error {
	if len(records) == 0 {
		_, err := t.release(o)
		return err
	}
	what := "change what " + o.comment + " has"
	return t.change(what, func() error {
		if err := t.complete(records); err != nil {
			return err
		}
		if _, err := t.release(o); err != nil {
			return err
		}
		missing, obsolete, err := t.compare(o, t.elementsOf(o, records))
		if err != nil {
			return err
		}
		return t.replace(what+" in table "+t.String(), obsolete, missing)
	})
}

// compare returns which of the wanted elements have to be added, and what another owner was given and never gave back, such as an
// address that has been leased anew. A published port is only taken away from an owner that is gone; otherwise that is an error.
func (t *table) compare(o owner, wanted []element) (missing, obsolete []element, err error) {
	there, err := t.lookWhenExpired(wanted)
	for i, f := range there {
		e := wanted[i]
		switch {
		case f.there && e.sharing != alone:
			continue
		case f.there && e.set == t.owners && f.comment != o.comment:
			return nil, nil, plugin.Errorf("two names have the same hash: choose another container ID or another name for the network", "table %s: what %s has is kept under the same number as what %s has", t, o.comment, f.comment)
		case f.there && e.set.IsMap && f.comment != o.comment:
			removed, err := t.releaseGone(f.comment, e.what)
			if err != nil {
				return nil, nil, err
			}
			if len(removed) > 0 {
				return t.compare(o, wanted)
			}
			obsolete = append(obsolete, e)
		case f.there:
			obsolete = append(obsolete, e)
		}
		missing = append(missing, e)
	}
	return missing, obsolete, err
}

// release takes away what an owner has, except what has passed to another one, and what it has in common with others that still need it.
// Elements may match until the kernel's next tick: lookWhenExpired waits for that.
func (t *table) release(o owner) (removed []element, err error) {
	what := "remove what " + o.comment + " has"
	err = t.change(what, func() error {
		records, err := t.held(o)
		if err != nil || len(records) == 0 {
			return err
		}
		list := t.elementsOf(o, records)
		needed := map[string]bool{}
		if slices.ContainsFunc(list, func(e element) bool { return e.sharing == common }) {
			if needed, err = t.neededByOthers(o); err != nil {
				return err
			}
		}
		there, err := t.look(list)
		if err != nil {
			return err
		}
		removed = nil
		for i, e := range list {
			isOwn := e.sharing == alone && there[i].comment == o.comment || e.sharing == common && !needed[e.id()]
			if isOwn && there[i].stays() {
				e.data, e.comment = there[i].data, there[i].comment
				removed = append(removed, e)
			}
		}
		rules, err := t.rulesOf(o, records)
		if err != nil || len(removed) == 0 {
			return err
		}
		if err := forbidLocalhost(records); err != nil {
			return err
		}
		t.removeRules(rules)
		return t.replace(what+" in table "+t.String(), removed, nil)
	})
	return removed, err
}

func (t *table) neededByOthers(o owner) (map[string]bool, error) {
	needed := map[string]bool{}
	holdings, err := t.holdings()
	for _, h := range holdings {
		if h.owner != o {
			for _, e := range t.elements(h.record) {
				needed[e.id()] = true
			}
		}
	}
	return needed, err
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

// replace takes elements out of their sets and puts others in, and commits the transaction.
//
// Where the kernel can, elements that nothing takes the place of expire. To remove them makes everybody who uses nf_tables wait: the
// kernel waits for all packets under way before it frees them, and whoever closes a socket of nf_tables waits with it.
func (t *table) replace(what string, old, new []element) error {
	if len(new) == 0 && len(old) > 0 && canExpire() {
		send(old, time.Millisecond, t.conn.SetAddElements) // the kernel makes its next tick of the shortest timeout
		if err := t.conn.commit(what); err != nil {
			return err
		}
		there, err := t.look(old[:1])
		if err != nil || !there[0].stays() {
			return err
		}
		// The kernel said that it can, and did not.
	}
	send(old, 0, t.conn.SetDeleteElements)
	send(new, 0, t.conn.SetAddElements)
	return t.conn.commit(what)
}

// canExpire reports whether the kernel can give a timeout to an element that is there, as Linux 6.12 and later can. Earlier ones
// answer as if they could.
func canExpire() bool {
	var kernel unix.Utsname
	_ = unix.Uname(&kernel) // can't fail
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(kernel.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 6 || major == 6 && minor >= 12)
}

// check compares what the owner has with what records say, and makes sure that the table has its rules.
func (t *table) check(o owner, want []record) error {
	records, err := t.held(o)
	if err != nil {
		return err
	}
	if len(records) == 0 && len(want) > 0 {
		if there, err := t.conn.HasTables(t.Table); err == nil && !there[0] {
			return plugin.Errorf(fmt.Sprintf("`nft flush ruleset` (a reload of nftables.service does that) or `nft delete table %s` took it: "+
				"restart the containers; the next ADD makes the table again", t), "table %s is missing, and with it %s", t, t.lost)
		}
	}
	if !slices.EqualFunc(records, want, func(r, w record) bool { r.target = w.target; return r == w }) {
		return t.mismatch("%s holds %v, and should hold %v", o.comment, records, want)
	}
	wanted := t.elementsOf(o, want)
	there, err := t.look(wanted)
	if err != nil {
		return err
	}
	for i, e := range wanted {
		f := there[i]
		switch {
		case !f.stays():
			return t.mismatch("%s is not in %s", e.what, e.set.Name)
		case f.comment != e.comment && e.sharing == alone:
			return t.mismatch("%s in %s belongs to %s", e.what, e.set.Name, f.comment)
		case !bytes.Equal(f.data, e.data):
			return t.mismatch("%s in %s leads elsewhere", e.what, e.set.Name)
		}
	}
	missing, lost, err := t.incomplete(want)
	switch {
	case err != nil || len(want) == 0:
		return err
	case lost:
		return plugin.Errorf(fmt.Sprintf("`nft flush table %s` or something like it took them: the next ADD makes them again", t), "table %s: all its rules are missing, and so %s", t, t.lost)
	case len(missing) > 0:
		return plugin.Errorf(fmt.Sprintf("something changed it after ADD: the next ADD makes them again; see `nft list table %s`", t), "table %s: chain %s has not all of its rules", t, strings.Join(missing, ", "))
	}
	return nil
}

// collect takes away what attachments of a network have for a use and are not valid, and waits until nothing of it matches.
func (t *table) collect(ctx context.Context, network string, u Use, valid []plugin.Key) error {
	var holdings []holding
	err := Locked(ctx, func() (err error) { // a list that is interrupted by a change may lack something
		holdings, err = t.holdings()
		return err
	})
	hash := plugin.NetworkHash(network)
	errs := []error{err}
	var last []element // what was taken away last is gone last
	for _, h := range holdings {
		isOfNetwork := [8]byte(h.id[:8]) == hash &&
			(strings.HasPrefix(h.comment, comment(network+"/")) || len(h.comment) == plugin.MaxKeyText)
		isValid := slices.ContainsFunc(valid, func(k plugin.Key) bool { return k.ID(u.name) == h.id })
		if h.first && slices.Contains(u.kinds, h.record.kind) && isOfNetwork && !isValid {
			errs = append(errs, Locked(ctx, func() (err error) {
				last, err = t.release(h.owner)
				return err
			}))
		}
	}
	_, err = t.lookWhenExpired(last)
	return errors.Join(append(errs, err)...)
}

// removeRules adds the removal of rules to the transaction.
func (t *table) removeRules(rules []*nftables.Rule) {
	for _, r := range rules {
		_ = t.conn.DelRule(r) // fails for a rule without a handle only
	}
}

// send calls a method of the library for elements of one set at a time, and not for more than fit into one attribute of 64 KiB: the
// kernel drops the rest without an error.
func send(elements []element, timeout time.Duration, call func(*nftables.Set, []nftables.SetElement) error) {
	const atOnce = 200
	sorted := slices.SortedFunc(slices.Values(elements), func(x, y element) int { return strings.Compare(x.set.Name, y.set.Name) })
	for len(sorted) > 0 {
		set := sorted[0].set
		var list []nftables.SetElement
		for len(sorted) > 0 && sorted[0].set.Name == set.Name && len(list) < atOnce {
			list = append(list, nftables.SetElement{Key: sorted[0].key, Val: sorted[0].data, Timeout: timeout, Comment: sorted[0].comment})
			sorted = sorted[1:]
		}
		_ = call(set, list) // fails for lists of more than 64 KiB, and for anonymous sets
	}
}
