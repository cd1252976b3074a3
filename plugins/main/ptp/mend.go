package ptp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Mend looks at the veth pair, the addresses and routes of both its ends, the masquerading and the lease.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	a, err := attach.BeginMend(ctx, r, &c.Config, "veth", m)
	if err != nil {
		return err
	}
	end, err := a.MendHostEnd()
	if err != nil {
		return err
	}
	a.MendHostMTU(end)
	routes, err := containerRoutes(a.IPs, a.KernelRoutes())
	if err != nil {
		return err
	}
	m.Fail(a.MendWith(ctx, routes))
	m.Fail(mendGateways(r, end, a.IPs, m))
	c.masquerade.Mend(ctx, r, m)
	return nil
}

// mendGateways looks at the gateways' addresses on the host end, and whether the host reaches the container by it. A route to another holder of
// an address, which may be a later one, stays.
func mendGateways(r *plugin.Request, end netlink.Link, ips []*types100.IPConfig, m *plugin.Mender) error {
	name := end.Attrs().Name
	addresses, err := link.Prefixes(end)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		gateway := gatewayOf(ip)
		if !slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return p.Addr() == gateway.Addr() }) {
			lacks := attach.Different("%s, the host end, lacks the gateway's address %s", name, gateway.Addr())
			m.Mend(lacks, "", func() error { return giveGateway(r, end, gateway) })
		}
		if attach.CheckWay(r, end, ip.Address.IP) == nil {
			continue
		}
		own := hostRoute(end, ip)
		m.Mend(attach.Different("the host does not route %s to %s", ip.Address.IP, name), "", func() error {
			err := r.Links().RouteAdd(&own)
			switch {
			case err == nil:
				r.Announce("route " + own.Dst.String() + " to " + name)
			case !errors.Is(err, unix.EEXIST):
				return fmt.Errorf("route %s to %s: %w", own.Dst, name, err)
			}
			return attach.CheckWay(r, end, ip.Address.IP)
		})
	}
	attach.MendForwarding(r, gatewaysOf(ips), m)
	return nil
}
