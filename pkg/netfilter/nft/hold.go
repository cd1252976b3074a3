package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/state"
)

// lockFile is locked by whoever changes one of our tables, or one of the reference plugins', from the look at what is there until
// the change is made. No other lock is taken meanwhile.
const lockFile = "/run/cnibox/nftables.lock"

func locked(ctx context.Context, do func() error) error { return state.Locked(ctx, lockFile, do) }

// Change makes a change, while nobody else of us does, that is decided on by a look at what is there. what is for errors.
func Change(ctx context.Context, what string, try func() error) error {
	return locked(ctx, func() error { return twice(what, try) })
}

// twice tries a change again if it fails by what others, who don't know the lock, have changed since the look.
func twice(what string, try func() error) error {
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
	there, err := t.lookWhenExpired(wanted)
	if err != nil {
		return err
	}
	var missing, obsolete []element
	for i, e := range wanted {
		f := there[i]
		if f != nil && e.sharing != alone {
			continue
		}
		if f != nil && e.set.IsMap && f.Comment != o.comment {
			removed, err := t.releaseGone(f.Comment, e.what)
			if err != nil {
				return err
			}
			if len(removed) > 0 {
				return t.hold(o, records)
			}
		}
		if f != nil {
			obsolete = append(obsolete, e)
		}
		missing = append(missing, e)
	}
	return t.replace(obsolete, missing)
}

// release takes away what an owner has, except what has passed to another one, and what it has in common with others that still need it.
// Elements may match until the kernel's next tick: lookWhenExpired waits for that.
func (t *table) release(o owner) (removed []element, err error) {
	records, err := t.held(o)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	list := t.elementsOf(o, records)
	needed := map[string]bool{} // by others
	if slices.ContainsFunc(list, func(e element) bool { return e.sharing == common }) {
		holdings, err := t.holdings()
		if err != nil {
			return nil, err
		}
		delete(holdings, o)
		for other, records := range holdings {
			for _, e := range t.elementsOf(other, records) {
				needed[e.id()] = true
			}
		}
	}
	there, _, err := t.look(list)
	if err != nil {
		return nil, err
	}
	for i, e := range list {
		f := there[i]
		if f != nil && (e.sharing == alone && f.Comment == o.comment || e.sharing == common && !needed[e.id()]) {
			e.SetElement = *f
			removed = append(removed, e)
		}
	}
	rules, err := t.rulesOf(o, records)
	if err != nil || len(removed) == 0 {
		return nil, err
	}
	if err := forbidLocalhost(records); err != nil {
		return nil, err
	}
	t.conn.DeleteRules(rules)
	return removed, t.replace(removed, nil)
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
		there, _, err := t.look(old[:1])
		if err != nil || there[0] == nil {
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
