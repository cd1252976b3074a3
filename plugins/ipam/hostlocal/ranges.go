package hostlocal

import (
	"math"
	"net/netip"
	"strconv"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// rangeSet is one address for an attachment: the ranges it may come from, all
// of one family.
type rangeSet []addressRange

// addressRange is the part of a subnet that addresses are handed out of.
type addressRange struct {
	lease.Range
	subnet netip.Prefix
}

func itoa(i int) string { return strconv.Itoa(i) }

func (s rangeSet) is4() bool { return s[0].First.Is4() }

// overlap returns a range of s and one of t that have addresses in common.
func (s rangeSet) overlap(t rangeSet) (a, b addressRange, ok bool) {
	for _, a := range s {
		for _, b := range t {
			if a.Contains(b.First) || b.Contains(a.First) {
				return a, b, true
			}
		}
	}
	return a, b, false
}

// rangeOf returns the range that holds a.
func (s rangeSet) rangeOf(a netip.Addr) (addressRange, bool) {
	for _, r := range s {
		if r.Contains(a) {
			return r, true
		}
	}
	return addressRange{}, false
}

// result is what an attachment that got a is told.
func (s rangeSet) result(a netip.Addr) *types100.IPConfig {
	r, _ := s.rangeOf(a)
	return &types100.IPConfig{Address: plugin.IPNet(netip.PrefixFrom(a, r.subnet.Bits())), Gateway: r.Gateway.AsSlice()}
}

func (s rangeSet) pool(index int) lease.Pool {
	p := lease.Pool{Index: index}
	for _, r := range s {
		p.Ranges = append(p.Ranges, r.Range)
	}
	return p
}

func readSet(list []*conf.Object) (rangeSet, error) {
	if len(list) == 0 {
		return nil, plugin.ConfigError("give it at least one range, or remove it", "empty range set")
	}
	var set rangeSet
	for _, o := range list {
		r, err := readRange(o)
		if err != nil {
			return nil, err
		}
		if len(set) > 0 && set.is4() != r.First.Is4() {
			return nil, plugin.ConfigError("put each family in a range set of its own", "mixed address families: %s and %s", set[0].subnet, r.subnet)
		}
		if a, b, ok := (rangeSet{r}).overlap(set); ok {
			return nil, plugin.ConfigError("give each range addresses of its own", "subnets %s and %s overlap", b, a)
		}
		set = append(set, r)
	}
	return set, nil
}

// readRange reads and checks one range and fills in what it leaves out: the
// subnet's first address is the gateway, and addresses are handed out from it
// to the last but an IPv4 broadcast address.
func readRange(o *conf.Object) (addressRange, error) {
	var r addressRange
	plugin.ReadPrefix(o, "subnet", &r.subnet)
	plugin.ReadAddr(o, "rangeStart", &r.First)
	plugin.ReadAddr(o, "rangeEnd", &r.Last)
	plugin.ReadAddr(o, "gateway", &r.Gateway)
	if err := o.Err(); err != nil {
		return r, err
	}
	r.First, r.Last, r.Gateway = r.First.Unmap(), r.Last.Unmap(), r.Gateway.Unmap()
	if err := r.checkSubnet(o); err != nil {
		return r, err
	}
	first, last := r.subnet.Addr().Next(), lastOf(r.subnet)
	if !r.Gateway.IsValid() {
		r.Gateway = first
	}
	if !r.First.IsValid() {
		r.First = first
	}
	if !r.Last.IsValid() {
		r.Last = last
	}
	return r, r.checkEnds(o)
}

func (r addressRange) checkSubnet(o *conf.Object) error {
	key := o.Path("subnet")
	switch {
	case !r.subnet.IsValid():
		return plugin.ConfigError("set it to a network such as 10.88.0.0/16", "key %q is missing", key)
	case r.subnet.Addr().Is4In6():
		return plugin.ConfigError("write it as an IPv4 network", "key %q: %s is IPv4 written as IPv6", key, r.subnet)
	case r.subnet.Bits() > r.subnet.Addr().BitLen()-2:
		return plugin.ConfigError("at most /30 for IPv4 and /126 for IPv6", "key %q: Network %s too small to allocate from", key, r.subnet)
	case r.subnet != r.subnet.Masked():
		return plugin.ConfigError("write "+r.subnet.Masked().String(),
			"key %q: Network has host bits set: %s. For a subnet mask of length %d the network address is %s", key, r.subnet, r.subnet.Bits(), r.subnet.Masked().Addr())
	}
	return nil
}

func (r addressRange) checkEnds(o *conf.Object) error {
	for _, end := range []struct {
		key, name string
		address   netip.Addr
	}{{"rangeStart", "RangeStart", r.First}, {"rangeEnd", "RangeEnd", r.Last}} {
		if !r.subnet.Contains(end.address) {
			return plugin.ConfigError("set it to an address of the subnet", "key %q: %s %s not in network %s", o.Path(end.key), end.name, end.address, r.subnet)
		}
	}
	if r.Last.Less(r.First) {
		return plugin.ConfigError("exchange the two", "key %q: RangeStart %s is behind RangeEnd %s", o.Path("rangeStart"), r.First, r.Last)
	}
	if r.First == r.Last && r.First == r.Gateway {
		return plugin.ConfigError("give the range more addresses", "key %q: the range %s holds only the gateway", o.Path("subnet"), r)
	}
	return nil
}

// lastOf returns the last address a container can have: all host bits set,
// less one for IPv4, where that is the broadcast address.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := range bytes {
		host := max(0, min(8, 8*(i+1)-p.Bits()))
		bytes[i] |= byte(math.MaxUint8 >> (8 - host))
	}
	a, _ := netip.AddrFromSlice(bytes)
	if a.Is4() {
		return a.Prev()
	}
	return a
}
