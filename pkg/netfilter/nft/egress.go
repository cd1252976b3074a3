package nft

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The sender is looked at where packets come in: by the links that are checked only their own attachment's addresses do. On a bridge that is done by
// table bridge cnibox-egress, which also keeps the port from its neighbours; behind the host's end of a veth alone, and for what a bridge hands
// to the host past its own hooks, it is table inet cnibox-egress. So all that comes further has its true source address, and is judged by that, in
// forward and input, behind a change of the destination. docs/operate/netfilter.md shows the tables.
//
// A chain decides for itself, and ends with its own drop: whether one is complete is told from numbers, and a chain that lists share has
// any number of jumps to it.

// ToJudge has what an attachment sends judged by its lists.
func ToJudge(n spec.EgressNeeds) Wants {
	w := Wants{Purpose: Judging, ports: spec.PortNeeds{Results: n.Results}}
	w.records = append(w.records, record{kind: kindChecked, link: n.HostEnd, addr: netip.IPv6Unspecified()})
	l := routedList(n)
	w.records = append(w.records, record{kind: kindList, link: l.id, addr: netip.IPv6Unspecified(), list: l})
	for _, p := range n.Addrs {
		w.records = append(w.records, record{kind: kindJudged, link: l.id, addr: p.Addr()})
	}
	if !n.OnBridge {
		w.records = append(w.records, sources(kindSource, n)...)
	}
	for _, p := range n.Addrs {
		for _, r := range n.Resolvers {
			if familyOf(p.Addr()) == familyOf(r.Addr()) {
				w.records = append(w.records, record{kind: kindAsking, link: noLink, addr: p.Addr(), target: r})
			}
		}
	}
	return w
}

// ToGuardPort has only an attachment's own addresses pass the port of a bridge, and keeps it from its neighbours, unless they are open.
func ToGuardPort(n spec.EgressNeeds) Wants {
	w := Wants{Purpose: GuardingPorts}
	if !n.OnBridge {
		return w
	}
	w.records = append(w.records, record{kind: kindGuarded, link: n.HostEnd, mac: n.MAC})
	w.records = append(w.records, sources(kindGuardedSource, n)...)
	if near, open := n.Near(); open {
		l := nearList(near)
		w.records = append(w.records, record{kind: kindNearList, link: l.id, addr: netip.IPv6Unspecified(), list: l},
			record{kind: kindNear, link: n.HostEnd, addr: netip.IPv6Unspecified(), list: l})
	}
	return w
}

// sources are the addresses that may send.
func sources(k kind, n spec.EgressNeeds) (records []record) {
	for _, p := range n.Addrs {
		records = append(records, record{kind: k, link: n.HostEnd, addr: p.Addr()})
	}
	return append(records, record{kind: k, link: n.HostEnd, addr: spec.LinkLocal(n.MAC)})
}

// senders are the sets of who sends by which link.
type senders struct {
	checked, refused *nftables.Set // links; refused counts
	own4, own6       *nftables.Set // links and their addresses
	local6           *nftables.Set // links and their link-local address
}

func (t *table) newSenders() senders {
	s := senders{
		checked: t.newSet("checked", inLink()), refused: t.newSet("refused", inLink()),
		own4: t.newSet("own4", inLink(), ipv4.src()), own6: t.newSet("own6", inLink(), ipv6.src()), local6: t.newSet("local6", inLink(), ipv6.src()),
	}
	s.refused.Counter = true
	return s
}

// elements are those of a link that is checked, without an address, or of one of its addresses.
func (s senders) elements(r record) []element {
	link := linkKey(r.link)
	switch {
	case r.kind == kindChecked || r.kind == kindGuarded:
		return []element{newElement(s.checked, link), newElement(s.refused, link)}
	case r.addr.Is4():
		return []element{newElement(s.own4, link, r.addr.AsSlice())}
	case r.addr.IsLinkLocalUnicast():
		return []element{newElement(s.local6, link, r.addr.AsSlice())}
	}
	return []element{newElement(s.own6, link, r.addr.AsSlice())}
}

// refuse drops what meets a condition, and counts it.
func (s senders) refuse(when ...rule) []rule {
	condition := sequence(when...)
	return []rule{sequence(condition, inSet(s.refused, inLink()), drop()), sequence(condition, drop())}
}

// The types of ICMPv6's messages.
const (
	listenerQuery, listenerReport, listenerDone, listenerReport2             = 130, 131, 132, 143
	routerSolicit, routerAdvert, neighbourSolicit, neighbourAdvert, redirect = 133, 134, 135, 136, 137
)

