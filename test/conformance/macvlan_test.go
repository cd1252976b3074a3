package conformance

import (
	"slices"

	"github.com/cnibox/cnibox/test/netlab"
)

var macvlanRows = group{name: "macvlan", rows: slices.Concat(onMasterRows("macvlan"), macvlanModes, macvlanMACs(), macvlanOwn)}

var macvlanModes = []row{
	{name: "containers of mode bridge, which is the default, reach each other", test: func(l *lab) {
		a, b := l.attach(l.on("macvlan"), "a"), l.attach(l.on("macvlan", "mode", `"bridge"`), "b")
		a.has("mode", "bridge")
		a.pings(b.v4, b.v6)
	}},
	{name: "an empty mode is bridge", test: func(l *lab) { l.attach(l.on("macvlan", "mode", `""`), "web").has("mode", "bridge") }},
	{name: "containers of mode private do not reach each other", test: func(l *lab) { l.apart("private") }},
	{name: "containers of mode vepa do not reach each other without a switch that sends back", test: func(l *lab) { l.apart("vepa") }},
	{name: "mode passthru has the master's MAC address, and the segment", test: func(l *lab) {
		n := l.on("macvlan", "mode", `"passthru"`)
		mac := l.link(&l.host.Namespace, netlab.UplinkName)["address"]
		before := l.now()
		c := l.attach(n, "web")
		c.has("mode", "passthru", "address", mac)
		l.same(c.result.Interfaces[0].Mac, mac)
		c.pings("10.46.0.1", "fd00:46::1")
		l.must(c.check(), c.del())
		before.unchanged()
	}},
	{name: "mode passthru has the MAC address that is asked for, and DEL gives the master its own back",
		differs: "it leaves that out, and says nothing", test: func(l *lab) {
			const mac = "02:00:00:00:00:0a"
			n := l.on("macvlan", "mode", `"passthru"`)
			before := l.now()
			c := l.attach(n, "web", capability("mac", text(mac)))
			c.has("address", mac)
			l.same(c.result.Interfaces[0].Mac, mac)
			c.pings("10.46.0.1")
			l.must(c.check(), c.del())
			before.unchanged()
		}},
	{name: "a second container of mode passthru is refused, and changes nothing", test: func(l *lab) {
		n := l.on("macvlan", "mode", `"passthru"`)
		first, second := l.attach(n, "first"), l.pod("second")
		l.now(first, second).refused(second.add(n))
	}},
	{name: "CHECK fails when the mode is another", test: func(l *lab) {
		c := l.attach(l.on("macvlan"), "web")
		c.run("ip link set eth0 type macvlan mode vepa")
		l.refused(c.check(), "mode")
	}},
}

// apart makes sure that containers of a mode reach the segment, and not each other.
func (l *lab) apart(mode string) {
	n := l.on("macvlan", "mode", text(mode))
	a, b := l.attach(n, "a"), l.attach(n, "b")
	a.has("mode", mode)
	l.serve(&b.Namespace, 80)
	l.answers(tcp(&l.out.Namespace, b.v4, 80), "b")
	l.silent(tcp(&a.Namespace, b.v4, 80), tcp(&a.Namespace, b.v6, 80))
}

func macvlanMACs() (rows []row) {
	rows = onMasterPlugin("macvlan").macs([]string{"mac", text(macOfConfig)}, []macCase{
		{"a MAC address can be asked for by the key mac", false, true, false, macOfConfig},
		{"a MAC address can be asked for by MAC of CNI_ARGS", true, false, false, macOfArgs},
		{"a MAC address can be asked for by the capability mac", false, false, true, macOfRuntime},
		{"MAC of CNI_ARGS comes before the key mac", true, true, false, macOfArgs},
		{"the capability mac comes before the key mac", false, true, true, macOfRuntime},
		{"the capability mac comes before MAC of CNI_ARGS", true, true, true, macOfRuntime},
	})
	return append(rows,
		row{name: "a MAC address that another container of the master has is refused, and changes nothing", differs: leavesLink, test: func(l *lab) {
			n := l.on("macvlan", "mac", text(macOfConfig))
			first, second := l.attach(n, "first"), l.pod("second")
			l.now(first, second).refused(second.add(n))
		}},
		row{name: "containers have different MAC addresses, and keep theirs", test: func(l *lab) {
			a, b := l.attach(l.on("macvlan"), "a"), l.attach(l.on("macvlan"), "b")
			l.same(a.result.Interfaces[0].Mac != b.result.Interfaces[0].Mac, true)
		}},
		row{name: "an argument of CNI_ARGS that nobody knows is refused", test: func(l *lab) {
			l.refused(l.pod("web").add(l.on("macvlan", "ipam", "{}"), args("COLOUR=green")), "COLOUR")
		}},
	)
}

