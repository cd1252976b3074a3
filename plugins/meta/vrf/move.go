package vrf

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/route"
)

// settleTime bounds the wait for duplicate address detection, which takes one to two seconds (RFC 4862).
const settleTime = 5 * time.Second

// holdings are what a link loses when it gets another master, because the kernel takes it down and up for that: its routes, and the IPv6
// addresses that the kernel is not told to keep.
type holdings struct {
	addresses []netlink.Addr
	routes    []netlink.Route
}

func holdingsOf(h *netlink.Handle, l netlink.Link) (held holdings, err error) {
	if held.addresses, err = link.Addresses(h, l, netlink.FAMILY_V6); err != nil {
		return held, err
	}
	held.routes, err = routesOf(h, l)
	return held, err
}

func routesOf(h *netlink.Handle, l netlink.Link) ([]netlink.Route, error) {
	all, err := route.List(h)
	return route.Of(all, l.Attrs().Index), err
}

// moved returns them with the routes of one table in another.
func (held holdings) moved(from, to int) holdings {
	held.routes = slices.Clone(held.routes)
	for i := range held.routes {
		if held.routes[i].Table == from {
			held.routes[i].Table = to
		}
	}
	return held
}

// keptBy gives a link another master, or none (0), and lets it have the holdings then. It returns which of them are lost, if the link
// has that master.
func (held holdings) keptBy(ctx context.Context, r *plugin.Request, l netlink.Link, master int) (lost, err error) {
	h, err := r.LinksInside()
	if err != nil {
		return nil, err
	}
	if err := h.LinkSetMasterByIndex(l, master); err != nil {
		return nil, fmt.Errorf("make link %d the master of %s: %w", master, l.Attrs().Name, err)
	}
	return errors.Join(
		putAddressesBack(h, l, held.addresses),
		r.Inside(func() error { return settle(l) }),
		putRoutesBack(ctx, h, l, held.routes)), nil
}

// putAddressesBack gives a link the addresses that it has lost.
func putAddressesBack(h *netlink.Handle, l netlink.Link, addresses []netlink.Addr) error {
	var errs []error
	for _, a := range addresses {
		a.Flags &= unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR
		if err := h.AddrAdd(l, &a); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("put the address %s back: %w", a.IPNet, err))
		}
	}
	return errors.Join(errs...)
}

// settle waits until the link's addresses can be a route's source: where they are looked for elsewhere first, the kernel does that
// again. It does not for a link without a carrier.
func settle(l netlink.Link) error {
	addresses, err := link.Addresses(&netlink.Handle{}, l, netlink.FAMILY_V6)
	if err != nil || !slices.ContainsFunc(addresses, isProbed) || l.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 {
		return err
	}
	if _, err = link.WaitForAddresses(l, settleTime); err != nil {
		return fmt.Errorf("%s: wait for duplicate address detection: %w", l.Attrs().Name, err)
	}
	return nil
}

func isProbed(a netlink.Addr) bool {
	return a.Flags&unix.IFA_F_TENTATIVE != 0 && !a.IP.IsLinkLocalUnicast()
}

// putRoutesBack gives a link these routes and no others: the kernel may have made some for its addresses that were not there before.
func putRoutesBack(ctx context.Context, h *netlink.Handle, l netlink.Link, wanted []netlink.Route) error {
	is, err := routesOf(h, l)
	if err != nil {
		return err
	}
	return errors.Join(route.Delete(ctx, h, without(is, wanted)), route.Add(ctx, h, without(wanted, is)))
}

// without returns those routes that are not among others.
func without(routes, others []netlink.Route) (rest []netlink.Route) {
	for _, r := range routes {
		if !slices.ContainsFunc(others, func(o netlink.Route) bool { return reflect.DeepEqual(r, o) }) {
			rest = append(rest, r)
		}
	}
	return rest
}
