package conformance

import (
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// routeCase is a route of the IPAM plugin, and how the container has it.
type routeCase struct{ name, route, dst, want, lacks, differs string }

const refusesScope = "it takes the gateway, which the kernel refuses for that scope"

var routeCases = []routeCase{
	{"a route goes by the gateway of its family", `{"dst":"10.50.0.0/16"}`, "10.50.0.0/16", "via 10.44.0.1 dev eth0", "", ""},
	{"an IPv6 route goes by the gateway of its family", `{"dst":"fd00:50::/48"}`, "fd00:50::/48", "via fd00:44::1 dev eth0", "", ""},
	{"a route has its priority", `{"dst":"10.50.0.0/16","priority":50}`, "10.50.0.0/16", "metric 50", "", ""},
	{"a route is in its table", `{"dst":"10.50.0.0/16","table":300}`, "10.50.0.0/16", "table 300", "", ""},
	{"a route of scope link goes by no gateway", `{"dst":"10.50.0.0/16","scope":253}`, "10.50.0.0/16", "scope link", "via", refusesScope},
	{"a route of scope host goes by no gateway", `{"dst":"10.50.0.0/16","scope":254}`, "10.50.0.0/16", "scope host", "via", refusesScope},
	{"a route has its mtu and advmss", `{"dst":"10.50.0.0/16","mtu":1300,"advmss":1200}`, "10.50.0.0/16", "mtu 1300 advmss 1200", "",
		"it does not set mtu and advmss of a route"},
}

// routes are rows about routes of the IPAM plugin: the cases that bridge and ptp share, and the plugin's own.
func (p mainPlugin) routes(own []routeCase) (rows []row) {
	routed := func(l *lab, routes string) network {
		return p.network(l, "isDefaultGateway", "false", "isGateway", "true",
			"ipam", with(fixedIPs("10.44.0.2/24 10.44.0.1", "fd00:44::2/64 fd00:44::1"), "routes", "["+routes+"]"))
	}
	for _, c := range append(routeCases[:len(routeCases):len(routeCases)], own...) {
		rows = append(rows, row{name: c.name, differs: c.differs, test: func(l *lab) {
			web := l.attach(routed(l, c.route), "web")
			l.shows(web.routes(c.dst), c.want)
			if c.lacks != "" {
				l.lacks(web.routes(c.dst), c.lacks)
			}
		}})
	}
	return append(rows, row{name: "a route that is asked for twice is made once", differs: "it asks the kernel twice, which refuses", test: func(l *lab) {
		c := l.attach(routed(l, `{"dst":"10.50.0.0/16"},{"dst":"10.50.0.0/16","gw":"10.44.0.1"}`), "web")
		l.same(strings.Count(c.routes("10.50.0.0/16"), "10.50.0.0/16"), 1)
	}})
}

// masquerade are rows about ipMasq.
func (p mainPlugin) masquerade() []row {
	return []row{
		{name: "DEL of one container leaves the others masqueraded", backends: true, test: func(l *lab) {
			l.served()
			gone, stays := l.attach(p.network(l), "gone"), l.attach(p.network(l), "stays")
			l.must(gone.del())
			l.seenAs(stays, netlab.HostIPv4, netlab.HostIPv6)
		}},
		{name: "ipMasqBackend iptables masquerades by rules that iptables shows", test: func(l *lab) {
			c := l.attach(p.network(l, "ipMasqBackend", `"iptables"`), "web")
			l.shows(l.run("iptables-save"), c.v4)
			l.shows(l.run("ip6tables-save"), c.v6)
		}},
		{name: "CHECK without ipMasqBackend finds what iptables lacks of the rules that ADD made there", differs: blindToMasquerade, test: func(l *lab) {
			c := l.attach(p.network(l, "ipMasqBackend", `"iptables"`), "web")
			c.network = p.network(l)
			l.must(c.check())
			l.run("ip6tables -t nat -F")
			l.refused(c.check(), "ip6tables")
		}},
		{name: "ipMasqBackend nftables masquerades by none that iptables shows", test: func(l *lab) {
			c := l.attach(p.network(l, "ipMasqBackend", `"nftables"`), "web")
			l.lacks(l.run("iptables-save")+l.run("ip6tables-save"), c.v4, c.v6)
			l.shows(l.run("nft list ruleset"), c.v4, c.v6)
		}},
	}
}