// icmp6 goes on if a packet of IPv6 is such a message.
func icmp6(kind byte) rule {
	return sequence(equals(protocol(), []byte{unix.IPPROTO_ICMPV6}), equals(payload(expr.PayloadBaseTransportHeader, 0, nftables.TypeInetProto), []byte{kind}))
}

// ofLink are the rules for what comes from a link-local address, or from none yet.
func (s senders) ofLink() (rules []rule) {
	for _, kind := range []byte{listenerReport, listenerDone, listenerReport2, routerSolicit, neighbourSolicit, neighbourAdvert} {
		rules = append(rules, sequence(icmp6(kind), leave()))
	}
	return append(rules, s.refuse()...)
}

// judgeLayout is that of table inet cnibox-egress.
type judgeLayout struct {
	senders
	judged, pairs, refusedFrom map[*family]*nftables.Set
	attached                   map[*family]*nftables.Set // the addresses that are judged
	resolvers                  map[*family]*nftables.Set // where their questions for names go
	lists                      *nftables.Set
}

func newJudgeLayout(t *table) judgeLayout {
	l := judgeLayout{senders: t.newSenders(), lists: t.newSet("lists", inLink()),
		judged: map[*family]*nftables.Set{}, pairs: map[*family]*nftables.Set{}, refusedFrom: map[*family]*nftables.Set{}, attached: map[*family]*nftables.Set{},
		resolvers: map[*family]*nftables.Set{}}
	for _, f := range families() {
		l.judged[f] = t.newMap("judged"+f.digit, []value{f.src()}, nftables.TypeVerdict)
		l.pairs[f] = t.newTyped("pairs"+f.digit, f.source(), f.concerned())
		l.attached[f] = t.newSet("attached"+f.digit, f.dst())
		l.resolvers[f] = t.newMap("resolvers"+f.digit, []value{f.src()}, f.addr, nftables.TypeInetService)
		l.refusedFrom[f] = t.newSet("refused"+f.digit, f.src())
		l.refusedFrom[f].Counter = true
	}
	return l
}

func (l judgeLayout) missing() *plugin.MissingFeature {
	return &plugin.MissingFeature{Name: "nf_tables for table inet cnibox-egress, with sets of intervals of several values, as Linux 5.6 and later can have",
		Module: "nf_tables, nft_chain_nat, nft_nat, nft_ct, nft_fib_inet",
		Option: "CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT, CONFIG_NFT_CT, CONFIG_NF_CONNTRACK_LABELS and CONFIG_NFT_FIB_INET"}
}

func (l judgeLayout) elements(r record) []element {
	switch r.kind {
	case kindList:
		return []element{commonElement(l.lists, linkKey(r.link))}
	case kindAsking:
		e := newElement(l.resolvers[familyOf(r.addr)], r.addr.AsSlice())
		if r.target.IsValid() {
			e.Val = append(r.target.Addr().AsSlice(), portKey(r.target.Port())...)
		}
		return []element{e}
	case kindJudged:
		f, addr := familyOf(r.addr), r.addr.AsSlice()
		return []element{gotoElement(l.judged[f], listChain(r.link), addr), newElement(l.pairs[f], addr, addr), newElement(l.attached[f], addr),
			newElement(l.refusedFrom[f], addr)}
	}
	return l.senders.elements(r)
}

// gotoElement is an element of a map that leads to a chain.
func gotoElement(s *nftables.Set, chain string, key ...[]byte) element {
	e := newElement(s, key...)
	e.Val, e.VerdictData = []byte(chain), &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}
	return e
}

// verdictOf goes where a map leads to.
func verdictOf(s *nftables.Set, key ...value) rule {
	return append(load(key...), &expr.Lookup{SourceRegister: register(0), DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: s.Name})
}

// hasHeader goes on if a packet of IPv6 has an extension header: one for routing says by whom it wants to go.
func hasHeader(kind uint8) rule {
	const present = 1 // NFT_EXTHDR_F_PRESENT
	return equals(value{nftables.TypeInetProto, func(r uint32) expr.Any {
		return &expr.Exthdr{DestRegister: r, Type: kind, Len: 1, Flags: present, Op: expr.ExthdrOpIpv6}
	}}, []byte{1})
}

// hasOptions goes on if a packet of IPv4 has options: among them is by whom it wants to go.
func hasOptions() rule {
	length := payload(expr.PayloadBaseNetworkHeader, 0, nftables.TypeInetProto)
	return compareBits(length, []byte{0x0f}, expr.CmpOpNeq, []byte{5})
}

