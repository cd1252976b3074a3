// Package attach puts one link into a container, whatever its kind: it asks IPAM for addresses, gives them to the link with their
// routes, checks all of it, and removes it again in the order by which nothing is lost.
//
// A plugin tells how its link is made. docs/architecture.md shows how one is written.
package attach

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/delegate"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Link is how a plugin makes its link.
type Link struct {
	// Make makes the link in the container, under the request's interface name, and leaves it down. If it fails it has made nothing.
	// Interfaces of the host that belong into the result it adds there.
	Make func(ctx context.Context, a *Attachment) error
	// Remove, if there is one, takes back what Make did. Otherwise the link is deleted.
	Remove func() error
	// Routes, if there is one, returns all routes that the container is to have, given those of the result. Then the kernel makes none
	// to the addresses' own networks. The container's link need not be set in them.
	Routes func(ips []*types100.IPConfig, result []netlink.Route) ([]netlink.Route, error)
	// Finish, if there is one, does what is left when the link has its addresses.
	Finish func(ctx context.Context, a *Attachment) error
}

// Attachment is one ADD on its way.
type Attachment struct {
	*plugin.Request
	*Config
	Result types100.Result
	Undo   plugin.Undo

	ipam *delegate.Delegate // nil is layer 2 only
	link netlink.Link       // the container's, when it is made

	// routes is Link.Routes.
	routes func(ips []*types100.IPConfig, result []netlink.Route) ([]netlink.Route, error)
}

// Add makes the link, and all that belongs to it.
func Add(ctx context.Context, r *plugin.Request, c *Config, l Link) (_ *types100.Result, err error) {
	a := &Attachment{Request: r, Config: c, routes: l.Routes}
	if a.ipam, err = findIPAM(r, c); err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	// An address is asked for before anything is made, so that a pool that is empty costs nothing; an IPAM plugin that works through
	// the link has to wait for it.
	steps := []func(context.Context) error{a.lease, a.making(l), a.configure}
	if a.ipam != nil && a.ipam.NeedsLink {
		steps[0], steps[1] = steps[1], steps[0]
	}
	if l.Finish != nil {
		steps = append(steps, func(ctx context.Context) error { return l.Finish(ctx, a) })
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	if d := c.DNS; d.Domain != "" || d.Nameservers != nil || d.Search != nil || d.Options != nil { // an empty list is one
		a.Result.DNS = d
	}
	return &a.Result, nil
}

func findIPAM(r *plugin.Request, c *Config) (*delegate.Delegate, error) {
	if c.IPAM == "" {
		return nil, nil
	}
	return delegate.FindIPAM(r, c.IPAM)
}

// lease asks the IPAM plugin, and completes what it answers.
func (a *Attachment) lease(ctx context.Context) error {
	if a.ipam == nil {
		return nil
	}
	if err := a.Step(ctx, "ipam"); err != nil {
		return err
	}
	leased, err := a.ipam.Add(ctx, a.Request)
	if err != nil {
		return err
	}
	a.Undo.Push("give back the address", func(ctx context.Context) error { return a.ipam.Del(ctx, a.Request) })
	if len(leased.IPs) == 0 {
		return plugin.Errorf("give it addresses to hand out, or remove the ipam section for a layer 2 network", "IPAM plugin %s returned no address", a.IPAM)
	}
	a.Result.IPs, a.Result.Routes, a.Result.DNS = leased.IPs, leased.Routes, leased.DNS
	for _, ip := range a.Result.IPs {
		if network := result.Prefix(ip.Address).Masked(); ip.Gateway == nil && a.Gateway && !network.IsSingleIP() {
			ip.Gateway = network.Addr().Next().AsSlice()
		}
	}
	if a.DefaultRoute {
		a.Result.Routes = withDefaultRoutes(a.Result.Routes, a.Result.IPs)
	}
	return nil
}

// withDefaultRoutes adds a default route for each family that has a gateway and no default route yet.
func withDefaultRoutes(routes []*types.Route, ips []*types100.IPConfig) []*types.Route {
	for _, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		dst := netip.PrefixFrom(any, 0)
		gw := gatewayOf(ips, any.Is4())
		there := slices.ContainsFunc(routes, func(r *types.Route) bool { return result.Prefix(r.Dst) == dst })
		if gw != nil && !there {
			routes = append(routes, &types.Route{Dst: result.IPNet(dst), GW: gw})
		}
	}
	return routes
}

// gatewayOf returns the first gateway of a family, nil if there is none.
func gatewayOf(ips []*types100.IPConfig, v4 bool) net.IP {
	for _, ip := range ips {
		if ip.Gateway != nil && (ip.Gateway.To4() != nil) == v4 {
			return ip.Gateway
		}
	}
	return nil
}

// making makes the link and puts it into the result.
func (a *Attachment) making(l Link) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := a.Step(ctx, "link"); err != nil {
			return err
		}
		if err := l.Make(ctx, a); err != nil {
			return err
		}
		if l.Remove == nil {
			l.Remove = func() error { return deleteInside(a.Request) }
		}
		a.Undo.Push("remove "+a.IfName, func(context.Context) error { return l.Remove() })
		if (a.ipam != nil || len(a.Result.IPs) > 0) && !a.AcceptRA {
			if err := a.Inside(func() error { return RefuseRouters(a.IfName) }); err != nil {
				return err
			}
		}
		inside, err := a.LinksInside()
		if err != nil {
			return err
		}
		if a.link, err = inside.LinkByName(a.IfName); err != nil {
			return fmt.Errorf("look up %s, which was just made: %w", a.IfName, err)
		}
		own := a.Describe(a.link)
		own.Sandbox = a.Netns
		a.Result.Interfaces = append(a.Result.Interfaces, own)
		return nil
	}
}

// Describe describes a link for the result, by what the result's version has.
func (a *Attachment) Describe(l netlink.Link) *types100.Interface {
	i := &types100.Interface{Name: l.Attrs().Name, Mac: l.Attrs().HardwareAddr.String()}
	if plugin.AtLeast(a.Version, "1.1.0") {
		i.Mtu = l.Attrs().MTU
	}
	return i
}

// deleteInside deletes the container's link.
func deleteInside(r *plugin.Request) error {
	inside, err := r.LinksInside()
	if err != nil {
		return err
	}
	l, err := inside.LinkByName(r.IfName)
	if link.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return link.Delete(inside, l.Attrs().Index)
}

// ContainerMAC returns the MAC address for the container's link: the one that was asked for, else one made from the first IP
// address, so that whoever has that next has the address that neighbours remember, else one made from the key.
func (a *Attachment) ContainerMAC() net.HardwareAddr {
	switch {
	case a.MAC != nil:
		return a.MAC
	case len(a.Result.IPs) > 0:
		mac := plugin.MACOf(result.Addr(a.Result.IPs[0].Address.IP))
		return mac[:]
	}
	mac := a.Key.MAC("container end")
	return mac[:]
}

// Status reports whether containers can be entered and the IPAM plugin is ready for an ADD.
func Status(ctx context.Context, r *plugin.Request, c *Config) error {
	ipam, err := findIPAM(r, c)
	if err == nil {
		err = netns.CheckEntry()
	}
	if err == nil && ipam != nil && !c.AcceptRA {
		err = canRefuseRouters()
	}
	if err != nil || ipam == nil {
		return err
	}
	return ipam.Status(ctx, r)
}
