package nft

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/nftables"
)

// The ruleset, as `nft list table inet cnibox` shows it for a node on which
// 10.88.0.2 is masqueraded and publishes a port (of the sets ending in 6 only
// the rules are shown; testdata/ruleset.nft has all):
//
//	map owners_v2 { type ipv6_addr . mark : mark . mark . ifname . ipv6_addr . inet_service }
//	set trials_v2 { type mark . mark }
//	set inside_v2 { type ifname }
//	map ports4_v2 { type inet_proto . inet_service : ipv4_addr . inet_service }
//	map ifports4_v2 { type inet_proto . inet_service : ipv4_addr . inet_service }
//	set snat4_v2 { type ifname . inet_proto . inet_service }
//	set masqall4_v2 { type inet_proto . inet_service }
//	set gone4_v2 { type inet_proto . inet_service }
//	map hostports4_v2 { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service }
//	map hostifports4_v2 { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service }
//	set hostsnat4_v2 { type ifname . ipv4_addr . inet_proto . inet_service }
//	set hostmasqall4_v2 { type ipv4_addr . inet_proto . inet_service }
//	set hostgone4_v2 { type ipv4_addr . inet_proto . inet_service }
//	set masq_v2_10.88.0.0/24 { type ipv4_addr }
//	set gone_v2_10.88.0.0/24 { type ipv4_addr }
//
//	chain guard_v2 {
//		type filter hook prerouting priority raw; policy accept;
//		ip daddr 127.0.0.0/8 iifname @inside_v2 drop
//		ip saddr 127.0.0.0/8 iifname @inside_v2 drop
//	}
//	chain hostoptions_v2 { }
//	chain options_v2 { }
//	chain dnat_v2 {
//		jump hostoptions_v2
//		iifname . ip daddr . meta l4proto . th dport @hostsnat4_v2 meta mark set meta mark | 0x00002000
//		ip saddr 127.0.0.0/8 oifname . ip daddr . meta l4proto . th dport @hostsnat4_v2 meta mark set meta mark | 0x00002000
//		ip daddr . meta l4proto . th dport @hostmasqall4_v2 meta mark set meta mark | 0x00002000
//		ip daddr . meta l4proto . th dport != @hostgone4_v2 dnat ip to ip daddr . meta l4proto . th dport map @hostports4_v2
//		… the same for IPv6, without the rules for 127.0.0.0/8
//		jump options_v2
//		meta nfproto ipv4 iifname . meta l4proto . th dport @snat4_v2 meta mark set meta mark | 0x00002000
//		ip saddr 127.0.0.0/8 oifname . meta l4proto . th dport @snat4_v2 meta mark set meta mark | 0x00002000
//		meta nfproto ipv4 meta l4proto . th dport @masqall4_v2 meta mark set meta mark | 0x00002000
//		meta nfproto ipv4 meta l4proto . th dport != @gone4_v2 dnat ip to meta l4proto . th dport map @ports4_v2
//		… the same for IPv6
//	}
//	chain prerouting_v2 {
//		type nat hook prerouting priority dstnat + 10; policy accept;
//		ip daddr 127.0.0.0/8 return
//		ip6 daddr ::1 return
//		fib daddr type local jump dnat_v2
//	}
//	chain output_v2 {
//		type nat hook output priority -90; policy accept;
//		ip6 daddr ::1 return
//		fib daddr type local jump dnat_v2
//	}
//	chain postrouting_v2 {
//		type nat hook postrouting priority srcnat + 10; policy accept;
//		ct status dnat meta mark & 0x00002000 == 0x00002000 masquerade
//		ip saddr != @gone_v2_10.88.0.0/24 ip saddr @masq_v2_10.88.0.0/24 ip daddr != 10.88.0.0/24 ip daddr != 224.0.0.0/4 masquerade
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
// (CVE-2020-8558). guard_v2 closes that for the links in inside_v2, before the
// sysctl is set. For the same reason a packet that comes in from anywhere to
// 127.0.0.0/8 is not sent to a published port. ::1 has no route_localnet: a
// DNAT from there can't work, so that it is left to the host's own servers.
//
// All sets have the flag timeout, for what is removed from them, and the gone
// sets are for that alone (expiry.go).
//
// What only some attachments need is made by the first of them, in a transaction
// with its elements (part.go): a subnet's set and rule (subnet.go), and what
// ports with a mark of their own or with conditions need, in the two options
// chains (group.go). Verdict maps would do for both without a rule for each,
// but make the kernel validate all their elements for each one that is added.

