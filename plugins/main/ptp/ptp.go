// Package ptp connects a container to the host by a veth pair of its own: the host is the only neighbour it has, and routes for it.
package ptp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/detach"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// Plugin is the ptp plugin.
type Plugin struct{}

// config is what the ptp plugin reads of a configuration; docs/plugins/ptp.md explains each key.
type config struct {
	attach.Config
	masquerade attach.MasqueradeConfig
}

// parse reads the configuration of an ADD, CHECK or STATUS.
func parse(r *plugin.Request) (*config, error) {
	c := &config{Config: *attach.Parse(r.Config), masquerade: attach.ReadMasquerade(r.Config)}
	c.Gateway = true
	c.ReadMTU(r.Config)
	if err := r.Config.Err(); err != nil {
		return nil, err
	}
	if c.IPAM == "" {
		return nil, plugin.ConfigError(`add "ipam": the host reaches the container by its addresses alone`, "ptp requires an IPAM configuration")
	}
	return c, c.masquerade.By.Validate()
}

// Add makes the veth pair, and has the container and the host route to each other by it.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r)
	if err != nil {
		return nil, err
	}
	a, err := attach.Begin(ctx, r, &c.Config)
	if err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	end, err := a.MakeVeth(ctx, 0)
	if err != nil {
		return nil, err
	}
	if err := attach.RefuseRouters(r, end.Attrs().Name); err != nil {
		return nil, err
	}
	if err := a.AskIPAM(ctx); err != nil {
		return nil, err
	}
	if a.HasIPv6() {
		if err := useIPv6(end); err != nil {
			return nil, err
		}
	}
	routes, err := containerRoutes(a.IPs, a.KernelRoutes())
	if err != nil {
		return nil, err
	}
	if err := a.ConfigureWith(ctx, routes); err != nil {
		return nil, err
	}
	if err := a.Step(ctx, "gateway"); err != nil {
		return nil, err
	}
	if err := serveGateway(a.Request, end, a.IPs); err != nil {
		return nil, err
	}
	if err := c.masquerade.Add(ctx, a); err != nil {
		return nil, err
	}
	if state, err := link.WaitUp(a.Links(), end.Attrs().Name); err != nil {
		return nil, plugin.Errorf("look at it with `ip -d link`", "%s, the host end of the veth pair, is %s: %w", end.Attrs().Name, state, err)
	}
	return a.Result(end), nil
}

// useIPv6 gives the host end a link-local address, at once when the container's end is up: without that the kernel looks for no neighbour.
func useIPv6(end netlink.Link) error {
	name := end.Attrs().Name
	_ = sysctl.Set("net/ipv6/conf/"+name+"/accept_dad", "0")
	if err := link.AllowIPv6Address(end.Attrs().Index); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("give %s an IPv6 address: %w", name, err)
	}
	return nil
}

// containerRoutes returns the container's routes: to its gateways, by them to the networks of its addresses, whose other hosts are not
// on the link, and those of the result. Addresses that share a gateway or a network share its route.
func containerRoutes(ips []*types100.IPConfig, ofResult []netlink.Route) (list []netlink.Route, err error) {
	for _, ip := range ips {
		address, gateway := result.Prefix(ip.Address), result.Addr(ip.Gateway)
		if !gateway.IsValid() || slices.ContainsFunc(ips, func(own *types100.IPConfig) bool { return result.Addr(own.Address.IP) == gateway }) {
			return nil, plugin.ConfigError("name a gateway in the ipam section: the host has that address on its end of the link",
				"the address %s has no gateway other than the container itself", address)
		}
		list = appendRoute(list, netlink.Route{Dst: singleNet(gateway), Scope: netlink.SCOPE_LINK, Src: ip.Address.IP})
		if network := result.IPNet(address.Masked()); !address.IsSingleIP() {
			list = appendRoute(list, netlink.Route{Dst: &network, Gw: ip.Gateway, Src: ip.Address.IP})
		}
	}
	for i, route := range ofResult { // another address of the host may be a gateway too
		if slices.ContainsFunc(ips, func(ip *types100.IPConfig) bool { return ip.Address.Contains(route.Gw) && !ip.Gateway.Equal(route.Gw) }) {
			ofResult[i].SetFlag(netlink.FLAG_ONLINK)
		}
	}
	return append(list, ofResult...), nil
}

