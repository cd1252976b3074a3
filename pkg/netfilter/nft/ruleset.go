package nft

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
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

// Hooks of family inet (linux/netfilter.h).
const (
	hookPrerouting  = 0
	hookOutput      = 3
	hookPostrouting = 4
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
	owners = set{
		name: "owners_v1",
		key:  []dataType{typeIPv6, typeMark},
		data: []dataType{typeMark, typeLink, typeIPv6, typeProtocol, typePort},
	}
	inside = set{name: "inside_v1", key: []dataType{typeLink}}
)

// family is what differs between IPv4 and IPv6.
type family struct {
	nfproto              byte
	addr                 dataType
	srcOffset, dstOffset int // of the addresses, in bytes from the start of the IP header

	// Published ports, on all of the host's addresses and on one.
	all, one published
}

// published are the sets of published ports of one family.
type published struct {
	ports   set // port of the host to address and port of the container
	snat    set // link and port of the host: masquerade connections by that link
	masqAll set // port of the host: masquerade all connections
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
		addr:      typeIPv4,
		srcOffset: 12, dstOffset: 16,
		all: published{
			ports:   set{"ports4_v1", []dataType{typeProtocol, typePort}, []dataType{typeIPv4, typePort}},
			snat:    set{"snat4_v1", []dataType{typeLink, typeProtocol, typePort}, nil},
			masqAll: set{"masqall4_v1", []dataType{typeProtocol, typePort}, nil},
		},
		one: published{
			ports:   set{"hostports4_v1", []dataType{typeIPv4, typeProtocol, typePort}, []dataType{typeIPv4, typePort}},
			snat:    set{"hostsnat4_v1", []dataType{typeLink, typeIPv4, typeProtocol, typePort}, nil},
			masqAll: set{"hostmasqall4_v1", []dataType{typeIPv4, typeProtocol, typePort}, nil},
		},
	}
	ipv6 = family{
		nfproto:   unix.NFPROTO_IPV6,
		addr:      typeIPv6,
		srcOffset: 8, dstOffset: 24,
		all: published{
			ports:   set{"ports6_v1", []dataType{typeProtocol, typePort}, []dataType{typeIPv6, typePort}},
			snat:    set{"snat6_v1", []dataType{typeLink, typeProtocol, typePort}, nil},
			masqAll: set{"masqall6_v1", []dataType{typeProtocol, typePort}, nil},
		},
		one: published{
			ports:   set{"hostports6_v1", []dataType{typeIPv6, typeProtocol, typePort}, []dataType{typeIPv6, typePort}},
			snat:    set{"hostsnat6_v1", []dataType{typeLink, typeIPv6, typeProtocol, typePort}, nil},
			masqAll: set{"hostmasqall6_v1", []dataType{typeIPv6, typeProtocol, typePort}, nil},
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

// chain is a chain of the ruleset. One without a kind is entered from others.
type chain struct {
	name     string
	kind     string
	hook     uint32
	priority int32
	rules    [][]expr
}

// chains returns the chains, those that are jumped to first.
func chains() []chain {
	return []chain{
		{name: chainGuard, kind: "filter", hook: hookPrerouting, priority: priorityRaw, rules: guardRules()},
		{name: chainDNAT, rules: append(dnatRules(&ipv4), dnatRules(&ipv6)...)},
		{name: chainPrerouting, kind: "nat", hook: hookPrerouting, priority: priorityDstNAT, rules: [][]expr{
			rule(isIn(&ipv4, ipv4.dst(), loopback4()), leave()),
			rule(isLoopback6(), leave()),
			rule(isLocal(), jump(chainDNAT)),
		}},
		{name: chainOutput, kind: "nat", hook: hookOutput, priority: priorityDstNAT, rules: [][]expr{
			rule(isLoopback6(), leave()),
			rule(isLocal(), jump(chainDNAT)),
		}},
		{name: chainPostrouting, kind: "nat", hook: hookPostrouting, priority: prioritySrcNAT, rules: [][]expr{
			rule(wasDNATed(), isMarked(), []expr{masquerade()}),
		}},
	}
}

func guardRules() [][]expr {
	fromInside := append(concat(inLink()), lookup(&inside), drop())
	return [][]expr{
		rule(isIn(&ipv4, ipv4.dst(), loopback4()), fromInside),
		rule(isIn(&ipv4, ipv4.src(), loopback4()), fromInside),
	}
}

// dnatRules are those for ports published on one address, then those for ports
// published on all: a port may be both, and each has its own options.
func dnatRules(f *family) [][]expr {
	var rules [][]expr
	for _, bound := range []bool{true, false} {
		sets := f.published(bound)
		port := []load{protocol(), dstPort()}
		if bound {
			port = []load{f.dst(), protocol(), dstPort()}
		}
		by := func(link load) []expr { return concat(append([]load{link}, port...)...) }
		rules = append(rules, rule(is(f), by(inLink()), []expr{lookup(&sets.snat)}, setMark(masqueradeMark)))
		if f == &ipv4 {
			rules = append(rules, rule(isIn(f, f.src(), loopback4()), by(outLink()), []expr{lookup(&sets.snat)}, setMark(masqueradeMark)))
		}
		rules = append(rules,
			rule(is(f), concat(port...), []expr{lookup(&sets.masqAll)}, setMark(masqueradeMark)),
			rule(is(f), concat(port...), []expr{lookup(&sets.ports), dnat(f)}))
	}
	return rules
}

func rule(parts ...[]expr) []expr {
	var out []expr
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func is(f *family) []expr { return compare(nfproto(), unix.NFT_CMP_EQ, []byte{f.nfproto}) }

func isIn(f *family, l load, network netip.Prefix) []expr {
	return rule(is(f), compareNet(l, unix.NFT_CMP_EQ, network))
}

func isLoopback6() []expr {
	return rule(is(&ipv6), compare(ipv6.dst(), unix.NFT_CMP_EQ, netip.IPv6Loopback().AsSlice()))
}

func isLocal() []expr { return compare(dstType(), unix.NFT_CMP_EQ, native(unix.RTN_LOCAL)) }

func wasDNATed() []expr {
	const dstNAT = 1 << 5 // IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h
	return compareMasked(connStatus(), native(dstNAT), unix.NFT_CMP_NEQ, native(0))
}

func isMarked() []expr {
	return compareMasked(mark(), native(masqueradeMark), unix.NFT_CMP_EQ, native(masqueradeMark))
}

func jump(to string) []expr { return []expr{verdict(unix.NFT_JUMP, to)} }

func drop() expr {
	const nfDrop = 0 // NF_DROP of linux/netfilter.h
	return verdict(nfDrop, "")
}

func leave() []expr { return []expr{verdict(unix.NFT_RETURN, "")} }

// appendRuleset adds the creation of the ruleset to a transaction. The map of
// owners comes first: it exists exactly if the rest does, so that of several
// processes that try at the same time one gets past it.
func appendRuleset(tx *transaction) {
	tx.add(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, makeRuleset, "create table inet "+TableName, func(b *netlink.Batch) {
		b.String(unix.NFTA_TABLE_NAME, TableName)
	})
	owners.appendTo(tx, makeRuleset)
	inside.appendTo(tx, makeRuleset)
	for _, f := range []*family{&ipv4, &ipv6} {
		for _, p := range []*published{&f.all, &f.one} {
			p.ports.appendTo(tx, makeRuleset)
			p.snat.appendTo(tx, makeRuleset)
			p.masqAll.appendTo(tx, makeRuleset)
		}
	}
	for _, c := range chains() {
		c.appendTo(tx)
	}
}

func (c chain) appendTo(tx *transaction) {
	tx.add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE|unix.NLM_F_EXCL, makeRuleset, "create chain "+c.name, func(b *netlink.Batch) {
		b.String(unix.NFTA_CHAIN_TABLE, TableName)
		b.String(unix.NFTA_CHAIN_NAME, c.name)
		if c.kind == "" {
			return
		}
		b.Nest(unix.NFTA_CHAIN_HOOK, func() {
			b.BE32(unix.NFTA_HOOK_HOOKNUM, c.hook)
			b.BE32(unix.NFTA_HOOK_PRIORITY, uint32(c.priority))
		})
		b.String(unix.NFTA_CHAIN_TYPE, c.kind)
	})
	for _, r := range c.rules {
		appendRule(tx, makeRuleset, c.name, r)
	}
}

func appendRule(tx *transaction, at stage, chain string, exprs []expr) {
	tx.add(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, at, "add a rule to chain "+chain, func(b *netlink.Batch) {
		b.String(unix.NFTA_RULE_TABLE, TableName)
		b.String(unix.NFTA_RULE_CHAIN, chain)
		b.Nest(unix.NFTA_RULE_EXPRESSIONS, func() {
			for _, e := range exprs {
				b.Nest(unix.NFTA_LIST_ELEM, func() {
					b.String(unix.NFTA_EXPR_NAME, e.name)
					b.Nest(unix.NFTA_EXPR_DATA, func() { e.data(b) })
				})
			}
		})
	})
}
