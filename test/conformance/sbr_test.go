package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/cnibox/cnibox/test/netlab"
)

var sbrRows = group{name: "sbr", only: "sbr", rows: slices.Concat(
	aboutPlugin("sbr", sbr), sbrResults, sbrRoutes(), sbrTables, sbrSeveral, sbrRefusals(), sbrDels(), sbrLateDels, sbrChecks(), sbrStatus(),
	hostileRows(onTable(), func(*lab) network { return conf(lan, with(sbr, "addSourceHints", "true")) }))}

const sbr = `{"type":"sbr"}`

// Why the reference plugin fails rows.
const (
	sbrNoCheck  = "its CHECK looks at nothing"
	sbrLeaves   = "its DEL does not give the routes back"
	sbrNoNetns  = "its DEL fails without a namespace, and leaves a file where it was"
	sbrLoses    = "it loses routes that are in the network of no address"
	sbrMainOnly = "its CHECK of the plugin before looks in the main table alone"
	sbrNewer    = "its version 1.9.1 does not know the key"
	sbrNoPrev   = "its error does not say what is missing"
	sbrTwice    = "its second ADD changes tables before it fails, or says less"
	sbrMetric   = "it adds a default route that is there with another metric"
	sbrFree     = "it takes a table that no rule leads to, whatever is in it"
	sbrOthers   = "its DEL takes the rules of whoever has the interface by now"
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

var sbrResults = []row{
	{name: "the result is the one before", test: func(l *lab) {
		c := l.wired("web")
		printed, err := l.exec("ADD", c, with(sbr, "prevResult", c.wiredResult()))
		l.must(err)
		l.printed(printed, c.wiredResult())
	}},
	{name: "the network's version may be 0.3.1", test: func(l *lab) {
		c := l.attach(conf(lan, sbr).in("0.3.1"), "web")
		l.shows(c.printed, `"version"`)
		l.must(c.del())
	}},
}

func sbrRoutes() []row {
	return []row{
		{name: "packets from an address leave by its interface, whatever the default route is", differs: sbrMainOnly, test: func(l *lab) {
			out := l.outside()
			web := l.attach(conf(lan), "web")
			second := with(lan, "bridge", `"second0"`, "isDefaultGateway", "false", "isGateway", "true", "ipMasq", "false",
				"ipam", `{"type":"host-local","ranges":[[{"subnet":"10.48.0.0/24"}],[{"subnet":"fd00:48::/64"}]]}`)
			net1 := &container{Pod: web.Pod, lab: l, runtime: web.RuntimeConf(nil)}
			l.must(net1.add(conf(second, sbr).called("second"), ifname("net1")))
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
			l.pings(&web.Namespace, netlab.OutsideIPv4, netlab.OutsideIPv6)
			l.must(net1.check())
			l.must(net1.del())
			l.pings(&web.Namespace, netlab.OutsideIPv4)
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
			_, err := l.exec("ADD", c, with(sbr, "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"10.47.0.2/24"}]}`))
			l.must(err)
			l.lacks(c.table("10.47.0.2"), "default")
			l.shows(c.table("10.47.0.2"), "10.60.0.0/16 via 10.47.0.1")
		}},
		{name: "each of two addresses has its own gateway", test: func(l *lab) {
			c := l.wired("web")
			c.batch("route flush default\naddress add 10.57.0.2/24 dev eth0\nroute add 10.70.0.0/16 via 10.57.0.1\n")
			_, err := l.exec("ADD", c, with(sbr, "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"10.47.0.2/24","gateway":"10.47.0.1"},
				{"address":"10.57.0.2/24","gateway":"10.57.0.1"}]}`))
			l.must(err)
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
		{name: "a route that leads over several gateways of the interface moves, and DEL gives it back", differs: sbrLeaves, test: func(l *lab) {
			c := l.wired("web")
			c.batch("route add 10.95.0.0/16 nexthop via 10.47.0.1 weight 2 nexthop via 10.47.0.9\n" +
				"-6 route add fd00:95::/32 nexthop via fd00:47::1 nexthop via fd00:47::9\n")
			before := l.now(c)
			l.must(c.after("ADD", sbr))
			l.shows(c.run("ip route show table "+c.tableOf("10.47.0.2")+" 10.95.0.0/16"), "10.47.0.1", "weight 2", "10.47.0.9")
			l.shows(c.run("ip -6 route show table "+c.tableOf("fd00:47::2")+" fd00:95::/32"), "fd00:47::1", "fd00:47::9")
			l.same(c.run("ip route show table main 10.95.0.0/16")+c.run("ip -6 route show table main fd00:95::/32"), "")
			l.must(c.after("DEL", sbr))
			before.unchanged()
		}},
		{name: "routes of a family that the interface has no address of stay", differs: sbrLoses, test: func(l *lab) {
			c := l.wired("web")
			v6 := c.main(true)
			_, err := l.exec("ADD", c, with(sbr, "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"10.47.0.2/24"}]}`))
			l.must(err)
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
			_, err := l.exec("ADD", c, with(sbr, "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"10.47.0.2/32","gateway":"169.254.1.1"}]}`))
			l.must(err)
			l.shows(c.way("10.47.0.2", "198.51.100.1"), "via 169.254.1.1 dev eth0")
		}},
		{name: "addresses of other interfaces in the result are let be", test: func(l *lab) {
			c := l.wired("web")
			_, err := l.exec("ADD", c, with(sbr, "prevResult", `{"cniVersion":"1.0.0","interfaces":[{"name":"net9","sandbox":"/run/netns/web"},
				{"name":"eth0","sandbox":"/run/netns/web"}],"ips":[{"address":"10.99.0.2/24","interface":0},{"address":"10.47.0.2/24","interface":1}]}`))
			l.must(err)
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
		before, config := l.now(c), with(sbr, "addSourceHints", "true")
		l.must(c.after("ADD", config))
		l.shows(c.main(false), "10.47.0.0/24", "src 10.47.0.2", "192.0.2.0/24")
		l.lacks(c.main(false), "default", "10.60.0.0/16")
		l.shows(c.main(true), "fd00:47::/64", "src fd00:47::2", "fd00:61::/48")
		l.shows(c.run("ip -6 route get fd00:47::7"), "src fd00:47::2")
		l.must(c.after("CHECK", config))
		l.must(c.after("DEL", config))
		before.unchanged()
	}},
}

var sbrSeveral = []row{
	{name: "two attachments of a container have tables of their own", test: func(l *lab) {
		c := l.wired("web")
		other := l.beside(c)
		l.must(c.after("ADD", sbr))
		l.must(other.second("ADD", sbr))
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
		l.must(c.after("ADD", sbr))
		l.must(c.after("DEL", sbr))
		l.must(other.second("CHECK", sbr))
		l.lacks(before.changed(), "rule")
		l.shows(c.way("10.49.0.2", "198.51.100.1"), "via 10.49.0.1 dev net1")
	}},
	{name: "two attachments of a container that are made at the same time don't meet", test: func(l *lab) {
		c := l.wired("web")
		other := l.beside(c)
		before := l.now(c)
		for _, verb := range []string{"ADD", "CHECK", "DEL"} {
			errs := make([]error, 2)
			var wait sync.WaitGroup
			wait.Go(func() { errs[0] = c.after(verb, sbr) })
			wait.Go(func() { errs[1] = other.second(verb, sbr) })
			wait.Wait()
			l.must(errs[0])
			l.must(errs[1])
			if verb == "CHECK" {
				l.shows(c.way("10.47.0.2", "198.51.100.1"), "via 10.47.0.1 dev eth0")
				l.shows(c.way("10.49.0.2", "198.51.100.1"), "via 10.49.0.1 dev net1")
			}
		}
		l.lacks(before.changed(), "rule")
	}},
	{name: "CHECK of the plugin before finds its addresses and routes", differs: sbrMainOnly, test: func(l *lab) {
		c := l.attach(conf(lan, sbr), "web")
		l.must(c.check())
		c.run("ip route del default table " + c.tableOf(c.v4))
		l.refused(c.check(), "0.0.0.0/0")
	}},
	{name: "CHECK of ptp before it finds its addresses and routes", differs: sbrMainOnly, test: func(l *lab) {
		c := l.attach(conf(`{"type":"ptp","ipam":{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24"}],[{"subnet":"fd00:44::/64"}]],
			"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}`, sbr), "web")
		l.must(c.check())
		c.run("ping -c1 -w10 -I " + c.v4 + " 10.44.0.1")
		c.run("ping -c1 -w10 -I " + c.v6 + " fd00:44::1")
		c.run("ip route flush table " + c.tableOf(c.v4))
		l.refused(c.check())
	}},
	{name: "DEL of a list leaves nothing", test: func(l *lab) {
		n := conf(lan, sbr)
		l.warm(n)
		before := l.now()
		c := l.attach(n, "web")
		l.must(c.del())
		l.same(c.run("ip rule"), "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n")
		c.Delete(l)
		before.unchanged()
	}},
}

// beside gives a container a second interface, net1, with an address and a route of its own.
func (l *lab) beside(c *container) *container {
	second := &container{Pod: c.Pod, lab: l, runtime: c.RuntimeConf(nil)}
	second.runtime.IfName = "net1"
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

func sbrRefusals() (rows []row) {
	const unset = "unset"
	for _, c := range []struct {
		name, key, value, says, differs string
		harm                            string // a command in the container
	}{
		{name: "no previous result", key: "prevResult", value: "null", says: "prevResult", differs: sbrNoPrev},
		{name: "a previous result without addresses", key: "prevResult", value: `{"cniVersion":"1.0.0"}`, says: "No IP addresses"},
		{name: "an interface that is not there", key: unset, harm: "ip link del eth0", says: "eth0"},
		{name: "a table of no number", key: "table", value: `"main"`, says: "table"},
		{name: "table 0", key: "table", value: "0", says: "table", differs: noUndo},
		{name: "a table below 0", key: "table", value: "-7", says: "-7", differs: noUndo},
		{name: "a gateway that is none", key: "gateways", value: `["10.47.0"]`, says: "10.47.0", differs: sbrNewer},
		{name: "two gateways of a family", key: "gateways", value: `["10.47.0.1","10.47.0.9"]`, says: "10.47.0.9", differs: sbrNewer},
		{name: "three gateways", key: "gateways", value: `["10.47.0.1","fd00:47::1","fd00:47::9"]`, says: "fd00:47::9", differs: sbrNewer},
		{name: "a gateway out of reach", key: "prevResult", says: "172.31.0.1", differs: noUndo, harm: "ip rule add from 10.47.0.2 table 200",
			value: `{"cniVersion":"1.0.0","ips":[{"address":"10.47.0.2/24","gateway":"172.31.0.1"}]}`},
	} {
		rows = append(rows, row{name: c.name + " is refused, and nothing changes", differs: c.differs, test: func(l *lab) {
			web := l.wired("web")
			if c.harm != "" {
				web.run(c.harm)
			}
			before := l.now(web)
			config := with(sbr, "prevResult", web.wiredResult())
			if c.key != unset {
				config = with(config, c.key, c.value)
			}
			_, err := l.exec("ADD", web, config)
			l.refused(err, c.says)
			before.unchanged()
		}})
	}
	return append(rows,
		row{name: "a second ADD is refused, and changes nothing", differs: sbrTwice, test: func(l *lab) {
			for i, config := range []string{sbr, with(sbr, "table", "5000")} {
				c := l.wired(fmt.Sprint("web", i))
				l.must(c.after("ADD", config))
				before := l.now(c)
				l.refused(c.after("ADD", config), "10.47.0.2", "DEL")
				before.unchanged()
			}
		}},
	)
}

func sbrDels() (rows []row) {
	for _, c := range []struct {
		name, add, del, differs string // configurations; that of DEL is ADD's unless it is given
		bare                    bool   // without a result
	}{
		{name: "DEL gives the routes back", differs: sbrLeaves},
		{name: "DEL without a previous result gives the routes back", bare: true, differs: sbrLeaves},
		{name: "DEL of a configuration that became wrong gives the routes back", differs: cantRead,
			del: `{"type":"sbr","gateways":7,"table":"x"}`},
		{name: "DEL of a configuration that names a table since gives the routes back", del: `{"type":"sbr","table":7}`, differs: sbrLeaves},
		{name: "DEL with table leaves nothing", add: with(sbr, "table", "5000")},
		{name: "DEL with table and without a previous result leaves nothing", add: with(sbr, "table", "5000"), bare: true},
		{name: "DEL of a configuration that names another table since leaves nothing", add: with(sbr, "table", "5000"), del: with(sbr, "table", "7"),
			differs: "its DEL looks at the table alone that is configured by now"},
		{name: "DEL of a configuration that names no table any more leaves nothing", add: with(sbr, "table", "5000"), del: sbr},
		{name: "DEL with gateways leaves nothing", add: with(sbr, "gateways", `["10.47.0.9","fd00:47::9"]`), differs: sbrLeaves},
		{name: "DEL with a table of a large number leaves nothing", add: with(sbr, "table", "1500000000")},
	} {
		rows = append(rows, row{name: c.name, differs: c.differs, test: func(l *lab) {
			if c.add == "" {
				c.add = sbr
			}
			if c.del == "" {
				c.del = c.add
			}
			web := l.wired("web")
			before := l.now(web)
			l.must(web.after("ADD", c.add))
			for range 2 {
				if c.bare {
					l.must(web.bareDel(c.del))
				} else {
					l.must(web.after("DEL", c.del))
				}
			}
			before.unchanged()
		}})
	}
	return append(rows,
		row{name: "DEL gives back routes of any kind as they were", differs: "its ADD fails for routes of some kinds", test: func(l *lab) {
			for seed := range int64(4) {
				c := l.wired(fmt.Sprint("web", seed))
				c.batch(randomRoutes(seed))
				before := l.now(c)
				l.must(c.after("ADD", sbr))
				l.same([]string{c.main(false), c.main(true)}, []string{"", ""})
				l.must(c.bareDel(sbr))
				if diff := before.changed(); diff != "" {
					l.Errorf("routes of seed %d: there is a difference:\n%s", seed, diff)
				}
			}
		}},
		row{name: "DEL of what was never added does nothing", test: func(l *lab) {
			c := l.wired("web")
			before := l.now(c)
			l.must(c.after("DEL", sbr))
			l.must(c.bareDel(sbr))
			before.unchanged()
		}},
		row{name: "DEL without a namespace succeeds, and makes no file", differs: sbrNoNetns, test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", sbr))
			l.must(c.after("DEL", sbr, noNetns))
			c.Delete(l)
			l.must(c.after("DEL", sbr))
			l.same(l.files("/run/netns/web"), []string(nil))
		}},
		row{name: "DEL with a plain file for the namespace succeeds", differs: "its DEL fails", test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", sbr))
			c.DeleteKeepFile(l)
			l.must(c.after("DEL", sbr))
		}},
		row{name: "DEL with the interface gone leaves no rule", differs: "its DEL finds rules by the interface alone", test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", sbr))
			c.run("ip link del eth0")
			l.must(c.bareDel(sbr))
			l.same([]string{c.tableOf("10.47.0.2"), c.tableOf("fd00:47::2")}, []string{"", ""})
		}},
		row{name: "DEL removes the rules that the reference plugin has made", test: func(l *lab) {
			c := l.wired("web")
			c.batch("rule add from 10.47.0.2 table 100 protocol 0\n-6 rule add from fd00:47::2 table 101 protocol 0\n")
			l.must(c.after("DEL", sbr))
			l.same([]string{c.tableOf("10.47.0.2"), c.tableOf("fd00:47::2")}, []string{"", ""})
		}},
		row{name: "DEL keeps rules that somebody has made by hand", differs: "its DEL removes all rules from the addresses", test: func(l *lab) {
			c := l.wired("web")
			c.batch("rule add from 10.47.0.2 table 7\nrule add from 10.47.0.2 to 10.9.0.0/16 table 8\nrule add from 10.99.0.2 table 9\n")
			before := l.now(c)
			l.must(c.after("ADD", sbr))
			l.must(c.after("DEL", sbr))
			l.lacks(before.changed(), "rule")
		}},
	)
}

var sbrLateDels = []row{
	{name: "a late DEL leaves a newer container at the path alone", differs: sbrOthers, test: func(l *lab) {
		c := l.wired("web")
		l.must(c.after("ADD", sbr))
		old := c.ID
		c.Replace(l)
		c.addLink("02:00:00:00:00:99")
		c.batch("link set peer0 up\nlink set eth0 up\n" + strings.ReplaceAll(wiredAddresses+wiredRoutes, "47", "46"))
		newer := strings.ReplaceAll(strings.ReplaceAll(c.wiredResult(), "47", "46"), untunedMAC, "02:00:00:00:00:99")
		_, err := l.exec("ADD", c, with(sbr, "prevResult", newer), func(call *netlab.PluginCall) { call.ContainerID = "newer" })
		l.must(err)
		before := l.now(c)
		l.same(c.ID, old)
		l.must(c.after("DEL", sbr))
		before.unchanged()
	}},
	{name: "a late DEL without a result leaves a newer container at the path alone", differs: sbrOthers, test: func(l *lab) {
		c, config := l.wired("web"), with(sbr, "table", "100")
		l.must(c.after("ADD", config))
		c.overtake(lan, config)
		before := l.now(c)
		l.must(c.bareDel(config))
		before.unchanged()
	}},
	{name: "a late DEL leaves a newer container at the path alone that has the same addresses", differs: sbrOthers, test: func(l *lab) {
		for i, config := range []string{sbr, with(sbr, "addSourceHints", "true"), with(sbr, "table", "5000")} {
			for _, result := range []bool{true, false} {
				old := l.attach(conf(with(lan, "ipam", fixedIPs("10.44.0.2/24 10.44.0.1")), config), fmt.Sprint("web", i, result))
				old.Replace(l)
				newer := old.newer("newer")
				l.must(newer.add(old.network))
				before := l.now(newer)
				del := config
				if result {
					del = with(config, "prevResult", old.printed)
				}
				l.must(old.bareDel(del))
				before.unchanged()
				l.must(newer.del())
			}
		}
	}},
	{name: "DEL succeeds whatever the container has done to its routes and addresses", differs: sbrLeaves, test: func(l *lab) {
		c := l.wired("web")
		l.must(c.after("ADD", sbr))
		var junk strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&junk, "route add 10.200.%d.%d dev eth0 table %s\n", i/250, i%250, c.tableOf("10.47.0.2"))
		}
		c.batch(junk.String() + "address flush dev eth0\n-6 rule del from fd00:47::2\n")
		c.batch("rule add from 10.99.0.2 table 9\nlink set eth0 down\n")
		l.must(c.after("DEL", sbr))
		l.same(c.tableOf("10.47.0.2"), "")
		l.same(c.run("ip route show table all dev eth0"), "")
	}},
	{name: "GC leaves attachments alone", test: func(l *lab) {
		c := l.wired("web")
		l.must(c.after("ADD", sbr))
		before := l.now(c)
		l.must(l.gc(conf(sbr)))
		before.unchanged()
	}},
}

