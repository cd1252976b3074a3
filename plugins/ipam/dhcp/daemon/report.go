package daemon

import (
	"net"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/rfc1035label"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// leastMTU is the least MTU that a server can mean (RFC 2132, 5.1).
const leastMTU = 68

// report adds what a DHCPACK says to a result: the address, its gateway, routes with their MTU, and DNS.
func (f *v4) report(h *holding, mtu int, to *types100.Result) error {
	ack, err := dhcpv4.FromBytes(h.packet)
	if err != nil {
		return err
	}
	bits, all := ack.SubnetMask().Size()
	if all != 32 {
		return plugin.Errorf("have the server send option 1", "DHCP option Subnet Mask not found in DHCPACK")
	}
	ip := &types100.IPConfig{Address: result.IPNet(netip.PrefixFrom(h.address, bits))}
	if routers := ack.Router(); len(routers) > 0 {
		ip.Gateway = routers[0]
	}
	to.IPs = append(to.IPs, ip)
	servers, _ := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, ack.Options)
	if int(servers) < leastMTU || int(servers) > mtu {
		servers = 0
	}
	for _, r := range routesOf(ack, ip.Gateway) {
		r.Priority, r.MTU = f.options.Priority, int(servers)
		to.Routes = append(to.Routes, r)
	}
	for _, server := range ack.DNS() {
		to.DNS.Nameservers = append(to.DNS.Nameservers, server.String())
	}
	if name := strings.TrimRight(ack.DomainName(), "\x00"); isDomain(name) { // some servers send the end of a C string, too
		to.DNS.Domain = name
	}
	addSearch(to, ack.DomainSearch())
	return nil
}

// routesOf returns the routes of option 121 or else, since that one rules the others out (RFC 3442), of options 33 and 3.
func routesOf(ack *dhcpv4.DHCPv4, gateway net.IP) (routes []*types.Route) {
	if classless := ack.ClasslessStaticRoute(); len(classless) > 0 {
		for _, r := range classless {
			route := &types.Route{Dst: *r.Dest, GW: r.Router}
			if r.Router.IsUnspecified() {
				scope := unix.RT_SCOPE_LINK
				route.Scope = &scope
			}
			routes = append(routes, route)
		}
		return routes
	}
	pairs := dhcpv4.GetIPs(dhcpv4.OptionStaticRoutingTable, ack.Options)
	for i := 0; i+1 < len(pairs); i += 2 {
		mask := pairs[i].DefaultMask()
		routes = append(routes, &types.Route{Dst: net.IPNet{IP: pairs[i].Mask(mask), Mask: mask}, GW: pairs[i+1]})
	}
	if gateway != nil {
		routes = append(routes, &types.Route{Dst: result.IPNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0)), GW: gateway})
	}
	return routes
}

// report adds the address of a REPLY to a result, and DNS. Routers are none of DHCPv6's business.
func (f *v6) report(h *holding, _ int, to *types100.Result) error {
	m, err := dhcpv6.MessageFromBytes(h.packet)
	if err != nil {
		return err
	}
	to.IPs = append(to.IPs, &types100.IPConfig{Address: result.IPNet(netip.PrefixFrom(h.address, 128))})
	for _, server := range m.Options.DNS() {
		to.DNS.Nameservers = append(to.DNS.Nameservers, server.String())
	}
	addSearch(to, m.Options.DomainSearchList())
	return nil
}

// addSearch adds the domain names of a search list to a result.
func addSearch(to *types100.Result, list *rfc1035label.Labels) {
	if list == nil {
		return
	}
	for _, name := range list.Labels {
		if isDomain(name) {
			to.DNS.Search = append(to.DNS.Search, name)
		}
	}
}

// isDomain reports whether a text is a domain name, and so no danger to who writes it into a file (RFC 1035; with the underscores that
// people use).
func isDomain(name string) bool {
	const mostName, mostLabel = 253, 63
	other := func(c rune) bool {
		return c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" || len(label) > mostLabel || strings.ContainsFunc(label, other) {
			return false
		}
	}
	return len(name) <= mostName
}
