package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// listAfter is after how many taken addresses in a row, asked for one by one, a search reads the list of all names.
const listAfter = 16

// allocate takes one address of each pool, all or none.
func (x *session) allocate(owner plugin.Key, pools []ranges.Pool) (leases []Lease, err error) {
	if err := x.refuseSecond(owner, pools); err != nil {
		return nil, err
	}
	for _, p := range pools {
		a, err := x.allocateOne(owner, p)
		if err != nil {
			return nil, errors.Join(err, x.removeAll(leases))
		}
		leases = append(leases, Lease{Address: a, Owner: owner})
	}
	return leases, nil
}

// refuseSecond fails when owner, or its container in the old form, holds an address of one of the pools. An address that it held for
// another namespace, which is known not to be there any more, is given back.
func (x *session) refuseSecond(owner plugin.Key, pools []ranges.Pool) error {
	leases, err := x.leasesOf(owner.ContainerID)
	if err != nil {
		return err
	}
	var stale []Lease
	for _, l := range leases {
		at := slices.IndexFunc(pools, func(p ranges.Pool) bool { return p.Contains(l.Address) })
		if at < 0 || l.Owner != owner && l.Owner.IfName != "" {
			continue
		}
		if l.Owner == owner && x.isOver(l) {
			stale = append(stale, l)
			continue
		}
		holder, state := x.holder(l)
		return plugin.Errorf(state+"call DEL for it before the next ADD (it gets one address of each range set); what it has is unchanged",
			"failed to allocate for range %d: %s has been allocated to %s, duplicate allocation is not allowed", pools[at].Index, l.Address, holder)
	}
	return x.removeAll(stale)
}

// allocateOne takes one address of the pool.
func (x *session) allocateOne(owner plugin.Key, p ranges.Pool) (netip.Addr, error) {
	if p.Want.IsValid() {
		return p.Want, x.allocateWanted(owner, p)
	}
	for {
		a, err := x.allocateNext(owner, p)
		if err != nil || a.IsValid() {
			return a, err
		}
		if err := x.reclaim(p); err != nil {
			return a, err
		}
	}
}

// allocateNext takes the next address of the pool that is free; it returns the zero Addr if none is.
func (x *session) allocateNext(owner plugin.Key, p ranges.Pool) (netip.Addr, error) {
	asked := 0
	var taken map[string]bool
	var name []byte
	for a := range p.After(x.last(p.Index)) {
		if asked++; asked == listAfter {
			var err error
			if taken, err = x.names(); err != nil {
				return a, err
			}
		}
		if name = a.AppendTo(name[:0]); taken[string(name)] {
			continue
		}
		if asked < listAfter {
			if _, err := os.Lstat(x.file(a)); err == nil {
				continue
			}
		}
		err := x.add(p.Index, Lease{Address: a, Owner: owner})
		if !errors.Is(err, os.ErrExist) {
			return a, err
		}
	}
	return netip.Addr{}, nil
}

func (x *session) allocateWanted(owner plugin.Key, p ranges.Pool) error {
	by, is, err := x.read(p.Want)
	l := Lease{Address: p.Want, Owner: by}
	switch {
	case err != nil:
	case is == torn:
		err = x.remove(p.Want)
	case is == leased && x.isAbandoned(l):
		err = x.removeAll([]Lease{l})
	case is != absent:
		holder, state := x.holder(l)
		return tryLater(state+"ask for another address or, if that attachment is gone, free it by DEL or `cnictl gc "+x.network+" --apply`",
			"failed to allocate for range %d: requested IP address %s is not available in range set %s: it is held by %s",
			p.Index, p.Want, p, holder)
	}
	if err != nil {
		return err
	}
	return x.add(p.Index, Lease{Address: p.Want, Owner: owner})
}

func tryLater(remedy, format string, args ...any) error {
	return types.NewError(types.ErrTryAgainLater, fmt.Sprintf(format, args...), remedy)
}
