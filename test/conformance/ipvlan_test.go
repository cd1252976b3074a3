package conformance

import (
	"fmt"
	"slices"

	"github.com/cnibox/cnibox/test/netlab"
)

var ipvlanRows = group{name: "ipvlan", needs: &netlab.IPVLAN, rows: slices.Concat(onMasterRows("ipvlan"), ipvlanModes, ipvlanChained)}

var ipvlanModes = []row{
	{name: "mode l2, which is the default, is on the segment with the master's MAC address", test: func(l *lab) {
		for name, n := range map[string]network{"a": l.on("ipvlan"), "b": l.on("ipvlan", "mode", `""`), "c": l.on("ipvlan", "mode", `"l2"`)} {
			c := l.attach(n, name)
			c.has("mode", "l2", "address", l.link(&l.host.Namespace, netlab.UplinkName)["address"])
			c.pings("10.46.0.1", "fd00:46::1")
		}
	}},
	{name: "containers reach each other", test: func(l *lab) {
		a, b := l.attach(l.on("ipvlan"), "a"), l.attach(l.on("ipvlan"), "b")
		a.pings(b.v4, b.v6)
	}},
	{name: "modes l3 and l3s reach what the segment has a route back for", test: func(l *lab) {
		for _, mode := range []string{"l3", "l3s"} {
			n := l.on("ipvlan", "mode", text(mode), "ipam", with(fixedIPs("10.47.0.2/24"), "routes", `[{"dst":"0.0.0.0/0"}]`))
			if mode == "l3" {
				l.outside().AddRoute(l, "10.47.0.0/24")
			}
			c := l.attach(n, mode)
			c.has("mode", mode)
			c.pings(netlab.OutsideIPv4)
			l.must(c.check(), c.del())
		}
	}},
	{name: "CHECK fails when the mode is another", test: func(l *lab) {
		c := l.attach(l.on("ipvlan"), "web")
		c.run("ip link set eth0 type ipvlan mode l3")
		l.refused(c.check(), "mode")
	}},
	{name: "the master is the link of the default route unless it is named", differs: "its CHECK wants the master named", test: func(l *lab) {
		c := l.attach(l.on("ipvlan", "master", `""`), "web")
		c.pings("10.46.0.1")
		l.must(c.check(), c.del())
	}},
	{name: "DEL without a master, a default route and a result leaves nothing", differs: "its DEL looks for the master", test: func(l *lab) {
		c := l.attach(l.on("ipvlan", "master", `""`), "web")
		l.run("ip route del default", "ip -6 route del default")
		l.forget()
		l.must(c.del())
		l.gone(&c.Namespace, "eth0")
		l.same(len(l.files("/var/lib/cni/networks/lan/[1f]*")), 0)
	}},
	{name: "an mtu above the master's is taken", test: func(l *lab) { l.attach(l.on("ipvlan", "mtu", "1600"), "web").has("mtu", 1600) }},
	{name: "a master that has a macvlan is refused, and changes nothing", test: func(l *lab) {
		n := l.on("ipvlan")
		first, web := l.attach(l.on("macvlan"), "first"), l.pod("web")
		l.now(first, web).refused(web.add(n), "ipvlan")
	}},
}

// before is a previous result with these interfaces and an address.
func before(interfaces, ips string) string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","interfaces":%s,"ips":%s,"routes":[{"dst":"0.0.0.0/0"}],"dns":{"domain":"before"}}`, interfaces, ips)
}

const (
	uplinkBefore  = `[{"name":"` + netlab.UplinkName + `"}]`
	addressBefore = `[{"address":"10.46.0.9/24","gateway":"10.46.0.1"}]`
)

// chainedIPVLAN is ipvlan behind another plugin, without a master.
func (l *lab) chainedIPVLAN(prevResult string, keys ...string) string {
	l.segment("ipvlan")
	keys = append([]string{"master", `""`, "ipam", "{}", "prevResult", prevResult}, keys...)
	return onMaster("ipvlan", keys...)
}

var ipvlanChained = []row{
	{name: "behind another plugin the master is its interface, and the addresses are its own", test: func(l *lab) {
		c := l.pod("web")
		printed := l.answer("ADD", c, l.chainedIPVLAN(before(uplinkBefore, addressBefore)))
		l.printed(printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.46.0.9/24","gateway":"10.46.0.1","interface":0}],"routes":[{"dst":"0.0.0.0/0"}]}`)
		c.pings("10.46.0.1")
		l.shows(c.routes("default"), "via 10.46.0.1")
	}},
	{name: "behind another plugin the container does not listen to whoever says that it is a router", differs: "it does", test: func(l *lab) {
		c := l.pod("web")
		l.must(l.verb("ADD", c, l.chainedIPVLAN(before(uplinkBefore, addressBefore))))
		l.same(c.sysctl("ipv6/conf/eth0/accept_ra"), "0")
	}},
	{name: "behind another plugin the addresses are the IPAM plugin's if there is one", test: func(l *lab) {
		c := l.pod("web")
		printed := l.answer("ADD", c, l.chainedIPVLAN(before(uplinkBefore, addressBefore), "ipam", fixedIPs("10.46.0.7/24")))
		l.shows(printed, "10.46.0.7")
		l.lacks(printed, "10.46.0.9")
	}},
	{name: "behind another plugin a master that is named is taken", test: func(l *lab) {
		c := l.pod("web")
		l.must(l.verb("ADD", c, l.chainedIPVLAN(before(`[{"name":"wg0"},{"name":"wg1"}]`, addressBefore), "master", text(netlab.UplinkName))))
		c.pings("10.46.0.1")
	}},
	{name: "behind another plugin with several interfaces, or none, a master must be named", test: func(l *lab) {
		l.segment("ipvlan")
		web := l.pod("web")
		state := l.now(web)
		for _, interfaces := range []string{`[{"name":"uplink0"},{"name":"uplink0"}]`, "[]", `[{"name":""}]`} {
			l.refused(l.verb("ADD", web, l.chainedIPVLAN(before(interfaces, addressBefore))), "master")
		}
		state.unchanged()
	}},
	{name: "behind another plugin without addresses ipam is needed", differs: leavesLink, test: func(l *lab) {
		l.segment("ipvlan")
		web := l.pod("web")
		state := l.now(web)
		l.refused(l.verb("ADD", web, l.chainedIPVLAN(before(uplinkBefore, "[]"))), "ipam")
		state.unchanged()
	}},
	{name: "CHECK and DEL get the result of the whole chain, with the interfaces of later plugins",
		differs: "its DEL looks for the master, and its CHECK wants it named", test: func(l *lab) {
			web := l.pod("web")
			printed := l.answer("ADD", web, l.chainedIPVLAN(before(uplinkBefore, addressBefore)))
			whole := with(printed, "interfaces", fmt.Sprintf(`[{"name":"eth0","mac":%q,"sandbox":%q},{"name":"later0"}]`,
				l.link(&web.Namespace, "eth0")["address"], web.Path()))
			l.must(l.verb("CHECK", web, l.chainedIPVLAN(whole)), l.verb("DEL", web, l.chainedIPVLAN(whole)))
			l.gone(&web.Namespace, "eth0")
		}},
	{name: "STATUS without a master is good, for a plugin before may have it", test: func(l *lab) {
		l.must(l.status(conf(onMaster("ipvlan", "master", `""`))))
	}},
}
