package attach

import (
	"context"
	"net/netip"
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

// Found describes the container's link as it is, which another program has made, and that must be up and have these addresses.
func Found(ctx context.Context, r *plugin.Request, c *Config, addresses []netip.Prefix) (*types100.Result, error) {
	a := &Attachment{Request: r, Config: c}
	inside, l, err := lookUp(r)
	switch {
	case link.IsNotFound(err):
		return nil, plugin.Errorf("", "there is no interface %s in %s", r.IfName, r.Netns)
	case err != nil:
		return nil, err
	case l.Attrs().RawFlags&unix.IFF_UP == 0:
		return nil, plugin.Errorf("", "interface %s in %s is down", r.IfName, r.Netns)
	}
	a.link, a.Interface = l, a.Describe(l)
	a.Interface.Sandbox = r.Netns
	if err := a.findAddresses(inside, addresses); err != nil {
		return nil, err
	}
	if err := a.findRoutes(ctx, inside); err != nil {
		return nil, err
	}
	end, err := otherEnd(r, l)
	if err != nil || end == nil {
		return a.Result(), err
	}
	return a.Result(end), nil
}

// findAddresses looks for addresses, which have the prefix lengths that the link has them with.
func (a *Attachment) findAddresses(inside *netlink.Handle, addresses []netip.Prefix) error {
	has, err := link.Addresses(inside, a.link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, want := range addresses {
		at := slices.IndexFunc(has, func(is netlink.Addr) bool { return result.Addr(is.IP) == want.Addr() })
		if at < 0 {
			return plugin.Errorf("", "interface %s in %s does not have the address %s", a.IfName, a.Netns, want)
		}
		a.IPs = append(a.IPs, &types100.IPConfig{Address: *has[at].IPNet})
	}
	return nil
}

// findRoutes looks for the routes that the link was given in the main table. The gateway of a default route is that of the addresses of its
// family.
func (a *Attachment) findRoutes(ctx context.Context, inside *netlink.Handle) error {
	routes, err := route.OfLink(ctx, inside, a.link.Attrs().Index)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if r.Table != route.Main || r.LinkIndex == 0 || r.Protocol == unix.RTPROT_KERNEL || r.Protocol == unix.RTPROT_RA {
			continue
		}
		found := &types.Route{Dst: *r.Dst, GW: r.Gw}
		if r.Gw == nil {
			if !plugin.AtLeast(a.Version, "1.1.0") {
				continue // older results can't say that there is no gateway
			}
			found.Scope = types100.Int(unix.RT_SCOPE_LINK)
		}
		a.Routes = append(a.Routes, found)
		ones, _ := r.Dst.Mask.Size()
		for _, ip := range a.IPs {
			if ones == 0 && ip.Gateway == nil && isIPv6(ip) == (r.Family == netlink.FAMILY_V6) {
				ip.Gateway = r.Gw
			}
		}
	}
	return nil
}
