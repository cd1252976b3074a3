package nft

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
)

// The table for masquerading and published ports is inet cnibox; docs/netfilter.md shows it as nft lists it. A connection to an
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

	// Of ports with conditions, or with another bit of the mark (portmap.go).
	chainHostOptions = "hostoptions" + version // published on one address
	chainOptions     = "options" + version     // on all
	chainMarks       = "marks" + version       // masquerade
)

// host returns the table.
func (c *Conn) host() *table {
	t := c.table(HostTable)
	t.refusal = "nftables can't be used"
	t.need = "the kernel needs nf_tables with NAT in family inet (Linux 5.2; CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT, CONFIG_NFT_MASQ, " +
		"CONFIG_NFT_CT, CONFIG_NFT_FIB_INET) or must be able to load its modules (nft_chain_nat, nft_masq, nft_ct, nft_fib_inet)"
	t.inside = t.newSet("inside", inLink())
	for _, f := range families() {
		t.ports = append(t.ports, t.newPorts(f, false), t.newPorts(f, true))
	}
	t.chains, t.elements, t.sweep = t.hostChains, t.hostElements, t.removeUnused
	return t
}

// Masquerade makes packets from addresses leave with the host's own address unless they go to the address's own network or are
// multicast. An address passes from an attachment that held it before to a new one.
func (c *Conn) Masquerade(addrs []netip.Prefix) Use {
	u := Use{table: c.host(), name: "masquerade", kinds: []kind{kindAddress}}
	for _, p := range addrs {
		u.records = append(u.records, record{kind: kindAddress, link: noLink, addr: p.Addr(), port: uint16(p.Bits())})
	}
	return u
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
	options     string        // the chain for ports with conditions, or with another bit of the mark
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

// rules mark connections that are to be masqueraded, and send all to the containers.
func (p ports) rules() []rule {
	is, marked := p.family.is(), setMark(1<<defaultBit)
	by := func(link value) rule { return in(p.snat, append([]value{link}, p.key...)...) }
	rules := []rule{words(is, by(inLink()), marked)}
	if p.family == &ipv4 {
		rules = append(rules, words(isLocalhost(ipv4.src()), by(outLink()), marked))
	}
	return append(rules,
		words(is, in(p.masqAll, p.key...), marked),
		words(is, in(p.to, p.key...), p.family.dnat()))
}

// hostChains returns the chains. There is an order only among rules. Netfilter's own priorities are those of linux/netfilter_ipv4.h.
func (t *table) hostChains([]record) []chain {
	const raw, dstNAT, srcNAT = -300, -90, 110 // behind -100, where kube-proxy is, and behind 100, where administrators are
	isLocalhost6 := words(ipv6.is(), equals(ipv6.dst(), netip.IPv6Loopback().AsSlice()))
	fromInside := words(in(t.inside, inLink()), drop())
	// A port may be published on one address and on all, each with its own options.
	dnat := slices.Concat([]rule{jump(chainHostOptions)}, t.portRules(true), []rule{jump(chainOptions)}, t.portRules(false))
	return []chain{
		{name: "guard" + version, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting, priority: raw, rules: []rule{
			words(isLocalhost(ipv4.dst()), fromInside),
			words(isLocalhost(ipv4.src()), fromInside),
		}},
		{name: chainHostOptions, own: true},
		{name: chainOptions, own: true},
		{name: chainMarks, own: true},
		{name: chainSubnets},
		{name: chainDNAT, rules: dnat, jumps: 2},
		{name: "prerouting" + version, kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPrerouting, priority: dstNAT, rules: []rule{
			words(isLocalhost(ipv4.dst()), back()),
			words(isLocalhost6, back()),
			words(isLocal(), jump(chainDNAT)),
		}},
		{name: "output" + version, kind: nftables.ChainTypeNAT, hook: nftables.ChainHookOutput, priority: dstNAT, rules: []rule{
			words(isLocalhost6, back()),
			words(isLocal(), jump(chainDNAT)),
		}},
		{name: "postrouting" + version, kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPostrouting, priority: srcNAT, rules: []rule{
			words(wasRedirected(), isSet(expr.MetaKeyMARK, 1<<defaultBit), masquerade()),
			words(wasRedirected(), jump(chainMarks)),
			jump(chainSubnets),
		}},
	}
}

// portRules are those of ports that are published on one address, or on all.
func (t *table) portRules(bound bool) (rules []rule) {
	for _, p := range t.ports {
		if p.bound == bound {
			rules = append(rules, p.rules()...)
		}
	}
	return rules
}

// hostElements returns the elements of a record.
func (t *table) hostElements(r record) (list []element) {
	if r.kind == kindAddress {
		return []element{newElement(t.subnet(r).set, r.addr.AsSlice())}
	}
	p := t.ports[slices.IndexFunc(t.ports, func(p ports) bool { return p.has(r) })]
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
	if r.flags&flagSNAT != 0 && !r.hasOwnRules() {
		list = append(list, newElement(p.snat, linkKey(r.link), key))
		if r.addr.Is4() {
			list = append(list, newElement(p.snat, linkKey("lo"), key))
		}
	}
	if r.flags&flagSNAT != 0 && r.addr.Is4() {
		guard := newElement(t.inside, linkKey(r.link))
		guard.what = r.link
		if r.flags&flagOwnLink == 0 {
			guard.sharing, guard.Comment = forGood, "keeps 127.0.0.0/8 to the host while route_localnet is set"
		}
		list = append(list, guard)
	}
	return list
}

// masqueradeSet begins the names of subnets' sets and chains.
const masqueradeSet = "masq" + version + "_"

// subnet returns the chain that masquerades the addresses of one network, that of a record, and has a set with the same name. Addresses
// without a network around them share one for each family, with the name single4 or single6.
func (t *table) subnet(r record) chain {
	f, network := familyOf(r.addr), netip.PrefixFrom(r.addr, int(r.port)).Masked()
	name := masqueradeSet + strings.ReplaceAll(network.String(), ":", "-") // nft's names have no colons
	if network.IsSingleIP() {
		name = masqueradeSet + "single" + f.digit
	}
	set := &nftables.Set{Table: &t.Table, Name: name, KeyType: f.addr, HasTimeout: true}
	is := words(f.is(), in(set, f.src()))
	if !network.IsSingleIP() {
		is = words(is, compareNet(f.dst(), expr.CmpOpNeq, network))
	}
	return chain{name: name, rules: []rule{words(is, compareNet(f.dst(), expr.CmpOpNeq, f.multicast), masquerade())}, jumps: 1, set: set}
}

// subnetsOf returns the subnets that records need, each once.
func (t *table) subnetsOf(records []record) (list []chain) {
	for _, r := range records {
		if r.kind == kindAddress {
			list = append(list, t.subnet(r))
		}
	}
	slices.SortFunc(list, func(x, y chain) int { return strings.Compare(x.name, y.name) })
	return slices.CompactFunc(list, func(x, y chain) bool { return x.name == y.name })
}

// removeUnused removes the guards of links that are gone, and subnets without addresses. A link that comes again has route_localnet
// unset, and a guard is made before it is set.
func (t *table) removeUnused() error {
	holdings, err := t.holdings()
	jumps, err2 := t.conn.GetRules(&t.Table, &nftables.Chain{Name: chainSubnets})
	links, err3 := t.conn.GetSetElements(t.inside)
	if err := errors.Join(err, err2, err3); err != nil {
		return explain("list what is in table "+t.String(), err)
	}
	isUsed := map[string]bool{}
	for _, records := range holdings {
		for _, c := range t.subnetsOf(records) {
			isUsed[c.name] = true
		}
	}
	for _, r := range jumps {
		name := TargetOf(r)
		if !isUsed[name] && strings.HasPrefix(name, masqueradeSet) {
			t.conn.DeleteRules([]*nftables.Rule{r})
			t.conn.DelChain(&nftables.Chain{Table: &t.Table, Name: name})
			t.conn.DelSet(&nftables.Set{Table: &t.Table, Name: name})
		}
	}
	var gone []element
	for _, e := range links {
		if _, err := spec.LocalhostAllowed(unix.ByteSliceToString(e.Key)); errors.Is(err, unix.ENOENT) && e.Timeout == 0 {
			gone = append(gone, newElement(t.inside, e.Key))
		}
	}
	return t.replace(gone, nil)
}
