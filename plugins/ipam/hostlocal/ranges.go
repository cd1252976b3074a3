package hostlocal

import (
	"net/netip"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
)

func isIPv4(p lease.Pool) bool { return p.Ranges[0].First.Is4() }

// overlap returns a range of p and one of q that have addresses in common.
func overlap(p, q lease.Pool) (a, b lease.Range, ok bool) {
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
func readPool(index int, list []*conf.Object) (lease.Pool, error) {
	p := lease.Pool{Index: index}
	for _, o := range list {
		r, err := readRange(o)
		if err != nil {
			return p, err
		}
		if len(p.Ranges) > 0 && isIPv4(p) != r.First.Is4() {
			return p, plugin.ConfigError("put each family in a range set of its own", "mixed address families: %s and %s", p.Ranges[0].Subnet, r.Subnet)
		}
		if a, b, ok := overlap(lease.Pool{Ranges: []lease.Range{r}}, p); ok {
			return p, plugin.ConfigError("give each range addresses of its own", "subnets %s and %s overlap", b, a)
		}
		p.Ranges = append(p.Ranges, r)
	}
	if len(list) == 0 {
		return p, plugin.ConfigError("give it at least one range, or remove it", "empty range set")
	}
	return p, nil
}

// readRange reads and checks one range and fills in what it leaves out: the
// subnet's first address is the gateway, and addresses are handed out from it
// to the last but an IPv4 broadcast address.
func readRange(o *conf.Object) (lease.Range, error) {
	var r lease.Range
	plugin.ReadPrefix(o, "subnet", &r.Subnet)
	plugin.ReadAddr(o, "rangeStart", &r.First)
	plugin.ReadAddr(o, "rangeEnd", &r.Last)
	plugin.ReadAddr(o, "gateway", &r.Gateway)
	if err := o.Err(); err != nil {
		return r, err
	}
	if err := checkSubnet(r.Subnet, o.Path("subnet")); err != nil {
		return r, err
	}
	first := r.Subnet.Addr().Next()
	if !r.Gateway.IsValid() {
		r.Gateway = first
	}
	if !r.First.IsValid() {
		r.First = first
	}
	if !r.Last.IsValid() {
		r.Last = lastOf(r.Subnet)
	}
	const outside = "set it to an address of the subnet"
	switch {
	case !r.Subnet.Contains(r.First):
		return r, plugin.ConfigError(outside, "key %q: RangeStart %s not in network %s", o.Path("rangeStart"), r.First, r.Subnet)
	case !r.Subnet.Contains(r.Last):
		return r, plugin.ConfigError(outside, "key %q: RangeEnd %s not in network %s", o.Path("rangeEnd"), r.Last, r.Subnet)
	case r.Last.Less(r.First):
		return r, plugin.ConfigError("exchange the two", "key %q: RangeStart %s is behind RangeEnd %s", o.Path("rangeStart"), r.First, r.Last)
	case r.First == r.Last && r.First == r.Gateway:
		return r, plugin.ConfigError("give the range more addresses", "key %q: the range %s holds only the gateway", o.Path("subnet"), r)
	}
	return r, nil
}

func checkSubnet(p netip.Prefix, key string) error {
	switch {
	case !p.IsValid():
		return plugin.ConfigError("set it to a network such as 10.88.0.0/16", "key %q is missing", key)
	case p.Addr().Is4In6():
		return plugin.ConfigError("write it as an IPv4 network", "key %q: %s is IPv4 written as IPv6", key, p)
	case p.Bits() > p.Addr().BitLen()-2:
		return plugin.ConfigError("at most /30 for IPv4 and /126 for IPv6", "key %q: Network %s too small to allocate from", key, p)
	case p != p.Masked():
		return plugin.ConfigError("write "+p.Masked().String(),
			"key %q: Network has host bits set: %s. For a subnet mask of length %d the network address is %s", key, p, p.Bits(), p.Masked().Addr())
	}
	return nil
}

// lastOf returns the last address a container can have: all host bits set,
// less one for IPv4, where that is the broadcast address.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	if a.Is4() {
		return a.Prev()
	}
	return a
}
