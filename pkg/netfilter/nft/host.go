package nft

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// The table for masquerading and published ports is inet cnibox; docs/netfilter.md
// shows it as nft lists it. A connection to an address of the host looks its port up,
// first among the ports published on that address, then among those published on all.
//
// The mark 0x2000 makes postrouting masquerade a connection that was just sent to a
// published port: one that came in by the link which the container is behind, so that
// the answer would find its way back without us (the snat sets have that link); one
// from 127.0.0.0/8, to which a container can't answer (they have lo as the link it
// leaves by); or any, with masqAll.
//
// 127.0.0.1 works as a host address only where the sysctl route_localnet is set for
// the link towards the container, and that alone would let whoever is on that link
// reach all that listens on 127.0.0.1 (CVE-2020-8558). The guard closes that for the
// links in the set inside. For the same reason a packet that comes in from anywhere
// to 127.0.0.0/8 is not sent to a published port. ::1 has no route_localnet: a DNAT
// from there can't work, so that it is left to the host's own servers.

// TableName is the name of the table, of family inet.
const TableName = "cnibox"

// defaultBit is the reference plugin's bit of the packet mark.
const defaultBit = 13

// Priorities in hooks, where netfilter's own are those of linux/netfilter_ipv4.h.
const (
	priorityRaw    = -300
	priorityDstNAT = -90 // behind -100, where kube-proxy is
	prioritySrcNAT = 110 // behind 100, where administrators are
)

const (
	chainGuard       = "guard" + version
	chainPrerouting  = "prerouting" + version
	chainOutput      = "output" + version
	chainDNAT        = "dnat" + version
	chainPostrouting = "postrouting" + version
	chainSubnets     = "subnets" + version

	// Of ports with conditions, or with another bit of the mark (options.go).
	chainHostOptions = "hostoptions" + version // published on one address
	chainOptions     = "options" + version     // on all
	chainMarks       = "marks" + version       // masquerade
)

const needNAT = "the kernel needs nf_tables with NAT in family inet (Linux 5.2; CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT, CONFIG_NFT_MASQ, " +
	"CONFIG_NFT_CT, CONFIG_NFT_FIB_INET) or must be able to load its modules (nft_chain_nat, nft_masq, nft_ct, nft_fib_inet)"

// host returns the table.
func (c *Conn) host() *table {
	t := &table{conn: c, ruleset: ruleset{
		table:   nftables.Table{Family: nftables.TableFamilyINet, Name: TableName},
		refusal: "nftables can't be used",
		need:    needNAT,
		lost:    "all that attachments of this host had published and masqueraded",
	}}
	t.owners = newOwners(&t.table)
	t.sets = []*nftables.Set{t.inside()}
	for _, f := range families() {
		for _, bound := range []bool{false, true} {
			p := t.published(f, bound)
			t.sets = append(t.sets, p.ports, p.conditional, p.snat, p.masqAll)
		}
	}
	t.chains = t.hostChains
	t.elements = t.hostElements
	t.onDemand = t.subnetNamed
	return t
}

// inside is the set of links with route_localnet.
func (t *table) inside() *nftables.Set { return newSet(&t.table, "inside", nftables.TypeIFName) }

// published are the sets of published ports of one family, on one address of the
// host or on all.
type published struct {
	key []value // what the keys are about

	ports       *nftables.Set // port of the host to address and port of the container
	conditional *nftables.Set // the same, of ports that are published on conditions
	snat        *nftables.Set // link and port of the host: masquerade connections by that link
	masqAll     *nftables.Set // port of the host: masquerade all connections
}

func (t *table) published(f *family, bound bool) published {
	key, prefix := []nftables.SetDatatype{nftables.TypeInetProto, nftables.TypeInetService}, ""
	p := published{key: []value{protocol(), portValue()}}
	if bound {
		key, prefix = append([]nftables.SetDatatype{f.addr}, key...), "host"
		p.key = append([]value{f.dst()}, p.key...)
	}
	to := concat(f.addr, nftables.TypeInetService)
	p.ports = newMap(&t.table, prefix+"ports"+f.digit, concat(key...), to)
	p.conditional = newMap(&t.table, prefix+"ifports"+f.digit, concat(key...), to)
	p.snat = newSet(&t.table, prefix+"snat"+f.digit, concat(append([]nftables.SetDatatype{nftables.TypeIFName}, key...)...))
	p.masqAll = newSet(&t.table, prefix+"masqall"+f.digit, concat(key...))
	return p
}

