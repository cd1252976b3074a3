package attach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/route"
)

// Configure gives the container's link its addresses and their routes, and sets it up. An IPAM plugin that needs the link is asked now.
func (a *Attachment) Configure(ctx context.Context) error {
	if err := a.AskIPAM(ctx); err != nil {
		return err
	}
	return a.configure(ctx, a.KernelRoutes(), 0)
}

// ConfigureWith is Configure, behind AskIPAM, with all routes that the container is to have: the kernel makes none to the addresses' own
// networks. The routes need not name the link.
func (a *Attachment) ConfigureWith(ctx context.Context, routes []netlink.Route) error {
	return a.configure(ctx, routes, unix.IFA_F_NOPREFIXROUTE)
}

func (a *Attachment) configure(ctx context.Context, routes []netlink.Route, addressFlags int) error {
	if err := a.Step(ctx, "container"); err != nil || a.Down {
		return err
	}
	inside, err := a.LinksInside()
	if err != nil {
		return err
	}
	err = a.addAddresses(inside, a.IPs, addressFlags)
	if err == nil { // it is up after it has addresses, so that the kernel announces them
		err = a.setUp(inside)
	}
	if err == nil && a.needsDAD() && a.HasIPv6() { // a route may have an address as its source only then
		err = a.Inside(a.waitForDAD)
	}
	if err == nil {
		err = a.addRoutes(inside, routes)
	}
	return withRemedy(err, a.IfName)
}

// KernelRoutes returns the routes of the result as the kernel is to have them.
func (a *Attachment) KernelRoutes() (routes []netlink.Route) {
	for _, r := range a.Routes {
		routes = append(routes, kernelRoute(a.link, r, a.IPs))
	}
	return routes
}

// addAddresses adds addresses, after it has set the sysctls that they need.
func (a *Attachment) addAddresses(inside *netlink.Handle, ips []*types100.IPConfig, flags int) error {
	if a.needsAnnouncement() || a.HasIPv6() {
		if err := a.Inside(a.setSysctls); err != nil {
			return err
		}
	}
	for _, ip := range ips {
		address := &netlink.Addr{IPNet: &ip.Address, Flags: flags}
		if isIPv6(ip) && !a.needsDAD() {
			address.Flags |= unix.IFA_F_NODAD
		}
		if err := link.WhenFree(unix.EADDRINUSE, func() error { return inside.AddrAdd(a.link, address) }); err != nil {
			return fmt.Errorf("add the address %s: %w", &ip.Address, err)
		}
	}
	return nil
}

func (a *Attachment) setUp(inside *netlink.Handle) error {
	err := inside.LinkSetUp(a.link)
	isTaken := errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EBUSY) // the MAC address, on the same master; EBUSY is what older kernels say
	switch {
	case isTaken && a.MAC != nil:
		err = link.WhenFree(unix.EADDRINUSE, func() error { return inside.LinkSetUp(a.link) })
	case isTaken: // it can be foretold from the IP address, so that a container could keep it for ever: a random one does
		if err = a.SetMAC(RandomMAC()); err == nil {
			err = inside.LinkSetUp(a.link)
		}
	}
	if err != nil {
		return fmt.Errorf("set the link up: %w", err)
	}
	return nil
}

func (a *Attachment) addRoutes(inside *netlink.Handle, routes []netlink.Route) error {
	for i, r := range routes {
		if slices.ContainsFunc(routes[:i], r.Equal) {
			continue // IPAM and a plugin may both ask for the default route
		}
		r.LinkIndex = a.link.Attrs().Index
		// Not exclusively: another network of the container may have the same route.
		if err := inside.RouteAddEcmp(&r); err != nil {
			return fmt.Errorf("add the route %s: %w", route.Describe(r), err)
		}
	}
	return nil
}

// kernelRoute returns a route of a result as the kernel is to have it.
func kernelRoute(l netlink.Link, r *types.Route, ips []*types100.IPConfig) netlink.Route {
	dst := result.IPNet(result.Prefix(r.Dst).Masked())
	k := netlink.Route{LinkIndex: l.Attrs().Index, Dst: &dst, Gw: nextHop(r, ips), Priority: r.Priority, MTU: r.MTU, AdvMSS: r.AdvMSS}
	if r.Table != nil {
		k.Table = *r.Table
	}
	if r.Scope != nil {
		k.Scope = netlink.Scope(*r.Scope)
	}
	return k
}

// nextHop returns a route's gateway: its own, or else the one of its family, unless the route says that there is none, by its scope
// or by 0.0.0.0 (as DHCP's option 121 does, RFC 3442).
func nextHop(r *types.Route, ips []*types100.IPConfig) net.IP {
	onLink := r.Scope != nil && *r.Scope >= unix.RT_SCOPE_LINK
	switch {
	case r.GW != nil && !r.GW.IsUnspecified():
		return r.GW
	case onLink || r.GW != nil:
		return nil
	}
	return gatewayOf(ips, r.Dst.IP.To4() != nil)
}

// withRemedy adds what to do to the errors that configurations cause.
func withRemedy(err error, name string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return plugin.ConfigError("a route's gateway must be reachable through an address of the interface: correct the gateway or the subnet", "%s: %w", name, err)
	case errors.Is(err, unix.EEXIST):
		return plugin.ConfigError("two addresses or routes of the configuration are the same to the kernel: remove one, or give it another priority or table", "%s: %w", name, err)
	case errors.Is(err, unix.ENETDOWN):
		return plugin.Errorf("the link's master is down: set it up", "%s: %w", name, err)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EADDRINUSE):
		return plugin.Errorf("the master, or another link that is made on it, has the same MAC or IP address: ask for another one", "%s: %w", name, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}
