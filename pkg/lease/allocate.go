package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// patience is how many taken addresses in a row a search asks for one by one
// before it reads the whole list of names.
const patience = 16

// allocate takes one address of each pool, all or none.
func (x *session) allocate(owner plugin.Attachment, pools []Pool) (leases []Lease, err error) {
	if err := x.refuseSecond(owner, pools); err != nil {
		return nil, err
	}
	for _, p := range pools {
		a, err := x.take(owner, p)
		if err != nil {
			return nil, errors.Join(err, x.removeAll(leases))
		}
		leases = append(leases, Lease{Address: a, Owner: owner})
	}
	return leases, nil
}

// refuseSecond fails when owner, or its container in the old form, holds an
// address of one of the pools.
func (x *session) refuseSecond(owner plugin.Attachment, pools []Pool) error {
	leases, err := x.leasesOf(owner.ContainerID)
	for _, l := range leases {
		for _, p := range pools {
			if p.Contains(l.Address) && (l.Owner == owner || l.Owner.IfName == "") {
				return plugin.Errorf("an attachment gets one address of each range set: call DEL for it before the next ADD; what it has is unchanged",
					"failed to allocate for range %d: %s has been allocated to %s, duplicate allocation is not allowed", p.Index, l.Address, Name(l.Owner))
			}
		}
	}
	return err
}

// take takes one address of the pool.
func (x *session) take(owner plugin.Attachment, p Pool) (netip.Addr, error) {
	if p.Want.IsValid() {
		return p.Want, x.takeWanted(owner, p)
	}
	asked := 0
	taken := map[netip.Addr]bool{}
	for a := range p.after(x.last(p.Index)) {
		if asked++; asked == patience {
			all, err := x.addresses()
			if err != nil {
				return a, err
			}
			for _, b := range all {
				taken[b] = true
			}
		}
		if taken[a] {
			continue
		}
		if asked < patience {
			if _, err := os.Lstat(x.file(a)); err == nil {
				continue
			}
		}
		err := x.add(p.Index, Lease{Address: a, Owner: owner})
		if !errors.Is(err, os.ErrExist) {
			return a, err
		}
	}
	return netip.Addr{}, x.full(p)
}

func (x *session) takeWanted(owner plugin.Attachment, p Pool) error {
	by, is, err := x.read(p.Want)
	if err == nil && is == torn {
		err = x.remove(p.Want)
	}
	if err != nil {
		return err
	}
	holder := Name(by)
	switch is {
	case foreign:
		holder = "something that is not a lease"
	case absent, torn:
		return x.add(p.Index, Lease{Address: p.Want, Owner: owner})
	}
	return tryLater("ask for another address, or call DEL for that attachment if it is gone",
		"failed to allocate for range %d: requested IP address %s is not available in range set %s: it is held by %s", p.Index, p.Want, p, holder)
}

func (x *session) full(p Pool) error {
	all, _, err := x.scan()
	if err != nil {
		return err
	}
	var inPool []Lease
	for _, l := range all {
		if p.Contains(l.Address) {
			inPool = append(inPool, l)
		}
	}
	return tryLater(staleness(x.results, x.network, inPool)+"run `cnictl gc` to free what is stale, or enlarge the range",
		"failed to allocate for range %d: no IP addresses available in range set: %s; %d are held in network %s", p.Index, p, len(inPool), x.network)
}

func tryLater(remedy, format string, args ...any) error {
	return types.NewError(types.ErrTryAgainLater, fmt.Sprintf(format, args...), remedy)
}

// staleness says how many leases look like nobody's: libcni keeps a result for
// each attachment that it made. It says nothing when the runtime keeps none
// there.
func staleness(dir, network string, leases []Lease) string {
	without := 0
	for _, l := range leases {
		if l.Owner.IfName == "" {
			continue
		}
		_, err := os.Stat(fmt.Sprintf("%s/%s-%s-%s", dir, network, l.Owner.ContainerID, l.Owner.IfName))
		if errors.Is(err, os.ErrNotExist) {
			without++
		}
	}
	if _, err := os.Stat(dir); err != nil || without == 0 {
		return ""
	}
	return fmt.Sprintf("%d of them have no result in %s and may be stale: ", without, dir)
}
