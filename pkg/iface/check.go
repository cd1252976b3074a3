package iface

import (
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

const repeat = "something changed the container's network after ADD: restart the container, or put it back by hand"

// Check compares a link with what a result says of it: it exists, with that
// MAC address, and has the addresses and routes. Routes may stand in any
// table, since later plugins move them (sbr, vrf). It returns the link.
func Check(c *link.Conn, want plugin.Interface, ips []plugin.IP, routes []plugin.Route) (*link.Link, error) {
	l, err := c.ByName(want.Name)
	if err != nil {
		return nil, plugin.Errorf("interface %s is not in the container: %v", want.Name, err).WithDetails(repeat)
	}
	if mac := link.MACText(l.MAC); want.MAC != "" && mac != want.MAC {
		return l, plugin.Errorf("interface %s has the MAC address %s, ADD gave it %s", want.Name, mac, want.MAC).WithDetails(repeat)
	}
	if err := checkAddresses(c, l, ips); err != nil {
		return l, err
	}
	return l, checkRoutes(c, l, ips, routes)
}

func checkAddresses(c *link.Conn, l *link.Link, ips []plugin.IP) error {
	if len(ips) == 0 {
		return nil
	}
	have, err := c.Addresses(l.Index)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		if !slices.ContainsFunc(have, func(a link.Address) bool { return a.Prefix == ip.Address }) {
			return plugin.Errorf("interface %s lacks the address %s", l.Name, ip.Address).WithDetails(repeat)
		}
	}
	return nil
}

func checkRoutes(c *link.Conn, l *link.Link, ips []plugin.IP, routes []plugin.Route) error {
	if len(ips) == 0 && len(routes) == 0 {
		return nil
	}
	have, err := c.Routes(l.Index)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		if ip.Address.IsSingleIP() {
			continue // the kernel makes no route for it
		}
		if !has(have, ip.Address.Masked(), netip.Addr{}) {
			return plugin.Errorf("interface %s lacks the route to its own network %s", l.Name, ip.Address.Masked()).WithDetails(repeat)
		}
	}
	for _, r := range routes {
		gw := nextHop(r, ips)
		if !has(have, r.Dst.Masked(), gw) {
			return plugin.Errorf("interface %s lacks the route %s", l.Name, link.Route{Dst: r.Dst, Gateway: gw}).WithDetails(repeat)
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
