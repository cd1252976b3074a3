package vrf

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/route"
)

// holdings are what a link loses when it gets another master, because the kernel takes it down and up for that: its routes, and the IPv6
// addresses that the kernel is not told to keep.
type holdings struct {
	addresses []netlink.Addr
	routes    []netlink.Route
}

func holdingsOf(ctx context.Context, h *netlink.Handle, l netlink.Link) (has holdings, err error) {
	if has.addresses, err = link.Addresses(h, l, netlink.FAMILY_V6); err != nil {
		return has, err
	}
	has.routes, err = route.OfLink(ctx, h, l.Attrs().Index)
	return has, err
}

// putBack gives a link that has another master by now what it has lost, with the routes of the main table in another. It waits until the
// addresses can be a route's source: where they are looked for elsewhere first, the kernel does that again, if the link has a carrier.
func (had holdings) putBack(ctx context.Context, r *plugin.Request, h *netlink.Handle, l netlink.Link, table int) error {
	var errs []error
	waits := false
	for _, a := range had.addresses {
		a.Flags &= unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR
		if err := h.AddrAdd(l, &a); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("put the address %s back: %w", a.IPNet, err))
		}
		waits = waits || a.Flags&unix.IFA_F_NODAD == 0 && !a.IP.IsLinkLocalUnicast()
	}
	if waits && l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 {
		err := r.Inside(func() error {
			_, err := link.WaitForAddresses(l)
			return err
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: wait for duplicate address detection: %w", l.Attrs().Name, err))
		}
	}
	routes := slices.Clone(had.routes)
	for i := range routes {
		if routes[i].Table == route.Main {
			routes[i].Table = table
		}
	}
	return errors.Join(append(errs, route.Restore(ctx, h, l.Attrs().Index, routes))...)
}
