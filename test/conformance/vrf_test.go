package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cnibox/cnibox/test/netlab"
)

var vrfRows = group{name: "vrf", needs: &netlab.VRF, rows: slices.Concat(
	vrfResults, vrfRouting.rows(), vrfRoutes, vrfSeveral, vrfRefusals, vrfCodes, vrfRemovals, vrfDels, vrfChecks(), vrfStatus,
	hostileRows(append(onTable(), []hostileAct{
		{"its interface is in another VRF", "link add blue up type vrf table 77\nlink set eth0 master blue\n"},
		{"a bridge has the VRF's name", "link del red\nlink add red type bridge\nlink set eth0 master red\n"},
		{"the VRF is not empty, and has another name", "link set red down\nlink set red name red7\nlink add x0 master red7 type veth peer name x1\n"},
	}...), func(*lab) network { return conf(lan, vrf) }))}

// A first VRF brings a rule for all of them, with priority 1000, which the kernel makes once for each namespace.
const vrf = `{"type":"vrf","vrfname":"red"}`

var vrfRouting = routing{
	configs: []string{vrf},
	differs: map[string]string{
		"DEL with a namespace that is gone, not there, or a plain file succeeds, and makes no file": vrfFile,
		"a late DEL leaves a newer container at the path alone":                                     anyInterface,
		"a late DEL without a result leaves a newer container at the path alone":                    anyInterface,
		"a late DEL leaves a newer container at the path alone that has the same addresses":         anyInterface,
		"CHECK of the plugin before finds its addresses and routes":                                 sbrMainOnly,
	},
}

// Why the reference plugin fails rows.
const (
	vrfLosesV6    = "it loses routes other than those of scope global in the main table"
	vrfLosesOther = "it loses routes in other tables than the main one"
	vrfShares     = "it makes two VRFs with one table"
	vrfFile       = "its DEL fails when there is a plain file"
	vrfAny        = "its DEL deletes any VRF that is empty"
	vrfNoCheck    = "its CHECK looks at the master alone"
)

// inVRF makes sure that the container's interface is in the VRF called red, which has its routes.
func (c *container) inVRF() {
	l := c.lab
	l.has(&c.Namespace, c.runtime.IfName, "master", "red")
	l.same([]string{c.main(false), c.main(true)}, []string{"", ""})
}

