// Package egress says what a container may reach: it has the host drop all that a container sends elsewhere, or under another's address.
package egress

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
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/conntrack"
	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Plugin is the egress plugin.
type Plugin struct{}

// Add has what the container sends judged from now on.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	e, err := wanted(r)
	if err != nil {
		return nil, err
	}
	if err := r.Step(ctx, "judge what the container sends"); err != nil {
		return nil, err
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	undo.Push("stop judging what the container sends", func(ctx context.Context) error { return netfilter.Del(ctx, r, nil, e.Features()...) })
	if err := e.Add(ctx, r); err != nil || e.record == nil {
		return r.PrevResult, err
	}
	if e.Lists.HasNames() { // without any, nothing goes on that was open once
		if err := conntrack.ForgetFrom(ctx, e.record.Addresses, 0); err != nil {
			return nil, err
		}
	}
	undo.Push("forget its names", func(context.Context) error { return names.Remove(r.Key, names.Listed) })
	return r.PrevResult, e.record.Write()
}

// Del removes what ADD made. It needs the attachment's key alone. The link of a container that still runs goes down first: nothing judges what it sends
// until the main plugin's DEL removes the link.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	r.Announce("stop judging what the container sends")
	if r.NS() != nil && r.PrevResult != nil {
		if end, _ := attach.ReportedHostEnd(r); end != nil {
			_ = r.Links().LinkSetDown(end)
		}
	}
	return errors.Join(netfilter.Del(ctx, r, nil, netfilter.Egress{}.Features()...), names.Remove(r.Key, names.Listed))
}

// Mend looks at what judges.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	e, err := wanted(r)
	if err != nil {
		return err
	}
	m.Mend(e.Check(ctx, r), "judge what the container sends", func() error { return e.repair(ctx, r) })
	if e.record != nil {
		return e.record.Mend(m)
	}
	return nil
}

// repair gives the container what it lacks. Flows to DNS servers that it has begun meanwhile would go on past the resolver.
func (e *needs) repair(ctx context.Context, r *plugin.Request) error {
	err := e.Repair(ctx, r)
	if err == nil && e.record != nil {
		err = conntrack.ForgetFrom(ctx, e.record.Addresses, names.Port)
	}
	return err
}

// Status reports whether the host has what the lists need.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	c, err := parse(r.Config)
	if err == nil {
		err = netns.CheckAdmin()
	}
	if err == nil {
		err = netfilter.Egress{}.Available()
	}
	if err == nil && c.hasNames {
		err = names.CheckReady("containers reach nothing by name")
	}
	return err
}

// Stores returns where something judges.
func (Plugin) Stores(r *plugin.Request) []plugin.Store {
	return append(netfilter.Stores(r, netfilter.Egress{}.Features()...), names.Listed)
}

// needs is what the configuration asks for.
type needs struct {
	netfilter.Egress
	record *names.Record // for the resolver; nil if the container's questions are not its business
}

// wanted returns what the configuration asks for, for the attachment that the previous result is of.
func wanted(r *plugin.Request) (e needs, err error) {
	c, err := parse(r.Config)
	if err != nil {
		return e, err
	}
	end, err := attach.ReportedHostEnd(r)
	if err != nil {
		return e, err
	}
	inside := result.ContainerInterface(r.PrevResult, r.IfName, r.Netns)
	if end == nil || inside == nil {
		return e, plugin.ConfigError("chain egress behind a plugin whose packets the host routes, such as bridge or ptp; behind others use the firewall of what is on the other side",
			"the host does not see what %s sends: it is no veth whose other end prevResult names, and so macvlan, ipvlan, vlan, host-device and tap can't have lists", r.IfName)
	}
	mac, err := attach.ParseMAC(inside.Mac)
	if err != nil {
		return e, err
	}
	e.EgressNeeds = spec.EgressNeeds{HostEnd: end.Attrs().Name, MAC: [6]byte(mac), Addrs: result.PrefixesOf(r.PrevResult, r.IfName), Results: r.Results}
	if e.OnBridge, err = isOnBridge(r, end); err != nil {
		return e, err
	}
	e.Lists = c.lists
	if c.internal {
		own, texts := reach.Lists{Closed: true, NoNode: true}, names.Lists{Closed: true}
		for _, p := range e.Addrs {
			own.Allow = append(own.Allow, reach.Entry{Prefix: p.Masked()})
			texts.Allow = append(texts.Allow, p.Masked().String())
		}
		e.Lists, c.texts = e.Lists.And(own), append(c.texts, texts)
	}
	if c.internal || c.hasNames {
		err = e.addNames(r, c)
	}
	return e, err
}

// addNames adds where the container's questions for names go, and what the resolver has to know of it. On an internal network it answers for names of
// containers alone.
func (e *needs) addNames(r *plugin.Request, c *config) error {
	record := &names.Record{Key: r.Key, Lists: c.texts}
	for _, ip := range result.AddressesOf(r.PrevResult, r.IfName) {
		record.Addresses = append(record.Addresses, result.Addr(ip.Address.IP))
		if g := result.Addr(ip.Gateway); ip.Gateway != nil && !slices.Contains(record.Gateways, g) {
			record.Gateways = append(record.Gateways, g)
			e.Resolvers = append(e.Resolvers, netip.AddrPortFrom(g, names.ListPort))
		}
	}
	switch {
	case len(record.Gateways) > 0:
		record.List, e.record = e.List(), record
	case c.hasNames:
		return plugin.ConfigError("list the addresses, or make the host the gateway, such as by \"isGateway\" of bridge",
			"names are asked for at the gateway, and %s has none", r.IfName)
	}
	return nil
}

// isOnBridge reports whether the host's end is a port of a bridge. Behind one, the gateway has to be this host: what leaves by another port is
// not routed here. Any other master takes packets before they can be judged.
func isOnBridge(r *plugin.Request, end netlink.Link) (bool, error) {
	if end.Attrs().MasterIndex == 0 {
		return false, nil
	}
	master, err := r.Links().LinkByIndex(end.Attrs().MasterIndex)
	if err != nil {
		return false, fmt.Errorf("look up the master of %s: %w", end.Attrs().Name, err)
	}
	if master.Type() != "bridge" {
		return false, plugin.ConfigError("chain egress behind a plugin whose packets the host routes, such as bridge or ptp",
			"%s is a port of %s, of type %s: what it receives can't be judged", end.Attrs().Name, master.Attrs().Name, master.Type())
	}
	for _, ip := range result.AddressesOf(r.PrevResult, r.IfName) {
		if ip.Gateway == nil {
			continue
		}
		isOwn, err := isLocal(r.Links(), ip.Gateway)
		if err != nil {
			return false, err
		}
		if !isOwn {
			return false, plugin.ConfigError(`make the host the gateway: "isGateway": true`,
				"gateway %s is not this host, which does not route what the container sends, and can't judge it", ip.Gateway)
		}
	}
	return true, nil
}

// isLocal reports whether an address is the host's. The route of one of IPv6 comes a moment after it.
func isLocal(h *netlink.Handle, address net.IP) (bool, error) {
	routes, err := h.RouteGet(address)
	if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
		return true, nil
	}
	list, err := link.Addresses(h, nil, netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("list the host's addresses: %w", err)
	}
	return slices.ContainsFunc(list, func(a netlink.Addr) bool { return a.IP.Equal(address) }), nil
}
