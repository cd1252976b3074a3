package attach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// settleTime bounds the wait for duplicate address detection, which takes one to two seconds (RFC 4862).
const settleTime = 5 * time.Second

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
	if len(a.sysctls()) > 0 {
		if err := a.Inside(a.setSysctls); err != nil {
			return err
		}
	}
	inside, err := a.LinksInside()
	if err != nil {
		return err
	}
	// Addresses come before the link is up, so that they are announced when it comes up.
	err = a.addAddresses(inside, addressFlags)
	if err == nil {
		err = a.setUp(inside)
	}
	if err != nil {
		return explain(err, a.IfName)
	}
	if a.needsDAD() && a.hasIPv6() { // a route may have one of the addresses as its source only then
		if err := a.Inside(a.waitForDAD); err != nil {
			return err
		}
	}
	if err := a.addRoutes(inside, routes); err != nil { // which need the link to be up
		return explain(err, a.IfName)
	}
	return nil
}

// KernelRoutes returns the routes of the result as the kernel is to have them.
func (a *Attachment) KernelRoutes() (routes []netlink.Route) {
	for _, r := range a.Routes {
		routes = append(routes, kernelRoute(a.link, r, a.IPs))
	}
	return routes
}

// sysctls are what the link's addresses need: that neighbours are told of those whose MAC address they may not know; IPv6 itself,
// which runtimes disable in new namespaces; IPv6 addresses that survive the link going down; and whether they are looked for
// elsewhere first.
func (a *Attachment) sysctls() [][2]string {
	var list [][2]string
	own := "net/ipv6/conf/" + a.IfName + "/"
	announce, dad := "0", "0"
	if a.needsAnnouncement() {
		announce = "1"
		list = append(list, [2]string{"net/ipv4/conf/" + a.IfName + "/arp_notify", announce})
	}
	if !a.hasIPv6() {
		return list
	}
	if a.needsDAD() {
		dad = "1"
		list = append(list, [2]string{own + "enhanced_dad", dad})
	}
	return append(list, [][2]string{
		{"net/ipv6/conf/lo/disable_ipv6", "0"}, {own + "disable_ipv6", "0"}, {own + "keep_addr_on_down", "1"}, {own + "accept_dad", dad}, {own + "ndisc_notify", announce},
	}...)
}

func (a *Attachment) setSysctls() error {
	for _, s := range a.sysctls() {
		isAnnouncement := strings.HasSuffix(s[0], "_notify") // neighbours ask by themselves, later
		if err := sysctl.Set(s[0], s[1]); err != nil && !isAnnouncement {
			return fmt.Errorf("prepare the container for its addresses: %w", err)
		}
	}
	return nil
}

// RefuseRouters keeps others on a link's segment from making themselves a router, whatever families it has addresses of
// (CVE-2020-10749). Without IPv6 there is nothing to refuse.
func RefuseRouters(link string) error {
	const own = "net/ipv6/conf/"
	for _, name := range []string{"accept_ra", "autoconf"} {
		err := sysctl.Set(own+link+"/"+name, "0")
		if err == nil || errors.Is(err, unix.ENOENT) {
			continue
		}
		if disabled, _ := sysctl.Get(own + link + "/disable_ipv6"); disabled != "1" {
			return fmt.Errorf("refuse router advertisements: %w", err)
		}
	}
	return nil
}

// canRefuseRouters reports whether containers with IPv6 can be kept from router advertisements, for STATUS.
func canRefuseRouters() error {
	err := sysctl.Writable()
	if _, lacksIPv6 := sysctl.Get("net/ipv6/conf/default/accept_ra"); err == nil || lacksIPv6 != nil {
		return nil
	}
	return types.NewError(types.ErrPluginNotAvailable, fmt.Sprintf("router advertisements can't be refused: %v", err),
		`give the runtime a /proc/sys that it can write to, or set "acceptRA": true (not with ptp, whose host end refuses them all the same)`)
}

// needsDAD reports whether another host may have an IPv6 address of the container: on a shared segment, unless IPAM hands out each
// address once.
func (a *Attachment) needsDAD() bool {
	return a.DAD || a.Segment && (a.ipam == nil || !a.ipam.AddressesUniqueToNode)
}

func (a *Attachment) hasIPv6() bool { return slices.ContainsFunc(a.IPs, isIPv6) }

// needsAnnouncement reports whether neighbours may not know the MAC address that an address has: it is not made from that, or others
// had it before.
func (a *Attachment) needsAnnouncement() bool {
	return len(a.IPs) > 0 && (a.MAC != nil || a.Segment || a.ipam == nil || a.ipam.NeedsLink)
}

