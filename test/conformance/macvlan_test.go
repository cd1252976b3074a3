package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

var macvlanRows = group{name: "macvlan", only: "macvlan", rows: slices.Concat(onMasterRows("macvlan"), macvlanModes, macvlanMACs(), macvlanOwn)}

var macvlanModes = []row{
	{name: "containers of mode bridge, which is the default, reach each other", test: func(l *lab) {
		a, b := l.attach(l.on("macvlan"), "a"), l.attach(l.on("macvlan", "mode", `"bridge"`), "b")
		l.has(&a.Namespace, "eth0", "mode", "bridge")
		l.pings(&a.Namespace, b.v4, b.v6)
	}},
	{name: "an empty mode is bridge", test: func(l *lab) {
		c := l.attach(l.on("macvlan", "mode", `""`), "web")
		l.has(&c.Namespace, "eth0", "mode", "bridge")
	}},
	{name: "containers of mode private do not reach each other", test: func(l *lab) { l.apart("private") }},
	{name: "containers of mode vepa do not reach each other without a switch that sends back", test: func(l *lab) { l.apart("vepa") }},
	{name: "mode passthru has the master's MAC address, and the segment", test: func(l *lab) {
		n := l.on("macvlan", "mode", `"passthru"`)
		mac := l.link(&l.host.Namespace, netlab.UplinkName)["address"]
		before := l.now()
		c := l.attach(n, "web")
		l.has(&c.Namespace, "eth0", "mode", "passthru", "address", mac)
		l.same(c.result.Interfaces[0].Mac, mac)
		l.pings(&c.Namespace, "10.46.0.1", "fd00:46::1")
		l.must(c.check())
		l.must(c.del())
		before.unchanged()
	}},
	{name: "mode passthru has the MAC address that is asked for, and DEL gives the master its own back",
		differs: "it leaves that out, and says nothing", test: func(l *lab) {
			const mac = "02:00:00:00:00:0a"
			n := l.on("macvlan", "mode", `"passthru"`)
			before := l.now()
			c := l.attach(n, "web", capability("mac", text(mac)))
			l.has(&c.Namespace, "eth0", "address", mac)
			l.same(c.result.Interfaces[0].Mac, mac)
			l.pings(&c.Namespace, "10.46.0.1")
			l.must(c.check())
			l.must(c.del())
			before.unchanged()
		}},
	{name: "a second container of mode passthru is refused, and changes nothing", test: func(l *lab) {
		n := l.on("macvlan", "mode", `"passthru"`)
		first, second := l.attach(n, "first"), l.pod("second")
		before := l.now(first, second)
		l.refused(second.add(n))
		before.unchanged()
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
	l.has(&a.Namespace, "eth0", "mode", mode)
	l.serve(&b.Namespace, 80)
	l.answers(tcp(&l.out.Namespace, b.v4, 80), "b")
	l.silent(tcp(&a.Namespace, b.v4, 80), tcp(&a.Namespace, b.v6, 80))
}

func macvlanMACs() (rows []row) {
	const fromConfig, fromArgs, fromRuntime = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"
	for _, c := range []struct {
		name                  string
		config, args, runtime bool
		want                  string
	}{
		{"a MAC address can be asked for by the key mac", true, false, false, fromConfig},
		{"a MAC address can be asked for by MAC of CNI_ARGS", false, true, false, fromArgs},
		{"a MAC address can be asked for by the capability mac", false, false, true, fromRuntime},
		{"MAC of CNI_ARGS comes before the key mac", true, true, false, fromArgs},
		{"the capability mac comes before the key mac", true, false, true, fromRuntime},
		{"the capability mac comes before MAC of CNI_ARGS", true, true, true, fromRuntime},
	} {
		rows = append(rows, row{name: c.name, test: func(l *lab) {
			n, options := l.on("macvlan"), []option{}
			if c.config {
				n = l.on("macvlan", "mac", text(fromConfig))
			}
			if c.args {
				options = append(options, args("IgnoreUnknown=1", "MAC="+fromArgs))
			}
			if c.runtime {
				options = append(options, capability("mac", text(fromRuntime)))
			}
			web := l.attach(n, "web", options...)
			l.has(&web.Namespace, "eth0", "address", c.want)
			l.same(web.result.Interfaces[0].Mac, c.want)
			l.pings(&web.Namespace, "10.46.0.1", "fd00:46::1")
			l.must(web.check())
		}})
	}
	for _, c := range []struct{ name, mac, differs string }{
		{"a MAC address that is none", `"02:00:00"`, ""},
		{"a MAC address that is no string", `7`, ""},
		{"a multicast MAC address", `"03:00:00:00:00:01"`, ""},
	} {
		rows = append(rows, row{name: c.name + " is refused, and changes nothing", differs: c.differs, test: func(l *lab) {
			l.warm(l.on("macvlan"))
			web := l.pod("web")
			l.refuses(web, l.on("macvlan", "mac", c.mac))
		}})
	}
	return append(rows,
		row{name: "a MAC address that another container of the master has is refused, and changes nothing", differs: leavesLink, test: func(l *lab) {
			n := l.on("macvlan", "mac", text(fromConfig))
			first, second := l.attach(n, "first"), l.pod("second")
			before := l.now(first, second)
			l.refused(second.add(n))
			before.unchanged()
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
			begin := time.Now()
			l.must(next.add(n))
			if took := time.Since(begin); strings.Contains(ip, ".") && took > 2*time.Second {
				l.Errorf("ADD waited: it took %v", took)
			}
			l.has(&next.Namespace, "eth0", "address", next.result.Interfaces[0].Mac)
			l.isUp(&next.Namespace, "eth0")
			l.pings(&next.Namespace, map[bool]string{true: "10.46.0.1", false: "fd00:46::1"}[next.v4 != ""])
			l.must(next.check())
			l.must(next.del())
			next.Delete(l)
			hostile.Delete(l)
		}
	}},
	{name: "two networks that have one subnet can be on one master", test: func(l *lab) {
		for _, mode := range []string{"private", "vepa"} {
			n := l.on("macvlan", "mode", text(mode), "ipam", fixedIPs("10.46.0.9/24"))
			a, b := l.attach(n, "a-"+mode), l.attach(n.called("other"), "b-"+mode)
			l.must(a.check())
			l.must(b.check())
			l.must(a.del())
			l.must(b.del())
		}
	}},
	{name: "without ipam the interface is up and has no addresses", test: func(l *lab) {
		c := l.attach(l.on("macvlan", "ipam", "{}"), "web")
		l.isUp(&c.Namespace, "eth0")
		l.same(l.addresses(&c.Namespace, "eth0"), []string{})
		l.must(c.check())
		c.run("ip address add 10.46.0.9/24 dev eth0")
		l.pings(&c.Namespace, "10.46.0.1")
		l.must(c.del())
		l.same(l.link(&c.Namespace, "eth0") == nil, true)
	}},
	{name: "the result without ipam, to the byte", test: func(l *lab) {
		l.printed(l.attach(l.on("macvlan", "ipam", "{}"), "web").printed,
			`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}]}`)
	}},
	{name: "a previous result is left out of the result", test: func(l *lab) {
		printed, err := l.exec("ADD", l.pod("web"), text(object(l.on("macvlan", "capabilities", "{}", "ipam", "{}",
			"prevResult", `{"cniVersion":"1.0.0","interfaces":[{"name":"wg0"}]}`).plugins[0])))
		l.must(err)
		l.lacks(printed, "wg0")
	}},
	{name: "the master is the link of the default route unless it is named", test: func(l *lab) {
		c := l.attach(l.on("macvlan", "master", `""`), "web")
		l.pings(&c.Namespace, "10.46.0.1")
		l.must(c.check())
	}},
	{name: "the master is the link of the IPv6 default route if there is no other", test: func(l *lab) {
		n := l.on("macvlan", "master", `""`)
		l.run("ip route del default")
		c := l.attach(n, "web")
		l.pings(&c.Namespace, "10.46.0.1")
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
		l.run("ip link add other0 up type bridge")
		l.run("ip address add 10.99.0.1/24 dev other0")
		l.run("ip route replace default via 10.99.0.2")
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
		l.run("ip link add lan0 type bridge")
		l.run("ip link set " + netlab.UplinkName + " master lan0")
		web := l.pod("web")
		l.refuses(web, n, "macvlan")
	}},
}
