package nft

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Use is what attachments have one of our tables for. It comes with what one of them needs, which matters to Add and Check. What was
// made is found again by the attachment's key alone. What Del and GC do not find is gone, and no error; neither ever removes what
// belongs to another attachment by now.
type Use struct {
	*table
	name  string // in the IDs of owners
	kinds []kind // of their records

	records []record // what is needed

	// What some uses need besides, else nil.
	before func(context.Context) error        // begins Add
	after  func(context.Context, owner) error // ends Add, still under the lock
	also   func(owner) error                  // ends Check
}

// Add gives the attachment what it needs, in place of what it has.
func (u Use) Add(ctx context.Context, key plugin.Key) error {
	if u.before != nil {
		if err := u.before(ctx); err != nil {
			return err
		}
	}
	o := ownerOf(key, u.name)
	return locked(ctx, func() error {
		err := twice(u.changing(), func() error { return u.hold(o, u.records) })
		if err == nil && u.after != nil {
			if err = u.after(ctx, o); err != nil {
				_, undo := u.release(o)
				err = errors.Join(err, undo)
			}
		}
		return err
	})
}

// Del takes back what the attachment has, and returns the published ports among it. Packets may match it for some milliseconds more, but
// for those to ports of a protocol whose connections have no end of their own: they may be cut when it returns.
func (u Use) Del(ctx context.Context, key plugin.Key) (maps []netfilter.PortMap, err error) {
	removed, err := u.del(ctx, ownerOf(key, u.name))
	for _, e := range removed {
		if e.record.kind == kindPort && e.set.IsMap && e.set != u.owners {
			e.record.target = parseTarget(e.Val)
			maps = append(maps, e.record.portMap())
		}
	}
	if err == nil && slices.ContainsFunc(maps, func(m netfilter.PortMap) bool { return m.Protocol != unix.IPPROTO_TCP }) {
		_, err = u.lookWhenExpired(removed)
	}
	return maps, err
}

func (u Use) del(ctx context.Context, o owner) (removed []element, err error) {
	err = Change(ctx, u.changing(), func() (err error) {
		removed, err = u.release(o)
		return err
	})
	return removed, err
}

// Check compares what the attachment has with what it needs, and makes sure that the table has its rules.
func (u Use) Check(key plugin.Key) error {
	o := ownerOf(key, u.name)
	records, err := u.held(o)
	if err != nil {
		return err
	}
	if len(records) == 0 && len(u.records) > 0 {
		if there, err := u.conn.HasTables(u.Table); err == nil && !there[0] {
			return u.mismatch(" is missing, and with it %s", u.lost)
		}
	}
	if !slices.EqualFunc(records, u.records, func(r, w record) bool { r.target = w.target; return r == w }) {
		return u.mismatch(": %s holds %v, and should hold %v", o.comment, records, u.records)
	}
	wanted := u.elementsOf(o, u.records)
	there, _, err := u.look(wanted)
	if err != nil {
		return err
	}
	for i, e := range wanted {
		f := there[i]
		switch {
		case f == nil:
			return u.mismatch(": %s is not in %s", e.what, e.set.Name)
		case f.Comment != e.Comment && e.sharing == alone:
			return u.mismatch(": %s in %s belongs to %s", e.what, e.set.Name, f.Comment)
		case !bytes.Equal(f.Val, e.Val):
			return u.mismatch(": %s in %s leads elsewhere", e.what, e.set.Name)
		}
	}
	missing, lost, err := u.incomplete(u.records)
	switch {
	case err != nil:
		return err
	case lost && len(u.records) > 0:
		return u.mismatch(": all its rules are missing, and so %s", u.lost)
	case len(missing) > 0 && len(u.records) > 0:
		return u.mismatch(": chain %s has not all of its rules", strings.Join(missing, ", "))
	case u.also != nil:
		return u.also(o)
	}
	return nil
}

// GC takes back what attachments of the network have that are not valid, waits until no packet matches it, and removes what is for
// nobody then.
func (u Use) GC(ctx context.Context, network string, valid []plugin.Key) error {
	var holdings map[owner][]record
	err := locked(ctx, func() (err error) { // a list that is interrupted by a change may lack something
		holdings, err = u.holdings()
		return err
	})
	if err != nil || holdings == nil {
		return err
	}
	var errs []error
	var last []element // what was taken away last is gone last
	for o, records := range holdings {
		isValid := slices.ContainsFunc(valid, func(k plugin.Key) bool { return k.ID(u.name) == o.id })
		if slices.Contains(u.kinds, records[0].kind) && o.isOf(network) && !isValid {
			removed, err := u.del(ctx, o)
			last, errs = removed, append(errs, err)
		}
	}
	_, err = u.lookWhenExpired(last)
	errs = append(errs, err)
	if u.sweep != nil {
		errs = append(errs, Change(ctx, u.changing(), u.sweep))
	}
	return errors.Join(errs...)
}
