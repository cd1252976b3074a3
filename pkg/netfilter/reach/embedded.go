package reach

import (
	"net/netip"
	"slices"
)

// embedded are the prefixes of IPv6 that stand for all of IPv4: a packet to one of their addresses can leave as one to the IPv4 address in it.
// The IPv4 address begins behind the prefix.
var embedded = []netip.Prefix{
	netip.MustParsePrefix("::/96"),         // automatic tunnels
	netip.MustParsePrefix("::ffff:0:0/96"), // mapped addresses
	netip.MustParsePrefix("64:ff9b::/96"),  // NAT64
	netip.MustParsePrefix("2002::/16"),     // 6to4
}

// WithEmbedded returns the lists that say the same of IPv4 addresses that stand in IPv6 ones. Entries of Deny for IPv4 are denied in each of these
// forms. An entry of Allow for IPv6 that reaches beyond such a form does not open it, unless all of IPv4 is open, too.
func (l Lists) WithEmbedded() Lists {
	all4 := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	wide := !l.Closed || slices.ContainsFunc(l.Allow, func(e Entry) bool { return e.Prefix == all4 && e.Ports == Ports{} })
	deny, allow := slices.Clone(l.Deny), slices.Clone(l.Allow)
	for _, e := range l.Deny {
		if e.isOf(true) {
			for _, form := range embedded {
				deny = append(deny, Entry{Prefix: embed(form, e.Prefix), Ports: e.Ports})
			}
		}
	}
	if !wide {
		allow = nil
		for _, e := range l.Allow {
			allow = append(allow, e.without(embedded)...)
		}
	}
	l.Allow, l.Deny = allow, deny
	return l
}

// embed returns the form of an IPv4 prefix in IPv6.
func embed(form, p netip.Prefix) netip.Prefix {
	bytes := form.Addr().As16()
	at := form.Bits() / 8
	v4 := p.Addr().As4()
	copy(bytes[at:], v4[:])
	return netip.PrefixFrom(netip.AddrFrom16(bytes), form.Bits()+p.Bits()).Masked()
}

// without returns what is in an entry but in none of the prefixes that are parts of it: halves of halves.
func (e Entry) without(parts []netip.Prefix) []Entry {
	is := func(p netip.Prefix) bool { return p.Bits() > e.Prefix.Bits() && e.Prefix.Overlaps(p) }
	if e.Name != "" || !slices.ContainsFunc(parts, is) {
		return []Entry{e}
	}
	var left []Entry
	for _, half := range halves(e.Prefix) {
		if !slices.Contains(parts, half) {
			left = append(left, Entry{Prefix: half, Ports: e.Ports}.without(parts)...)
		}
	}
	return left
}

func halves(p netip.Prefix) [2]netip.Prefix {
	bits := p.Bits() + 1
	bytes := p.Addr().AsSlice()
	bytes[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	second, _ := netip.AddrFromSlice(bytes)
	return [2]netip.Prefix{netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(second, bits)}
}
