package lease

import (
	"errors"
	"net/netip"
	"os"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// patience is how many taken addresses in a row a search asks for one by one
// before it reads the whole list of names, which costs about 0.2 us a name.
const patience = 16

// allocate takes one address of each pool, all or none.
func (x *session) allocate(owner plugin.Attachment, pools []Pool) (leases []Lease, err error) {
	if err := x.refuseSecond(owner, pools); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.removeAll(leases))
			leases = nil
		}
	}()
	for _, p := range pools {
		a, err := x.take(owner, p)
		if err != nil {
			return leases, err
		}
		leases = append(leases, Lease{Address: a, Owner: owner})
	}
	return leases, nil
}

// refuseSecond fails when owner, or its container in the old form, holds an
// address of one of the pools.
func (x *session) refuseSecond(owner plugin.Attachment, pools []Pool) error {
	own, err := x.leasesOf(owner)
	if err != nil {
		return err
	}
	old, err := x.leasesOf(plugin.Attachment{ContainerID: owner.ContainerID})
	if err != nil {
		return err
	}
	for _, l := range append(own, old...) {
		for _, p := range pools {
			if p.Contains(l.Address) {
				return &HeldError{Pool: p.Index, Address: l.Address, Owner: l.Owner}
			}
		}
	}
	return nil
}

// take takes one address of the pool. The memory of where to search next is
// written before the lease: whichever step fails, no lease is left behind.
func (x *session) take(owner plugin.Attachment, p Pool) (netip.Addr, error) {
	last := x.openHint(p.Index)
	defer last.close()
	if p.Want.IsValid() {
		return p.Want, x.takeWanted(owner, p, last)
	}
	free := x.free()
	for a := range p.after(last.address) {
		ok, err := free(a)
		if err != nil {
			return a, err
		}
		if !ok {
			continue
		}
		err = x.reserve(owner, last, a)
		if err == nil || !errors.Is(err, os.ErrExist) {
			return a, err
		}
	}
	return netip.Addr{}, x.full(p)
}

func (x *session) takeWanted(owner plugin.Attachment, p Pool, last *hint) error {
	by, is, err := x.read(p.Want)
	switch {
	case err != nil:
		return err
	case is == held || is == foreign:
		return &TakenError{Pool: p, Address: p.Want, By: by}
	case is == torn:
		if err := x.directory.remove(p.Want); err != nil {
			return err
		}
	}
	return x.reserve(owner, last, p.Want)
}

func (x *session) reserve(owner plugin.Attachment, last *hint, a netip.Addr) error {
	x.changed = true
	if err := last.set(a); err != nil {
		return err
	}
	return x.add(Lease{Address: a, Owner: owner})
}

// free returns a function that tells whether no file has an address's name. In
// a pool with long stretches of leases it reads the directory, once.
func (x *session) free() func(netip.Addr) (bool, error) {
	asked := 0
	var taken map[netip.Addr]struct{}
	return func(a netip.Addr) (bool, error) {
		if asked++; asked <= patience {
			return !x.exists(a), nil
		}
		if taken == nil {
			taken = map[netip.Addr]struct{}{}
			err := x.addresses(func(a netip.Addr) error {
				taken[a] = struct{}{}
				return nil
			})
			if err != nil {
				return false, err
			}
		}
		_, is := taken[a]
		return !is, nil
	}
}

func (x *session) full(p Pool) error {
	all, _, err := x.scan()
	if err != nil {
		return err
	}
	e := &FullError{Pool: p}
	for _, l := range all {
		if p.Contains(l.Address) {
			e.Leases = append(e.Leases, l)
		}
	}
	return e
}