// version ends the names of all that is in the ruleset, so that a later one can
// be made beside this one and take over what it holds (migrate.go).
const version = "_v2"

// defaultBit is the reference plugin's bit of the packet mark.
const defaultBit = 13

// Priorities in hooks; netfilter's own are unix.NF_IP_PRI_… in linux/netfilter_ipv4.h.
const (
	priorityRaw    = -300
	priorityDstNAT = -90 // behind -100, where kube-proxy is
	prioritySrcNAT = 110 // behind 100, where administrators are
)

// Chains.
const (
	chainGuard       = "guard" + version
	chainPrerouting  = "prerouting" + version
	chainOutput      = "output" + version
	chainHostOptions = "hostoptions" + version
	chainOptions     = "options" + version
	chainDNAT        = "dnat" + version
	chainPostrouting = "postrouting" + version
)

var (
	owners = nftables.Set{
		Table: table,
		Name:  "owners" + version,
		Key:   []nftables.Type{nftables.TypeIPv6, nftables.TypeMark},
		Data:  []nftables.Type{nftables.TypeMark, nftables.TypeMark, nftables.TypeLink, nftables.TypeIPv6, nftables.TypePort},

		Expiring: true,
	}
	inside = nftables.Set{Table: table, Name: "inside" + version, Key: []nftables.Type{nftables.TypeLink}, Expiring: true}
)

// family is what differs between IPv4 and IPv6.
type family struct {
	nfproto              byte
	digit                string // in names
	addr                 nftables.Type
	srcOffset, dstOffset int // of the addresses, in bytes from the start of the IP header

	// Published ports, on all of the host's addresses and on one.
	all, one published
}

