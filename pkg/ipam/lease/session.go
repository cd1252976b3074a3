package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
	"github.com/cnibox/cnibox/pkg/state"
)

// session is a store with its lock held.
type session struct {
	*Store
	index    *index
	host     *presence.Host // nil until somebody's presence is asked for
	now      time.Time
	readOnly bool
}

// locked does something with the lock held. A store that is missing is made if create is set; otherwise there are no leases.
func (s *Store) locked(ctx context.Context, create bool, what string, do func(x *session) ([]Lease, error)) ([]Lease, error) {
	if create {
		if err := os.MkdirAll(s.path, 0o755); err != nil {
			return nil, s.failed(what, err)
		}
	}
	lock, err := state.Acquire(ctx, filepath.Join(s.path, "lock"), 0o750, lockWait)
	var busy *types.Error
	switch {
	case !create && errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.As(err, &busy):
		return nil, fmt.Errorf("host-local: %s: %w", what, err)
	case err != nil:
		return nil, s.failed(what, err)
	}
	defer lock.Release()
	x := &session{Store: s, index: openIndex(s.indexPath, s.path), now: time.Now()}
	leases, err := do(x)
	x.index.seal()
	return leases, s.failed(what, err)
}

// failed says what can be done about an error of the files.
func (s *Store) failed(what string, err error) error {
	var known *types.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return plugin.CodeErrorf(types.ErrIOFailure, fmt.Sprintf("the leases are kept in %s: make sure it can be read and written and its disk is not full", s.path), "host-local: %s: %w", what, err)
}

// heldBy returns the leases of owner: those in its name or, when there are none, those in the old form of its container.
func (x *session) heldBy(owner plugin.Key) ([]Lease, error) {
	leases, err := x.leasesOf(owner.ContainerID)
	if slices.ContainsFunc(leases, func(l Lease) bool { return l.Owner == owner }) {
		return slices.DeleteFunc(leases, func(l Lease) bool { return l.Owner != owner }), err
	}
	return slices.DeleteFunc(leases, func(l Lease) bool { return l.Owner.IfName != "" }), err
}

// leasesOf returns the leases of a container. When a file does not bear the index out, all are read.
func (x *session) leasesOf(containerID string) ([]Lease, error) {
	if x.index.trusted {
		leases, err := x.index.find(x.network, containerID)
		right := err == nil
		for _, l := range leases {
			owner, is, err := x.read(l.Address)
			if err != nil {
				return nil, err
			}
			right = right && is == leased && owner == l.Owner
		}
		if right {
			return leases, nil
		}
	}
	all, err := x.rebuild()
	return slices.DeleteFunc(all, func(l Lease) bool { return l.Owner.ContainerID != containerID }), err
}

// rebuild reads all files, removes what is torn and builds the index anew.
func (x *session) rebuild() ([]Lease, error) {
	all, err := x.scan()
	if err != nil || x.readOnly {
		return all, err
	}
	var leases []Lease
	for _, l := range all {
		if !l.isTorn() {
			leases = append(leases, l)
		} else if err := x.remove(l.Address); err != nil {
			return nil, err
		}
	}
	x.index.build(leases)
	return leases, nil
}

// add makes a lease, after the note of where to search next: whichever fails, no lease is left behind.
func (x *session) add(pool int, l Lease) error {
	x.index.changed = true
	if err := overwrite(x.hint(pool), l.Address.String()); err != nil {
		return err
	}
	if err := state.Create(x.file(l.Address), []byte(format(l.Owner)), 0o600); err != nil {
		return err
	}
	x.index.add(l)
	return nil
}

// restore makes a lease whose file is lost or torn. Where to search next stays.
func (x *session) restore(l Lease) error {
	by, is, err := x.read(l.Address)
	if err == nil && is == torn {
		err = x.remove(l.Address)
	}
	switch {
	case err != nil || is == leased && by == l.Owner:
		return err
	case is == leased || is == foreign:
		name, known := x.holder(Lease{Address: l.Address, Owner: by})
		return plugin.Errorf(known+"restart one of the two containers, so that it gets another address",
			"host-local: %s of %s has been given to %s", l.Address, Name(l.Owner), name)
	}
	x.index.changed = true
	if err := state.Create(x.file(l.Address), []byte(format(l.Owner)), 0o600); err != nil {
		return err
	}
	x.index.add(l)
	return nil
}

// removeAll removes leases, as many as it can.
func (x *session) removeAll(leases []Lease) error {
	if len(leases) > indexFiles {
		x.index.trusted = false // to build it anew takes less
	}
	var errs []error
	for _, l := range leases {
		if err := x.remove(l.Address); err != nil {
			errs = append(errs, err)
			continue
		}
		x.index.remove(l)
	}
	return errors.Join(errs...)
}