func (l judgeLayout) chains([]record) []chain {
	const sender, ofLink, judge = "sender" + version, "oflink" + version, "judge" + version
	var bySource []rule
	bySource = append(bySource, sequence(ipv4.only(), inSet(l.own4, inLink(), ipv4.src()), leave()))
	bySource = append(bySource, l.refuse(ipv6.only(), icmp6(routerAdvert))...)
	bySource = append(bySource, l.refuse(ipv6.only(), icmp6(redirect))...)
	bySource = append(bySource,
		sequence(ipv6.only(), inSet(l.local6, inLink(), ipv6.src()), gotoChain(ofLink)),
		sequence(ipv6.only(), equals(ipv6.src(), netip.IPv6Unspecified().AsSlice()), gotoChain(ofLink)),
		sequence(ipv6.only(), inSet(l.own6, inLink(), ipv6.src()), leave()))
	var byList []rule
	hopLimit := payload(expr.PayloadBaseNetworkHeader, 7, nftables.TypeInetProto)
	for _, kind := range []byte{routerSolicit, neighbourSolicit, neighbourAdvert} { // as it was sent: what is routed has another hop limit
		byList = append(byList, sequence(ipv6.only(), icmp6(kind), equals(hopLimit, []byte{255}), leave()))
	}
	for _, f := range families() {
		byList = append(byList, sequence(f.only(), verdictOf(l.judged[f], f.src())))
	}
	const raw, dstNAT, redirected, filter = -300, -110, -80, -5 // before -100, where a Service's address is changed to that of a server
	return []chain{
		{name: ofLink, rules: l.ofLink(), jumps: 2},
		{name: sender, rules: append(bySource, l.refuse()...), jumps: 1},
		{name: judge, rules: byList, jumps: 2},
		{name: "prerouting" + version, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting, priority: raw, rules: []rule{
			sequence(inSet(l.checked, inLink()), gotoChain(sender)),
		}},
		{name: "questions" + version, kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPrerouting, priority: dstNAT, rules: l.questions()},
		{name: "redirected" + version, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting, priority: redirected, rules: l.notForged()},
		{name: "forward" + version, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookForward, priority: filter,
			rules: slices.Concat(fromLink(), l.begunByOthers(), []rule{gotoChain(judge)})},
		{name: "output" + version, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookOutput, priority: filter, rules: l.begunByOthers()},
		{name: "input" + version, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookInput, priority: filter,
			rules: append(l.notToAll(), gotoChain(judge))},
	}
}

// begun is the bit in the label of a connection that was begun by somebody else than the attachment. Its answers pass. A connection has no such bit
// that the attachment has begun with itself, under another's address, while nothing judged.
const begun = 77

func (l judgeLayout) begunByOthers() (rules []rule) {
	for _, f := range families() {
		rules = append(rules, sequence(f.only(), isDirection(original), inSet(l.attached[f], f.dst()), setLabel(begun)))
	}
	return rules
}

// notForged are the rules that keep another container of the node from beginning a connection under the address of somebody elsewhere, to whom the
// attachment could then send.
func (l judgeLayout) notForged() (rules []rule) {
	for _, f := range families() {
		for _, kind := range []string{link.KindBridge, "veth"} {
			rules = append(rules, sequence(f.only(), inSet(l.attached[f], f.dst()), isDirection(original), fromKind(kind), isNotAnsweredThere(), drop()))
		}
	}
	return rules
}

// notToAll are the rules that drop what goes to each host of a subnet, and to any of its routers: sockets of the node that are bound to no address
// would get that, and answer.
func (l judgeLayout) notToAll() (rules []rule) {
	for _, c := range []struct {
		*family
		kind uint32
	}{{&ipv4, unix.RTN_BROADCAST}, {&ipv6, unix.RTN_ANYCAST}} {
		rules = append(rules, sequence(c.only(), inSet(l.attached[c.family], c.src()), isFor(c.kind), inSet(l.refusedFrom[c.family], c.src()), drop()))
	}
	return rules
}

// fromLink are the rules that drop what is routed though its sender's address means something on one link only, or is none (RFC 4291, 2.5.2 and 2.5.6).
// The kernel does so itself unless the packet leaves by the link that it came in by. A packet that a bridge hands on is not routed: its destination is such
// an address, too, or its hop limit is still the largest, as neighbour discovery has it.
func fromLink() (rules []rule) {
	hopLimit := payload(expr.PayloadBaseNetworkHeader, 7, nftables.TypeInetProto)
	linkLocal := netip.MustParsePrefix("fe80::/10")
	for _, sender := range []netip.Prefix{linkLocal, netip.PrefixFrom(netip.IPv6Unspecified(), 128)} {
		rules = append(rules, sequence(ipv6.only(), compareNet(ipv6.src(), expr.CmpOpEq, sender), compareNet(ipv6.dst(), expr.CmpOpNeq, linkLocal),
			compareNet(ipv6.dst(), expr.CmpOpNeq, ipv6.multicast), compareBits(hopLimit, []byte{255}, expr.CmpOpNeq, []byte{255}), drop()))
	}
	return rules
}

