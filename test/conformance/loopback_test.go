package conformance

import (
	"fmt"
	"strings"
)

const loop = `{"type":"loopback"}`

var loopbackRows = group{name: "loopback", rows: append(hostileRows(nil, func(*lab) network { return conf(loop) }), []row{
	{name: "ADD sets lo up", test: func(l *lab) {
		c := l.attach(conf(loop), "web")
		l.serve(&c.Namespace, 80)
		l.answers(tcp(&c.Namespace, "127.0.0.1", 80), "web")
		l.answers(tcp(&c.Namespace, "::1", 80), "web")
	}},
	{name: "the result, to the byte", test: func(l *lab) {
		l.printed(l.attach(conf(loop), "web").printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"lo","mac":"00:00:00:00:00:00","sandbox":"/run/netns/web"}],
			"ips":[{"address":"127.0.0.1/8","interface":0},{"address":"::1/128","interface":0}]}`)
	}},
	{name: "the result in 0.4.0 and 0.2.0, to the byte", differs: "prints it in the form of 1.0.0 for older versions too", test: func(l *lab) {
		l.printed(l.attach(conf(loop).in("0.4.0"), "web").printed, `{"cniVersion":"0.4.0","interfaces":[{"name":"lo","mac":"00:00:00:00:00:00","sandbox":"/run/netns/web"}],
			"ips":[{"version":"4","address":"127.0.0.1/8","interface":0},{"version":"6","address":"::1/128","interface":0}],"dns":{}}`)
		l.printed(l.attach(conf(loop).in("0.2.0"), "old").printed, `{"cniVersion":"0.2.0","ip4":{"ip":"127.0.0.1/8"},"ip6":{"ip":"::1/128"},"dns":{}}`)
	}},
	{name: "the result has no IPv6 address where IPv6 is disabled", test: func(l *lab) {
		c := l.pod("web")
		c.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1")
		l.must(c.add(conf(loop)))
		l.lacks(c.printed, "::1")
		l.shows(c.printed, "127.0.0.1/8")
	}},
	{name: "the result has one address of each family", test: func(l *lab) {
		c := l.pod("web")
		c.run("ip address add 127.0.0.5/8 dev lo")
		l.must(c.add(conf(loop)))
		l.same(len(c.result.IPs), 2)
	}},
	{name: "whatever CNI_IFNAME says, it is lo", test: func(l *lab) {
		for _, name := range []string{"lo", "eth0", "net1"} {
			c := l.attach(conf(loop), name, ifname(name))
			l.shows(c.run("ip link show lo"), "LOOPBACK,UP")
			l.same(c.result.Interfaces[0].Name, "lo")
		}
	}},
	{name: "behind another plugin the result is that plugin's", test: func(l *lab) {
		c := l.attach(conf(lan, loop), "web")
		l.same(len(c.result.Interfaces), 3)
		l.same(c.v4, "10.44.0.2")
		l.shows(c.run("ip link show lo"), "LOOPBACK,UP")
	}},
	{name: "ADD can be repeated", test: func(l *lab) {
		c := l.attach(conf(loop), "web")
		first := c.printed
		l.must(c.add(conf(loop)))
		l.same(c.printed, first)
	}},
	{name: "lo with another address is refused", test: func(l *lab) {
		c := l.pod("web")
		c.run("ip address add 10.9.9.9/32 dev lo")
		l.refused(c.add(conf(loop)), "10.9.9.9")
	}},
	{name: "lo with another address is refused with code 8", differs: always999, test: func(l *lab) {
		c := l.pod("web")
		c.run("ip address add 10.9.9.9/32 dev lo")
		l.code(c.add(conf(loop)), 8, "10.9.9.9")
	}},
	{name: "lo with another address is refused and stays down", differs: "sets lo up before it looks at its addresses", test: func(l *lab) {
		c := l.pod("web")
		c.run("ip address add 10.9.9.9/32 dev lo")
		l.refuses(c, conf(loop))
	}},
	{name: "CHECK finds lo set down", test: func(l *lab) {
		c := l.attach(conf(loop), "web")
		l.must(c.check())
		c.run("ip link set lo down")
		err := c.check()
		l.refused(err, "lo", "down")
	}},
	{name: "the error of CHECK names the namespace", differs: "does not say where", test: func(l *lab) {
		c := l.attach(conf(loop), "web")
		c.run("ip link set lo down")
		l.refused(c.check(), "/run/netns/web")
	}},
	{name: "DEL sets lo down, and can be repeated", test: func(l *lab) {
		c := l.attach(conf(loop), "web")
		for range 2 {
			l.must(c.del())
			l.lacks(c.run("ip link show lo"), "LOOPBACK,UP")
		}
	}},
	{name: "DEL leaves lo up if it was up before ADD", differs: "sets it down whoever has set it up", test: func(l *lab) {
		c := l.pod("web")
		c.run("ip link set lo up")
		l.must(c.add(conf(loop)), c.del())
		l.shows(c.run("ip link show lo"), "LOOPBACK,UP")
	}},
	{name: "a late DEL leaves lo of the container that has the namespace's path by now", differs: "sets lo of whatever namespace the path is down", test: func(l *lab) {
		for _, result := range []bool{true, false} {
			old := l.attach(conf(loop), fmt.Sprint("web", result))
			newer := old.succeeded(conf(loop))
			if result {
				l.must(old.del())
			} else {
				l.must(old.bareDel(loop))
			}
			l.must(newer.check(), newer.del())
			l.lacks(newer.run("ip link show lo"), "LOOPBACK,UP")
		}
	}},
	{name: "DEL without a namespace is fine", test: func(l *lab) {
		c := l.attach(conf(loop), "web")
		l.must(c.delBare())
		c.Delete(l)
		l.must(c.del())
	}},
	{name: "DEL with something else at the namespace's path is fine", differs: "its DEL fails where a file has taken the namespace's place", test: func(l *lab) {
		c := l.attach(conf(loop), "web")
		c.DeleteKeepFile(l)
		l.must(c.del())
	}},
	{name: "STATUS and GC have nothing to do", test: func(l *lab) {
		c := l.attach(conf(loop).in("1.1.0"), "web")
		l.now(c).unchangedBy(l.status(conf(loop)), l.gc(conf(loop)))
	}},
	{name: "keys of other plugins do not matter", test: func(l *lab) {
		l.attach(conf(with(loop, "mtu", `"big"`, "ipam", `{}`, "name", `"x"`)), "web", args("COLOUR="+strings.Repeat("red", 3)))
	}},
}...)}
