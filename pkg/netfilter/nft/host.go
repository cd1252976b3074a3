package nft

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// The table for masquerading and published ports is inet cnibox; docs/operate/netfilter.md shows it as nft lists it. A connection to an
// address of the host looks its port up, first among the ports published on that address, then among those published on all.
//
// The mark 0x2000 makes postrouting masquerade a connection that was just sent to a published port: one that came in by the link
// which the container is behind, so that the answer would find its way back without us (the snat sets have that link); one from
// 127.0.0.0/8, to which a container can't answer (they have lo as the link it leaves by); or any, with masqAll.
//
// 127.0.0.1 works as a host address only where the sysctl route_localnet is set for the link towards the container, and that alone
// would let whoever is on that link reach all that listens on 127.0.0.1 (CVE-2020-8558). The guard closes that for the links in the
// set inside. For the same reason a packet that comes in from anywhere to 127.0.0.0/8 is not sent to a published port. ::1 has no
// route_localnet: a DNAT from there can't work, so that it is left to the host's own servers.

// defaultBit is the reference plugin's bit of the packet mark.
const defaultBit = 13

const (
	chainDNAT    = "dnat" + version
	chainSubnets = "subnets" + version

	// Of ports with conditions.
	chainHostOptions = "hostoptions" + stored // published on one address
	chainOptions     = "options" + stored     // on all
)

// insideSet has the links with route_localnet.
const insideSet = "inside" + stored

// hostLayout is that of table inet cnibox.
type hostLayout struct {
	table  *nftables.Table
	inside *nftables.Set
	ports  []ports // the sets of published ports
}

func newHostLayout(t *table) hostLayout {
	l := hostLayout{table: &t.Table, inside: t.newSet("inside", inLink())}
	for _, f := range families() {
		l.ports = append(l.ports, t.newPorts(f, false), t.newPorts(f, true))
	}
	return l
}

func (l hostLayout) missing() *plugin.MissingFeature {
	return &plugin.MissingFeature{
		Name:   "nf_tables with NAT in family inet, as Linux 5.2 and later can have",
		Module: "nft_chain_nat, nft_masq, nft_ct, nft_fib_inet",
		Option: "CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT, CONFIG_NFT_MASQ, CONFIG_NFT_CT and CONFIG_NFT_FIB_INET",
	}
}

// ToMasquerade makes packets from addresses leave with the host's own address unless they go to the address's own network or are
// multicast. An address passes from an attachment that held it before to a new one.
func ToMasquerade(addrs []netip.Prefix) Wants {
	w := Wants{Purpose: Masquerading}
	for _, p := range addrs {
		w.records = append(w.records, record{kind: kindAddress, link: noLink, addr: p.Addr(), port: uint16(p.Bits())})
	}
	return w
}

// ports are the sets of published ports of one family, on one address of the host or on all.
type ports struct {
	family *family
	bound  bool
	key    []value // what the keys are about,
	text   string  // and that in the words of nft

	to          *nftables.Set // port of the host to address and port of the container
	conditional *nftables.Set // the same, of ports that are published on conditions
	snat        *nftables.Set // link and port of the host: masquerade connections by that link
	masqAll     *nftables.Set // port of the host: masquerade all connections
	options     string        // the chain for ports with conditions
}

func (t *table) newPorts(f *family, bound bool) ports {
	p, prefix := ports{family: f, key: []value{protocol(), portValue()}, text: "meta l4proto . th dport", options: chainOptions}, ""
	if bound {
		prefix, p.options = "host", chainHostOptions
		p.bound, p.key, p.text = true, append([]value{f.dst()}, p.key...), f.name+" daddr . "+p.text
	}
	p.to = t.newMap(prefix+"ports"+f.digit, p.key, f.addr, nftables.TypeInetService)
	p.conditional = t.newMap(prefix+"ifports"+f.digit, p.key, f.addr, nftables.TypeInetService)
	p.snat = t.newSet(prefix+"snat"+f.digit, append([]value{inLink()}, p.key...)...)
	p.masqAll = t.newSet(prefix+"masqall"+f.digit, p.key...)
	return p
}

// has reports whether a published port is one of them.
func (p ports) has(r record) bool { return p.family == familyOf(r.addr) && p.bound == r.isBound() }

// rules mark connections that must be masqueraded, and send all to the containers.
func (p ports) rules() []rule {
	only, marked := p.family.only(), setMark(1<<defaultBit)
	rules := []rule{sequence(only, inSet(p.snat, slices.Concat([]value{inLink()}, p.key)...), marked)}
	if p.family == &ipv4 {
		rules = append(rules, sequence(isLocalhost(ipv4.src()), inSet(p.snat, slices.Concat([]value{outLink()}, p.key)...), marked))
	}
	return append(rules,
		sequence(only, inSet(p.masqAll, p.key...), marked),
		sequence(only, inSet(p.to, p.key...), p.family.dnat()))
}

