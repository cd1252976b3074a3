package nft

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// guardLayout is that of table bridge cnibox-egress.
type guardLayout struct {
	senders
	macs, targets, near, lists *nftables.Set
}

// targetOf is the address that a message of neighbour discovery is about.
func targetOf() part { return ipv6.raw(8) }

func newGuardLayout(t *table) guardLayout {
	return guardLayout{t.newSenders(), t.newSet("macs", inLink(), srcEther()), t.newTyped("targets", inLinkPart(), targetOf()), t.newMap("near", []value{inLink()}, nftables.TypeVerdict), t.newSet("lists", inLink())}
}

func (l guardLayout) missing() *plugin.MissingFeature {
	return &plugin.MissingFeature{Name: "nf_tables for table bridge cnibox-egress", Module: "nf_tables, nft_meta_bridge", Option: "CONFIG_NF_TABLES_BRIDGE"}
}

func (l guardLayout) elements(r record) []element {
	switch r.kind {
	case kindNearList:
		return []element{commonElement(l.lists, linkKey(r.link))}
	case kindNear:
		chain := ""
		if r.list != nil {
			chain = listChain(r.list.id)
		}
		return []element{gotoElement(l.near, chain, linkKey(r.link))}
	case kindGuarded:
		return append(l.senders.elements(r), newElement(l.macs, linkKey(r.link), pad(r.mac[:]...)))
	}
	if r.addr.Is6() {
		return append(l.senders.elements(r), newElement(l.targets, linkKey(r.link), r.addr.AsSlice()))
	}
	return l.senders.elements(r)
}

// Parts of ARP's messages, of Ethernet and IPv4.
func arpHeader() value { return payload(expr.PayloadBaseNetworkHeader, 0, nftables.TypeEtherAddr) }
func arpKind() value   { return payload(expr.PayloadBaseNetworkHeader, 6, nftables.TypeInetService) }
func arpMAC() value    { return payload(expr.PayloadBaseNetworkHeader, 8, nftables.TypeEtherAddr) }
func arpSource() value { return payload(expr.PayloadBaseNetworkHeader, 14, nftables.TypeIPAddr) }
func arpTarget() value { return payload(expr.PayloadBaseNetworkHeader, 24, nftables.TypeIPAddr) }

// isEther goes on if a frame has a type, and no VLAN tag.
func isEther(kind uint16) rule {
	return equals(payload(expr.PayloadBaseLLHeader, 12, nftables.TypeEtherType), []byte{byte(kind >> 8), byte(kind)})
}

func (l guardLayout) chains([]record) []chain {
	const sender, sends, arp, ip6, ofLink, target = "sender" + version, "sends" + version, "arp_sender" + version, "ip6_sender" + version,
		"oflink" + version, "target" + version
	isARP := sequence(isEther(unix.ETH_P_ARP), equals(arpHeader(), []byte{0, 1, 8, 0, 6, 4}), inSet(l.macs, inLink(), arpMAC()))
	ownTarget := append([]rule{sequence(inSet(l.targets, inLink(), targetOf().value), leave())}, l.refuse()...)
	isFrom := func(s *nftables.Set) rule { return sequence(ipv6.onEther(), inSet(s, inLink(), ipv6.src())) }
	isNew := sequence(ipv6.onEther(), equals(ipv6.src(), netip.IPv6Unspecified().AsSlice()))
	var byKind []rule
	byKind = append(byKind, l.refuse(icmp6(routerAdvert))...)
	byKind = append(byKind, l.refuse(icmp6(redirect))...)
	byKind = append(byKind,
		sequence(icmp6(neighbourAdvert), isFrom(l.own6), gotoChain(target)),
		sequence(icmp6(neighbourAdvert), isFrom(l.local6), gotoChain(target)),
		sequence(isFrom(l.own6), leave()),
		sequence(isFrom(l.local6), gotoChain(ofLink)),
		sequence(icmp6(neighbourSolicit), isNew, gotoChain(target)),
		sequence(isNew, gotoChain(ofLink)))
	const priorityNAT, bridged = -300, -200 // of family bridge (linux/netfilter_bridge.h)
	return []chain{
		{name: ofLink, rules: l.ofLink(), jumps: 2},
		{name: target, rules: ownTarget, jumps: 3},
		{name: arp, jumps: 1, rules: append([]rule{
			sequence(isARP, inSet(l.own4, inLink(), arpSource()), leave()),
			sequence(isARP, equals(arpKind(), []byte{0, 1}), equals(arpSource(), make([]byte, 4)), inSet(l.own4, inLink(), arpTarget()), leave()),
		}, l.refuse()...)},
		{name: ip6, rules: append(byKind, l.refuse()...), jumps: 1},
		{name: sends, jumps: 1, rules: append([]rule{
			sequence(isEther(unix.ETH_P_IP), inSet(l.own4, inLink(), ipv4.src()), leave()),
			sequence(isEther(unix.ETH_P_ARP), gotoChain(arp)),
			sequence(isEther(unix.ETH_P_IPV6), gotoChain(ip6)),
		}, l.refuse()...)},
		{name: sender, rules: append([]rule{sequence(inSet(l.macs, inLink(), srcEther()), gotoChain(sends))}, l.refuse()...), jumps: 1},
		{name: "prerouting" + version, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting, priority: priorityNAT, rules: []rule{
			sequence(inSet(l.checked, inLink()), gotoChain(sender)),
		}},
		{name: "forward" + version, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookForward, priority: bridged, rules: append([]rule{
			verdictOf(l.near, inLink()),
		}, l.refuse(inSet(l.checked, inLink()))...)},
	}
}

// onEther goes on if a frame has a packet of the family.
func (f *family) onEther() rule {
	if f == &ipv4 {
		return isEther(unix.ETH_P_IP)
	}
	return isEther(unix.ETH_P_IPV6)
}

// isFragment goes on if a packet is a part of one, whose ports only the first part has.
func (f *family) isFragment() rule {
	if f == &ipv4 {
		offset := payload(expr.PayloadBaseNetworkHeader, 6, nftables.TypeInetService)
		return compareBits(offset, []byte{0x3f, 0xff}, expr.CmpOpNeq, []byte{0, 0})
	}
	return hasHeader(unix.IPPROTO_FRAGMENT)
}

// nearList is the chain for what a bridge hands on. It has no connections there: answers are judged like questions. Packets that pass go to addresses
// behind the bridge alone, as who is behind another port may be a router.
func nearList(lists reach.Lists) *list {
	layout := (*Conn)(nil).table(guardTable).layout.(guardLayout)
	l := &list{rules: []rule{sequence(isEther(unix.ETH_P_ARP), leave())}}
	for _, kind := range []byte{neighbourSolicit, neighbourAdvert} {
		l.rules = append(l.rules, sequence(ipv6.onEther(), icmp6(kind), leave()))
	}
	refuse := func(f *family, when ...rule) {
		l.rules = append(l.rules, layout.refuse(append([]rule{f.onEther()}, when...)...)...)
	}
	for _, f := range families() {
		if len(reach.Boxes(lists.Deny, f == &ipv4)) > 0 {
			refuse(f, f.isFragment())
		}
	}
	l.judge(lists, (*family).onEther, refuse)
	return l.named(guardTable)
}