// AnnounceAddresses tells neighbours of addresses whose MAC address they may not know. The kernel has done so when the link came up, but a port
// that does not pass packets yet drops it. To set the address that the link has makes the kernel do it again.
func (a *Attachment) AnnounceAddresses() error {
	if !a.needsAnnouncement() {
		return nil
	}
	inside, err := a.LinksInside()
	if err != nil {
		return err
	}
	return inside.LinkSetHardwareAddr(a.link, a.link.Attrs().HardwareAddr)
}

func (a *Attachment) addAddresses(inside *netlink.Handle, flags int) error {
	for _, ip := range a.IPs {
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
	if isTaken(err) {
		err = a.setUpAnyway(inside)
	}
	if err != nil {
		return fmt.Errorf("set the link up: %w", err)
	}
	return nil
}

// isTaken reports whether another link on the same master has the MAC address; EBUSY is what older kernels say.
func isTaken(err error) bool { return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EBUSY) }

// setUpAnyway sets the link up though its MAC address is taken. It waits for one that was asked for. Any other can be foretold from the
// IP address, so that a container could keep it for ever: a random one does.
func (a *Attachment) setUpAnyway(inside *netlink.Handle) error {
	if a.MAC != nil {
		return link.WhenFree(unix.EADDRINUSE, func() error { return inside.LinkSetUp(a.link) })
	}
	if err := a.SetMAC(RandomMAC()); err != nil {
		return err
	}
	return inside.LinkSetUp(a.link)
}

func (a *Attachment) addRoutes(inside *netlink.Handle, routes []netlink.Route) error {
	for i, route := range routes {
		if slices.ContainsFunc(routes[:i], route.Equal) {
			continue // IPAM and a plugin may both ask for the default route
		}
		route.LinkIndex = a.link.Attrs().Index
		// Not exclusively: another network of the container may have the same route.
		if err := inside.RouteAddEcmp(&route); err != nil {
			return fmt.Errorf("add the route %s: %w", describe(route), err)
		}
	}
	return nil
}

// kernelRoute returns a route of a result as the kernel is to have it.
func kernelRoute(l netlink.Link, r *types.Route, ips []*types100.IPConfig) netlink.Route {
	dst := result.IPNet(result.Prefix(r.Dst).Masked())
	route := netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: &dst, Gw: nextHop(r, ips), Priority: r.Priority, MTU: r.MTU, AdvMSS: r.AdvMSS,
	}
	if r.Table != nil {
		route.Table = *r.Table
	}
	if r.Scope != nil {
		route.Scope = netlink.Scope(*r.Scope)
	}
	return route
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

func describe(r netlink.Route) string {
	if r.Gw == nil {
		return r.Dst.String()
	}
	return r.Dst.String() + " via " + r.Gw.String()
}

func isIPv6(ip *types100.IPConfig) bool { return ip.Address.IP.To4() == nil }

// waitForDAD waits until no address of the link is still looked for elsewhere.
func (a *Attachment) waitForDAD() error {
	failed, err := link.WaitForAddresses(a.link, settleTime)
	switch {
	case err != nil && a.lacksCarrier(): // nobody is there to be asked
		return nil
	case err != nil:
		return fmt.Errorf("%s: wait for duplicate address detection: %w", a.IfName, err)
	case failed != nil:
		return plugin.Errorf("take that address from the other host, or from the pool",
			"%s: duplicate address detection found another user of %s", a.IfName, failed)
	}
	return nil
}

// lacksCarrier reports whether nothing is on the other end of the container's link.
func (a *Attachment) lacksCarrier() bool {
	l, err := netlink.LinkByName(a.IfName)
	return err == nil && l.Attrs().RawFlags&unix.IFF_LOWER_UP == 0
}

// explain adds what to do to the errors that configurations cause.
func explain(err error, name string) error {
	remedy := ""
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		remedy = "a route's gateway must be reachable through an address of the interface: correct the gateway or the subnet"
	case errors.Is(err, unix.EEXIST):
		remedy = "two addresses or routes of the configuration are the same to the kernel: remove one, or give it another priority or table"
	case errors.Is(err, unix.ENETDOWN):
		remedy = "the link's master is down: set it up"
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EADDRINUSE):
		remedy = "the master, or another link that is made on it, has the same MAC or IP address: ask for another one"
	}
	return plugin.Errorf(remedy, "%s: %v", name, err)
}
