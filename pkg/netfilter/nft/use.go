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

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
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
	var later error
	err := Change(ctx, u.changing(), func() error {
		if err := u.hold(o, u.records); err != nil || u.after == nil {
			return err
		}
		if later = u.after(ctx, o); later != nil {
			_, err := u.release(o)
			return err
		}
		return nil
	})
	return errors.Join(later, err)
}

// Del takes back what the attachment has, and returns the published ports among it. Packets may match it for some milliseconds more, but
// for those to ports of a protocol whose connections have no end of their own: they may be cut when it returns.
func (u Use) Del(ctx context.Context, key plugin.Key) (maps []spec.PortMap, err error) {
	removed, err := u.del(ctx, ownerOf(key, u.name))
	for _, e := range removed {
		if e.record.kind == kindPort && e.set.IsMap && e.set != u.owners {
			e.record.target = parseTarget(e.Val)
			maps = append(maps, e.record.portMap())
		}
	}
	if err == nil && slices.ContainsFunc(maps, func(m spec.PortMap) bool { return m.Protocol != unix.IPPROTO_TCP }) {
		err = u.lookWhenExpired(removed)
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
	if len(u.records) > 0 {
		missing, lost, err := u.incomplete(u.records)
		switch {
		case err != nil:
			return err
		case lost:
			return u.mismatch(" is missing, or all its rules are missing, and with them what all attachments of this host had in it")
		case len(missing) > 0:
			return u.mismatch(": chain %s has not all of its rules", strings.Join(missing, ", "))
		}
	}
	o := ownerOf(key, u.name)
	records, err := u.held(o)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(records, u.records, func(r, w record) bool { r.target = w.target; return r == w }) {
		return u.mismatch(": %s holds %v, and should hold %v", o.comment, records, u.records)
	}
	wanted := u.elementsOf(o, u.records)
	if _, err := u.look(wanted); err != nil {
		return err
	}
	for _, e := range wanted {
		switch {
		case e.there == nil:
			return u.mismatch(": %s is not in %s", e.what, e.set.Name)
		case e.there.Comment != e.Comment && e.sharing == alone:
			return u.mismatch(": %s in %s belongs to %s", e.what, e.set.Name, e.there.Comment)
		case !bytes.Equal(e.there.Val, e.Val):
			return u.mismatch(": %s in %s leads elsewhere", e.what, e.set.Name)
		}
	}
	if u.also == nil {
		return nil
	}
	return u.also(o)
}

// GC takes back what attachments of the network have that are not valid, waits until no packet matches it, and removes what is for
// nobody then.
func (u Use) GC(ctx context.Context, network string, valid []plugin.Key) error {
	isValid := map[plugin.ID]bool{}
	for _, k := range valid {
		isValid[k.ID(u.name)] = true
	}
	var holdings map[owner][]record
	var removed []element
	err := Change(ctx, u.changing(), func() (err error) { // a list that is interrupted by a change may lack something
		if holdings, err = u.holdings(); err != nil {
			return err
		}
		stale := map[owner][]record{}
		for o, records := range holdings {
			isNamed := strings.HasPrefix(o.comment, asComment(network+"/")) || len(o.comment) == plugin.MaxKeyText // it may be cut off
			isOfNetwork := isNamed && [8]byte(o.id[:8]) == plugin.NetworkHash(network)
			if slices.Contains(u.kinds, records[0].kind) && isOfNetwork && !isValid[o.id] {
				stale[o] = records
			}
		}
		removed, err = u.releaseAll(stale)
		return err
	})
	if holdings == nil {
		return err
	}
	err = errors.Join(err, u.lookWhenExpired(removed))
	if u.sweep != nil {
		err = errors.Join(err, Change(ctx, u.changing(), u.sweep))
	}
	return err
}

// lockFile is locked by whoever changes one of our tables, or one of the reference plugins', from the look at what is there until
// the change is made. No other lock is taken meanwhile.
const lockFile = "/run/cnibox/nftables.lock"

// Change makes a change, while nobody else of us does, that is decided on by a look at what is there. If it fails by what others, who
// don't know the lock, have changed in between, it is tried again. what is for errors.
func Change(ctx context.Context, what string, try func() error) error {
	return state.Locked(ctx, lockFile, func() error {
		for again := true; ; again = false {
			err := try()
			var shown *types.Error
			if errors.As(err, &shown) || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY) {
				return err
			}
			if !again {
				return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%s: given up after 2 attempts: %v", what, err),
					"another program changes the same at the same time; look which with `nft monitor`")
			}
		}
	})
}

// changing says in errors what was tried.
func (t *table) changing() string { return "change table " + t.String() }

