package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

var sbrRows = group{name: "sbr", rows: slices.Concat(
	aboutPlugin("sbr", sbr), sbrRouting.rows(), sbrRoutes(), sbrTables, sbrSeveral, sbrRefusals, sbrRemovals, sbrDels, sbrChecks(), sbrStatus,
	hostileRows(onTable(), func(*lab) network { return conf(lan, with(sbr, "addSourceHints", "true")) }))}

const sbr = `{"type":"sbr"}`

var sbrRouting = routing{
	configs: []string{sbr, with(sbr, "addSourceHints", "true"), with(sbr, "table", "5000")},
	differs: map[string]string{
		"a second ADD is refused, and changes nothing":                                              sbrTwice,
		"DEL with a namespace that is gone, not there, or a plain file succeeds, and makes no file": sbrNoNetns,
		"a late DEL leaves a newer container at the path alone":                                     sbrOthers,
		"a late DEL without a result leaves a newer container at the path alone":                    sbrOthers,
		"a late DEL leaves a newer container at the path alone that has the same addresses":         sbrOthers,
		"CHECK without a previous result is refused":                                                sbrNoCheck,
		"CHECK of the plugin before finds its addresses and routes":                                 sbrMainOnly,
	},
}

// Why the reference plugin fails rows.
const (
	sbrNoCheck   = "its CHECK looks at nothing"
	sbrNamedOnly = "its DEL looks at the table alone that is configured by now"
	sbrNoNetns   = "its DEL fails without a namespace, and leaves a file where it was"
	sbrLoses     = "it loses routes that are in the network of no address"
	sbrMainOnly  = "its CHECK of the plugin before looks in the main table alone"
	sbrNewer     = "its version 1.9.1 does not know the key"
	sbrNoPrev    = "its error does not say what is missing"
	sbrTwice     = "its second ADD changes tables before it fails, or says less"
	sbrMetric    = "it adds a default route that is there with another metric"
	sbrFree      = "it takes a table that no rule leads to, whatever is in it"
	sbrOthers    = "its DEL takes the rules of whoever has the interface by now"
)

// tableOf returns the number of the table that packets from an address are led to; "" if there is no rule for them.
func (c *container) tableOf(address string) string {
	family := "-4"
	if strings.Contains(address, ":") {
		family = "-6"
	}
	for _, rule := range c.lab.decode(c.run("ip " + family + " -j rule show")) {
		if rule["src"] == address {
			return fmt.Sprint(rule["table"])
		}
	}
	return ""
}

// table returns the routes in the table of an address, and main those in the main one, as ip prints them.
func (c *container) table(address string) string {
	number := c.tableOf(address)
	if number == "" {
		c.lab.Fatalf("no rule leads packets from %s to a table", address)
	}
	return c.shown(strings.Contains(address, ":"), number)
}

func (c *container) main(v6 bool) string { return c.shown(v6, "main") }

// ofKernel matches the routes that each link has for itself.
var ofKernel = regexp.MustCompile(`^(local|broadcast|multicast|anycast|fe80:|ff00:)`)

