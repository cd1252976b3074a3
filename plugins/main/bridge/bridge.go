// Package bridge connects containers to a bridge of the host by a veth pair,
// and makes the bridge their gateway if asked to.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/delegate"
	"github.com/cnibox/cnibox/pkg/iface"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// Plugin is the bridge plugin.
type Plugin struct{}

// portTime bounds the wait for the bridge's new port to pass packets. The
// kernel takes milliseconds; a bridge with spanning tree takes longer, and is
// not waited for beyond this.
const portTime = 3 * time.Second

// attachment is one ADD on its way.
type attachment struct {
	*plugin.Request
	config
	host         *link.Conn
	ipam         *delegate.Delegate // nil is layer 2 only
	bridge       *link.Link
	containerMAC [6]byte
	undo         plugin.Undo
	result       types100.Result
}

// Add makes the veth pair, and what the configuration asks for around it.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r)
	if err != nil {
		return nil, err
	}
	a := &attachment{Request: r, config: *c}
	if c.ipam != "" {
		if a.ipam, err = delegate.Find(r, c.ipam); err != nil {
			return nil, err
		}
	}
	if a.host, err = link.Open(); err != nil {
		return nil, err
	}
	defer a.host.Close()
	defer a.undo.OnError(ctx, &err)
	if err := a.make(ctx); err != nil {
		return nil, err
	}
	return &a.result, nil
}

func (a *attachment) make(ctx context.Context) error {
	// An address is asked for before anything is made, so that a pool that is
	// empty costs nothing; an IPAM plugin that works through the link has to
	// wait for it.
	if a.ipam != nil && !a.ipam.NeedsLink() {
		if err := a.addresses(ctx); err != nil {
			return err
		}
	}
	if err := a.Step(ctx, "bridge"); err != nil {
		return err
	}
	bridge, err := ensureBridge(a.host, &a.config)
	if err != nil {
		return err
	}
	a.bridge = bridge
	if err := a.Step(ctx, "veth"); err != nil {
		return err
	}
	pair, err := a.connect()
	if err != nil {
		return err
	}
	if err := a.checkSpoofing(ctx); err != nil {
		return err
	}
	if a.ipam != nil && a.ipam.NeedsLink() {
		if err := a.addresses(ctx); err != nil {
			return err
		}
	}
	if err := a.Step(ctx, "container"); err != nil {
		return err
	}
	err = iface.Configure(a.NS(), a.IfName, pair.Container, a.result.IPs, a.result.Routes,
		iface.Options{DAD: a.dad, Announce: a.announces(), Down: a.containerDown})
	if err != nil {
		return err
	}
	if err := a.Step(ctx, "gateway"); err != nil {
		return err
	}
	port, err := a.serveGateway(pair.Host)
	if err != nil {
		return err
	}
	if err := a.Step(ctx, "masquerade"); err != nil {
		return err
	}
	if err := a.hideBehindHost(ctx); err != nil {
		return err
	}
	if !a.dns.IsEmpty() {
		a.result.DNS = a.dns
	}
	return a.awaitPort(port)
}

// addresses asks the IPAM plugin, and completes what it answers.
func (a *attachment) addresses(ctx context.Context) error {
	if err := a.Step(ctx, "ipam"); err != nil {
		return err
	}
	leased, err := a.ipam.Add(ctx, a.Request)
	if err != nil {
		return err
	}
	a.undo.Push("give back the address", func(ctx context.Context) error { return a.ipam.Del(ctx, a.Request) })
	if len(leased.IPs) == 0 {
		return plugin.Errorf("give it addresses to hand out, or remove the ipam section for a layer 2 network", "IPAM plugin %s returned no address", a.config.ipam)
	}
	a.result.IPs, a.result.Routes, a.result.DNS = leased.IPs, leased.Routes, leased.DNS
	container := 2 // bridge, host end, container end
	for _, ip := range a.result.IPs {
		ip.Interface = &container
		if ip.Gateway == nil && a.gateway {
			ip.Gateway = plugin.Prefix(ip.Address).Masked().Addr().Next().AsSlice()
		}
	}
	if a.defaultRoute {
		a.result.Routes = withDefaultRoutes(a.result.Routes, a.result.IPs)
	}
	return nil
}

// withDefaultRoutes adds a default route for each family that has a gateway and
// no default route yet.
func withDefaultRoutes(routes []*types.Route, ips []*types100.IPConfig) []*types.Route {
	for _, unspecified := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		dst := netip.PrefixFrom(unspecified, 0)
		gw := iface.Gateway(ips, unspecified)
		there := slices.ContainsFunc(routes, func(r *types.Route) bool { return plugin.Prefix(r.Dst) == dst })
		if gw.IsValid() && !there {
			routes = append(routes, &types.Route{Dst: plugin.IPNet(dst), GW: gw.AsSlice()})
		}
	}
	return routes
}