// appendRoute adds a route, unless there is one to its destination.
func appendRoute(list []netlink.Route, r netlink.Route) []netlink.Route {
	if slices.ContainsFunc(list, func(other netlink.Route) bool { return other.Dst.String() == r.Dst.String() }) {
		return list
	}
	return append(list, r)
}

// singleNet returns the network that has one address.
func singleNet(a netip.Addr) *net.IPNet {
	n := result.IPNet(result.Single(a))
	return &n
}

// serveGateway gives the host end the gateways' addresses, which many host ends have, and has the host route to the container's addresses
// by it, also where it has a route to an earlier holder.
func serveGateway(r *plugin.Request, end netlink.Link, ips []*types100.IPConfig) error {
	for _, ip := range ips {
		if err := giveGateway(r, end, gatewayOf(ip)); err != nil {
			return err
		}
		own := hostRoute(end, ip)
		if err := r.Links().RouteReplace(&own); err != nil {
			return fmt.Errorf("route %s to %s: %w", own.Dst, end.Attrs().Name, err)
		}
	}
	return attach.EnableForwarding(r, gatewaysOf(ips))
}

// giveGateway gives the host end a gateway's address. Addresses of the container may share it.
func giveGateway(r *plugin.Request, end netlink.Link, gateway netip.Prefix) error {
	err := attach.AddAddress(r, end, gateway)
	switch {
	case err == nil:
		r.Announce("give " + end.Attrs().Name + " the gateway's address " + gateway.String())
	case !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("give %s the gateway's address %s: %w", end.Attrs().Name, gateway, err)
	}
	return nil
}

// hostRoute is the host's route to an address of the container.
func hostRoute(end netlink.Link, ip *types100.IPConfig) netlink.Route {
	return netlink.Route{LinkIndex: end.Attrs().Index, Dst: singleNet(result.Addr(ip.Address.IP)), Scope: netlink.SCOPE_HOST}
}

func gatewayOf(ip *types100.IPConfig) netip.Prefix { return result.Single(result.Addr(ip.Gateway)) }

func gatewaysOf(ips []*types100.IPConfig) (gateways []netip.Prefix) {
	for _, ip := range ips {
		gateways = append(gateways, gatewayOf(ip))
	}
	return gateways
}

// Del removes what the packet filter has, then the veth pair, and gives back the addresses.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	detach.Start(r)
	r.Announce("packet filter")
	filter := netfilter.Del(ctx, r, result.PrefixesOf(r.PrevResult, r.IfName), netfilter.Masquerade(nil))
	d := attach.BeginDel(ctx, r, attach.Locate(r.Config))
	end, certain, err := attach.FindHostEnd(r)
	if end != nil && (certain || servesOne(end)) {
		err = detach.Delete(r, end.Attrs().Index)
	}
	return errors.Join(filter, d.End(ctx, err))
}

// servesOne reports whether a host end serves one container, as the reference plugin's do: it is in no bridge, and has an address
// without a network.
func servesOne(end netlink.Link) bool {
	addresses, err := link.Prefixes(end)
	return err == nil && end.Attrs().MasterIndex == 0 && slices.ContainsFunc(addresses, netip.Prefix.IsSingleIP)
}

// Explain implements plugin.Explainer.
func (Plugin) Explain(o *conf.Object) []string {
	return attach.ReadMasquerade(o).Explain(attach.Locate(o))
}

// Status reports whether an ADD could be served: the configuration is valid, the packet filter has what is needed, and the IPAM
// plugin is ready.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	if err := c.masquerade.Available(); err != nil {
		return err
	}
	return attach.Status(ctx, r, &c.Config)
}

// GC removes what the packet filter, links and leases hold for the network's attachments that are not valid.
func (p Plugin) GC(ctx context.Context, r *plugin.Request) error {
	return attach.GC(ctx, r, attach.Locate(r.Config), p.Stores(r)...)
}

// Stores returns where the packet filter holds something for attachments, and the host ends.
func (Plugin) Stores(r *plugin.Request) []plugin.Store {
	return append(netfilter.Stores(r, netfilter.Masquerade(nil)), attach.HostEnds(r))
}
