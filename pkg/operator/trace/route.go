package trace

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// route is what the kernel decides about a packet.
type route struct {
	err   error // why it goes nowhere
	local bool
	link  int
	name  string     // of the link
	next  netip.Addr // the gateway; invalid if the target is on the link
	from  netip.Addr // the address that the host would give it
	table int
	mtu   int
}

// routeOf asks the kernel in the namespace of the calling thread where it sends a packet. One that comes in by a link has its source checked, too.
func routeOf(to, from netip.Addr, in int, mark uint32) (r route) {
	o := &netlink.RouteGetOptions{Mark: mark}
	if from.IsValid() {
		o.SrcAddr = from.AsSlice()
	}
	if in != 0 {
		o.IifIndex = in
	}
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), o)
	if err != nil || len(routes) == 0 {
		return route{err: errors.Join(err)}
	}
	got := routes[0]
	r = route{local: got.Type == unix.RTN_LOCAL, link: got.LinkIndex, table: got.Table, mtu: got.MTU, next: addr(got.Gw), from: addr(got.Src)}
	if via, ok := got.Via.(*netlink.Via); ok {
		r.next = addr(via.Addr)
	}
	if l, err := netlink.LinkByIndex(got.LinkIndex); err == nil {
		r.name, r.mtu = l.Attrs().Name, cmp.Or(r.mtu, l.Attrs().MTU)
	}
	switch got.Type {
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT:
		r.err = unix.EINVAL
	}
	return r
}

// String says where a packet goes.
func (r route) String() string {
	text := "by " + r.name
	switch {
	case r.err != nil:
		return fmt.Sprintf("nowhere: %v", r.err)
	case r.local:
		return "to this node itself"
	case r.next.IsValid():
		text += fmt.Sprintf(" to %s", r.next)
	}
	if r.table != 0 && r.table != unix.RT_TABLE_MAIN && r.table != unix.RT_TABLE_LOCAL {
		text += fmt.Sprintf(", by table %d", r.table)
	}
	return text
}

// linkName is the name of a link of the calling thread's namespace.
func linkName(index int) string {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("link %d", index)
	}
	return l.Attrs().Name
}

// neighbour is what the kernel knows of the link address of who is next.
func neighbour(link int, next netip.Addr) (state int) {
	family := netlink.FAMILY_V4
	if next.Is6() {
		family = netlink.FAMILY_V6
	}
	list, _ := netlink.NeighList(link, family)
	for _, n := range list {
		if addr(n.IP).Unmap() == next {
			return n.State
		}
	}
	return netlink.NUD_NONE
}

// isUnknown reports whether nobody has said that he has the address.
func isUnknown(state int) bool {
	return state&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) != 0
}

// strangers are addresses that nobody has, and none of them belongs to a network of the node, as a rule (RFC 5737, RFC 3849).
func strangers() (list []netip.Addr) {
	for _, text := range []string{"203.0.113.99", "198.51.100.99", "192.0.2.99", "2001:db8:fffe::99", "2001:db8:fffd::99"} {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// Stranger returns an address outside from which a packet to one of the node could come.
func Stranger(h *node.Host, to netip.Addr) netip.Addr {
	for _, a := range strangers() {
		if r := routeOf(a, netip.Addr{}, 0, 0); a.Is4() == to.Is4() && r.err == nil && r.next.IsValid() {
			return a
		}
	}
	for _, l := range h.Links() { // there is no default route: somebody on the same link
		for _, p := range l.Addresses {
			a := p.Masked().Addr().Next()
			if p.Addr() == to && a == to {
				a = a.Next()
			}
			if p.Addr() == to {
				return a
			}
		}
	}
	return netip.Addr{}
}

// Away returns addresses for which a packet from an address of this node's would leave it: one that nobody has, and that of the router on the way there,
// for which other rules may be.
func Away(from netip.Addr) (list []netip.Addr) {
	for _, a := range strangers() {
		if a.Is4() == from.Is4() && Leaves(a) {
			list = append(list, a)
			if r := routeOf(a, netip.Addr{}, 0, 0); r.next.IsValid() && r.next.Is4() == from.Is4() && !r.next.IsLinkLocalUnicast() {
				list = append(list, r.next)
			}
			return list
		}
	}
	return nil
}

// Leaves reports whether the node sends what is for an address to others.
func Leaves(a netip.Addr) bool {
	r := routeOf(a, netip.Addr{}, 0, 0)
	return r.err == nil && !r.local
}

// IsOfNode reports whether the node has an address.
func IsOfNode(a netip.Addr) bool {
	r := routeOf(a, netip.Addr{}, 0, 0)
	return r.err == nil && r.local
}

// AddressOfNode returns the node's address for others: that from which it would send to an address, or to those outside. If all that leads outside is
// down it is one of a link that is no bridge.
func AddressOfNode(h *node.Host, to netip.Addr) netip.Addr {
	for _, a := range append([]netip.Addr{to}, strangers()...) {
		if !a.IsValid() {
			continue
		}
		if r := routeOf(a, netip.Addr{}, 0, 0); r.err == nil && !r.from.IsLoopback() && r.from.IsValid() {
			return r.from
		}
	}
	for _, l := range h.Links() {
		if l.Kind != link.KindBridge && len(l.Global) > 0 {
			return l.Global[0].Addr()
		}
	}
	return netip.Addr{}
}

// linkWith returns the link that has an address, nil if none has.
func linkWith(h *node.Host, a netip.Addr) netlink.Link {
	for _, l := range h.Links() {
		if slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return l.Link
		}
	}
	return nil
}