// chooseMAC returns the MAC address of the container's end: what was asked for, or
// else what is made from the first IP address, if that is known already.
func (a *attachment) chooseMAC() [6]byte {
	if a.mac != "" {
		mac, _ := link.ParseMAC(a.mac) // parse has done so
		return mac
	}
	if len(a.result.IPs) > 0 {
		return plugin.MACOf(plugin.Addr(a.result.IPs[0].Address.IP))
	}
	return a.Key.MAC("container end")
}

// announces tells whether the container's addresses are announced, as the
// reference plugin does it. The bridge hands that to all of its ports: with 1,000
// of them it takes 3 ms of the 9 of an ADD. On a node that is crowded so an
// address whose MAC address is made from it, and was its last holder's, goes
// without.
func (a *attachment) announces() bool {
	if len(a.result.IPs) == 0 {
		return false
	}
	return a.containerMAC != plugin.MACOf(plugin.Addr(a.result.IPs[0].Address.IP)) || !netns.Crowded()
}

// connect makes the veth pair and fills in the result's interfaces.
func (a *attachment) connect() (link.Pair, error) {
	a.containerMAC = a.chooseMAC()
	v := link.Veth{
		HostMAC:      hostMAC(a.Key),
		Alias:        alias(a.Key),
		Master:       a.bridge.Index,
		Container:    a.IfName,
		ContainerMAC: a.containerMAC,
		MTU:          a.mtu,
		Port:         a.port,
	}
	if !a.masquerade && !a.spoofCheck {
		v.Alias += unfiltered
	}
	pair, err := createVeth(a.host, a.NS(), a.Key, &v)
	if errors.Is(err, unix.EXFULL) {
		err = plugin.Errorf("give some of the node's containers a network with another bridge; `bridge link show` lists the ports", "bridge %s has as many ports as a bridge can have, 1,023", a.config.bridge)
	}
	if err != nil {
		return pair, err
	}
	a.undo.Push("delete the veth pair", func(context.Context) error { return gone(a.host.Delete(pair.Host)) })
	a.result.Interfaces = []*types100.Interface{
		{Name: a.config.bridge, Mac: link.MACText(a.bridge.MAC)},
		{Name: v.Host, Mac: link.MACText(v.HostMAC)},
		{Name: a.IfName, Mac: link.MACText(v.ContainerMAC), Sandbox: a.Netns},
	}
	return pair, nil
}

// serveGateway gives the bridge the gateways' addresses and lets the host
// forward packets. What it does is shared by all attachments of the bridge and
// stays, as it does with the reference plugin. It returns the host end as it is
// then.
func (a *attachment) serveGateway(host int) (*link.Link, error) {
	gateways := a.gateways(a.result.IPs)
	arrival := link.Arrival{Port: host}
	for _, g := range gateways {
		arrival.Gateways = append(arrival.Gateways, gatewayAddress(g))
	}
	for _, ip := range a.result.IPs {
		arrival.Addresses = append(arrival.Addresses, plugin.Addr(ip.Address.IP))
	}
	added, port, err := a.host.Welcome(a.bridge.Index, arrival)
	if err != nil {
		return nil, err
	}
	if err := resolveConflicts(a.host, a.bridge, gateways, added, a.forceAddress); err != nil {
		return nil, err
	}
	return port, forward(a.host, gateways)
}

func forward(host *link.Conn, gateways []netip.Prefix) error {
	for _, family := range []struct {
		number uint8
		key    string
		is     func(netip.Addr) bool
	}{{unix.AF_INET, "net/ipv4/ip_forward", netip.Addr.Is4}, {unix.AF_INET6, "net/ipv6/conf/all/forwarding", netip.Addr.Is6}} {
		if !slices.ContainsFunc(gateways, func(p netip.Prefix) bool { return family.is(p.Addr()) }) {
			continue
		}
		if on, _ := host.Forwards(family.number); on {
			continue // writing it again would walk all interfaces
		}
		if err := sysctl.Set(family.key, "1"); err != nil {
			return fmt.Errorf("let the host forward packets: %w", err)
		}
	}
	return nil
}

// hideBehindHost masquerades what the container sends out of its network.
func (a *attachment) hideBehindHost(ctx context.Context) error {
	if !a.masquerade || len(a.result.IPs) == 0 {
		return nil
	}
	a.undo.Push("stop masquerading", func(ctx context.Context) error { return backend.DelMasquerade(ctx, a.Key, nil) })
	return backend.AddMasquerade(ctx, a.masqueradeBy, a.Key, plugin.Prefixes(a.result.IPs))
}

// awaitPort waits until the bridge passes packets of the new port, which it may
// do already: the kernel notices the carrier a moment after the container's end
// is up.
func (a *attachment) awaitPort(port *link.Link) error {
	if a.containerDown || passesPackets(port) {
		return nil
	}
	l, err := a.host.WaitUntil(port.Index, portTime, passesPackets)
	if err != nil {
		return plugin.Errorf("look at the port and the bridge with `ip -d link`", "bridge %s: port is in operational state %d: %v", a.config.bridge, state(l), err)
	}
	return nil
}

func passesPackets(l *link.Link) bool { return l.OperState == link.OperUp }

func state(l *link.Link) int {
	if l == nil {
		return 0
	}
	return l.OperState
}