var vrfResults = []row{knowsVersions("VERSION", "vrf", []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"})}

var vrfRoutes = []row{
	{name: "the interface is in a VRF that is up, with its addresses and routes", differs: vrfLosesV6, test: func(l *lab) {
		c := l.wired("web")
		v4, v6, addresses := c.main(false), c.main(true), l.addresses(&c.Namespace, "eth0")
		l.must(c.after("ADD", vrf))
		c.inVRF()
		l.shows(c.run("ip -d link show red"), ",UP", "vrf table")
		l.same(l.addresses(&c.Namespace, "eth0"), addresses)
		table := c.vrfTable()
		l.same(linesOf(c.shown(false, table)), linesOf(v4))
		l.same(linesOf(c.shown(true, table)), linesOf(v6))
	}},
	{name: "IPv6 addresses are kept that the kernel would take", test: func(l *lab) {
		c := l.wired("web")
		c.batch("address add fd00:48::2/64 dev eth0 nodad\naddress add fd00:49::2/128 dev eth0 nodad noprefixroute\n")
		c.run("sysctl -qw net.ipv6.conf.eth0.keep_addr_on_down=0")
		addresses, v6 := l.addresses(&c.Namespace, "eth0"), c.main(true)
		l.must(c.after("ADD", vrf))
		l.same(slices.Sorted(slices.Values(l.addresses(&c.Namespace, "eth0"))), slices.Sorted(slices.Values(addresses)))
		l.same(linesOf(c.shown(true, c.vrfTable())), linesOf(v6))
	}},
	{name: "packets in the VRF go by its routes", test: func(l *lab) {
		netlab.Need(l, netlab.BPF) // of ip vrf exec
		out := l.outside()
		c := l.attach(conf(lan, vrf), "web")
		l.shows(c.run("ip route get vrf red 198.51.100.1"), "via 10.44.0.1 dev eth0")
		l.shows(c.run("ip vrf exec red ping -c1 -w5 10.44.0.1"), "1 received")
		l.shows(c.run("ip vrf exec red ping -6 -c1 -w5 fd00:44::1"), "1 received")
		out.AddRoute(l, "10.44.0.0/24")
		out.AddRoute(l, "fd00:44::/64")
		l.pings(&out.Namespace, c.v4, c.v6)
	}},
	{name: "routes of any kind, in any table, are kept", differs: vrfLosesV6, test: func(l *lab) {
		for seed := range int64(2) {
			c := l.wired(fmt.Sprint("web", seed))
			c.batch(randomRoutes(seed+10) + "route add 10.99.0.0/16 via 10.47.0.1 table 99\n-6 route add fd00:99::/48 dev eth0 table 99\n")
			v4, v6, other := c.main(false), c.main(true), c.shown(false, "99")+c.shown(true, "99")
			l.must(c.after("ADD", vrf))
			table := c.vrfTable()
			l.same(linesOf(c.shown(false, table)), linesOf(v4))
			l.same(linesOf(c.shown(true, table)), linesOf(v6))
			l.same(c.shown(false, "99")+c.shown(true, "99"), other)
		}
	}},
	{name: "table is the VRF's", test: func(l *lab) {
		c := l.wired("web")
		l.must(c.after("ADD", with(vrf, "table", "5000")))
		l.has(&c.Namespace, "red", "table", 5000)
		l.must(c.after("CHECK", with(vrf, "table", "5000")))
	}},
	{name: "a VRF that is there is joined", test: func(l *lab) {
		for i, config := range []string{vrf, with(vrf, "table", "77")} {
			c := l.wired(fmt.Sprint("web", i))
			c.batch("link add red up type vrf table 77\n")
			l.must(c.after("ADD", config))
			c.inVRF()
			l.shows(c.shown(false, "77"), "10.60.0.0/16")
		}
	}},
	{name: "the table is one that no other VRF has", test: func(l *lab) {
		c := l.wired("web")
		c.batch("link add blue up type vrf table 1\nlink add green up type vrf table 2\n")
		l.must(c.after("ADD", vrf))
		table := c.vrfTable()
		if table == "1" || table == "2" {
			l.Errorf("red has the table %s of another", table)
		}
	}},
	{name: "addresses that are looked for elsewhere first are kept", test: func(l *lab) {
		c := l.wired("web")
		c.batch("address add fd00:48::2/64 dev eth0\n")
		l.eventually(func() string { return c.run("ip -6 address show dev eth0 scope global tentative") })
		v6 := c.main(true)
		l.must(c.after("ADD", vrf))
		l.same(linesOf(c.shown(true, c.vrfTable())), linesOf(v6))
		l.same(c.run("ip -6 address show dev eth0 scope global tentative"), "")
	}},
}

// vrfTable returns the number of the VRF's table.
func (c *container) vrfTable() string {
	return fmt.Sprintf("%.0f", c.lab.link(&c.Namespace, "red")["table"])
}

// linesOf returns the lines of a text in the order of the alphabet.
func linesOf(text string) []string { return slices.Sorted(strings.SplitSeq(text, "\n")) }

var vrfSeveral = []row{
	{name: "a VRF is deleted when its last interface leaves", test: func(l *lab) {
		c := l.wired("web")
		other := l.beside(c)
		l.must(c.after("ADD", vrf), other.second("ADD", vrf), c.after("DEL", vrf), other.second("CHECK", vrf))
		l.shows(other.shown(false, c.vrfTable()), "10.61.0.0/16")
		l.must(other.second("DEL", vrf))
		if l.link(&c.Namespace, "red") != nil {
			l.Error("there still is a VRF")
		}
	}},
	{name: "two VRFs that are made at the same time have tables of their own", test: func(l *lab) {
		if l.suite.reference {
			l.foreign("whether it fails is a matter of chance")
		}
		c := l.wired("web")
		other := l.beside(c)
		var wait sync.WaitGroup
		errs := make([]error, 2)
		wait.Go(func() { errs[0] = c.after("ADD", vrf) })
		wait.Go(func() { errs[1] = other.second("ADD", with(vrf, "vrfname", `"blue"`)) })
		wait.Wait()
		l.must(errs[0])
		l.must(errs[1])
		if l.link(&c.Namespace, "red")["table"] == l.link(&c.Namespace, "blue")["table"] {
			l.Error("they share a table")
		}
	}},
}

var vrfRefusals = refusedADDs([]refusedADD{
	{name: "no name", config: `{"type":"vrf"}`, says: "vrf name"},
	{name: "a name that is too long", config: with(vrf, "vrfname", `"sixteen-letters0"`), says: "sixteen-letters0"},
	{name: "a name with a slash", config: with(vrf, "vrfname", `"a/b"`), says: "a/b"},
	{name: "no previous result", config: with(vrf, "prevResult", "null"), says: "prevResult"},
	{name: "an interface that is not there", config: vrf, harm: "link del eth0", says: "eth0", differs: noUndo},
	{name: "a VRF with another table", config: with(vrf, "table", "5000"), harm: "link add red type vrf table 77", says: "77"},
	{name: "a link of that name that is no VRF", config: vrf, harm: "link add red type bridge", says: "bridge", differs: noUndo},
	{name: "the interface's own name", config: with(vrf, "vrfname", `"eth0"`), says: "eth0"},
	{name: "an interface in another VRF", config: vrf, says: "blue", differs: noUndo,
		harm: "link add blue type vrf table 77\nlink set eth0 master blue"},
	{name: "the table of another VRF", config: with(vrf, "table", "77"), harm: "link add blue type vrf table 77", says: "blue", differs: vrfShares},
	{name: "the main table", config: with(vrf, "table", "254"), says: "254", differs: "it takes the main table for a VRF's"},
	{name: "a table below 0", config: with(vrf, "table", "-1"), says: "table"},
	{name: "a table of no number", config: with(vrf, "table", `"red"`), says: "table"},
	{name: "a route that can't be kept", config: vrf, says: "10.99.0.0/16", differs: vrfLosesOther,
		harm: "route add 10.99.0.0/16 dev eth0 src 10.47.0.2 table 99"},
})

var vrfCodes = []row{
	{name: "a VRF, table or interface that something else has is refused with code 7", differs: always999, test: func(l *lab) {
		for i, c := range []struct{ harm, config, says string }{
			{"link add red type bridge", vrf, "bridge"},
			{"link add red type vrf table 77", with(vrf, "table", "5000"), "77"},
			{"link add blue type vrf table 77", with(vrf, "table", "77"), "blue"},
			{"link add blue type vrf table 77\nlink set eth0 master blue", vrf, "blue"},
		} {
			web := l.wired(fmt.Sprint("web", i))
			web.batch(c.harm + "\n")
			l.code(web.after("ADD", c.config), 7, c.says)
		}
	}},
}

var vrfRemovals = removals([]removal{
	{name: "DEL leaves nothing", add: vrf},
	{name: "DEL without a previous result leaves nothing", add: vrf, bare: true},
	{name: "DEL of a configuration that became wrong leaves nothing", add: vrf, del: `{"type":"vrf","vrfname":7,"table":"x"}`, differs: cantRead},
	{name: "DEL of a configuration that names another VRF since leaves nothing", add: vrf, del: with(vrf, "vrfname", `"blue"`),
		differs: "its DEL does nothing then"},
	{name: "DEL of a configuration that names another table since leaves nothing", add: vrf, del: with(vrf, "table", "7")},
	{name: "DEL leaves a VRF that was there before", there: "link add red up type vrf table 77", add: vrf, differs: vrfAny},
	{name: "DEL with the interface gone leaves nothing", add: vrf, differs: "its DEL fails without the interface",
		harm: func(_ *lab, c *container) { c.run("ip link del eth0") }},
	{name: "DEL with the VRF gone leaves nothing", add: vrf, harm: func(_ *lab, c *container) { c.run("ip link del red") }},
	{name: "DEL leaves nothing whatever the container has done to its routes and addresses", add: vrf,
		harm: func(_ *lab, c *container) { c.batch("address flush dev eth0\nlink set red down\nlink set eth0 down\n") }},
})

var vrfDels = []row{
	{name: "DEL removes the VRF that the reference plugin has made", test: func(l *lab) {
		c := l.wired("web")
		before := l.now(c)
		c.batch("link add red up type vrf table 1\nlink set eth0 master red\n-6 address add fd00:47::2/64 dev eth0 nodad\n")
		l.must(c.after("DEL", vrf))
		l.lacks(before.changed(), "link red")
		l.gone(&c.Namespace, "red")
	}},
	{name: "DEL of what was never added leaves an empty VRF of somebody else", differs: vrfAny, test: func(l *lab) {
		c := l.wired("web")
		c.batch("link add red up type vrf table 77\n")
		l.now(c).unchangedBy(c.after("DEL", vrf))
	}},
	{name: "DEL by another path of the namespace takes the interface out of the VRF", test: func(l *lab) {
		c := l.wired("web")
		l.must(c.after("ADD", vrf))
		l.must(l.verb("DEL", c, with(vrf, "prevResult", strings.ReplaceAll(c.wiredResult(), c.Path(), "/var"+c.Path()))))
		l.gone(&c.Namespace, "red")
	}},
	{name: "DEL leaves a VRF that has another interface", test: func(l *lab) {
		c := l.wired("web")
		l.must(c.after("ADD", vrf))
		c.run("ip link set peer0 master red")
		l.must(c.after("DEL", vrf))
		l.has(&c.Namespace, "peer0", "master", "red")
		c.has("master", nil)
	}},
	{name: "DEL leaves an interface that is in a VRF or bridge of somebody else", test: func(l *lab) {
		c := l.wired("web")
		for _, kind := range []string{"vrf table 77", "bridge"} {
			c.batch("link add blue up type " + kind + "\nlink set eth0 master blue\n")
			l.must(c.after("DEL", vrf))
			c.has("master", "blue")
			c.run("ip link del blue")
		}
	}},
	{name: "DEL at another path than ADD's leaves the container that is there alone", differs: anyInterface, test: func(l *lab) {
		c, other := l.wired("web"), l.wired("other")
		l.must(c.after("ADD", vrf), other.after("ADD", vrf))
		l.now(other).unchangedBy(c.after("DEL", vrf, func(call *netlab.PluginCall) { call.Netns = other.Path() }))
	}},
}

func vrfChecks() []row {
	rows := routingChecks(vrf, []event{
		{name: "the interface left", happens: batched("link set eth0 nomaster"), says: "red"},
		{name: "the interface is in another VRF", happens: batched("link add blue up type vrf table 77\nlink set eth0 master blue"), says: "red"},
		{name: "the VRF is gone", happens: batched("link del red"), says: "red", differs: "its error does not name the VRF"},
		{name: "the VRF is down", happens: batched("link set red down"), says: "red", differs: vrfNoCheck},
		{name: "the interface is gone", happens: batched("link del eth0"), says: "eth0"},
		{name: "a route is gone", happens: batched("route del 10.60.0.0/16 vrf red"), says: "10.60.0.0/16", differs: vrfNoCheck},
		{name: "the VRF is another one with another table", says: "10.60.0.0/16", differs: vrfNoCheck,
			happens: batched("link del red\nlink add red up type vrf table 78\nlink set eth0 master red")},
	})
	return append(rows,
		row{name: "CHECK leaves alone what others add", test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", vrf))
			c.batch("route add 10.99.0.0/16 dev eth0 vrf red\nlink set peer0 master red\naddress add 10.55.0.1/24 dev eth0\n")
			l.must(c.after("CHECK", vrf))
		}},
	)
}

var vrfStatus = []row{
	{name: "STATUS finds that there is no name", differs: noStatus, test: func(l *lab) { l.refused(l.status(conf(`{"type":"vrf"}`)), "vrfname") }},
}
