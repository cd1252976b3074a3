package attach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/request"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/route"
)

// BeginRepair begins a Repair of an attachment whose link, of a kind, is in the container. A kind of "" is any.
func BeginRepair(r *plugin.Request, c *Config, kind string) (*Attachment, error) {
	want, _, l, err := find(r, kind)
	switch {
	case err != nil:
		return nil, lost("%s", plugin.AsError(err).Msg)
	case !IsOwn(r, l):
		return nil, lost("interface %s of the container is not the attachment's", r.IfName)
	}
	a := &Attachment{Request: r, Config: c, Interface: want, link: l, IPs: result.AddressesOf(r.PrevResult, r.IfName), Routes: r.PrevResult.Routes}
	a.ipam, err = findIPAM(r, c)
	return a, err
}

func lost(format string, args ...any) error {
	return plugin.Errorf("restart the container", format+": %w", append(args, plugin.ErrLost)...)
}

// CheckLost returns an error if the container does not have the link that ADD has reported, whatever has made it. A device that the kernel has
// no link of has no MAC address, and the loopback link is always there.
func CheckLost(r *plugin.Request) error {
	want := result.ContainerInterface(r.PrevResult, r.IfName, r.Netns)
	if want == nil || want.Mac == "" || want.Mac == "00:00:00:00:00:00" {
		return nil
	}
	_, err := BeginRepair(r, &Config{}, "")
	return err
}

// CheckReported is CheckLost for a link that was not made for this attachment: it is the reported one if it has its MAC address.
func CheckReported(r *plugin.Request) error {
	want, _, l, err := find(r, "")
	switch {
	case err != nil:
		return lost("%s", plugin.AsError(err).Msg)
	case want.Mac != "" && !Reported(r, l):
		return lost("interface %s of the container is not the attachment's", r.IfName)
	}
	return nil
}

// Repair is the Repair of a plugin whose link is the container's alone.
func Repair(ctx context.Context, r *plugin.Request, c *Config, kind string) error {
	a, err := BeginRepair(r, c, kind)
	if err != nil {
		return err
	}
	return a.Repair(ctx)
}

// Repair gives the container its lease back, and the container's link what Check finds missing: the MAC address, addresses, being up, routes.
// It tries everything.
func (a *Attachment) Repair(ctx context.Context) error { return a.repair(ctx, a.KernelRoutes(), 0) }

// RepairWith is Repair of what ConfigureWith has made.
func (a *Attachment) RepairWith(ctx context.Context, routes []netlink.Route) error {
	return a.repair(ctx, routes, unix.IFA_F_NOPREFIXROUTE)
}

func (a *Attachment) repair(ctx context.Context, routes []netlink.Route, addressFlags int) error {
	leased := a.repairLease(ctx)
	if a.HostSide {
		return leased
	}
	inside, err := a.LinksInside()
	if err != nil {
		return err
	}
	errs := []error{a.repairMAC(inside, a.Interface, a.link)}
	errs = append(errs, leased)
	if a.Down {
		return errors.Join(errs...)
	}
	if leased == nil { // the address of another container must not come back here
		errs = append(errs, a.repairAddresses(inside, addressFlags))
	}
	errs = append(errs, a.repairUp(inside, a.link))
	if leased == nil {
		errs = append(errs, a.repairRoutes(ctx, inside, routes, addressFlags))
	}
	return withRemedy(errors.Join(errs...), a.IfName)
}

// repairLease has IPAM put back the lease, if it can. A DEL gives back the lease when it has deleted the link: so if the link is still there
// after the lease was missed, it was not a DEL that took it.
func (a *Attachment) repairLease(ctx context.Context) error {
	if a.ipam == nil || a.ipam.Check(ctx, a.Request) == nil {
		return nil
	}
	if _, l, err := lookUp(a.Request); err != nil || l.Attrs().Index != a.link.Attrs().Index {
		return lost("interface %s of the container has just gone", a.IfName)
	}
	_, err := request.Repair(ctx, a.ipam.Plugin, a.Request)
	return err
}

