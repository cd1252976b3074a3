// Package dnsname gives a container a name by which others on its networks find it.
package dnsname

import (
	"context"
	"net"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Plugin is the dnsname plugin.
type Plugin struct{}

// Add writes down what the container is called, for the agent's resolver, and has the container ask that first.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	c, record, err := wanted(r)
	if err != nil {
		return nil, err
	}
	if err := r.Step(ctx, "write down the "+record.String()); err != nil {
		return nil, err
	}
	if err := record.Write(); err != nil {
		return nil, err
	}
	dns := &r.PrevResult.DNS
	var node []netip.Addr
	if c.nodeServers {
		node = names.Servers()
	}
	dns.Nameservers = servers(record.Gateways, dns.Nameservers, node)
	if record.Domain != "" && !slices.Contains(dns.Search, record.Domain) {
		dns.Search = append(dns.Search, record.Domain)
	}
	return r.PrevResult, nil
}

// servers puts the gateways before the servers that the network has, and the node's own behind these: a container whose gateway does not answer goes on
// to the next.
func servers(gateways []netip.Addr, network []string, node []netip.Addr) (list []string) {
	for _, a := range gateways {
		list = append(list, a.String())
	}
	for _, server := range network {
		if !slices.Contains(list, server) {
			list = append(list, server)
		}
	}
	for _, a := range node {
		if names.IsElsewhere(a) && !slices.Contains(list, a.String()) {
			list = append(list, a.String())
		}
	}
	return list
}

// Del forgets what the container is called.
func (Plugin) Del(_ context.Context, r *plugin.Request) error {
	r.Announce("forget the names")
	return names.Remove(r.Key, names.Called)
}

// Mend compares what is written down with what the configuration and the result say.
func (Plugin) Mend(_ context.Context, r *plugin.Request, m *plugin.Mender) error {
	_, want, err := wanted(r)
	if err != nil {
		return err
	}
	return want.Mend(m)
}

// Status reports whether names can be written down, and somebody answers for them.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	if _, err := parse(r); err != nil {
		return err
	}
	return names.CheckReady("containers don't find each other by name")
}

// wanted returns the configuration, and the record that ADD writes.
func wanted(r *plugin.Request) (c *config, record *names.Record, err error) {
	c, err = parse(r)
	if err != nil {
		return nil, nil, err
	}
	record = &names.Record{Key: r.Key, Names: c.names, Domain: c.domain}
	for _, p := range result.PrefixesOf(r.PrevResult, r.IfName) {
		record.Addresses = append(record.Addresses, p.Addr())
	}
	if len(record.Addresses) == 0 {
		return nil, nil, plugin.ConfigError(`give its network an "ipam", and chain dnsname behind the plugin that has it`, "%s has no address that its name could lead to", r.IfName)
	}
	record.Gateways, err = gateways(r)
	return c, record, err
}

// gateways returns the host's addresses at which the container asks for names: those of the first link of the host in the result, such as the bridge. Where
// that has none, as a bridge with VLANs, they are the gateways in the result which the host has.
func gateways(r *plugin.Request) (list []netip.Addr, err error) {
	h := r.Links()
	var at netlink.Link
	if i := slices.IndexFunc(r.PrevResult.Interfaces, func(f *types100.Interface) bool { return f.Sandbox == "" }); i >= 0 {
		at, err = h.LinkByName(r.PrevResult.Interfaces[i].Name)
		if err != nil && !link.IsNotFound(err) {
			return nil, err
		}
	}
	if at != nil {
		prefixes, err := link.Prefixes(at)
		for _, p := range prefixes {
			if p.Addr().IsGlobalUnicast() {
				list = append(list, p.Addr())
			}
		}
		if err != nil || list != nil {
			return list, err
		}
	}
	for _, ip := range r.PrevResult.IPs {
		if g := result.Addr(ip.Gateway); isOwn(h, ip.Gateway) && !slices.Contains(list, g) {
			list = append(list, g)
		}
	}
	if list == nil {
		err = plugin.ConfigError("chain dnsname behind a plugin that makes the host the container's gateway: bridge with \"isGateway\", or ptp",
			"the host has no address at which containers of network %s could ask for names", r.Network)
	}
	return list, err
}

// isOwn reports whether an address is the host's.
func isOwn(h *netlink.Handle, ip net.IP) bool {
	routes, err := h.RouteGet(ip)
	return err == nil && ip != nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// Stores returns the records of names.
func (Plugin) Stores(*plugin.Request) []plugin.Store { return []plugin.Store{names.Called} }
