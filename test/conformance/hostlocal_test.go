package conformance

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// Why the reference fails rows about IPAM plugins.
const (
	refInvalidDel = "its DEL refuses an invalid configuration, and the address stays taken"
	refTorn       = "it takes an empty or torn lease file, which it leaves when it is killed, for a lease that nobody ever gives back"
	refSecond     = "it gives an attachment another address when that is asked for by name"
	refAnyLease   = "its CHECK is content with any lease of the attachment"
)

// leaseDir is where host-local keeps the leases of the network lan.
const leaseDir = "/var/lib/cni/networks/lan/"

var hostLocalRows = group{name: "host-local", rows: slices.Concat(
	hostLocalResults, firstAddresses(), smallRanges(), excludedAddresses(), addressOrder, requestedAddresses(), refusedConfigs(), refusedRequests(), fullRanges,
	leaseFiles, leaseReading, staleLeases, releases(), leaseHarms(), leaseChecks, leaseCollections, hostLocalStatus, leaseCrowds, namespacesOf(ofHostLocal(plainRange)),
)}

const (
	plainRange = `"ranges":[[{"subnet":"10.1.2.0/24"}]]`
	dualRanges = `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00::/64"}]]`
	twoRanges  = `"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.2","rangeEnd":"10.1.2.3"},{"subnet":"10.1.3.0/24","rangeStart":"10.1.3.2","rangeEnd":"10.1.3.3"}]]`
	twoLeft    = `"subnet":"10.1.2.0/24","rangeStart":"10.1.2.2","rangeEnd":"10.1.2.3"` // a range of two addresses
)

// ofHostLocal returns host-local's configuration with keys of ipam, and more pairs of keys and values beside ipam.
func ofHostLocal(keys string, beside ...string) string {
	return with(`{"type":"host-local","ipam":{`+strings.TrimSuffix(`"type":"host-local",`+keys, ",")+`}}`, beside...)
}

// leased returns the network lan, a bridge whose containers get addresses of host-local.
func leased(keys string, beside ...string) network {
	return conf(with(ofHostLocal(keys, beside...), "type", `"bridge"`, "bridge", `"lan0"`, "capabilities", `{"ips":true,"ipRanges":true}`))
}

// leasedByGateway is leased with a bridge that is the gateway: without an address a bridge may change its MAC address with its
// ports, which CHECK of the reference's bridge then minds.
func leasedByGateway(keys string) network {
	n := leased(keys)
	n.plugins[0] = with(n.plugins[0], "isGateway", "true")
	return n
}

// of has a plugin called for an attachment of another container than the pod, or another interface.
func of(id, ifname string) change {
	return func(call *netlab.PluginCall) { call.ContainerID, call.IfName = id, ifname }
}

// cniArgs has a plugin called with CNI_ARGS.
func cniArgs(text string) change { return func(call *netlab.PluginCall) { call.Args = text } }

// withIfname returns another attachment of the same pod.
func (c *container) withIfname(name string) *container {
	other := c.another()
	other.runtime.IfName = name
	return other
}

// ips makes sure that a result has these addresses, written as address>gateway with blanks between.
func (c *container) ips(want string) {
	c.lab.same(c.lab.ipsOf(c.printed), want)
}

