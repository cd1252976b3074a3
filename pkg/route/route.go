// Package route lists, adds and deletes the routes that a link has in any table.
package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/result"
)

// Main is the table of routes that are in no table in particular.
const Main = unix.RT_TABLE_MAIN

// OfLink returns the routes to other hosts that lead over one link alone, in all tables. It leaves out what each link has for itself: IPv6
// link-local and multicast routes.
func OfLink(ctx context.Context, h *netlink.Handle, index int) ([]netlink.Route, error) {
	own, err := link.RoutesOver(ctx, h, index, func(r netlink.Route) bool {
		isOther := func(hop *netlink.NexthopInfo) bool { return hop.LinkIndex != index }
		return !slices.ContainsFunc(r.MultiPath, isOther) && leadsElsewhere(r)
	})
	for i := range own {
		own[i].Flags &= unix.RTNH_F_ONLINK // the others tell of the carrier, and can't be asked for
		for _, hop := range own[i].MultiPath {
			hop.Flags &= unix.RTNH_F_ONLINK
		}
	}
	return own, err
}

func leadsElsewhere(r netlink.Route) bool {
	switch r.Family {
	case netlink.FAMILY_V4:
		return r.Type == unix.RTN_UNICAST
	case netlink.FAMILY_V6:
		return r.Type == unix.RTN_UNICAST && !r.Dst.IP.IsLinkLocalUnicast() && !r.Dst.IP.IsMulticast()
	}
	return false
}

// Has reports whether a table has one of the routes to a destination.
func Has(routes []netlink.Route, table int, dst net.IPNet) bool {
	return slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return r.Table == table && result.Prefix(*r.Dst) == result.Prefix(dst).Masked()
	})
}

// IsDirect reports whether a route needs no gateway.
func IsDirect(r netlink.Route) bool {
	hop := func(hop *netlink.NexthopInfo) bool { return hop.Gw != nil || hop.Via != nil }
	return r.Gw == nil && r.Via == nil && !slices.ContainsFunc(r.MultiPath, hop)
}

// Add adds routes, first those by which the gateways of others are reached. A route that is there already is left alone. It tries all of them.
func Add(ctx context.Context, h *netlink.Handle, routes []netlink.Route) error {
	var errs []error
	for _, direct := range []bool{true, false} {
		for _, r := range routes {
			if IsDirect(r) != direct {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			// Beside others to the same destination, as they were before.
			if err := h.RouteAppend(&r); err != nil && !errors.Is(err, unix.EEXIST) {
				errs = append(errs, fmt.Errorf("add the route %s to table %d: %w", Describe(r), r.Table, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Delete deletes routes, unless they are gone. It tries all of them.
func Delete(ctx context.Context, h *netlink.Handle, routes []netlink.Route) error {
	var errs []error
	for _, r := range routes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("delete the route %s from table %d: %w", Describe(r), r.Table, err))
		}
	}
	return errors.Join(errs...)
}

// Restore gives a link these routes to other hosts and no others.
func Restore(ctx context.Context, h *netlink.Handle, index int, wanted []netlink.Route) error {
	present, err := OfLink(ctx, h, index)
	return errors.Join(err, Delete(ctx, h, without(present, wanted)), Add(ctx, h, without(wanted, present)))
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

// Describe describes a route for an error.
func Describe(r netlink.Route) string {
	if r.Gw == nil {
		return r.Dst.String()
	}
	return r.Dst.String() + " via " + r.Gw.String()
}
