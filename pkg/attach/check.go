package attach

import (
	"context"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/route"
)

// remedy is what to do about a difference that CHECK finds.
const remedy = "something changed the network after ADD: " + plugin.RepairRemedy

// Check compares the lease, and the container's link of a kind, with the result of ADD. It returns the link. A kind of "" is any. For the
// host's side the link only has to be there.
func Check(ctx context.Context, r *plugin.Request, c *Config, kind string) (netlink.Link, error) {
	if err := CheckLease(ctx, r, c); err != nil {
		return nil, err
	}
	want, inside, l, err := find(r, kind)
	if err != nil {
		return nil, err
	}
	if r.HostSide {
		return l, nil
	}
	if err := checkMAC(want, l); err != nil {
		return nil, err
	}
	if l.Attrs().RawFlags&unix.IFF_UP == 0 && !c.Down {
		return nil, Different("interface %s is down", r.IfName)
	}
	return l, checkAddresses(ctx, r, inside, l)
}

// find returns the container's link of a kind, and what the result of ADD says of it.
func find(r *plugin.Request, kind string) (want *types100.Interface, inside *netlink.Handle, l netlink.Link, err error) {
	want = result.ContainerInterface(r.PrevResult, r.IfName, r.Netns)
	if want == nil {
		return nil, nil, nil, plugin.Errorf("the runtime must pass the result of this attachment's ADD, with the same CNI_NETNS and CNI_IFNAME",
			"prevResult has no interface %s in %s", r.IfName, r.Netns)
	}
	inside, l, err = lookUp(r)
	switch {
	case err != nil:
		err = Different("interface %s is not in the container: %v", r.IfName, err)
	case kind != "" && l.Type() != kind:
		err = Different("interface %s of the container is not a %s but %s", r.IfName, kind, l.Type())
	}
	return want, inside, l, err
}

// Different returns the error of a CHECK that finds something other than ADD has made.
func Different(format string, args ...any) error { return plugin.Errorf(remedy, format, args...) }

// checkMAC compares a link's MAC address with what ADD reported.
func checkMAC(want *types100.Interface, l netlink.Link) error {
	if mac := l.Attrs().HardwareAddr.String(); want.Mac != "" && mac != want.Mac {
		return Different("%s has the MAC address %s, ADD reported %s", want.Name, mac, want.Mac)
	}
	return nil
}

// checkAddresses looks for the addresses and routes of the previous result. Routes may stand in any table, since later plugins move
// them (sbr, vrf).
func checkAddresses(ctx context.Context, r *plugin.Request, inside *netlink.Handle, l netlink.Link) error {
	ips := result.AddressesOf(r.PrevResult, r.IfName)
	if len(ips) == 0 {
		return nil
	}
	addresses, err := link.Addresses(inside, l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	var networks, wanted []netlink.Route
	for _, ip := range ips {
		address := result.Prefix(ip.Address)
		if !hasAddress(addresses, ip) {
			return Different("interface %s lacks the address %s", r.IfName, address)
		}
		if network := result.IPNet(address.Masked()); !address.IsSingleIP() { // the kernel makes none for a single one
			networks = append(networks, netlink.Route{Dst: &network})
		}
	}
	for _, want := range r.PrevResult.Routes {
		wanted = append(wanted, kernelRoute(l, want, ips))
	}
	has, err := routesLike(ctx, inside, l, append(networks, wanted...))
	if err != nil {
		return err
	}
	for _, n := range networks {
		if !hasRoute(has, n) {
			return Different("interface %s lacks the route to its own network %s", r.IfName, n.Dst)
		}
	}
	for _, w := range wanted {
		if !hasRoute(has, w) {
			return Different("interface %s lacks the route %s", r.IfName, route.Describe(w))
		}
	}
	return nil
}

// HasRoute reports whether the container has a route over its link, in whatever table.
func HasRoute(ctx context.Context, r *plugin.Request, l netlink.Link, want netlink.Route) (bool, error) {
	inside, err := r.LinksInside()
	if err != nil {
		return false, err
	}
	has, err := routesLike(ctx, inside, l, []netlink.Route{want})
	return hasRoute(has, want), err
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

// CheckLease makes sure that the lease is there.
func CheckLease(ctx context.Context, r *plugin.Request, c *Config) error {
	ipam, err := findIPAM(r, c)
	if err != nil || ipam == nil {
		return err
	}
	return ipam.Check(ctx, r)
}
