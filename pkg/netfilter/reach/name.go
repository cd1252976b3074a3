package reach

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// below begins the name of an entry that stands for every name below the rest.
const below = "*."

// covers reports whether an entry's name stands for all that another one stands for.
func covers(a, b string) bool {
	parent, isWild := strings.CutPrefix(a, below)
	return a == b || isWild && strings.HasSuffix(strings.TrimPrefix(b, below), "."+parent)
}

// bothNames returns the name that stands for what both do. An entry without a name stands for any.
func bothNames(a, b string) (name string, overlap bool) {
	switch {
	case b == "" || a != "" && covers(b, a):
		return a, true
	case a == "" || covers(a, b):
		return b, true
	}
	return "", false
}

// bothPrefixes returns the addresses that are in both. An entry with a name alone has all.
func bothPrefixes(a, b netip.Prefix) (p netip.Prefix, overlap bool) {
	switch {
	case !a.IsValid():
		return b, true
	case !b.IsValid():
		return a, true
	case a.Bits() > b.Bits():
		return a, a.Overlaps(b)
	}
	return b, a.Overlaps(b)
}

// HasNames reports whether any entry is a name.
func (l Lists) HasNames() bool {
	return slices.ContainsFunc(slices.Concat(l.Allow, l.Deny), func(e Entry) bool { return e.Name != "" })
}

// ByName returns the entries by which a name, in lower case and without the dot at its end, opens addresses: none if it is not on the lists.
func (l Lists) ByName(name string) (list []Entry) {
	if slices.ContainsFunc(l.Deny, func(e Entry) bool { return e.Name != "" && covers(e.Name, name) }) {
		return nil
	}
	for _, e := range l.Allow {
		if e.Name != "" && covers(e.Name, name) {
			list = append(list, e)
		}
	}
	return list
}

// ByAddress reports whether an entry of Allow has an address, for any port.
func (l Lists) ByAddress(addr netip.Addr) bool {
	return slices.ContainsFunc(l.Allow, func(e Entry) bool { return e.Name == "" && e.Prefix.Contains(addr) })
}

// Within reports whether an entry with a name has an address because another list has a network around it, with these ports. All of IP is no such network.
func (e Entry) Within(addr netip.Addr) bool { return e.Prefix.Bits() > 0 && e.Prefix.Contains(addr) }

// NamedPorts returns the ports that names open, in order and each once.
func (l Lists) NamedPorts() (list []Ports) {
	for _, e := range l.Allow {
		if e.Name != "" {
			list = append(list, e.Ports)
		}
	}
	slices.SortFunc(list, func(a, b Ports) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last), cmp.Compare(a.Protocols, b.Protocols))
	})
	return slices.Compact(list)
}

// Embedded returns the IPv4 address to which a packet to an address of IPv6 can leave, if it stands for one.
func Embedded(addr netip.Addr) (v4 netip.Addr, is bool) {
	for _, form := range embedded {
		if form.Contains(addr) {
			bytes := addr.As16()
			return netip.AddrFrom4([4]byte(bytes[form.Bits()/8:])), true
		}
	}
	return v4, false
}