// shown returns the interface's routes in a table, a line for each.
func (c *container) shown(v6 bool, table string) string {
	family := "-4"
	if v6 {
		family = "-6"
	}
	var kept []string
	for line := range strings.Lines(c.run("ip " + family + " route show dev " + c.runtime.IfName + " table " + table)) {
		if !ofKernel.MatchString(line) {
			kept = append(kept, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(kept, "\n")
}

// way returns how the container sends a packet from one address to another, as ip prints it.
func (c *container) way(from, to string) string { return c.run("ip route get " + to + " from " + from) }

func sbrRoutes() []row {
	return []row{
		{name: "packets from an address leave by its interface, whatever the default route is", differs: sbrMainOnly, needs: &netlab.NFTables, test: func(l *lab) {
			out := l.outside()
			web := l.attach(conf(lan), "web")
			second := with(lan, "bridge", `"second0"`, "isDefaultGateway", "false", "isGateway", "true", "ipMasq", "false",
				"ipam", `{"type":"host-local","ranges":[[{"subnet":"10.48.0.0/24"}],[{"subnet":"fd00:48::/64"}]]}`)
			net1 := web.attach(conf(second, sbr).called("second"), "net1")
			// As a network that knows its hosts does, the node drops what comes from elsewhere.
			l.host.Feed(l, `table inet guard { chain c { type filter hook prerouting priority -500
				iifname lan0 ip saddr 10.48.0.0/24 drop
				iifname lan0 ip6 saddr fd00:48::/64 drop
			}
			}`, "nft", "-f", "-")
			out.AddRoute(l, "10.48.0.0/24")
			out.AddRoute(l, "fd00:48::/64")
			l.serve(&web.Namespace, 80)
			l.answers(tcp(&out.Namespace, net1.v4, 80), "web saw "+netlab.OutsideIPv4)
			l.answers(tcp(&out.Namespace, net1.v6, 80), "web saw "+netlab.OutsideIPv6)
			web.pings(netlab.OutsideIPv4, netlab.OutsideIPv6)
			l.must(net1.check(), net1.del())
			web.pings(netlab.OutsideIPv4)
		}},
		{name: "the interface's routes are in the tables of its addresses, as they were", differs: sbrMetric, test: func(l *lab) {
			c := l.wired("web")
			v4, v6 := c.main(false), c.main(true)
			l.must(c.after("ADD", sbr))
			l.same([]string{c.main(false), c.main(true)}, []string{"", ""})
			l.same(c.table("10.47.0.2"), v4)
			l.same(c.table("fd00:47::2"), v6)
			l.shows(c.way("10.47.0.2", "10.60.0.7"), "via 10.47.0.1 dev eth0")
			l.shows(c.way("fd00:47::2", "fd00:60::7"), "via fd00:47::1 dev eth0")
		}},
		{name: "an address with a gateway and no default route gets one in its table", test: func(l *lab) {
			c := l.wired("web")
			c.batch("route del default\n-6 route del default\n")
			l.must(c.after("ADD", sbr))
			l.shows(c.table("10.47.0.2"), "default via 10.47.0.1")
			l.shows(c.table("fd00:47::2"), "default via fd00:47::1")
			l.lacks(c.run("ip route show table main")+c.run("ip -6 route show table main"), "default")
		}},
		{name: "an address without a gateway gets the routes alone", test: func(l *lab) {
			c := l.wired("web")
			c.batch("route del default\n")
			l.must(l.verb("ADD", c, with(sbr, "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"10.47.0.2/24"}]}`)))
			l.lacks(c.table("10.47.0.2"), "default")
			l.shows(c.table("10.47.0.2"), "10.60.0.0/16 via 10.47.0.1")
		}},
		{name: "each of two addresses has its own gateway", test: func(l *lab) {
			c := l.wired("web")
			c.batch("route flush default\naddress add 10.57.0.2/24 dev eth0\nroute add 10.70.0.0/16 via 10.57.0.1\n")
			l.must(l.verb("ADD", c, with(sbr, "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"10.47.0.2/24","gateway":"10.47.0.1"},
				{"address":"10.57.0.2/24","gateway":"10.57.0.1"}]}`)))
			l.shows(c.way("10.47.0.2", "198.51.100.1"), "via 10.47.0.1")
			l.shows(c.way("10.57.0.2", "198.51.100.1"), "via 10.57.0.1")
			l.shows(c.table("10.47.0.2"), "10.60.0.0/16", "192.0.2.0/24", "10.47.0.0/24")
			l.lacks(c.table("10.47.0.2"), "10.70.0.0/16", "10.57.0.0/24")
			l.shows(c.table("10.57.0.2"), "10.70.0.0/16", "192.0.2.0/24", "10.57.0.0/24")
		}},
		{name: "a route by a gateway in the network of no address moves too", differs: sbrLoses, test: func(l *lab) {
			c := l.wired("web")
			c.batch("route add 10.80.0.0/16 via 172.31.0.1 dev eth0 onlink\n")
			l.must(c.after("ADD", sbr))
			l.shows(c.table("10.47.0.2"), "10.80.0.0/16 via 172.31.0.1 onlink")
			l.lacks(c.main(false), "10.80")
		}},
		{name: "a route that leads over several gateways of the interface moves", differs: "it leaves it where it is", test: func(l *lab) {
			c := l.wired("web")
			c.batch("route add 10.95.0.0/16 nexthop via 10.47.0.1 weight 2 nexthop via 10.47.0.9\n" +
				"-6 route add fd00:95::/32 nexthop via fd00:47::1 nexthop via fd00:47::9\n")
			l.must(c.after("ADD", sbr))
			l.shows(c.run("ip route show table "+c.tableOf("10.47.0.2")+" 10.95.0.0/16"), "10.47.0.1", "weight 2", "10.47.0.9")
			l.shows(c.run("ip -6 route show table "+c.tableOf("fd00:47::2")+" fd00:95::/32"), "fd00:47::1", "fd00:47::9")
			l.same(c.run("ip route show table main 10.95.0.0/16")+c.run("ip -6 route show table main fd00:95::/32"), "")
		}},
		{name: "routes of any kind move as they are", differs: "its ADD fails for routes of some kinds", test: func(l *lab) {
			for seed := range int64(4) {
				c := l.wired(fmt.Sprint("web", seed))
				c.batch(randomRoutes(seed))
				v4, v6 := c.main(false), c.main(true)
				l.must(c.after("ADD", sbr))
				l.same([]string{c.main(false), c.main(true)}, []string{"", ""})
				l.same(linesOf(c.table("10.47.0.2")), linesOf(v4))
				l.same(linesOf(c.table("fd00:47::2")), linesOf(v6))
			}
		}},
		{name: "routes of a family that the interface has no address of stay", differs: sbrLoses, test: func(l *lab) {
			c := l.wired("web")
			v6 := c.main(true)
			l.must(l.verb("ADD", c, with(sbr, "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"10.47.0.2/24"}]}`)))
			l.same(c.main(true), v6)
			l.same(c.main(false), "")
		}},
		{name: "routes of other interfaces stay", test: func(l *lab) {
			c := l.wired("web")
			c.batch("address add 10.57.0.2/24 dev peer0\nroute add 10.90.0.0/16 via 10.57.0.1\n")
			l.must(c.after("ADD", sbr))
			l.shows(c.run("ip route show table main"), "10.57.0.0/24 dev peer0", "10.90.0.0/16 via 10.57.0.1 dev peer0")
		}},
		{name: "the route to link-local neighbours stays", differs: "it takes that away", test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", sbr))
			l.shows(c.run("ip -6 route show dev eth0 table main"), "fe80::/64")
		}},
		{name: "an address that is a host's alone, by a gateway on the link, works", test: func(l *lab) {
			c := l.fresh("web")
			c.batch("link set peer0 up\nlink set eth0 up\naddress add 10.47.0.2/32 dev eth0\n" +
				"route add 169.254.1.1 dev eth0\nroute add default via 169.254.1.1\n")
			l.must(l.verb("ADD", c, with(sbr, "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"10.47.0.2/32","gateway":"169.254.1.1"}]}`)))
			l.shows(c.way("10.47.0.2", "198.51.100.1"), "via 169.254.1.1 dev eth0")
		}},
		{name: "addresses of other interfaces in the result are let be", test: func(l *lab) {
			c := l.wired("web")
			l.must(l.verb("ADD", c, with(sbr, "prevResult", `{"cniVersion":"1.0.0","interfaces":[{"name":"net9","sandbox":"/run/netns/web"},
				{"name":"eth0","sandbox":"/run/netns/web"}],"ips":[{"address":"10.99.0.2/24","interface":0},{"address":"10.47.0.2/24","interface":1}]}`)))
			l.same(c.tableOf("10.99.0.2"), "")
			l.lacks(c.tableOf("10.47.0.2"), "main")
		}},
	}
}

var sbrTables = []row{
	{name: "with table there are rules to it, and the routes stay", test: func(l *lab) {
		c := l.wired("web")
		v4, v6 := c.main(false), c.main(true)
		l.must(c.after("ADD", with(sbr, "table", "5000")))
		l.same([]string{c.tableOf("10.47.0.2"), c.tableOf("fd00:47::2")}, []string{"5000", "5000"})
		l.same([]string{c.main(false), c.main(true)}, []string{v4, v6})
		l.must(c.after("CHECK", with(sbr, "table", "5000")))
	}},
	{name: "a table that has routes, and no rule, is not used", differs: sbrFree, test: func(l *lab) {
		c := l.wired("web")
		c.batch("route add 10.99.0.0/16 dev peer0 table 100\nroute add 10.99.0.0/16 dev peer0 table 101\n")
		l.must(c.after("ADD", sbr))
		l.lacks(c.run("ip route show table "+c.tableOf("10.47.0.2")), "10.99")
	}},
	{name: "gateways come before those of the addresses", differs: sbrNewer, test: func(l *lab) {
		c := l.wired("web")
		config := with(sbr, "gateways", `["fd00:47::9","10.47.0.9"]`)
		l.must(c.after("ADD", config))
		l.shows(c.way("10.47.0.2", "198.51.100.1"), "via 10.47.0.9")
		l.shows(c.way("fd00:47::2", "2001:db8::1"), "via fd00:47::9")
		l.must(c.after("CHECK", config))
	}},
	{name: "gateways may be of one family", differs: sbrNewer, test: func(l *lab) {
		c := l.wired("web")
		l.must(c.after("ADD", with(sbr, "gateways", `["10.47.0.9"]`)))
		l.shows(c.way("10.47.0.2", "198.51.100.1"), "via 10.47.0.9")
		l.shows(c.way("fd00:47::2", "2001:db8::1"), "via fd00:47::1")
	}},
	{name: "addSourceHints leaves routes to neighbours, with the address to choose", differs: sbrNewer, test: func(l *lab) {
		c := l.wired("web")
		config := with(sbr, "addSourceHints", "true")
		l.must(c.after("ADD", config))
		l.shows(c.main(false), "10.47.0.0/24", "src 10.47.0.2", "192.0.2.0/24")
		l.lacks(c.main(false), "default", "10.60.0.0/16")
		l.shows(c.main(true), "fd00:47::/64", "src fd00:47::2", "fd00:61::/48")
		l.shows(c.run("ip -6 route get fd00:47::7"), "src fd00:47::2")
		l.must(c.after("CHECK", config))
	}},
}

var sbrSeveral = []row{
	{name: "two attachments of a container have tables of their own", test: func(l *lab) {
		c := l.wired("web")
		other := l.beside(c)
		l.must(c.after("ADD", sbr), other.second("ADD", sbr))
		l.shows(c.way("10.47.0.2", "198.51.100.1"), "via 10.47.0.1 dev eth0")
		l.shows(c.way("10.49.0.2", "198.51.100.1"), "via 10.49.0.1 dev net1")
		if c.tableOf("10.47.0.2") == c.tableOf("10.49.0.2") {
			l.Error("they share a table")
		}
	}},
	{name: "DEL of one attachment keeps the other", test: func(l *lab) {
		c := l.wired("web")
		other := l.beside(c)
		l.must(other.second("ADD", sbr))
		before := l.now(c)
		l.must(c.after("ADD", sbr), c.after("DEL", sbr), other.second("CHECK", sbr))
		l.lacks(before.changed(), "rule")
		l.shows(c.way("10.49.0.2", "198.51.100.1"), "via 10.49.0.1 dev net1")
	}},
	{name: "CHECK of ptp before it finds its addresses and routes", differs: sbrMainOnly, test: func(l *lab) {
		c := l.attach(conf(`{"type":"ptp","ipam":{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24"}],[{"subnet":"fd00:44::/64"}]],
			"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}`, sbr), "web")
		l.must(c.check())
		c.run("ping -c1 -w10 -I "+c.v4+" 10.44.0.1", "ping -c1 -w10 -I "+c.v6+" fd00:44::1", "ip route flush table "+c.tableOf(c.v4))
		l.refused(c.check())
	}},
}

// beside gives a container a second interface, net1, with an address and a route of its own.
func (l *lab) beside(c *container) *container {
	second := c.withIfname("net1")
	c.batch(`link add net1 address 02:00:00:00:00:02 type veth peer name peer1
link set peer1 up
link set net1 up
address add 10.49.0.2/24 dev net1
route add 10.61.0.0/16 via 10.49.0.1
`)
	return second
}

// second calls a verb of a plugin for that interface, as of another network.
func (c *container) second(verb, config string) error {
	_, err := c.lab.exec(verb, c, with(config, "name", `"other"`, "prevResult", `{"cniVersion":"1.0.0",
		"interfaces":[{"name":"net1","mac":"02:00:00:00:00:02","sandbox":"/run/netns/web"}],
		"ips":[{"address":"10.49.0.2/24","gateway":"10.49.0.1","interface":0}],"routes":[{"dst":"10.61.0.0/16"}]}`))
	return err
}

var sbrRefusals = refusedADDs([]refusedADD{
	{name: "no previous result", config: with(sbr, "prevResult", "null"), says: "prevResult", differs: sbrNoPrev},
	{name: "a previous result without addresses", config: with(sbr, "prevResult", `{"cniVersion":"1.0.0"}`), says: "No IP addresses"},
	{name: "an interface that is not there", config: sbr, harm: "link del eth0", says: "eth0"},
	{name: "a table of no number", config: with(sbr, "table", `"main"`), says: "table"},
	{name: "table 0", config: with(sbr, "table", "0"), says: "table", differs: noUndo},
	{name: "a table below 0", config: with(sbr, "table", "-7"), says: "-7", differs: noUndo},
	{name: "a gateway that is none", config: with(sbr, "gateways", `["10.47.0"]`), says: "10.47.0", differs: sbrNewer},
	{name: "two gateways of a family", config: with(sbr, "gateways", `["10.47.0.1","10.47.0.9"]`), says: "10.47.0.9", differs: sbrNewer},
	{name: "three gateways", config: with(sbr, "gateways", `["10.47.0.1","fd00:47::1","fd00:47::9"]`), says: "fd00:47::9", differs: sbrNewer},
	{name: "a gateway out of reach", says: "172.31.0.1", differs: noUndo, harm: "rule add from 10.47.0.2 table 200",
		config: with(sbr, "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"10.47.0.2/24","gateway":"172.31.0.1"}]}`)},
	{name: "a hint with an address that the interface does not have", says: "10.47.0.0/24", differs: sbrNewer, harm: randomRoutes(5),
		config: with(sbr, "addSourceHints", "true", "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"10.47.0.9/24","gateway":"10.47.0.1"},{"address":"fd00:47::2/64"}]}`)},
})

var sbrRemovals = removals([]removal{
	{name: "DEL leaves nothing", add: sbr},
	{name: "DEL without a previous result leaves nothing", add: sbr, bare: true},
	{name: "DEL of a configuration that became wrong leaves nothing", add: sbr, del: `{"type":"sbr","gateways":7,"table":"x"}`, differs: cantRead},
	{name: "DEL of a configuration that names a table since leaves nothing", add: sbr, del: `{"type":"sbr","table":7}`, differs: sbrNamedOnly},
	{name: "DEL with table leaves nothing", add: with(sbr, "table", "5000")},
	{name: "DEL with table and without a previous result leaves nothing", add: with(sbr, "table", "5000"), bare: true},
	{name: "DEL of a configuration that names another table since leaves nothing", add: with(sbr, "table", "5000"), del: with(sbr, "table", "7"),
		differs: sbrNamedOnly},
	{name: "DEL of a configuration that names no table any more leaves nothing", add: with(sbr, "table", "5000"), del: sbr},
	{name: "DEL with gateways leaves nothing", add: with(sbr, "gateways", `["10.47.0.9","fd00:47::9"]`)},
	{name: "DEL with addSourceHints leaves nothing", add: with(sbr, "addSourceHints", "true")},
	{name: "DEL with a table of a large number leaves nothing", add: with(sbr, "table", "1500000000")},
	{name: "DEL with the interface gone leaves nothing", add: sbr, bare: true, differs: "its DEL finds rules by the interface alone",
		harm: func(_ *lab, c *container) { c.run("ip link del eth0") }},
	{name: "DEL with table and the interface gone leaves nothing", add: with(sbr, "table", "5000"), differs: "its DEL finds rules by the interface alone",
		harm: func(_ *lab, c *container) { c.run("ip link del eth0") }},
	{name: "DEL leaves nothing whatever the container has done to its routes, rules and addresses", add: sbr, differs: "its DEL finds rules by the interface alone",
		harm: func(_ *lab, c *container) {
			table, junk := c.tableOf("10.47.0.2"), ""
			for i := range 2000 {
				junk += fmt.Sprintf("route add 10.200.%d.%d dev eth0 table %s\n", i/250, i%250, table)
			}
			c.batch(junk + "address flush dev eth0\n-6 rule del from fd00:47::2\nrule add from 10.99.0.2 tun_id 7 table " + table + "\nlink set eth0 down\n")
		}},
})

var sbrDels = []row{
	{name: "DEL removes the rules that the reference plugin has made", test: func(l *lab) {
		c := l.wired("web")
		c.batch("rule add from 10.47.0.2 table 100 protocol 0\n-6 rule add from fd00:47::2 table 101 protocol 0\n")
		l.must(c.after("DEL", sbr))
		l.same([]string{c.tableOf("10.47.0.2"), c.tableOf("fd00:47::2")}, []string{"", ""})
	}},
	{name: "DEL keeps rules that somebody has made by hand", differs: "its DEL removes all rules from the addresses", test: func(l *lab) {
		c := l.wired("web")
		c.batch("rule add from 10.47.0.2 table 7\nrule add from 10.47.0.2 to 10.9.0.0/16 table 8\nrule add from 10.99.0.2 table 9\n")
		before := l.now(c)
		l.must(c.after("ADD", sbr), c.after("DEL", sbr))
		l.lacks(before.changed(), "rule")
	}},
}

func sbrChecks() []row {
	rows := routingChecks(sbr, []event{
		{name: "a rule is gone", happens: batched("rule del from 10.47.0.2"), says: "10.47.0.2", differs: sbrNoCheck},
		{name: "an IPv6 rule is gone", happens: batched("-6 rule del from fd00:47::2"), says: "fd00:47::2", differs: sbrNoCheck},
		{name: "the rule to the named table is gone", keys: []string{"table", "5000"}, differs: sbrNoCheck,
			happens: batched("rule del from 10.47.0.2\nrule add from 10.47.0.2 table 7"), says: "10.47.0.2"},
		{name: "the default route is gone", happens: batched("route del default table TABLE"), says: "10.47.0.1", differs: sbrNoCheck},
		{name: "the default route is another", happens: batched("route change default via 10.47.0.9 metric 50 table TABLE"), says: "10.47.0.1", differs: sbrNoCheck},
		{name: "a route is gone", happens: batched("route del 10.60.0.0/16 table TABLE"), says: "10.60.0.0/16", differs: sbrNoCheck},
		{name: "all routes are gone", happens: batched("link set eth0 down\nlink set eth0 up"), says: "default", differs: sbrNoCheck},
		{name: "the interface is gone", happens: batched("link del eth0"), says: "eth0", differs: sbrNoCheck},
	})
	return append(rows,
		row{name: "CHECK leaves alone what others add", test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", sbr))
			c.batch("route add 10.99.0.0/16 dev eth0\nroute add 10.98.0.0/16 dev eth0 table " + c.tableOf("10.47.0.2") + "\n" +
				"rule add from 10.99.0.2 table 9\nrule add from 10.47.0.2 to 10.9.0.0/16 table 8\n")
			l.must(c.after("CHECK", sbr))
		}},
		row{name: "CHECK takes the table that the reference plugin has chosen", test: func(l *lab) {
			c := l.wired("web")
			v4, v6 := c.main(false), c.main(true)
			c.batch("rule add from 10.47.0.2 table 100 protocol 0\n-6 rule add from fd00:47::2 table 101 protocol 0\n")
			for line := range strings.Lines(v4 + "\n") {
				c.batch("route append " + strings.TrimSpace(line) + " dev eth0 table 100\n")
			}
			for line := range strings.Lines(v6 + "\n") {
				c.batch("-6 route append " + strings.TrimSpace(line) + " dev eth0 table 101\n")
			}
			l.must(c.after("CHECK", sbr))
		}},
	)
}

var sbrStatus = []row{
	{name: "STATUS finds a gateway that is none", differs: noStatus, test: func(l *lab) {
		l.refused(l.status(conf(with(sbr, "gateways", `["10.47.0"]`))), "10.47.0")
	}},
}
