package node

import (
	"crypto/rand"
	"errors"
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/result"
)

// privatePools are where IPv4 subnets come from. None is the default of a well-known program.
var privatePools = parsePrefixes("10.112.0.0/12", "172.20.0.0/14", "192.168.128.0/17")

// usualSubnets are subnets that well-known programs have by default. A node need not have a route to them: Services have none, and bridges are
// made with the first container.
var usualSubnets = parsePrefixes(
	"10.96.0.0/12",                 // Kubernetes' Services
	"10.42.0.0/16", "10.43.0.0/16", // k3s
	"10.244.0.0/16",                  // flannel, kind
	"10.85.0.0/16",                   // CRI-O
	"10.88.0.0/16",                   // podman
	"10.4.0.0/24",                    // nerdctl
	"172.17.0.0/16", "172.18.0.0/15", // Docker
	"172.26.64.0/20", // Nomad
)

func parsePrefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// FreeSubnet returns a private IPv4 subnet with a prefix of this many bits, which has no address of those that are taken.
func FreeSubnet(bits int, taken []netip.Prefix) (netip.Prefix, error) {
	taken = slices.Concat(taken, usualSubnets)
	for _, pool := range privatePools {
		for p := netip.PrefixFrom(pool.Addr(), max(bits, pool.Bits())); p.IsValid() && pool.Overlaps(p); p = nextSubnet(p) {
			if !slices.ContainsFunc(taken, p.Overlaps) {
				return p, nil
			}
		}
	}
	return netip.Prefix{}, errors.New("no private subnet is free on this node: all have routes, addresses or networks")
}

// nextSubnet returns the subnet behind a subnet, of the same size; an invalid one behind the last.
func nextSubnet(p netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(result.Last(p).Next(), p.Bits())
}

// FreeIPv6Subnet returns a unique local IPv6 subnet as RFC 4193 makes them: at random, so that no two sites have the same.
func FreeIPv6Subnet(taken []netip.Prefix) (netip.Prefix, error) {
	const most = 100
	for range most {
		a := [16]byte{0xfd}
		_, _ = rand.Read(a[1:6]) // it never fails
		if p := netip.PrefixFrom(netip.AddrFrom16(a), 64); !slices.ContainsFunc(taken, p.Overlaps) {
			return p, nil
		}
	}
	return netip.Prefix{}, errors.New("no unique local IPv6 subnet is free on this node: something has all of fd00::/8")
}
