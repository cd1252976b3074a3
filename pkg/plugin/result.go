package plugin

import (
	"net/netip"
)

// Result is what an ADD made: the form of CNI 1.1.0 (spec, section "ADD
// Success"), from which the older forms are printed.
type Result struct {
	Interfaces []Interface
	IPs        []IP
	Routes     []Route
	DNS        DNS
}

// Interface is a link that the chain made or uses.
type Interface struct {
	Name       string
	MAC        string // lower case, colons
	MTU        int    // bytes; 0 is not given
	Sandbox    string // CNI_NETNS of a container's link, "" on the host
	SocketPath string
	PCIID      string
}

// IP is an address of a link.
type IP struct {
	Address   netip.Prefix // the address with its prefix length
	Gateway   netip.Addr   // the zero Addr if there is none
	Interface *int         // index into Interfaces, nil if not known
}

// Route is a route in the container.
type Route struct {
	Dst      netip.Prefix
	GW       netip.Addr // the zero Addr: the gateway of the address's family
	MTU      int        // bytes; 0 is not given
	AdvMSS   int        // bytes; 0 is not given
	Priority int        // metric; 0 is the kernel's choice
	Table    *int       // routing table; nil is main
	Scope    *int       // rtnetlink(7) scope; nil is global
}

// DNS is what the container's resolv.conf should hold.
type DNS struct {
	Nameservers []string
	Domain      string
	Search      []string
	Options     []string
}

// IsZero tells whether no DNS setting is given.
func (d DNS) IsZero() bool {
	return len(d.Nameservers) == 0 && d.Domain == "" && len(d.Search) == 0 && len(d.Options) == 0
}

// ContainerInterface returns the index and the value of the last interface
// that stands for the request's own, nil if the result has none.
func (r *Result) ContainerInterface(ifName, netns string) (int, *Interface) {
	for i := len(r.Interfaces) - 1; i >= 0; i-- {
		if f := &r.Interfaces[i]; f.Name == ifName && f.Sandbox == netns {
			return i, f
		}
	}
	return -1, nil
}

// AddressesOf returns the IPs that may be the container's on ifName: those on
// an interface of that name in a sandbox, and those on no known interface.
func (r *Result) AddressesOf(ifName string) []IP {
	var ips []IP
	for _, ip := range r.IPs {
		if ip.Interface == nil || *ip.Interface < 0 || *ip.Interface >= len(r.Interfaces) {
			ips = append(ips, ip)
			continue
		}
		if f := r.Interfaces[*ip.Interface]; f.Name == ifName && f.Sandbox != "" {
			ips = append(ips, ip)
		}
	}
	return ips
}

// Prefixes returns the addresses of AddressesOf; there may be no result.
func (r *Result) Prefixes(ifName string) []netip.Prefix {
	if r == nil {
		return nil
	}
	ips := r.AddressesOf(ifName)
	list := make([]netip.Prefix, 0, len(ips))
	for _, ip := range ips {
		list = append(list, ip.Address)
	}
	return list
}