// hostChains returns the chains. There is an order only among rules.
func (t *table) hostChains() []chain {
	localhost4 := netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
	isLocalhost4 := func(v value) rule { return words(ipv4.is(), compareNet(v, expr.CmpOpEq, localhost4)) }
	isLocalhost6 := words(ipv6.is(), compare(ipv6.dst(), expr.CmpOpEq, netip.IPv6Loopback().AsSlice()))
	fromInside := words(in(t.inside(), inLink()), drop())

	// A port may be published on one address and on all, each with its own options.
	dnat := []rule{jump(chainHostOptions)}
	dnat = append(append(dnat, t.portRules(&ipv4, true)...), t.portRules(&ipv6, true)...)
	dnat = append(dnat, jump(chainOptions))
	dnat = append(append(dnat, t.portRules(&ipv4, false)...), t.portRules(&ipv6, false)...)

	return []chain{
		{name: chainGuard, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting, priority: priorityRaw, rules: []rule{
			words(isLocalhost4(ipv4.dst()), fromInside),
			words(isLocalhost4(ipv4.src()), fromInside),
		}},
		{name: chainHostOptions, own: true},
		{name: chainOptions, own: true},
		{name: chainMarks, own: true},
		{name: chainSubnets, toParts: true},
		{name: chainDNAT, rules: dnat, jumps: 2},
		{name: chainPrerouting, kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPrerouting, priority: priorityDstNAT, rules: []rule{
			words(isLocalhost4(ipv4.dst()), back()),
			words(isLocalhost6, back()),
			words(isLocal(), jump(chainDNAT)),
		}},
		{name: chainOutput, kind: nftables.ChainTypeNAT, hook: nftables.ChainHookOutput, priority: priorityDstNAT, rules: []rule{
			words(isLocalhost6, back()),
			words(isLocal(), jump(chainDNAT)),
		}},
		{name: chainPostrouting, kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPostrouting, priority: prioritySrcNAT, rules: []rule{
			words(wasRedirected(), isMarked(defaultBit), masquerade()),
			words(wasRedirected(), jump(chainMarks)),
			jump(chainSubnets),
		}},
	}
}

// portRules mark connections that are to be masqueraded, and send all to the
// containers.
func (t *table) portRules(f *family, bound bool) []rule {
	p := t.published(f, bound)
	by := func(link value) rule { return in(p.snat, append([]value{link}, p.key...)...) }
	marked := setMark(1 << defaultBit)
	rules := []rule{words(f.is(), by(inLink()), marked)}
	if f == &ipv4 {
		fromLocalhost := words(f.is(), compareNet(f.src(), expr.CmpOpEq, netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)))
		rules = append(rules, words(fromLocalhost, by(outLink()), marked))
	}
	return append(rules,
		words(f.is(), in(p.masqAll, p.key...), marked),
		words(f.is(), in(p.ports, p.key...), f.dnat()))
}

// hostElements returns the elements of a record.
func (t *table) hostElements(r record) []element {
	if r.kind == kindAddress {
		subnet := t.subnetOf(netip.PrefixFrom(r.addr, int(r.port)))
		return []element{{set: subnet.set, key: r.addr.AsSlice(), what: r.String()}}
	}
	p, first := t.published(familyOf(r.addr), r.isBound()), portElement(r)
	first.set = p.ports
	if r.conditions != 0 {
		first.set = p.conditional
	}
	list := []element{first}
	add := func(s *nftables.Set, key []byte) { list = append(list, element{set: s, key: key, what: first.what}) }
	if r.flags&flagMasqAll != 0 && !r.hasOwnRules() {
		add(p.masqAll, first.key)
	}
	if r.flags&flagSNAT == 0 {
		return list
	}
	if !r.hasOwnRules() {
		add(p.snat, append(linkKey(r.link), first.key...))
	}
	if r.addr.Is4() {
		if !r.hasOwnRules() {
			add(p.snat, append(linkKey("lo"), first.key...))
		}
		guard := element{set: t.inside(), key: linkKey(r.link), what: r.link}
		if r.flags&flagOwnLink == 0 {
			guard.sharing = forGood
		}
		list = append(list, guard)
	}
	return list
}

// guardComment is the comment of elements that stay when their attachment goes.
const guardComment = "keeps 127.0.0.0/8 to the host while route_localnet is set"

func (r record) isBound() bool { return !r.addr.IsUnspecified() }

// portElement is the element that a published port has one owner by. Its set is
// up to the table.
func portElement(r record) element {
	key := append(protocolKey(r.proto), portKey(r.port)...)
	if r.isBound() {
		key = append(r.addr.AsSlice(), key...)
	}
	return element{key: key, what: r.String()}
}