var macvlanOwn = []row{
	{name: "no container can keep others out by a MAC address that they will get", test: func(l *lab) {
		for _, ip := range []string{"10.46.0.9/24", "fd00:46::9/64"} {
			n := l.on("macvlan", "ipam", fixedIPs(ip))
			next := l.attach(n, "next")
			foretold := next.result.Interfaces[0].Mac
			l.must(next.del())
			hostile := l.attach(l.on("macvlan", "ipam", "{}"), "hostile")
			hostile.run("ip link add link eth0 name taken0 address " + foretold + " up type macvlan mode bridge")
			l.must(next.add(n))
			next.has("address", next.result.Interfaces[0].Mac)
			l.isUp(&next.Namespace, "eth0")
			next.pings(map[bool]string{true: "10.46.0.1", false: "fd00:46::1"}[next.v4 != ""])
			l.must(next.check(), next.del())
			next.Delete(l)
			hostile.Delete(l)
		}
	}},
	{name: "two networks that have one subnet can be on one master", test: func(l *lab) {
		for _, mode := range []string{"private", "vepa"} {
			n := l.on("macvlan", "mode", text(mode), "ipam", fixedIPs("10.46.0.9/24"))
			a, b := l.attach(n, "a-"+mode), l.attach(n.called("other"), "b-"+mode)
			l.must(a.check(), b.check(), a.del(), b.del())
		}
	}},
	{name: "without ipam the interface is up and has no addresses", test: func(l *lab) {
		c := l.attach(l.on("macvlan", "ipam", "{}"), "web")
		l.isUp(&c.Namespace, "eth0")
		c.hasAddresses()
		l.must(c.check())
		c.run("ip address add 10.46.0.9/24 dev eth0")
		c.pings("10.46.0.1")
		l.must(c.del())
		l.gone(&c.Namespace, "eth0")
	}},
	{name: "the result without ipam, to the byte", test: func(l *lab) {
		l.printed(l.attach(l.on("macvlan", "ipam", "{}"), "web").printed,
			`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}]}`)
	}},
	noPrevious(func(l *lab) string { return l.on("macvlan", "ipam", "{}").plugins[0] }),
	{name: "the master is the link of the default route unless it is named", test: func(l *lab) {
		c := l.attach(l.on("macvlan", "master", `""`), "web")
		c.pings("10.46.0.1")
		l.must(c.check())
	}},
	{name: "the master is the link of the IPv6 default route if there is no other", test: func(l *lab) {
		n := l.on("macvlan", "master", `""`)
		l.run("ip route del default")
		l.attach(n, "web").pings("10.46.0.1")
	}},
	{name: "without a master and without a default route ADD is refused, and STATUS fails", differs: "its STATUS does not look at the master",
		test: func(l *lab) {
			l.run("ip link add other0 type bridge")
			n := conf(onMaster("macvlan", "master", `""`))
			l.refused(l.pod("web").add(n), "default route")
			l.refused(l.status(n), "default route")
		}},
	{name: "CHECK succeeds when the default route, which said which is the master, is another", test: func(l *lab) {
		c := l.attach(l.on("macvlan", "master", `""`), "web")
		l.run("ip link add other0 up type bridge", "ip address add 10.99.0.1/24 dev other0", "ip route replace default via 10.99.0.2")
		l.must(c.check())
	}},
	{name: "bcqueuelen is the length of the queue for broadcasts", needs: &netlab.BroadcastQueue, test: func(l *lab) {
		c := l.attach(l.on("macvlan", "bcqueuelen", "200"), "web")
		l.shows(c.run("ip -d link show eth0"), "bcqueuelen 200 ")
	}},
	{name: "a bcqueuelen that is no number is refused", test: func(l *lab) {
		for _, value := range []string{`"200"`, "-1", "4294967296"} {
			l.refused(l.pod("c"+text(len(value))).add(l.on("macvlan", "bcqueuelen", value)), "bcqueuelen")
		}
	}},
	{name: "a master that is a port of a bridge is refused, and changes nothing", test: func(l *lab) {
		n := l.on("macvlan")
		l.run("ip link add lan0 type bridge", "ip link set "+netlab.UplinkName+" master lan0")
		web := l.pod("web")
		l.refuses(web, n, "macvlan")
	}},
}