// routedList is the chain for what is routed: it drops what the lists don't let pass.
func routedList(n spec.EgressNeeds) *list {
	t := (*Conn)(nil).table(judgeTable)
	layout, lists := t.layout.(judgeLayout), n.Lists.WithEmbedded()
	l := &list{}
	refuse := func(f *family, when ...rule) {
		condition := sequence(append([]rule{f.only()}, when...)...)
		l.rules = append(l.rules, sequence(condition, inSet(layout.refusedFrom[f], f.src()), drop()), sequence(condition, drop()))
	}
	refuse(&ipv4, hasOptions())
	refuse(&ipv6, hasHeader(unix.IPPROTO_ROUTING))
	l.rules = append(l.rules, sequence(isDirection(answer), isEstablished(), hasLabel(begun), leave()))
	for _, f := range families() {
		l.rules = append(l.rules, sequence(f.only(), isDirection(answer), isRelated(), hasLabel(begun), inSet(layout.pairs[f], f.src(), f.concerned().value), leave()))
	}
	if len(n.Resolvers) > 0 {
		l.rules = append(l.rules, toResolver()...)
	}
	for _, f := range families() {
		if lists.NoNode {
			refuse(f, isLocal())
		}
	}
	l.judge(lists, (*family).only, refuse)
	return l.named(judgeTable)
}

// judge adds the rules for lists. only goes on if a packet is of a family, refuse adds rules that drop those that meet a condition.
func (l *list) judge(lists reach.Lists, only func(*family) rule, refuse func(f *family, when ...rule)) {
	for _, f := range families() {
		nets, boxes := l.add("deny"+f.digit, f, lists.Deny)
		if nets != nil {
			refuse(f, inSet(nets, f.dst()))
		}
		if boxes != nil {
			refuse(f, inSet(boxes, f.dst(), protocol(), portValue()))
		}
	}
	if !lists.Closed {
		l.rules = append(l.rules, sequence(load(protocol()), leave())) // whose protocol can't be told has not passed the ports of Deny
	}
	for _, f := range families() {
		nets, boxes := l.add("allow"+f.digit, f, lists.Allow)
		if nets != nil {
			l.rules = append(l.rules, sequence(only(f), inSet(nets, f.dst()), leave()))
		}
		if boxes != nil {
			l.rules = append(l.rules, sequence(only(f), inSet(boxes, f.dst(), protocol(), portValue()), leave()))
		}
	}
	l.addNames(lists, refuse)
	for _, f := range families() {
		refuse(f)
	}
	l.rules = append(l.rules, drop())
}

// concerned is the destination of the packet that an ICMP error is about.
func (f *family) concerned() part {
	const header = 8 // of the error
	return f.raw(header + f.dstAt)
}

// add adds sets of entries of a family: those for all of IP, and those for ports; nil if there are none.
func (l *list) add(name string, f *family, entries []reach.Entry) (nets, boxes *nftables.Set) {
	is4 := f == &ipv4
	var elements []nftables.SetElement
	for _, r := range reach.Nets(entries, is4) {
		elements = append(elements, nftables.SetElement{Key: r.First.AsSlice()})
		if next := r.Last.Next(); next.IsValid() {
			elements = append(elements, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
		}
	}
	if len(elements) > 0 {
		nets = &nftables.Set{Name: name, KeyType: f.addr, Interval: true}
		l.sets = append(l.sets, filled{nets, elements})
	}
	elements = nil
	for _, b := range reach.Boxes(entries, is4) {
		key := func(addr netip.Addr, port uint16) []byte {
			return append(append(addr.AsSlice(), pad(b.Protocol)...), portKey(port)...)
		}
		elements = append(elements, nftables.SetElement{Key: key(b.Range.First, b.First), KeyEnd: key(b.Range.Last, b.Last)})
	}
	if len(elements) > 0 {
		boxes = &nftables.Set{Name: "ports" + name, KeyType: nftables.MustConcatSetType(f.addr, nftables.TypeInetProto, nftables.TypeInetService), Interval: true, Concatenation: true}
		l.sets = append(l.sets, filled{boxes, elements})
	}
	return nets, boxes
}