func sbrChecks() (rows []row) {
	for _, c := range []struct{ name, config, harm, names string }{
		{"a rule is gone", sbr, "rule del from 10.47.0.2", "10.47.0.2"},
		{"an IPv6 rule is gone", sbr, "-6 rule del from fd00:47::2", "fd00:47::2"},
		{"the rule to the named table is gone", with(sbr, "table", "5000"), "rule del from 10.47.0.2\nrule add from 10.47.0.2 table 7", "10.47.0.2"},
		{"the default route is gone", sbr, "route del default table TABLE", "10.47.0.1"},
		{"the default route is another", sbr, "route change default via 10.47.0.9 metric 50 table TABLE", "10.47.0.1"},
		{"a route is gone", sbr, "route del 10.60.0.0/16 table TABLE", "10.60.0.0/16"},
		{"all routes are gone", sbr, "link set eth0 down\nlink set eth0 up", "default"},
		{"the interface is gone", sbr, "link del eth0", "eth0"},
	} {
		rows = append(rows, row{name: "CHECK finds that " + c.name, differs: sbrNoCheck, test: func(l *lab) {
			web := l.wired("web")
			l.must(web.after("ADD", c.config))
			l.must(web.after("CHECK", c.config))
			web.batch(strings.ReplaceAll(c.harm, "TABLE", web.tableOf("10.47.0.2")) + "\n")
			l.refused(web.after("CHECK", c.config), c.names)
		}})
	}
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
		row{name: "CHECK changes nothing", test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", sbr))
			before := l.now(c)
			l.must(c.after("CHECK", sbr))
			before.unchanged()
		}},
		row{name: "CHECK without a previous result is refused", differs: sbrNoCheck, test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", sbr))
			_, err := l.exec("CHECK", c, sbr)
			l.refused(err, "prevResult")
		}},
	)
}

func sbrStatus() []row {
	return []row{
		{name: "STATUS of a configuration that can be used succeeds", test: func(l *lab) {
			before := l.now()
			l.must(l.status(conf(with(sbr, "gateways", `["10.47.0.1"]`))))
			before.unchanged()
		}},
		{name: "STATUS finds a gateway that is none", differs: noStatus, test: func(l *lab) {
			l.refused(l.status(conf(with(sbr, "gateways", `["10.47.0"]`))), "10.47.0")
		}},
	}
}