func (l *lab) ipsOf(printed string) string {
	var list []string
	for _, ip := range l.result(printed).IPs {
		text := ip.Address.String()
		if ip.Gateway != nil {
			text += ">" + ip.Gateway.String()
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

// held makes sure that these are the leases of the network lan, in the order of file names.
func (l *lab) held(want ...string) {
	got := []string{}
	for _, name := range l.files(leaseDir + "*") {
		if name = filepath.Base(name); name != "lock" && !strings.HasPrefix(name, "last_reserved_ip.") {
			got = append(got, name)
		}
	}
	l.same(got, append([]string{}, want...))
}

// lease writes the file of a lease, as it is for an interface of a container, or in the old form if there is none.
func (l *lab) lease(address, id, ifname string) {
	if ifname != "" {
		id += "\r\n" + ifname
	}
	l.write(leaseDir+address, id)
}

// last makes sure that an address is remembered as the one that a range set handed out last.
func (l *lab) last(set int, want string) {
	l.same(l.read(fmt.Sprintf("%slast_reserved_ip.%d", leaseDir, set)), want)
}

var hostLocalResults = []row{
	{name: "the result, to the byte", test: func(l *lab) {
		l.write("/run/resolv.conf", "nameserver 192.0.2.1\n")
		out := l.answer("ADD", l.pod("web"), ofHostLocal(dualRanges+`,"resolvConf":"/run/resolv.conf","routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0","gw":"fd00::1"}]`))
		l.printed(out, `{"cniVersion":"1.0.0",
			"ips":[{"address":"10.1.2.2/24","gateway":"10.1.2.1"},{"address":"fd00::2/64","gateway":"fd00::1"}],
			"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0","gw":"fd00::1"}],"dns":{"nameservers":["192.0.2.1"]}}`)
	}},
	{name: "the result of version 0.2.0, to the byte", test: func(l *lab) {
		out := l.answer("ADD", l.pod("web"), ofHostLocal(dualRanges+`,"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0","gw":"fd00::1"}]`, "cniVersion", `"0.2.0"`))
		l.printed(out, `{"cniVersion":"0.2.0","ip4":{"ip":"10.1.2.2/24","gateway":"10.1.2.1","routes":[{"dst":"0.0.0.0/0"}]},
			"ip6":{"ip":"fd00::2/64","gateway":"fd00::1","routes":[{"dst":"::/0","gw":"fd00::1"}]},"dns":{}}`)
	}},
	{name: "routes go into the result with all their keys", test: func(l *lab) {
		const routes = `[{"dst":"192.168.0.0/16","gw":"10.1.2.9","mtu":1400,"advmss":1300,"priority":7,"table":100,"scope":253},{"dst":"10.0.0.1/8","scope":0}]`
		out := l.answer("ADD", l.pod("web"), ofHostLocal(plainRange+`,"routes":`+routes, "cniVersion", `"1.1.0"`))
		l.printed(text(object(out)["routes"]), routes)
	}},
	{name: "resolvConf becomes dns", test: func(l *lab) {
		l.write("/run/resolv.conf", `# comment
; another
nameserver 192.0.2.1
   nameserver	192.0.2.2 ignored
nameserver
domain one.example
domain two.example
search a.example b.example
search c.example
options ndots:5
options edns0 trust-ad
#nameserver 192.0.2.3
sortlist 10.0.0.0`)
		c := l.attach(leased(plainRange+`,"resolvConf":"/run/resolv.conf"`), "web")
		l.printed(text(object(c.printed)["dns"]), `{"nameservers":["192.0.2.1","192.0.2.2"],"domain":"two.example",
			"search":["a.example","b.example","c.example"],"options":["ndots:5","edns0","trust-ad"]}`)
	}},
	{name: "a resolvConf that says nothing is no dns", test: func(l *lab) {
		l.write("/run/resolv.conf", "# made by hand\n")
		c := l.attach(leased(plainRange+`,"resolvConf":"/run/resolv.conf"`), "web")
		l.lacks(c.printed, "nameservers", "search")
		c.ips("10.1.2.2/24>10.1.2.1")
	}},
	{name: "the container has the addresses", test: func(l *lab) { l.attach(leased(dualRanges), "web").hasAddresses("10.1.2.2/24", "fd00::2/64") }},
}

// firstAddresses are rows about what the first container of a network gets.
func firstAddresses() (rows []row) {
	for _, r := range []struct{ name, keys, want string }{
		{"subnet alone: the second address is handed out first, the first is the gateway", `"subnet":"10.1.2.0/24"`, "10.1.2.2/24>10.1.2.1"},
		{"a range of a set", plainRange, "10.1.2.2/24>10.1.2.1"},
		{"keys are matched in any case", `"SubNet":"10.1.2.0/24","RANGESTART":"10.1.2.9"`, "10.1.2.9/24>10.1.2.1"},
		{"rangeStart is handed out first", `"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9"}]]`, "10.1.2.9/24>10.1.2.1"},
		{"rangeStart beside subnet", `"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.20"`, "10.1.2.9/24>10.1.2.1"},
		{"gateway is another address", `"subnet":"10.1.2.0/24","gateway":"10.1.2.254"`, "10.1.2.1/24>10.1.2.254"},
		{"the gateway is not handed out", `"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","gateway":"10.1.2.9"`, "10.1.2.10/24>10.1.2.9"},
		{"a gateway outside of the subnet", `"subnet":"10.1.2.0/24","gateway":"192.0.2.1"`, "10.1.2.1/24>192.0.2.1"},
		{"the network's address can be rangeStart", `"subnet":"10.1.2.0/24","rangeStart":"10.1.2.0"`, "10.1.2.0/24>10.1.2.1"},
		{"the broadcast address can be rangeEnd", `"subnet":"10.1.2.0/24","rangeStart":"10.1.2.255","rangeEnd":"10.1.2.255"`, "10.1.2.255/24>10.1.2.1"},
		{"IPv6", `"subnet":"fd00::/64"`, "fd00::2/64>fd00::1"},
		{"the last address of an IPv6 subnet is handed out", `"subnet":"fd00::/126","rangeStart":"fd00::3"`, "fd00::3/126>fd00::1"},
		{"a subnet of four addresses", `"subnet":"10.1.2.4/30"`, "10.1.2.6/30>10.1.2.5"},
		{"an address of each range set, in their order", `"ranges":[[{"subnet":"fd00::/64"}],[{"subnet":"10.1.2.0/24"}]]`, "fd00::2/64>fd00::1 10.1.2.2/24>10.1.2.1"},
		{"two sets of one family", `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]`, "10.1.2.2/24>10.1.2.1 10.1.3.2/24>10.1.3.1"},
		{"the range beside ranges comes before them", `"ranges":[[{"subnet":"10.1.3.0/24"}]],"subnet":"10.1.2.0/24"`, "10.1.2.2/24>10.1.2.1 10.1.3.2/24>10.1.3.1"},
		{"rangeStart without subnet is no range", `"rangeStart":"10.9.0.1",` + plainRange, "10.1.2.2/24>10.1.2.1"},
	} {
		rows = append(rows, row{name: r.name, test: func(l *lab) { l.attach(leased(r.keys), "web").ips(r.want) }})
	}
	return append(rows,
		row{name: "the capability ipRanges comes before ranges, and that is the order of their files", test: func(l *lab) {
			c := l.attach(leased(`"subnet":"10.1.3.0/24","ranges":[[{"subnet":"10.1.4.0/24"}]]`), "web", capability("ipRanges", `[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.7"}]]`))
			c.ips("10.1.2.7/24>10.1.2.1 10.1.3.2/24>10.1.3.1 10.1.4.2/24>10.1.4.1")
			l.last(0, "10.1.2.7")
			l.last(1, "10.1.3.2")
			l.last(2, "10.1.4.2")
			l.must(c.del())
			l.held()
		}},
		row{name: "the capability ipRanges alone is enough", test: func(l *lab) {
			l.attach(leased(``), "web", capability("ipRanges", `[[{"subnet":"10.1.2.0/24"}]]`)).ips("10.1.2.2/24>10.1.2.1")
		}},
	)
}

// addressOrder is about which address is handed out next.
var addressOrder = []row{
	{name: "an address that came back is handed out last, not next", test: func(l *lab) {
		n := leased(plainRange)
		l.must(l.attach(n, "one").del())
		l.attach(n, "two").ips("10.1.2.3/24>10.1.2.1")
		l.last(0, "10.1.2.3")
	}},
	{name: "behind the last address of a range follows its first", test: func(l *lab) {
		n := leased(twoLeft)
		c := l.attach(n, "one")
		l.attach(n, "two").ips("10.1.2.3/24>10.1.2.1")
		l.must(c.del())
		l.attach(n, "three").ips("10.1.2.2/24>10.1.2.1")
	}},
	{name: "the address handed out last can be the only one left", test: func(l *lab) {
		n := leased(twoLeft)
		l.attach(n, "one")
		l.must(l.attach(n, "two").del())
		l.attach(n, "three").ips("10.1.2.3/24>10.1.2.1")
	}},
	{name: "all ranges of a set are used, one after the other", test: func(l *lab) {
		n := leased(twoRanges)
		for i, want := range []string{"10.1.2.2/24>10.1.2.1", "10.1.2.3/24>10.1.2.1", "10.1.3.2/24>10.1.3.1", "10.1.3.3/24>10.1.3.1"} {
			l.attach(n, fmt.Sprint("pod", i)).ips(want)
		}
		l.refused(l.pod("late").add(n), "10.1.2.2", "10.1.3.3")
	}},
	{name: "gateways of all ranges of a set are left out", test: func(l *lab) {
		l.write(leaseDir+"last_reserved_ip.0", "10.1.2.3")
		l.attach(leased(`"ranges":[[{"subnet":"10.1.2.0/24","rangeEnd":"10.1.2.3"},{"subnet":"10.1.3.0/24"}]]`), "web").ips("10.1.3.2/24>10.1.3.1")
	}},
	{name: "the search starts behind the address in last_reserved_ip", test: func(l *lab) {
		l.write(leaseDir+"last_reserved_ip.0", "10.1.2.40")
		l.write(leaseDir+"last_reserved_ip.1", "fd00::ff")
		l.attach(leased(dualRanges), "web").ips("10.1.2.41/24>10.1.2.1 fd00::100/64>fd00::1")
		l.last(0, "10.1.2.41")
		l.last(1, "fd00::100")
	}},
	{name: "a last_reserved_ip of no range starts over", test: func(l *lab) {
		l.write(leaseDir+"last_reserved_ip.0", "10.77.0.1")
		l.write(leaseDir+"last_reserved_ip.1", "no address")
		l.attach(leased(dualRanges), "web").ips("10.1.2.2/24>10.1.2.1 fd00::2/64>fd00::1")
		l.last(0, "10.1.2.2")
		l.last(1, "fd00::2")
	}},
	{name: "addresses whose files others made are passed over", test: func(l *lab) {
		l.lease("10.1.2.2", "someone", "eth0")
		l.lease("10.1.2.3", "reserved", "")
		l.run("mkdir "+leaseDir+"10.1.2.4", "ln -s /run/nowhere "+leaseDir+"10.1.2.5")
		l.attach(leased(plainRange), "web").ips("10.1.2.6/24>10.1.2.1")
	}},
	{name: "a long stretch of taken addresses is passed over", test: func(l *lab) {
		for i := 2; i <= 200; i++ {
			l.lease(fmt.Sprint("10.1.2.", i), "someone", "eth0")
		}
		l.attach(leased(plainRange), "web").ips("10.1.2.201/24>10.1.2.1")
	}},
}

// requestedAddresses are rows about addresses that the runtime or the configuration asks for.
func requestedAddresses() (rows []row) {
	for _, r := range []struct {
		name, keys, args string
		options          []option
		want             string
	}{
		{"IP in CNI_ARGS is the address", plainRange, ``, []option{args("IgnoreUnknown=1", "IP=10.1.2.77")}, "10.1.2.77/24>10.1.2.1"},
		{"the prefix length of IP in CNI_ARGS is ignored", plainRange, ``, []option{args("IgnoreUnknown=1", "K8S_POD_NAME=x", "IP=10.1.2.77/16")}, "10.1.2.77/24>10.1.2.1"},
		{"args.cni.ips are the addresses", dualRanges, `["fd00::77","10.1.2.77"]`, nil, "10.1.2.77/24>10.1.2.1 fd00::77/64>fd00::1"},
		{"the capability ips are the addresses", dualRanges, ``, []option{capability("ips", `["10.1.2.77/32","fd00::77"]`)}, "10.1.2.77/24>10.1.2.1 fd00::77/64>fd00::1"},
		{"a set that nothing is asked of hands out its next address", dualRanges, ``, []option{capability("ips", `["fd00::77"]`)}, "10.1.2.2/24>10.1.2.1 fd00::77/64>fd00::1"},
		{"requests of all three sources are served together", `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00::/64"}],[{"subnet":"10.1.3.0/24"}]]`, `["fd00::77"]`,
			[]option{args("IgnoreUnknown=1", "IP=10.1.2.77"), capability("ips", `["10.1.3.77"]`)}, "10.1.2.77/24>10.1.2.1 fd00::77/64>fd00::1 10.1.3.77/24>10.1.3.1"},
		{"an address that several sources ask for is one request", plainRange, `["10.1.2.77"]`,
			[]option{args("IgnoreUnknown=1", "IP=10.1.2.77"), capability("ips", `["10.1.2.77/24"]`)}, "10.1.2.77/24>10.1.2.1"},
		{"an address of a set's second range", `"ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"10.1.3.0/25"}]]`, ``, []option{capability("ips", `["10.1.3.7"]`)}, "10.1.3.7/25>10.1.3.1"},
	} {
		rows = append(rows, row{name: r.name, test: func(l *lab) {
			n := leased(r.keys)
			if r.args != "" {
				n = leased(r.keys, "args", `{"cni":{"ips":`+r.args+`}}`)
			}
			l.attach(n, "web", r.options...).ips(r.want)
		}})
	}
	return append(rows,
		row{name: "IP in CNI_ARGS needs no IgnoreUnknown", test: func(l *lab) {
			out := l.answer("ADD", l.pod("web"), ofHostLocal(plainRange), cniArgs("IP=10.1.2.77"))
			l.same(l.ipsOf(out), "10.1.2.77/24>10.1.2.1")
		}},
		row{name: "the address behind a requested one is handed out next", test: func(l *lab) {
			l.attach(leased(plainRange), "one", capability("ips", `["10.1.2.77"]`))
			l.last(0, "10.1.2.77")
			l.attach(leased(plainRange), "two").ips("10.1.2.78/24>10.1.2.1")
		}},
		row{name: "a requested address can be had again after DEL", test: func(l *lab) {
			wanted := capability("ips", `["10.1.2.77","fd00::77"]`)
			c := l.attach(leased(dualRanges), "one", wanted)
			l.held("10.1.2.77", "fd00::77")
			l.must(c.del())
			l.held()
			l.attach(leased(dualRanges), "two", wanted).ips("10.1.2.77/24>10.1.2.1 fd00::77/64>fd00::1")
		}},
	)
}

// refusedConfigs are rows about configurations that are invalid: ADD says what is wrong and takes no address.
func refusedConfigs() (rows []row) {
	for _, r := range []struct {
		name, keys string
		parts      []string // of the error
		differs    string
	}{
		{"no ranges", ``, []string{"ranges"}, ""},
		{"an empty list of ranges", `"ranges":[]`, []string{"ranges"}, ""},
		{"an empty range set", `"ranges":[[{"subnet":"10.1.2.0/24"}],[]]`, []string{"range set 1"}, ""},
		{"ranges that are no list of lists", `"ranges":[{"subnet":"10.1.2.0/24"}]`, nil, ""},
		{"a range without subnet", `"ranges":[[{"rangeStart":"10.1.2.9"}]]`, []string{"range set 0"}, ""},
		{"a subnet without prefix length", `"subnet":"10.1.2.0"`, []string{"10.1.2.0"}, ""},
		{"a subnet that is a number", `"subnet":10`, []string{"ipam"}, ""},
		{"a subnet with host bits", `"subnet":"10.1.2.3/24"`, []string{"10.1.2.0"}, ""},
		{"an IPv4 subnet written as IPv6", `"subnet":"::ffff:10.1.2.0/120"`, []string{"range set 0"}, ""},
		{"a single address that is the gateway", `"subnet":"10.1.2.7/32","gateway":"10.1.2.7"`, []string{"10.1.2.7"}, ""},
		{"rangeStart outside of the subnet", `"subnet":"10.1.2.0/24","rangeStart":"10.1.3.1"`, []string{"10.1.3.1", "10.1.2.0/24"}, ""},
		{"rangeStart of the other family", `"subnet":"10.1.2.0/24","rangeStart":"fd00::1"`, []string{"fd00::1"}, ""},
		{"rangeStart that is no address", `"subnet":"10.1.2.0/24","rangeStart":"ten"`, []string{"ten"}, ""},
		{"rangeEnd outside of the subnet", `"subnet":"10.1.2.0/24","rangeEnd":"10.1.4.1"`, []string{"10.1.4.1", "10.1.2.0/24"}, ""},
		{"rangeEnd before rangeStart", `"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.5"`, []string{"10.1.2.9"}, ""},
		{"a gateway that is no address", `"subnet":"10.1.2.0/24","gateway":"10.1.2.1/24"`, []string{"10.1.2.1/24"}, ""},
		{"a range of only the gateway", `"subnet":"10.1.2.0/24","rangeStart":"10.1.2.1","rangeEnd":"10.1.2.1"`, []string{"10.1.2.1"}, ""},
		{"a set of both families", `"ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"fd00::/64"}]]`, []string{"range set 0"}, ""},
		{"ranges of a set that overlap", `"ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"10.1.2.0/28"}]]`, []string{"range set 0"}, ""},
		{"range sets that overlap", `"ranges":[[{"subnet":"10.1.0.0/16"}],[{"subnet":"fd00::/64"}],[{"subnet":"10.1.2.0/24"}]]`, []string{"range set 0", "2"}, ""},
		{"a resolvConf that is not there", plainRange + `,"resolvConf":"/run/none"`, []string{"/run/none"}, ""},
		{"a route without dst", plainRange + `,"routes":[{"gw":"10.1.2.1"}]`, nil, "it takes a route without dst"},
		{"a route's dst that is no network", plainRange + `,"routes":[{"dst":"everywhere"}]`, []string{"everywhere"}, ""},
		{"a dataDir that is a number", plainRange + `,"dataDir":1`, []string{"dataDir"}, ""},
		{"a dataDir that is relative", plainRange + `,"dataDir":"../../../../../../../../../../run/leases"`, []string{"run/leases"}, "it takes a relative dataDir, from wherever the runtime was started"},
	} {
		rows = append(rows, row{name: "refused: " + r.name, differs: r.differs, test: func(l *lab) {
			l.refused(l.pod("web").add(leased(r.keys)), r.parts...)
			l.held()
		}})
	}
	return append(rows,
		row{name: "refused: two range sets of a family before version 0.3.0", test: func(l *lab) {
			const ranges = `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]`
			l.refused(l.verb("ADD", l.pod("web"), ofHostLocal(ranges, "cniVersion", `"0.2.0"`)), "0.2.0")
			l.held()
			l.must(l.verb("ADD", l.pod("db"), ofHostLocal(ranges, "cniVersion", `"0.3.0"`)))
		}},
		row{name: "refused: no ipam", test: func(l *lab) { l.refused(l.verb("ADD", l.pod("web"), `{"type":"host-local"}`), "ipam") }},
		row{name: "refused: the capability ipRanges with an invalid range", test: func(l *lab) {
			l.refused(l.pod("web").add(leased(plainRange), capability("ipRanges", `[[{"subnet":"10.1.9.9/24"}]]`)), "range set 0", "10.1.9")
			l.held()
		}},
		row{name: "refused: the capability ipRanges that overlaps with ranges", test: func(l *lab) {
			l.refused(l.pod("web").add(leased(plainRange), capability("ipRanges", `[[{"subnet":"10.1.0.0/16"}]]`)), "range set 0", "1")
			l.held()
		}},
		row{name: "an invalid configuration has code 7", differs: always999, test: func(l *lab) {
			l.code(l.verb("ADD", l.pod("web"), ofHostLocal(`"subnet":"10.1.2.3/24"`)), 7)
		}},
	)
}

// refusedRequests are rows about addresses that can't be had: ADD says so and takes none.
func refusedRequests() (rows []row) {
	for _, r := range []struct {
		name, keys, args string
		options          []option
		parts            []string
		differs          string
	}{
		{name: "an address of no range", keys: plainRange, options: []option{capability("ips", `["10.1.3.7"]`)}, parts: []string{"10.1.3.7"}},
		{name: "an address outside of rangeStart and rangeEnd", keys: twoLeft, options: []option{capability("ips", `["10.1.2.7"]`)}, parts: []string{"10.1.2.7"}},
		{name: "one good address and one of no range", keys: dualRanges, options: []option{capability("ips", `["10.1.2.7","fd77::7"]`)}, parts: []string{"fd77::7"}},
		{name: "the gateway", keys: plainRange, options: []option{args("IgnoreUnknown=1", "IP=10.1.2.1")}, parts: []string{"10.1.2.1"}},
		{name: "two addresses of one set", keys: plainRange, args: `["10.1.2.7"]`, options: []option{capability("ips", `["10.1.2.8"]`)}, parts: []string{"10.1.2."}},
		{name: "several addresses in IP of CNI_ARGS", keys: plainRange, options: []option{args("IgnoreUnknown=1", "IP=10.1.2.7,10.1.2.8")}, parts: []string{"10.1.2.7,10.1.2.8"}},
		{name: "IP of CNI_ARGS that is no address", keys: plainRange, options: []option{args("IgnoreUnknown=1", "IP=seven")}, parts: []string{"seven"}},
		{name: "ips that are no addresses", keys: plainRange, options: []option{capability("ips", `["seven"]`)}, parts: []string{"seven"}},
		{name: "ips that are no list", keys: plainRange, args: `"10.1.2.7"`, parts: []string{"ips"}},
	} {
		rows = append(rows, row{name: "refused: asking for " + r.name, differs: r.differs, test: func(l *lab) {
			n := leased(r.keys)
			if r.args != "" {
				n = leased(r.keys, "args", `{"cni":{"ips":`+r.args+`}}`)
			}
			l.refused(l.pod("web").add(n, r.options...), r.parts...)
			l.held()
		}})
	}
	return append(rows,
		row{name: "refused: asking for an address that another container has", test: func(l *lab) {
			n := leased(dualRanges)
			l.attach(n, "one", capability("ips", `["fd00::7"]`))
			l.refused(l.pod("two").add(n, capability("ips", `["10.1.2.7","fd00::7"]`)), "fd00::7")
			l.held("10.1.2.2", "fd00::7")
		}},
		row{name: "the error about an address that is taken names who has it", differs: "it says only that the address is not available", test: func(l *lab) {
			c := l.attach(leased(plainRange), "one")
			l.refused(l.pod("two").add(leased(plainRange), capability("ips", `["10.1.2.2"]`)), "10.1.2.2", c.ID, "eth0")
		}},
		row{name: "an address that is taken has code 11", differs: always999, test: func(l *lab) {
			l.lease("10.1.2.7", "someone", "eth0")
			l.code(l.verb("ADD", l.pod("web"), ofHostLocal(plainRange), cniArgs("IP=10.1.2.7")), 11)
		}},
		row{name: "refused: other keys in CNI_ARGS without IgnoreUnknown", test: func(l *lab) {
			c := l.pod("web")
			l.refused(l.verb("ADD", c, ofHostLocal(plainRange), cniArgs("IP=10.1.2.7;COLOUR=red")), "COLOUR")
			l.held()
			l.must(l.verb("ADD", c, ofHostLocal(plainRange), cniArgs("IgnoreUnknown=true;IP=10.1.2.7;COLOUR=red")))
			l.held("10.1.2.7")
		}},
	)
}

// fullRanges is about ranges without a free address, and attachments that have one already.
var fullRanges = []row{
	{name: "a range without a free address refuses, and changes nothing", test: func(l *lab) {
		n := leased(twoLeft)
		l.attach(n, "one")
		l.attach(n, "two")
		l.refused(l.pod("late").add(n), "10.1.2.2", "10.1.2.3")
		l.held("10.1.2.2", "10.1.2.3")
		l.last(0, "10.1.2.3")
	}},
	{name: "a range without a free address has code 11", differs: always999, test: func(l *lab) {
		l.lease("10.1.2.2", "someone", "eth0")
		l.code(l.verb("ADD", l.pod("web"), ofHostLocal(`"subnet":"10.1.2.0/30"`)), 11)
	}},
	{name: "an address is free again after DEL", test: func(l *lab) {
		n := leased(twoLeft)
		c := l.attach(n, "one")
		l.attach(n, "two")
		l.refused(l.pod("late").add(n), "10.1.2.2")
		l.must(c.del())
		l.attach(n, "later").ips("10.1.2.2/24>10.1.2.1")
	}},
	{name: "when the second range set is full, the first one's address is given back", test: func(l *lab) {
		n := leased(`"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00::/126","rangeEnd":"fd00::2"}]]`)
		l.attach(n, "one")
		l.refused(l.pod("two").add(n), "fd00::2")
		l.held("10.1.2.2", "fd00::2")
	}},
	{name: "a second ADD of an attachment is refused, and changes nothing", test: func(l *lab) {
		c, config := l.pod("web"), ofHostLocal(dualRanges)
		l.must(l.verb("ADD", c, config))
		l.refused(l.verb("ADD", c, config), "10.1.2.2", c.ID)
		l.held("10.1.2.2", "fd00::2")
		l.must(l.verb("CHECK", c, config))
	}},
	{name: "a second ADD that asks for another address is refused", differs: refSecond, test: func(l *lab) {
		c := l.pod("web")
		for i, ip := range []string{"10.1.2.7", "10.1.2.8"} {
			_, err := l.exec("ADD", c, ofHostLocal(plainRange), cniArgs("IP="+ip))
			l.same(err == nil, i == 0)
		}
		l.held("10.1.2.7")
	}},
	{name: "a second ADD after the first one's leases were removed by hand succeeds", test: func(l *lab) {
		c, config := l.pod("web"), ofHostLocal(plainRange)
		for _, want := range []string{"10.1.2.2/24>10.1.2.1", "10.1.2.3/24>10.1.2.1"} {
			out := l.answer("ADD", c, config)
			l.same(l.ipsOf(out), want)
			l.remove(leaseDir + l.result(out).IPs[0].Address.IP.String())
		}
	}},
	{name: "another interface of a container gets an address of its own", test: func(l *lab) {
		c := l.attach(leased(plainRange), "web")
		other := c.attach(leased(plainRange), "eth1")
		other.ips("10.1.2.3/24>10.1.2.1")
		l.same(l.read(leaseDir+"10.1.2.2"), c.ID+"\r\neth0")
		l.same(l.read(leaseDir+"10.1.2.3"), c.ID+"\r\neth1")
	}},
	{name: "two networks hand out addresses each on its own", test: func(l *lab) {
		l.attach(leased(plainRange), "one").ips("10.1.2.2/24>10.1.2.1")
		l.attach(leased(plainRange).called("lan-2"), "two").ips("10.1.2.2/24>10.1.2.1")
		l.same(len(l.files("/var/lib/cni/networks/lan*/10.1.2.2")), 2)
	}},
}
