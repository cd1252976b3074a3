package iface

import (
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

const repeat = "something changed the container's network after ADD: restart the container, or put it back by hand"

// Check compares a link with what a result says of it: it exists, with that
// MAC address, and has the addresses and routes. Routes may stand in any
// table, since later plugins move them (sbr, vrf). It returns the link.
func Check(c *link.Conn, want *types100.Interface, ips []*types100.IPConfig, routes []*types.Route) (*link.Link, error) {
	l, err := c.ByName(want.Name)
	if err != nil {
		return nil, plugin.Errorf(repeat, "interface %s is not in the container: %v", want.Name, err)
	}
	if mac := link.MACText(l.MAC); want.Mac != "" && mac != want.Mac {
		return l, plugin.Errorf(repeat, "interface %s has the MAC address %s, ADD gave it %s", want.Name, mac, want.Mac)
	}
	if err := checkAddresses(c, l, ips); err != nil {
		return l, err
	}
	return l, checkRoutes(c, l, ips, routes)
}

func checkAddresses(c *link.Conn, l *link.Link, ips []*types100.IPConfig) error {
	if len(ips) == 0 {
		return nil
	}
	have, err := c.Addresses(l.Index)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		if !slices.ContainsFunc(have, func(a link.Address) bool { return a.Prefix == plugin.Prefix(ip.Address) }) {
			return plugin.Errorf(repeat, "interface %s lacks the address %s", l.Name, plugin.Prefix(ip.Address))
		}
	}
	return nil
}

func checkRoutes(c *link.Conn, l *link.Link, ips []*types100.IPConfig, routes []*types.Route) error {
	if len(ips) == 0 && len(routes) == 0 {
		return nil
	}
	have, err := c.Routes(l.Index)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		network := plugin.Prefix(ip.Address).Masked()
		if network.IsSingleIP() {
			continue // the kernel makes no route for it
		}
		if !has(have, network, netip.Addr{}) {
			return plugin.Errorf(repeat, "interface %s lacks the route to its own network %s", l.Name, network)
		}
	}
	for _, r := range routes {
		gw := nextHop(r, ips)
		if !has(have, plugin.Prefix(r.Dst).Masked(), gw) {
			return plugin.Errorf(repeat, "interface %s lacks the route %s", l.Name, link.Route{Dst: plugin.Prefix(r.Dst), Gateway: gw})
		}
	}
	return nil
}

// has tells whether there is a route to dst, by gw if that is given.
func has(routes []link.Route, dst netip.Prefix, gw netip.Addr) bool {
	return slices.ContainsFunc(routes, func(r link.Route) bool {
		return r.Dst == dst && (!gw.IsValid() || r.Gateway == gw)
	})
}