// RepairMTU gives the container's link the MTU that is configured.
func (a *Attachment) RepairMTU() error {
	if a.MTU == 0 || a.HostSide || a.link.Attrs().MTU == a.MTU {
		return nil
	}
	inside, err := a.LinksInside()
	if err != nil {
		return err
	}
	a.Announce(fmt.Sprintf("give %s the MTU %d", a.IfName, a.MTU))
	return inside.LinkSetMTU(a.link, a.MTU)
}

// RepairMaster makes the container's link a port of a bridge there again.
func (a *Attachment) RepairMaster(bridge netlink.Link) error {
	if a.link.Attrs().MasterIndex == bridge.Attrs().Index {
		return nil
	}
	inside, err := a.LinksInside()
	if err != nil {
		return err
	}
	a.Announce("make " + a.IfName + " a port of bridge " + bridge.Attrs().Name)
	return inside.LinkSetMaster(a.link, bridge)
}

// repairMAC gives a link the MAC address that ADD has reported.
func (a *Attachment) repairMAC(h *netlink.Handle, want *types100.Interface, l netlink.Link) error {
	mac, err := net.ParseMAC(want.Mac)
	if err != nil || checkMAC(want, l) == nil {
		return nil
	}
	a.Announce("give " + want.Name + " the MAC address " + want.Mac)
	return h.LinkSetHardwareAddr(l, mac)
}

func (a *Attachment) repairUp(h *netlink.Handle, l netlink.Link) error {
	if l.Attrs().RawFlags&unix.IFF_UP != 0 {
		return nil
	}
	a.Announce("set " + l.Attrs().Name + " up")
	return h.LinkSetUp(l)
}

// repairAddresses adds those that are missing.
func (a *Attachment) repairAddresses(inside *netlink.Handle, flags int) error {
	has, err := link.Addresses(inside, a.link, netlink.FAMILY_ALL)
	missing := slices.DeleteFunc(slices.Clone(a.IPs), func(ip *types100.IPConfig) bool { return hasAddress(has, ip) })
	if err != nil || len(missing) == 0 {
		return err
	}
	for _, ip := range missing {
		a.Announce("give " + a.IfName + " the address " + ip.Address.String())
	}
	if err := a.addAddresses(inside, missing, flags); err != nil || !a.needsDAD() || !slices.ContainsFunc(missing, isIPv6) {
		return err
	}
	return a.Inside(a.waitForDAD)
}

// repairRoutes adds those that are missing, also the kernel's own, behind what leads to the same destination by now. Where they are to be
// other plugins move them.
func (a *Attachment) repairRoutes(ctx context.Context, inside *netlink.Handle, routes []netlink.Route, addressFlags int) error {
	own, err := a.ownRoutes(inside, addressFlags)
	if err != nil {
		return err
	}
	wanted := append(own, routes...)
	has, err := routesLike(ctx, inside, a.link, wanted)
	if err != nil {
		return err
	}
	table := a.table(inside)
	var errs []error
	for _, r := range wanted {
		if hasRoute(has, r) {
			continue
		}
		a.Announce("add the route " + route.Describe(r) + " to " + a.IfName)
		r.LinkIndex = a.link.Attrs().Index
		if r.Table == 0 {
			r.Table = table
		}
		errs = append(errs, addBehind(inside, r))
	}
	return errors.Join(errs...)
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
func (a *Attachment) ownRoutes(inside *netlink.Handle, addressFlags int) (list []netlink.Route, err error) {
	addresses, err := link.Addresses(inside, a.link, netlink.FAMILY_ALL)
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
	return list, err
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

// RepairHostEnd gives the other end of the container's veth what CheckHostEnd finds missing, and returns it.
func (a *Attachment) RepairHostEnd() (netlink.Link, error) {
	end, want, err := findReported(a.Request, a.link)
	if err != nil {
		return nil, lost("%s", plugin.AsError(err).Msg)
	}
	return end, errors.Join(a.repairMAC(a.Links(), want, end), a.repairUp(a.Links(), end))
}