// hold gives an owner what records say, in place of what it has. What another owner was given and never gave back, such as an address
// that has been leased anew, is taken away from that; a published port only if that owner is gone.
func (t *table) hold(o owner, records []record) error {
	if len(records) > 0 {
		if err := t.complete(records); err != nil {
			return err
		}
	}
	if _, err := t.release(o); err != nil {
		return err
	}
	wanted := t.elementsOf(o, records)
	if err := t.lookWhenExpired(wanted); err != nil {
		return err
	}
	var missing, obsolete []element
	for _, e := range wanted {
		if e.there != nil && e.sharing != alone {
			continue
		}
		if e.there != nil && e.set.IsMap && e.there.Comment != o.comment {
			removed, err := t.releaseGone(e.there.Comment, e.what)
			if err != nil {
				return err
			}
			if len(removed) > 0 {
				return t.hold(o, records)
			}
		}
		if e.there != nil {
			obsolete = append(obsolete, e)
		}
		missing = append(missing, e)
	}
	return t.replace(obsolete, missing)
}

// release takes away what an owner has.
func (t *table) release(o owner) (removed []element, err error) {
	records, err := t.held(o)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	return t.releaseAll(map[owner][]record{o: records})
}

// releaseAll takes away what owners have, in one transaction, except what has passed to others, and what they have in common with others
// that still need it. Elements may match until the kernel's next tick: lookWhenExpired waits for that.
func (t *table) releaseAll(holdings map[owner][]record) (removed []element, err error) {
	var errs []error
	for o, records := range holdings {
		if link, own := localhostLink(records); own { // before the guard goes
			if err := spec.ForbidLocalhost(link); err != nil {
				errs = append(errs, err)
				delete(holdings, o)
			}
		}
	}
	if len(holdings) == 0 {
		return nil, errors.Join(errs...)
	}
	var list, kept []element
	seen := map[string]bool{} // of what owners have in common
	for o, records := range holdings {
		for _, e := range t.elementsOf(o, records) {
			if e.sharing == alone || !seen[e.id()] {
				list = append(list, e)
			}
			seen[e.id()] = e.sharing != alone
		}
	}
	if _, err := t.look(list); err != nil {
		return nil, err
	}
	others := needs{table: t, going: holdings}
	for _, e := range list {
		switch {
		case e.there == nil || e.sharing == forGood || e.sharing == alone && e.there.Comment != e.Comment:
			continue
		case e.sharing == common:
			other, err := others.of(e)
			switch {
			case err != nil:
				return nil, err
			case other != "" && other == e.there.Comment:
				continue
			case other != "":
				named := e
				named.Comment = other
				kept = append(kept, named)
			}
		}
		e.SetElement = *e.there
		removed = append(removed, e)
	}
	rules, err := t.rulesOf(holdings)
	if err != nil || len(removed) == 0 {
		return nil, errors.Join(append(errs, err)...)
	}
	t.conn.DeleteRules(rules)
	return removed, errors.Join(append(errs, t.replace(removed, kept))...)
}

// needs finds out who else needs an element that several owners have in common, as they have in the table for forwarding. The element's
// comment is of one that does. So a list of all is only needed when that one goes, or when its name is a shortened one.
type needs struct {
	table *table
	going map[owner][]record
	all   map[owner][]record // nil if it is to be listed
}

// of returns the comment of an owner that needs an element and does not go, "" if there is none.
func (n *needs) of(e element) (comment string, err error) {
	if key, ok := keyIn(e.there.Comment); ok {
		o := ownerOf(key, useForward)
		if _, goes := n.going[o]; !goes {
			records, err := n.table.held(o)
			if err != nil || slices.Contains(records, e.record) {
				return o.comment, err
			}
		}
	}
	if n.all == nil {
		if n.all, err = n.table.holdings(); err != nil {
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

// replace takes elements out of their sets and puts others in, and commits the transaction.
//
// Where the kernel can, elements that nothing takes the place of expire. To remove them makes everybody who uses nf_tables wait: the
// kernel waits for all packets under way before it frees them, and whoever closes a socket of nf_tables waits with it.
func (t *table) replace(old, new []element) error {
	if len(new) == 0 && len(old) > 0 && canExpire() {
		send(old, time.Millisecond, t.conn.SetAddElements) // the kernel makes its next tick of the shortest timeout
		if err := t.conn.Commit(t.changing()); err != nil {
			return err
		}
		if _, err := t.look(old[:1]); err != nil || old[0].there == nil {
			return err
		}
		// The kernel said that it can, and did not.
	}
	send(old, 0, t.conn.SetDeleteElements)
	send(new, 0, t.conn.SetAddElements)
	return t.conn.Commit(t.changing())
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

// send calls a method of the library for elements of one set at a time, and not for more than fit into one attribute of 64 KiB: the
// kernel drops the rest without an error.
func send(elements []element, timeout time.Duration, call func(*nftables.Set, []nftables.SetElement) error) {
	const atOnce = 200
	sets, lists := map[string]*nftables.Set{}, map[string][]nftables.SetElement{}
	for _, e := range elements {
		e.Timeout = timeout
		sets[e.set.Name] = e.set
		lists[e.set.Name] = append(lists[e.set.Name], e.SetElement)
	}
	for name, list := range lists {
		for part := range slices.Chunk(list, atOnce) {
			_ = call(sets[name], part) // fails for lists of more than 64 KiB, and for anonymous sets
		}
	}
}
