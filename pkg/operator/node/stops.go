package node

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/result"
)

// StopsAt finds the policy rule, or else the route, that ends a packet's way in the namespace of the calling thread, "" if none does. The kernel says only that there is one.
func StopsAt(to, from netip.Addr, in string, mark uint32) string {
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