// chains has an order only among rules. Netfilter's own priorities are those of linux/netfilter_ipv4.h.
func (l hostLayout) chains(records []record) []chain {
	const raw, dstNAT, srcNAT = -300, -90, 110 // behind -100, where kube-proxy is, and behind 100, where administrators are
	isLocalhost6 := sequence(ipv6.only(), equals(ipv6.dst(), netip.IPv6Loopback().AsSlice()))
	fromInside := sequence(inSet(l.inside, inLink()), drop())
	// A port may be published on one address and on all, each with its own options.
	dnat := slices.Concat([]rule{jump(chainHostOptions)}, l.portRules(true), []rule{jump(chainOptions)}, l.portRules(false))
	return append([]chain{
		{name: "guard" + version, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting, priority: raw, rules: []rule{
			sequence(isLocalhost(ipv4.dst()), fromInside),
			sequence(isLocalhost(ipv4.src()), fromInside),
		}},
		{name: chainHostOptions, own: true},
		{name: chainOptions, own: true},
		{name: chainSubnets},
		{name: chainDNAT, rules: dnat, jumps: 2},
		{name: "prerouting" + version, kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPrerouting, priority: dstNAT, rules: []rule{
			sequence(isLocalhost(ipv4.dst()), leave()),
			sequence(isLocalhost6, leave()),
			sequence(isLocal(), jump(chainDNAT)),
		}},
		{name: "output" + version, kind: nftables.ChainTypeNAT, hook: nftables.ChainHookOutput, priority: dstNAT, rules: []rule{
			sequence(isLocalhost6, leave()),
			sequence(isLocal(), jump(chainDNAT)),
		}},
		{name: "postrouting" + version, kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPostrouting, priority: srcNAT, rules: []rule{
			sequence(wasRedirected(), isSet(expr.MetaKeyMARK, 1<<defaultBit), masquerade()),
			jump(chainSubnets),
		}},
	}, l.subnets(records)...)
}

// portRules are those of ports that are published on one address, or on all.
func (l hostLayout) portRules(bound bool) (rules []rule) {
	for _, p := range l.ports {
		if p.bound == bound {
			rules = append(rules, p.rules()...)
		}
	}
	return rules
}

func (l hostLayout) elements(r record) (list []element) {
	if r.kind == kindAddress {
		return []element{newElement(l.subnet(r).set, r.addr.AsSlice())}
	}
	p := l.ports[slices.IndexFunc(l.ports, func(p ports) bool { return p.has(r) })]
	key := append(pad(r.proto), portKey(r.port)...)
	if p.bound {
		key = append(r.addr.AsSlice(), key...)
	}
	port := newElement(p.to, key)
	if r.conditions != 0 {
		port.set = p.conditional
	}
	if r.target.IsValid() {
		port.Val = append(r.target.Addr().AsSlice(), portKey(r.target.Port())...)
	}
	list = append(list, port)
	if r.flags&flagMasqAll != 0 && !r.hasOwnRules() {
		list = append(list, newElement(p.masqAll, key))
	}
	if r.flags&flagSNAT == 0 {
		return list
	}
	for _, link := range entrances(r.link) {
		if !r.hasOwnRules() {
			list = append(list, newElement(p.snat, linkKey(link), key))
		}
		if r.addr.Is4() {
			guard := newElement(l.inside, linkKey(link))
			guard.what = link
			if r.flags&flagOwnLink == 0 {
				guard.sharing, guard.Comment = permanent, "keeps 127.0.0.0/8 to the host while route_localnet is set"
			}
			list = append(list, guard)
		}
	}
	if r.addr.Is4() && !r.hasOwnRules() {
		list = append(list, newElement(p.snat, linkKey("lo"), key))
	}
	return list
}

// entrances returns the names of links by which rules see packets of containers behind a link come in. Those for a VLAN's gateway, cni0.100
// say, come in by the bridge cni0 where the packet filter looks into bridges.
func entrances(link string) []string {
	if bridge, _, isVLAN := strings.Cut(link, "."); isVLAN && bridge != "" {
		return []string{link, bridge}
	}
	return []string{link}
}

// masqueradeSet begins the names of subnets' sets and chains.
const masqueradeSet = "masq" + stored + "_"

// subnetName names the set and the chain of the network of a record's address. Addresses without a network around them share one for each
// family.
func subnetName(r record) string {
	network := netip.PrefixFrom(r.addr, int(r.port)).Masked()
	if network.IsSingleIP() {
		return masqueradeSet + "single" + familyOf(r.addr).digit
	}
	return masqueradeSet + strings.ReplaceAll(network.String(), ":", "-") // nft's names have no colons
}

// subnet returns the chain that masquerades the addresses of one network, that of a record, and has a set with the same name.
func (l hostLayout) subnet(r record) chain {
	f, network := familyOf(r.addr), netip.PrefixFrom(r.addr, int(r.port)).Masked()
	set := &nftables.Set{Table: l.table, Name: subnetName(r), KeyType: f.addr, HasTimeout: true}
	match := sequence(f.only(), inSet(set, f.src()))
	if !network.IsSingleIP() {
		match = sequence(match, compareNet(f.dst(), expr.CmpOpNeq, network))
	}
	return chain{name: set.Name, rules: []rule{sequence(match, compareNet(f.dst(), expr.CmpOpNeq, f.multicast), masquerade())}, jumps: 1, set: set}
}

// subnets returns those that records need, each once.
func (l hostLayout) subnets(records []record) (list []chain) {
	for _, r := range records {
		if r.kind == kindAddress {
			list = append(list, l.subnet(r))
		}
	}
	slices.SortFunc(list, func(x, y chain) int { return strings.Compare(x.name, y.name) })
	return slices.CompactFunc(list, func(x, y chain) bool { return x.name == y.name })
}