// published are the sets of published ports of one family.
type published struct {
	ports       nftables.Set // port of the host to address and port of the container
	conditional nftables.Set // the same, of ports that are published on conditions
	snat        nftables.Set // link and port of the host: masquerade connections by that link
	masqAll     nftables.Set // port of the host: masquerade all connections
	gone        nftables.Set // port of the host: is none of ports any more
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
		digit:     "4",
		addr:      nftables.TypeIPv4,
		srcOffset: 12, dstOffset: 16,
		all: published{
			ports:       nftables.Set{Table: table, Name: "ports4" + version, Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv4, nftables.TypePort}, Expiring: true},
			conditional: nftables.Set{Table: table, Name: "ifports4" + version, Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv4, nftables.TypePort}, Expiring: true},
			snat:        nftables.Set{Table: table, Name: "snat4" + version, Key: []nftables.Type{nftables.TypeLink, nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
			masqAll:     nftables.Set{Table: table, Name: "masqall4" + version, Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
			gone:        nftables.Set{Table: table, Name: "gone4" + version, Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
		},
		one: published{
			ports:       nftables.Set{Table: table, Name: "hostports4" + version, Key: []nftables.Type{nftables.TypeIPv4, nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv4, nftables.TypePort}, Expiring: true},
			conditional: nftables.Set{Table: table, Name: "hostifports4" + version, Key: []nftables.Type{nftables.TypeIPv4, nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv4, nftables.TypePort}, Expiring: true},
			snat:        nftables.Set{Table: table, Name: "hostsnat4" + version, Key: []nftables.Type{nftables.TypeLink, nftables.TypeIPv4, nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
			masqAll:     nftables.Set{Table: table, Name: "hostmasqall4" + version, Key: []nftables.Type{nftables.TypeIPv4, nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
			gone:        nftables.Set{Table: table, Name: "hostgone4" + version, Key: []nftables.Type{nftables.TypeIPv4, nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
		},
	}
	ipv6 = family{
		nfproto:   unix.NFPROTO_IPV6,
		digit:     "6",
		addr:      nftables.TypeIPv6,
		srcOffset: 8, dstOffset: 24,
		all: published{
			ports:       nftables.Set{Table: table, Name: "ports6" + version, Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv6, nftables.TypePort}, Expiring: true},
			conditional: nftables.Set{Table: table, Name: "ifports6" + version, Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv6, nftables.TypePort}, Expiring: true},
			snat:        nftables.Set{Table: table, Name: "snat6" + version, Key: []nftables.Type{nftables.TypeLink, nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
			masqAll:     nftables.Set{Table: table, Name: "masqall6" + version, Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
			gone:        nftables.Set{Table: table, Name: "gone6" + version, Key: []nftables.Type{nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
		},
		one: published{
			ports:       nftables.Set{Table: table, Name: "hostports6" + version, Key: []nftables.Type{nftables.TypeIPv6, nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv6, nftables.TypePort}, Expiring: true},
			conditional: nftables.Set{Table: table, Name: "hostifports6" + version, Key: []nftables.Type{nftables.TypeIPv6, nftables.TypeProtocol, nftables.TypePort}, Data: []nftables.Type{nftables.TypeIPv6, nftables.TypePort}, Expiring: true},
			snat:        nftables.Set{Table: table, Name: "hostsnat6" + version, Key: []nftables.Type{nftables.TypeLink, nftables.TypeIPv6, nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
			masqAll:     nftables.Set{Table: table, Name: "hostmasqall6" + version, Key: []nftables.Type{nftables.TypeIPv6, nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
			gone:        nftables.Set{Table: table, Name: "hostgone6" + version, Key: []nftables.Type{nftables.TypeIPv6, nftables.TypeProtocol, nftables.TypePort}, Expiring: true},
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
		{Name: chainHostOptions},
		{Name: chainOptions},
		{Name: chainDNAT, Rules: dnatRules()},
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
			nftables.MakeRule(wasDNATed(), isMarked(defaultBit), nftables.Masquerade()),
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
func dnatRules() []nftables.Rule {
	rules := []nftables.Rule{nftables.Jump(chainHostOptions)}
	rules = append(append(rules, plain(&ipv4, true).rules()...), plain(&ipv6, true).rules()...)
	rules = append(rules, nftables.Jump(chainOptions))
	return append(append(rules, plain(&ipv4, false).rules()...), plain(&ipv6, false).rules()...)
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

func isMarked(bit uint8) []nftables.Expr {
	mask := nftables.Native(1 << bit)
	return nftables.CompareMasked(nftables.Mark(), mask, unix.NFT_CMP_EQ, mask)
}

func (f *family) src() nftables.Load { return nftables.Network(f.srcOffset, f.addr.Size()) }
func (f *family) dst() nftables.Load { return nftables.Network(f.dstOffset, f.addr.Size()) }

// appendRuleset adds the creation of the ruleset to a transaction. The map of
// owners comes first: it exists exactly if the rest does, so that of several
// processes that try at the same time one gets past it.
func appendRuleset(tx *nftables.Transaction) {
	tx.CreateTable(makeRuleset, table)
	tx.CreateSet(makeRuleset, &owners)
	tx.CreateSet(makeRuleset, &trials)
	tx.CreateSet(makeRuleset, &inside)
	for _, f := range []*family{&ipv4, &ipv6} {
		for _, p := range []*published{&f.all, &f.one} {
			tx.CreateSet(makeRuleset, &p.ports)
			tx.CreateSet(makeRuleset, &p.conditional)
			tx.CreateSet(makeRuleset, &p.snat)
			tx.CreateSet(makeRuleset, &p.masqAll)
			tx.CreateSet(makeRuleset, &p.gone)
		}
	}
	for _, c := range chains() {
		tx.CreateChain(makeRuleset, table, c)
	}
}
