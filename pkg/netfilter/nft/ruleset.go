package nft

import (
	"github.com/cnibox/cnibox/pkg/nftables"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The ruleset, as `nft list table inet cnibox` shows it for a node on which
// 10.88.0.2 is masqueraded and publishes a port (of the sets ending in 6 only
// the rules are shown; testdata/ruleset.nft has all):
//
//	map owners_v1 { type ipv6_addr . mark : mark . ifname . ipv6_addr . inet_proto . inet_service }
//	set inside_v1 { type ifname }
//	map ports4_v1 { type inet_proto . inet_service : ipv4_addr . inet_service }
//	set snat4_v1 { type ifname . inet_proto . inet_service }
//	set masqall4_v1 { type inet_proto . inet_service }
//	map hostports4_v1 { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service }
//	set hostsnat4_v1 { type ifname . ipv4_addr . inet_proto . inet_service }
//	set hostmasqall4_v1 { type ipv4_addr . inet_proto . inet_service }
//	set masq_v1_10.88.0.0/24 { type ipv4_addr }
//
//	chain guard_v1 {
//		type filter hook prerouting priority raw; policy accept;
//		ip daddr 127.0.0.0/8 iifname @inside_v1 drop
//		ip saddr 127.0.0.0/8 iifname @inside_v1 drop
//	}
//	chain prerouting_v1 {
//		type nat hook prerouting priority dstnat + 10; policy accept;
//		ip daddr 127.0.0.0/8 return
//		ip6 daddr ::1 return
//		fib daddr type local jump dnat_v1
//	}
//	chain output_v1 {
//		type nat hook output priority -90; policy accept;
//		ip6 daddr ::1 return
//		fib daddr type local jump dnat_v1
//	}
//	chain dnat_v1 {
//		iifname . ip daddr . meta l4proto . th dport @hostsnat4_v1 meta mark set meta mark | 0x00002000
//		ip saddr 127.0.0.0/8 oifname . ip daddr . meta l4proto . th dport @hostsnat4_v1 meta mark set meta mark | 0x00002000
//		ip daddr . meta l4proto . th dport @hostmasqall4_v1 meta mark set meta mark | 0x00002000
//		dnat ip to ip daddr . meta l4proto . th dport map @hostports4_v1
//		meta nfproto ipv4 iifname . meta l4proto . th dport @snat4_v1 meta mark set meta mark | 0x00002000
//		ip saddr 127.0.0.0/8 oifname . meta l4proto . th dport @snat4_v1 meta mark set meta mark | 0x00002000
//		meta nfproto ipv4 meta l4proto . th dport @masqall4_v1 meta mark set meta mark | 0x00002000
//		meta nfproto ipv4 dnat ip to meta l4proto . th dport map @ports4_v1
//		… the same for IPv6, without the rules for 127.0.0.0/8
//	}
//	chain postrouting_v1 {
//		type nat hook postrouting priority srcnat + 10; policy accept;
//		ct status dnat meta mark & 0x00002000 == 0x00002000 masquerade
//		ip saddr @masq_v1_10.88.0.0/24 ip daddr != 10.88.0.0/24 ip daddr != 224.0.0.0/4 masquerade
//	}
//
// A connection to an address of the host, from outside or from the host
// itself, looks its port up: first among the ports published on that address,
// then among those published on all. A Service of kube-proxy, whose chains are
// at priority -100, has gone its own way by then; an administrator's source
// NAT at 100 comes before ours at 110.
//
// The mark 0x2000, the one the reference plugin uses, makes postrouting
// masquerade a connection that was just sent to a published port: one that
// came in by the link which the container is behind, so that the answer would
// find its way back without us (the snat sets hold that link); one from
// 127.0.0.0/8, to which a container can't answer (they hold lo as the link it
// leaves by); or any, with masqAll. All other packets keep their marks, and
// connections from elsewhere their source addresses.
//
// 127.0.0.1 works as a host address only where the sysctl route_localnet is set
// for the link towards the container, and that alone would let containers, and
// whoever else is on that link, reach all that listens on 127.0.0.1
// (CVE-2020-8558). guard_v1 closes that for the links in inside_v1, before the
// sysctl is set. For the same reason a packet that comes in from anywhere to
// 127.0.0.0/8 is not sent to a published port. ::1 has no route_localnet: a
// DNAT from there can't work, so that it is left to the host's own servers.
//
// A subnet's set and rule are made by the first attachment in it. A verdict map
// in place of rules would make the kernel validate all its elements for each
// one that is added.

// masqueradeMark is the bit 13, that the reference plugin defaults to.
const masqueradeMark = 0x2000

// Priorities in hooks; netfilter's own are unix.NF_IP_PRI_… in linux/netfilter_ipv4.h.
const (
	priorityRaw    = -300
	priorityDstNAT = -90 // behind -100, where kube-proxy is
	prioritySrcNAT = 110 // behind 100, where administrators are
)

// Chains. Their names and those of the sets carry the ruleset's version, so
// that a later one can be made beside this one.
const (
	chainGuard       = "guard_v1"
	chainPrerouting  = "prerouting_v1"
	chainOutput      = "output_v1"
	chainDNAT        = "dnat_v1"
	chainPostrouting = "postrouting_v1"
)

var (
	owners = nftables.Set{
		Table: table,
		Name:  "owners_v1",
		Key:   []nftables.Type{nftables.TypeIPv6, nftables.TypeMark},
		Data:  []nftables.Type{nftables.TypeMark, nftables.TypeLink, nftables.TypeIPv6, nftables.TypeProtocol, nftables.TypePort},
	}
	inside = nftables.Set{Table: table, Name: "inside_v1", Key: []nftables.Type{nftables.TypeLink}}
)

// family is what differs between IPv4 and IPv6.
type family struct {
	nfproto              byte
	addr                 nftables.Type
	srcOffset, dstOffset int // of the addresses, in bytes from the start of the IP header

	// Published ports, on all of the host's addresses and on one.
	all, one published
}

// published are the sets of published ports of one family.
type published struct {
	ports   nftables.Set // port of the host to address and port of the container
	snat    nftables.Set // link and port of the host: masquerade connections by that link
	masqAll nftables.Set // port of the host: masquerade all connections
}

func (f *family) published(bound bool) *published {
	if bound {
		return &f.one
	}
	return &f.all
}

var (
	ipv4 = family{
		nfproto:   unix.NFPROTO_IPV4,
		addr:      nftables.TypeIPv4,
		srcOffset: 12, dstOffset: 16,
		all: published{
			ports:   nftables.Set{Table: table, Name: "ports4_v1", Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv4, nftables.TypePort}},
			snat:    nftables.Set{Table: table, Name: "snat4_v1", Key: []nftables.Type{nftables.TypeLink, nftables.TypeProtocol, nftables.TypePort}},
			masqAll: nftables.Set{Table: table, Name: "masqall4_v1", Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}},
		},
		one: published{
			ports:   nftables.Set{Table: table, Name: "hostports4_v1", Key: []nftables.Type{nftables.TypeIPv4, nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv4, nftables.TypePort}},
			snat:    nftables.Set{Table: table, Name: "hostsnat4_v1", Key: []nftables.Type{nftables.TypeLink, nftables.TypeIPv4, nftables.TypeProtocol, nftables.TypePort}},
			masqAll: nftables.Set{Table: table, Name: "hostmasqall4_v1", Key: []nftables.Type{nftables.TypeIPv4, nftables.TypeProtocol, nftables.TypePort}},
		},
	}
	ipv6 = family{
		nfproto:   unix.NFPROTO_IPV6,
		addr:      nftables.TypeIPv6,
		srcOffset: 8, dstOffset: 24,
		all: published{
			ports:   nftables.Set{Table: table, Name: "ports6_v1", Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv6, nftables.TypePort}},
			snat:    nftables.Set{Table: table, Name: "snat6_v1", Key: []nftables.Type{nftables.TypeLink, nftables.TypeProtocol, nftables.TypePort}},
			masqAll: nftables.Set{Table: table, Name: "masqall6_v1", Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}},
		},
		one: published{
			ports:   nftables.Set{Table: table, Name: "hostports6_v1", Key: []nftables.Type{nftables.TypeIPv6, nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv6, nftables.TypePort}},
			snat:    nftables.Set{Table: table, Name: "hostsnat6_v1", Key: []nftables.Type{nftables.TypeLink, nftables.TypeIPv6, nftables.TypeProtocol, nftables.TypePort}},
			masqAll: nftables.Set{Table: table, Name: "hostmasqall6_v1", Key: []nftables.Type{nftables.TypeIPv6, nftables.TypeProtocol, nftables.TypePort}},
		},
	}
)

