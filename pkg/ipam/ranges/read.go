package ranges

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

func isIPv4(p Pool) bool { return p.Ranges[0].First.Is4() }

// overlap returns a range of p and one of q that have addresses in common.
func overlap(p, q Pool) (a, b Range, ok bool) {
	for _, a := range p.Ranges {
		for _, b := range q.Ranges {
			if a.Contains(b.First) || b.Contains(a.First) {
				return a, b, true
			}
		}
	}
	return a, b, false
}

// readPool reads a range set, whose ranges are all of one family.
func readPool(index int, list []*conf.Object) (Pool, error) {
	p := Pool{Index: index}
	for _, o := range list {
		ranges, err := readRange(o)
		if err != nil {
			return p, err
		}
		if len(p.Ranges) > 0 && isIPv4(p) != ranges[0].First.Is4() {
			return p, plugin.ConfigError("put each family in a range set of its own", "mixed address families: %s and %s", p.Ranges[0].Subnet, ranges[0].Subnet)
		}
		if a, b, ok := overlap(Pool{Ranges: ranges}, p); ok {
			return p, plugin.ConfigError("give each range addresses of its own", "subnets %s and %s overlap", b, a)
		}
		p.Ranges = append(p.Ranges, ranges...)
	}
	if len(list) == 0 {
		return p, plugin.ConfigError("give it at least one range, or remove it", "empty range set")
	}
	return p, nil
}

// readRange reads and checks one range. It returns the parts that are left between the addresses that are excluded.
func readRange(o *conf.Object) ([]Range, error) {
	var r Range
	result.ReadPrefix(o, "subnet", &r.Subnet)
	result.ReadAddr(o, "rangeStart", &r.First)
	result.ReadAddr(o, "rangeEnd", &r.Last)
	result.ReadAddr(o, "gateway", &r.Gateway)
	if err := o.Err(); err != nil {
		return nil, err
	}
	if err := checkSubnet(r.Subnet, o.Path("subnet")); err != nil {
		return nil, err
	}
	fillIn(&r)
	const outside = "set it to an address of the subnet"
	switch {
	case !r.Subnet.Contains(r.First):
		return nil, plugin.ConfigError(outside, "key %q: RangeStart %s not in network %s", o.Path("rangeStart"), r.First, r.Subnet)
	case !r.Subnet.Contains(r.Last):
		return nil, plugin.ConfigError(outside, "key %q: RangeEnd %s not in network %s", o.Path("rangeEnd"), r.Last, r.Subnet)
	case r.Last.Less(r.First):
		return nil, plugin.ConfigError("exchange the two", "key %q: RangeStart %s is behind RangeEnd %s", o.Path("rangeStart"), r.First, r.Last)
	}
	parts := []Range{r}
	for _, e := range readExcluded(o, r.Subnet) {
		parts = without(parts, e)
	}
	onlyGateway := func(r Range) bool { return r.First == r.Last && r.First == r.Gateway }
	if parts = slices.DeleteFunc(parts, onlyGateway); len(parts) == 0 && o.Err() == nil {
		return nil, plugin.ConfigError("give the range more addresses",
			"key %q: the range %s has no address to hand out: the gateway and what is excluded are all", o.Path("subnet"), r)
	}
	return parts, o.Err()
}

func checkSubnet(p netip.Prefix, key string) error {
	switch {
	case !p.IsValid():
		return plugin.ConfigError("set it to a network such as 10.88.0.0/16", "key %q is missing", key)
	case p.Addr().Is4In6():
		return plugin.ConfigError("write it as an IPv4 network", "key %q: %s is IPv4 written as IPv6", key, p)
	case p != p.Masked():
		return plugin.ConfigError("write "+p.Masked().String(),
			"key %q: Network has host bits set: %s. For a subnet mask of length %d the network address is %s", key, p, p.Bits(), p.Masked().Addr())
	}
	return nil
}

// fillIn sets what a range leaves out. The first address of the subnet is the gateway, and addresses are handed out from it to the last
// one. First and last are not the network's own address and IPv4's broadcast address, which a subnet of two addresses does not have (RFC
// 3021, RFC 6164). A single address has no room for a gateway.
func fillIn(r *Range) {
	first, last := r.Subnet.Addr(), result.Last(r.Subnet)
	hostBits := first.BitLen() - r.Subnet.Bits()
	if hostBits > 1 {
		first = first.Next()
	}
	if hostBits > 1 && last.Is4() {
		last = last.Prev()
	}
	if !r.Gateway.IsValid() && hostBits > 0 {
		r.Gateway = first
	}
	if !r.First.IsValid() {
		r.First = first
	}
	if !r.Last.IsValid() {
		r.Last = last
	}
}

// readExcluded reads the addresses and networks that are not to be handed out.
func readExcluded(o *conf.Object, subnet netip.Prefix) (list []netip.Prefix) {
	var texts []string
	o.Strings("exclude", &texts)
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if a, aerr := netip.ParseAddr(text); aerr == nil && a.Zone() == "" {
			p, err = result.Single(a), nil
		}
		switch {
		case err != nil:
			o.Fail("exclude", "addresses such as 10.88.0.5, and networks such as 10.88.0.16/28", strconv.Quote(text))
		case p != p.Masked():
			o.Fail("exclude", "the network "+p.Masked().String(), strconv.Quote(text))
		case !p.Overlaps(subnet):
			o.Fail("exclude", "addresses of "+subnet.String(), strconv.Quote(text))
		default:
			list = append(list, p)
		}
	}
	return list
}

// without returns what is left of ranges before and behind the addresses of a network.
func without(ranges []Range, excluded netip.Prefix) (left []Range) {
	first, last := excluded.Addr(), result.Last(excluded)
	for _, r := range ranges {
		if last.Less(r.First) || r.Last.Less(first) {
			left = append(left, r)
			continue
		}
		before, behind := r, r
		before.Last, behind.First = first.Prev(), last.Next()
		if r.First.Less(first) {
			left = append(left, before)
		}
		if last.Less(r.Last) {
			left = append(left, behind)
		}
	}
	return left
}
