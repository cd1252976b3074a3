package result

import (
	"net"
	"net/netip"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/netns"
)

// ContainerInterface returns the last interface of a result that stands for the request's own, nil if it has none. The namespace may have
// another path in the result than in the request.
func ContainerInterface(r *types100.Result, ifName, path string) *types100.Interface {
	for i := len(r.Interfaces) - 1; i >= 0; i-- {
		if f := r.Interfaces[i]; f.Name == ifName && netns.Same(f.Sandbox, path) {
			return f
		}
	}
	return nil
}

// AddressesOf returns the IPs that may be the container's on ifName: those on an interface of that name in a sandbox, and those on
// no known interface. There may be no result.
func AddressesOf(r *types100.Result, ifName string) []*types100.IPConfig {
	var ips []*types100.IPConfig
	if r == nil {
		return nil
	}
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

// PrefixesOf is AddressesOf with no more than addresses and prefix lengths.
func PrefixesOf(r *types100.Result, ifName string) []netip.Prefix {
	return Prefixes(AddressesOf(r, ifName))
}

// Prefixes returns addresses with their prefix lengths.
func Prefixes(ips []*types100.IPConfig) []netip.Prefix {
	list := make([]netip.Prefix, 0, len(ips))
	for _, ip := range ips {
		list = append(list, Prefix(ip.Address))
	}
	return list
}

// Prefix returns a net.IPNet as a netip.Prefix.
func Prefix(n net.IPNet) netip.Prefix {
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(Addr(n.IP), bits)
}

// Addr returns a net.IP as a netip.Addr, the zero Addr for none.
func Addr(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

// Single returns the network that has one address.
func Single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Last returns a network's last address.
func Last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// IPNet returns a netip.Prefix as a net.IPNet.
func IPNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
