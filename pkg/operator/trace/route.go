package trace

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/result"
)

// route is what the kernel decides about a packet.
type route struct {
	err   error // why it goes nowhere
	local bool
	link  int
	name  string // of the link
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

// stoppingRule finds the policy rule, or else the route, that ends a packet's way. The kernel says only that there is one.
func stoppingRule(to, from netip.Addr, in string, mark uint32) string {
	family := netlink.FAMILY_V4
	if to.Is6() {
		family = netlink.FAMILY_V6
	}
	rules, _ := netlink.RuleList(family)
	kinds := ruleKinds(family)
	for i, r := range rules[:min(len(rules), len(kinds))] {
		has := func(n *net.IPNet, a netip.Addr) bool { return n == nil || a.IsValid() && result.Prefix(*n).Contains(a) }
		mask := ^uint32(0)
		if r.Mask != nil {
			mask = *r.Mask
		}
		matches := has(r.Src, from) && has(r.Dst, to) && (r.IifName == "" || r.IifName == in) && (r.Mark == 0 || mark&mask == r.Mark)
		if kind := stops(kinds[i]); kind != "" && matches != r.Invert {
			return strings.Join(append([]string{"the policy rule", fmt.Sprintf("%d:", r.Priority)}, ruleWords(r, kind)...), " ")
		}
	}
	routes, _ := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	var best *netlink.Route
	for _, r := range routes {
		if stops(uint8(r.Type)) != "" && r.Dst != nil && result.Prefix(*r.Dst).Contains(to) && (best == nil || result.Prefix(*r.Dst).Bits() > result.Prefix(*best.Dst).Bits()) {
			best = &r
		}
	}
	if best == nil {
		return ""
	}
	return fmt.Sprintf("the route %s %s of table %d", stops(uint8(best.Type)), result.Prefix(*best.Dst), best.Table)
}

// ruleKinds are the kinds of the policy rules, in the order of netlink.RuleList, which leaves them out.
func ruleKinds(family int) (kinds []uint8) {
	request := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(family))
	messages, _ := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
	for _, m := range messages {
		kinds = append(kinds, nl.DeserializeRtMsg(m).Type)
	}
	return kinds
}

func ruleWords(r netlink.Rule, kind string) (words []string) {
	words = append(words, "from")
	if r.Src == nil {
		words = append(words, "all")
	} else {
		words = append(words, r.Src.String())
	}
	if r.Dst != nil {
		words = append(words, "to", r.Dst.String())
	}
	if r.Mark != 0 {
		words = append(words, fmt.Sprintf("fwmark %#x", r.Mark))
	}
	if r.IifName != "" {
		words = append(words, "iif", r.IifName)
	}
	return append(words, kind)
}

// stops names a kind of rules and routes by which packets go nowhere.
func stops(kind uint8) string {
	return map[uint8]string{unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit"}[kind]
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
var strangers = []string{"203.0.113.99", "198.51.100.99", "192.0.2.99", "2001:db8:fffe::99", "2001:db8:fffd::99"}

// Stranger returns an address outside from which a packet to one of the node could come.
func Stranger(to netip.Addr) netip.Addr {
	for _, text := range strangers {
		a := netip.MustParseAddr(text)
		if r := routeOf(a, netip.Addr{}, 0, 0); a.Is4() == to.Is4() && r.err == nil && r.next.IsValid() {
			return a
		}
	}
	addresses, _ := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for _, has := range addresses { // there is no default route: somebody on the same link
		p := result.Prefix(*has.IPNet)
		if a := p.Masked().Addr().Next(); p.Addr() == to {
			for a == to {
				a = a.Next()
			}
			return a
		}
	}
	return netip.Addr{}
}

// IsOfNode reports whether the node has an address.
func IsOfNode(a netip.Addr) bool {
	r := routeOf(a, netip.Addr{}, 0, 0)
	return r.err == nil && r.local
}

// AddressOfNode returns the node's address for others: that from which it would send to an address, or to those outside. If all that leads outside is
// down it is one of a link that is no bridge.
func AddressOfNode(to netip.Addr) netip.Addr {
	list := []netip.Addr{to}
	for _, text := range strangers {
		list = append(list, netip.MustParseAddr(text))
	}
	for _, a := range list {
		if !a.IsValid() {
			continue
		}
		if r := routeOf(a, netip.Addr{}, 0, 0); r.err == nil && !r.from.IsLoopback() && r.from.IsValid() {
			return r.from
		}
	}
	links, _ := netlink.LinkList()
	for _, l := range links {
		addresses, _ := netlink.AddrList(l, netlink.FAMILY_V4)
		for _, has := range addresses {
			if a := addr(has.IP.To4()); l.Type() != link.KindBridge && a.IsGlobalUnicast() {
				return a
			}
		}
	}
	return netip.Addr{}
}

// linkWith returns the link that has an address, nil if none has.
func linkWith(a netip.Addr) netlink.Link {
	addresses, _ := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for _, has := range addresses {
		if result.Prefix(*has.IPNet).Addr() == a {
			l, _ := netlink.LinkByIndex(has.LinkIndex)
			return l
		}
	}
	return nil
}