func (f *family) multicast() netip.Prefix {
	if f == &ipv4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{224}), 4)
	}
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xff}), 8)
}

func loopback4() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8) }

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return &ipv4
	}
	return &ipv6
}

// chains returns the chains, those that are jumped to first.
func chains() []nftables.Chain {
	return []nftables.Chain{
		{Name: chainGuard, Kind: "filter", Hook: nftables.HookPrerouting, Priority: priorityRaw, Rules: guardRules()},
		{Name: chainDNAT, Rules: append(dnatRules(&ipv4), dnatRules(&ipv6)...)},
		{Name: chainPrerouting, Kind: "nat", Hook: nftables.HookPrerouting, Priority: priorityDstNAT, Rules: []nftables.Rule{
			nftables.MakeRule(isIn(&ipv4, ipv4.dst(), loopback4()), nftables.Return()),
			nftables.MakeRule(isLoopback6(), nftables.Return()),
			nftables.MakeRule(isLocal(), nftables.Jump(chainDNAT)),
		}},
		{Name: chainOutput, Kind: "nat", Hook: nftables.HookOutput, Priority: priorityDstNAT, Rules: []nftables.Rule{
			nftables.MakeRule(isLoopback6(), nftables.Return()),
			nftables.MakeRule(isLocal(), nftables.Jump(chainDNAT)),
		}},
		{Name: chainPostrouting, Kind: "nat", Hook: nftables.HookPostrouting, Priority: prioritySrcNAT, Rules: []nftables.Rule{
			nftables.MakeRule(wasDNATed(), isMarked(), nftables.Masquerade()),
		}},
	}
}

