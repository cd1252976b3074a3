// Package route moves a link's routes from one routing table to another, as they are.
package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/result"
)

// Main is the table of routes that are in no table in particular.
const Main = unix.RT_TABLE_MAIN

// List returns the routes to other hosts, of all links and in all tables. It leaves out what each link has for itself: IPv6 link-local
// and multicast routes.
func List(h *netlink.Handle) ([]netlink.Route, error) {
	routes, err := link.Routes(h, netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	routes = slices.DeleteFunc(routes, func(r netlink.Route) bool { return !leadsElsewhere(r) })
	for i := range routes {
		routes[i].Flags &= unix.RTNH_F_ONLINK // the others tell of the carrier, and can't be asked for
		for _, hop := range routes[i].MultiPath {
			hop.Flags &= unix.RTNH_F_ONLINK
		}
	}
	return routes, nil
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

// Of returns those of the routes that lead over one link alone.
func Of(routes []netlink.Route, index int) (own []netlink.Route) {
	for _, r := range routes {
		other := func(hop *netlink.NexthopInfo) bool { return hop.LinkIndex != index }
		if r.LinkIndex == index || len(r.MultiPath) > 0 && !slices.ContainsFunc(r.MultiPath, other) {
			own = append(own, r)
		}
	}
	return own
}

// In returns a route as it is in another table.
func In(r netlink.Route, table int) netlink.Route {
	r.Table = table
	return r
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

// Add adds routes, first those by which the gateways of others are reached. What is there already is left alone. It tries all of them.
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

// Describe describes a route for an error.
func Describe(r netlink.Route) string {
	if r.Gw == nil {
		return r.Dst.String()
	}
	return r.Dst.String() + " via " + r.Gw.String()
}
