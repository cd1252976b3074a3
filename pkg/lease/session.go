package lease

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// session is a store with its lock held.
type session struct {
	directory
	network  string
	lock     *state.Lock
	index    *index // nil when there is none
	trusted  bool   // the index says what the files say
	changed  bool   // the directory or the index is not as begin found it
	readOnly bool
}

// begin locks the store. A store that does not exist is os.ErrNotExist. An
// index is used where there is one, and made if makeIndex is set.
func (s *Store) begin(ctx context.Context, makeIndex bool) (*session, error) {
	lock, err := state.Acquire(ctx, filepath.Join(s.path, "lock"), 0o750, lockWait)
	if err != nil {
		return nil, err
	}
	d, err := openDirectory(s.path)
	if err != nil {
		lock.Release()
		return nil, err
	}
	x := &session{directory: d, network: s.network, lock: lock, index: openIndex(s.index, makeIndex)}
	x.trusted = x.index != nil && x.index.trusted(d)
	return x, nil
}

// end unlocks the store. An index that can't be kept up is not trusted by the
// next session, which is all there is to do about it.
func (x *session) end() {
	if x.trusted && x.changed {
		_ = x.index.seal(x.directory)
	}
	x.index.close()
	x.directory.close()
	x.lock.Release()
}

// heldBy returns the leases of owner: those in its name or, when there are
// none, those in the old form of its container.
func (x *session) heldBy(owner plugin.Attachment) ([]Lease, error) {
	leases, err := x.leasesOf(owner)
	if err != nil || len(leases) > 0 {
		return leases, err
	}
	return x.leasesOf(plugin.Attachment{ContainerID: owner.ContainerID})
}

// leasesOf returns the leases with exactly that owner.
func (x *session) leasesOf(owner plugin.Attachment) ([]Lease, error) {
	if x.trusted {
		leases, err := x.lookUp(owner)
		if !errors.Is(err, errIndex) {
			return leases, err
		}
		x.trusted = false
	}
	all, err := x.rebuild()
	if err != nil {
		return nil, err
	}
	var leases []Lease
	for _, l := range all {
		if l.Owner == owner {
			leases = append(leases, l)
		}
	}
	return leases, nil
}

// lookUp is leasesOf by the index, errIndex when a file does not bear it out.
func (x *session) lookUp(owner plugin.Attachment) ([]Lease, error) {
	addresses, err := x.index.find(hashOf(x.network, owner))
	if err != nil {
		return nil, err
	}
	leases := make([]Lease, 0, len(addresses))
	for _, a := range addresses {
		actual, is, err := x.read(a)
		if err != nil {
			return nil, err
		}
		if is != held || actual != owner {
			return nil, errIndex
		}
		leases = append(leases, Lease{Address: a, Owner: owner})
	}
	return leases, nil
}

// rebuild reads all files, removes what is torn and builds the index anew.
func (x *session) rebuild() ([]Lease, error) {
	leases, broken, err := x.scan()
	if err != nil || x.readOnly {
		return leases, err
	}
	for _, a := range broken {
		if err := x.directory.remove(a); err != nil {
			return nil, err
		}
	}
	if x.index == nil {
		return leases, nil
	}
	entries := make([]slot, 0, len(leases))
	for _, l := range leases {
		entries = append(entries, slot{hashOf(x.network, l.Owner), l.Address})
	}
	x.changed = true
	x.trusted = x.index.build(entries) == nil
	return leases, nil
}

// scan reads the files of all addresses.
func (d directory) scan() (leases []Lease, broken []netip.Addr, err error) {
	err = d.addresses(func(a netip.Addr) error {
		owner, is, err := d.read(a)
		switch {
		case errors.Is(err, os.ErrPermission):
			return nil // a file we can't read is not ours to judge
		case err != nil:
			return err
		case is == held:
			leases = append(leases, Lease{Address: a, Owner: owner})
		case is == torn:
			broken = append(broken, a)
		}
		return nil
	})
	return leases, broken, err
}

// add makes a lease.
func (x *session) add(l Lease) error {
	if err := x.create(l.Address, l.Owner); err != nil {
		return err
	}
	x.changed = true
	if x.trusted {
		x.trusted = x.index.add(slot{hashOf(x.network, l.Owner), l.Address}) == nil
	}
	return nil
}

// removeAll removes leases, as many as it can.
func (x *session) removeAll(leases []Lease) error {
	var errs []error
	for _, l := range leases {
		if err := x.directory.remove(l.Address); err != nil {
			errs = append(errs, err)
			continue
		}
		x.changed = true
		if x.trusted {
			x.trusted = x.index.remove(slot{hashOf(x.network, l.Owner), l.Address}) == nil
		}
	}
	return errors.Join(errs...)
}