func guardRules() []nftables.Rule {
	fromInside := nftables.MakeRule(nftables.In(&inside, nftables.InLink()), nftables.Drop())
	return []nftables.Rule{
		nftables.MakeRule(isIn(&ipv4, ipv4.dst(), loopback4()), fromInside),
		nftables.MakeRule(isIn(&ipv4, ipv4.src(), loopback4()), fromInside),
	}
}

// dnatRules are those for ports published on one address, then those for ports
// published on all: a port may be both, and each has its own options.
func dnatRules(f *family) []nftables.Rule {
	var rules []nftables.Rule
	for _, bound := range []bool{true, false} {
		sets := f.published(bound)
		port := []nftables.Load{nftables.L4Protocol(), nftables.DstPort()}
		if bound {
			port = []nftables.Load{f.dst(), nftables.L4Protocol(), nftables.DstPort()}
		}
		by := func(link nftables.Load) []nftables.Expr {
			return nftables.In(&sets.snat, append([]nftables.Load{link}, port...)...)
		}
		setMark := nftables.SetMark(masqueradeMark)
		rules = append(rules, nftables.MakeRule(is(f), by(nftables.InLink()), setMark))
		if f == &ipv4 {
			rules = append(rules, nftables.MakeRule(isIn(f, f.src(), loopback4()), by(nftables.OutLink()), setMark))
		}
		rules = append(rules,
			nftables.MakeRule(is(f), nftables.In(&sets.masqAll, port...), setMark),
			nftables.MakeRule(is(f), nftables.In(&sets.ports, port...), nftables.DNAT(f.nfproto, f.addr)))
	}
	return rules
}

func is(f *family) []nftables.Expr {
	return nftables.Compare(nftables.Family(), unix.NFT_CMP_EQ, []byte{f.nfproto})
}

func isIn(f *family, l nftables.Load, network netip.Prefix) []nftables.Expr {
	return nftables.MakeRule(is(f), nftables.CompareNet(l, unix.NFT_CMP_EQ, network))
}

func isLoopback6() []nftables.Expr {
	return nftables.MakeRule(is(&ipv6), nftables.Compare(ipv6.dst(), unix.NFT_CMP_EQ, netip.IPv6Loopback().AsSlice()))
}

func isLocal() []nftables.Expr {
	return nftables.Compare(nftables.DstType(), unix.NFT_CMP_EQ, nftables.Native(unix.RTN_LOCAL))
}

func wasDNATed() []nftables.Expr {
	const dstNAT = 1 << 5 // IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h
	return nftables.CompareMasked(nftables.ConnStatus(), nftables.Native(dstNAT), unix.NFT_CMP_NEQ, nftables.Native(0))
}

func isMarked() []nftables.Expr {
	bit := nftables.Native(masqueradeMark)
	return nftables.CompareMasked(nftables.Mark(), bit, unix.NFT_CMP_EQ, bit)
}

func (f *family) src() nftables.Load { return nftables.Network(f.srcOffset, f.addr.Size()) }
func (f *family) dst() nftables.Load { return nftables.Network(f.dstOffset, f.addr.Size()) }

// appendRuleset adds the creation of the ruleset to a transaction. The map of
// owners comes first: it exists exactly if the rest does, so that of several
// processes that try at the same time one gets past it.
func appendRuleset(tx *nftables.Transaction) {
	tx.CreateTable(makeRuleset, table)
	tx.CreateSet(makeRuleset, &owners)
	tx.CreateSet(makeRuleset, &inside)
	for _, f := range []*family{&ipv4, &ipv6} {
		for _, p := range []*published{&f.all, &f.one} {
			tx.CreateSet(makeRuleset, &p.ports)
			tx.CreateSet(makeRuleset, &p.snat)
			tx.CreateSet(makeRuleset, &p.masqAll)
		}
	}
	for _, c := range chains() {
		tx.CreateChain(makeRuleset, table, c)
	}
}
