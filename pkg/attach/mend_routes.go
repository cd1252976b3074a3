package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/route"
)

// mendRoutes adds those that are missing, also the kernel's own, behind what leads to the same destination by now. They may stand in any table,
// since later plugins move them (sbr, vrf). A property lost with an address, such as being from it, is looked at only if something was mended.
func (a *Attachment) mendRoutes(ctx context.Context, inside *netlink.Handle, routes []netlink.Route, addresses []netlink.Addr, addressFlags int) error {
	if len(a.IPs) == 0 { // so that the routes of the result are over other links
		return nil
	}
	wanted := append(a.ownRoutes(addresses, addressFlags), routes...)
	has, err := routesLike(ctx, inside, a.link, wanted)
	if err != nil {
		return err
	}
	isMissing := func(r netlink.Route) bool { return !leads(has, r) }
	isExact := a.mender.Repairs() && (a.mender.HasFound() || slices.ContainsFunc(wanted, isMissing))
	for _, r := range wanted {
		if hasRoute(has, r) || !isExact && leads(has, r) {
			continue
		}
		lacks := Different("interface %s lacks the route %s", a.IfName, a.describe(r))
		a.mender.Mend(lacks, "add the route "+route.Describe(r)+" to "+a.IfName, func() error {
			r.LinkIndex = a.link.Attrs().Index
			if r.Table == 0 {
				r.Table = a.table(inside)
			}
			return withRemedy(addBehind(inside, r), a.IfName)
		})
	}
	return nil
}

// leads reports whether one of the routes does what a wanted one is for, whatever its source, and whoever made it. The kernel makes that to
// link-local addresses for itself.
func leads(has []netlink.Route, want netlink.Route) bool {
	isKernels := want.Protocol == unix.RTPROT_KERNEL
	if isKernels {
		want.Priority = 0
	}
	want.Src = nil
	return isKernels && want.Dst.IP.IsLinkLocalUnicast() || hasRoute(has, want)
}

// describe says which route it is, for people.
func (a *Attachment) describe(r netlink.Route) string {
	dst := result.Prefix(*r.Dst)
	for _, ip := range a.IPs {
		gateway := result.Addr(ip.Gateway)
		switch {
		case dst == result.Prefix(ip.Address).Masked():
			return "to its own network " + dst.String()
		case gateway.IsValid() && dst == result.Single(gateway) && r.Gw == nil:
			return "to the gateway " + gateway.String()
		}
	}
	return route.Describe(r)
}

// routesLike returns the routes over a link that lead where one of the wanted ones does. Those of IPv6 that two links have are one with two
// hops in the kernel.
func routesLike(ctx context.Context, inside *netlink.Handle, l netlink.Link, wanted []netlink.Route) ([]netlink.Route, error) {
	has, err := link.RoutesOver(ctx, inside, l.Attrs().Index, func(is netlink.Route) bool {
		return is.Dst != nil && slices.ContainsFunc(wanted, func(w netlink.Route) bool { return result.Prefix(*is.Dst) == result.Prefix(*w.Dst) })
	})
	for _, r := range has {
		for _, hop := range r.MultiPath {
			if hop.LinkIndex == l.Attrs().Index {
				r.Gw = hop.Gw
				has = append(has, r)
			}
		}
	}
	return has, err
}

func hasAddress(addresses []netlink.Addr, ip *types100.IPConfig) bool {
	return slices.ContainsFunc(addresses, func(a netlink.Addr) bool { return result.Prefix(*a.IPNet) == result.Prefix(ip.Address) })
}

// hasRoute reports whether one of the routes is as it is wanted, in whatever that says.
func hasRoute(routes []netlink.Route, want netlink.Route) bool {
	return slices.ContainsFunc(routes, func(is netlink.Route) bool {
		return is.Dst != nil && result.Prefix(*is.Dst) == result.Prefix(*want.Dst) && (want.Gw == nil || want.Gw.Equal(is.Gw)) &&
			(want.Src == nil || want.Src.Equal(is.Src)) &&
			(want.MTU == 0 || want.MTU == is.MTU) && (want.AdvMSS == 0 || want.AdvMSS == is.AdvMSS) &&
			(want.Priority == 0 || want.Priority == is.Priority)
	})
}

// addBehind adds a route, behind others to the same destination. Of IPv6 that would make it another hop of the same route, by which packets
// that have a way already would go another one; there one that lost its source with the address is made anew.
func addBehind(h *netlink.Handle, r netlink.Route) error {
	isIPv6 := r.Dst.IP.To4() == nil
	if without := r; isIPv6 && r.Src != nil {
		without.Src = nil
		if err := h.RouteDel(&without); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	add := h.RouteAppend
	switch {
	case r.Dst.IP.IsLinkLocalUnicast() && isIPv6: // which each link has
		add = h.RouteAddEcmp
	case isIPv6:
		add = h.RouteAdd
	}
	err := add(&r)
	switch {
	case isIPv6 && errors.Is(err, unix.EEXIST):
		return Different("the container has another route to %s, which stays", r.Dst)
	case err != nil && !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("add the route %s: %w", route.Describe(r), err)
	}
	return nil
}

// ownRoutes returns the routes that the kernel makes for the addresses of a link: to their networks.
func (a *Attachment) ownRoutes(addresses []netlink.Addr, addressFlags int) (list []netlink.Route) {
	for _, has := range addresses {
		isGiven := slices.ContainsFunc(a.IPs, func(ip *types100.IPConfig) bool { return hasAddress([]netlink.Addr{has}, ip) })
		p := result.Prefix(*has.IPNet)
		isSecond := p.Addr().Is4() && has.Flags&unix.IFA_F_SECONDARY != 0 // in the network of another one
		if p.IsSingleIP() || isSecond || addressFlags != 0 && isGiven || !isGiven && !p.Addr().IsLinkLocalUnicast() {
			continue
		}
		network := result.IPNet(p.Masked())
		r := netlink.Route{Dst: &network, Protocol: unix.RTPROT_KERNEL}
		if p.Addr().Is4() {
			r.Src, r.Scope = has.IP, netlink.SCOPE_LINK
		} else {
			r.Priority = 256 // IP6_RT_PRIO_ADDRCONF of linux/ipv6_route.h
		}
		list = append(list, r)
	}
	return list
}

// table returns the one that the routes of the link are in: the main one, or that of its VRF.
func (a *Attachment) table(inside *netlink.Handle) int {
	if index := a.link.Attrs().MasterIndex; index != 0 {
		l, err := inside.LinkByIndex(index)
		if vrf, ok := l.(*netlink.Vrf); ok && err == nil {
			return int(vrf.Table)
		}
	}
	return unix.RT_TABLE_MAIN
}
