package ptp

import (
	"context"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Check compares the veth pair, the addresses and routes of both its ends, the masquerading and the lease with the result of ADD.
func (Plugin) Check(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	inside, err := attach.Check(ctx, r, &c.Config, "veth")
	if err != nil {
		return err
	}
	end, err := attach.CheckHostEnd(r, inside)
	if err != nil {
		return err
	}
	var gateways []netip.Prefix
	for _, ip := range result.AddressesOf(r.PrevResult, r.IfName) {
		if err := checkRoutes(ctx, r, inside, end, ip); err != nil {
			return err
		}
		gateways = append(gateways, result.Single(result.Addr(ip.Address.IP)))
	}
	if err := attach.CheckForwarding(gateways); err != nil {
		return err
	}
	return c.masquerade.Check(ctx, r)
}

// checkRoutes looks for what the container and the host need to reach each other by one address.
func checkRoutes(ctx context.Context, r *plugin.Request, inside, end netlink.Link, ip *types100.IPConfig) error {
	if ip.Gateway != nil {
		if err := checkGateway(ctx, r, inside, end, result.Addr(ip.Gateway)); err != nil {
			return err
		}
	}
	if attach.CheckWay(r, end, ip.Address.IP) != nil {
		return attach.Different("the host does not route %s to %s", ip.Address.IP, end.Attrs().Name)
	}
	return nil
}

// checkGateway looks for the gateway's address on the host end, and for the container's route to it, which may stand in any table,
// since later plugins move it.
func checkGateway(ctx context.Context, r *plugin.Request, inside, end netlink.Link, gateway netip.Addr) error {
	if !r.HostSide {
		has, err := attach.HasRoute(ctx, r, inside, netlink.Route{Dst: singleNet(gateway)})
		if err != nil {
			return err
		}
		if !has {
			return attach.Different("interface %s lacks the route to the gateway %s", r.IfName, gateway)
		}
	}
	addresses, err := link.Prefixes(end)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return p.Addr() == gateway }) {
		return attach.Different("%s, the host end, lacks the gateway's address %s", end.Attrs().Name, gateway)
	}
	return nil
}
