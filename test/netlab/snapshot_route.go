package netlab

import (
	"fmt"
	"net"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func routeLines(names linkNames) ([]string, error) {
	// The table must be part of the filter, or only the main table is listed.
	everyTable := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	routes, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, everyTable, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var lines []string
	for _, r := range routes {
		if !derivedFromLink(r) {
			lines = append(lines, routeLine(r, names))
		}
	}
	return lines, nil
}

// derivedFromLink reports whether the kernel adds and removes the route with an IPv6 link-local address or with the
// carrier of the link. It makes the local route of an IPv6 address some time after the address, which has a line itself.
func derivedFromLink(r netlink.Route) bool {
	if r.Dst == nil || r.Dst.IP.To4() != nil {
		return false
	}
	ofAddress := r.Table == unix.RT_TABLE_LOCAL && r.Protocol == unix.RTPROT_KERNEL
	return ofAddress || r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast()
}

func routeLine(r netlink.Route, names linkNames) string {
	words := []string{
		"route", familyName(r.Family), destination(r.Dst),
		fact("via", ipString(r.Gw)),
		fact("dev", names.name(r.LinkIndex)),
		fact("table", r.Table),
		fact("type", routeType(r.Type)),
		fact("scope", routeScope(r)),
		fact("proto", r.Protocol.String()),
		fact("src", ipString(r.Src)),
		fact("metric", r.Priority),
		fact("mtu", r.MTU),
		fact("advmss", r.AdvMSS),
		fact("tos", r.Tos),
	}
	if r.Flags&unix.RTNH_F_ONLINK != 0 {
		words = append(words, "onlink")
	}
	if r.Encap != nil {
		words = append(words, "encap "+r.Encap.String())
	}
	for _, hop := range r.MultiPath {
		words = append(words, facts("nexthop", fact("via", ipString(hop.Gw)), fact("dev", names.name(hop.LinkIndex))))
	}
	return facts(words...)
}

func familyName(family int) string {
	if family == unix.AF_INET6 {
		return "ipv6"
	}
	return "ipv4"
}

func destination(dst *net.IPNet) string {
	if dst == nil {
		return "default"
	}
	if ones, _ := dst.Mask.Size(); ones == 0 {
		return "default"
	}
	return dst.String()
}

func routeType(kind int) string {
	names := map[int]string{
		unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast", unix.RTN_ANYCAST: "anycast",
		unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit",
		unix.RTN_THROW: "throw",
	}
	return names[kind] // a unicast route needs no word
}

func routeScope(r netlink.Route) string {
	if r.Scope == netlink.SCOPE_UNIVERSE {
		return ""
	}
	return r.Scope.String()
}

func ruleLines(linkNames) ([]string, error) {
	rules, err := dump(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	var lines []string
	for _, r := range rules {
		lines = append(lines, ruleLine(r))
	}
	return lines, nil
}

func ruleLine(r netlink.Rule) string {
	words := []string{"rule", familyName(r.Family), strconv.Itoa(max(r.Priority, 0)) + ":"}
	if r.Invert {
		words = append(words, "not")
	}
	words = append(words,
		"from "+selector(r.Src),
		"to "+selector(r.Dst),
		fact("iif", r.IifName),
		fact("oif", r.OifName),
		fact("tos", r.Tos),
	)
	if r.Mark != 0 || r.Mask != nil {
		mask := uint32(0xffffffff)
		if r.Mask != nil {
			mask = *r.Mask
		}
		words = append(words, fmt.Sprintf("fwmark %#x/%#x", r.Mark, mask))
	}
	if r.IPProto > 0 {
		words = append(words, fact("ipproto", r.IPProto))
	}
	if r.Sport != nil {
		words = append(words, fmt.Sprintf("sport %d-%d", r.Sport.Start, r.Sport.End))
	}
	if r.Dport != nil {
		words = append(words, fmt.Sprintf("dport %d-%d", r.Dport.Start, r.Dport.End))
	}
	if r.UIDRange != nil {
		words = append(words, fmt.Sprintf("uidrange %d-%d", r.UIDRange.Start, r.UIDRange.End))
	}
	if r.Goto > 0 {
		words = append(words, fact("goto", r.Goto))
	}
	if r.SuppressPrefixlen >= 0 {
		words = append(words, "suppress_prefixlength "+strconv.Itoa(r.SuppressPrefixlen))
	}
	words = append(words, "table "+strconv.Itoa(r.Table), fact("type", routeType(int(r.Type))))
	return facts(words...)
}

func selector(prefix *net.IPNet) string {
	if prefix == nil {
		return "all"
	}
	return prefix.String()
}
