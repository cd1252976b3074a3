package iptables

import (
	"net/netip"
	"slices"
)

// family is a family of addresses. Each has tables and programs of its own.
type family uint8

const (
	ipv4 family = 4
	ipv6 family = 6
)

// families returns both.
func families() [2]family { return [2]family{ipv4, ipv6} }

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

func (f family) String() string {
	if f == ipv4 {
		return "ipv4"
	}
	return "ipv6"
}

func parseFamily(s string) (family, bool) {
	for _, f := range families() {
		if f.String() == s {
			return f, true
		}
	}
	return 0, false
}

// of returns those of the addresses that are of the family.
func (f family) of(addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return familyOf(a) != f })
}

// alone returns an address as rules have it.
func alone(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

func addrsOf(prefixes []netip.Prefix) []netip.Addr {
	addrs := make([]netip.Addr, 0, len(prefixes))
	for _, p := range prefixes {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}
