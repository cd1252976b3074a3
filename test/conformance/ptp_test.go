package conformance

import (
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// ptp is a dual-stack network whose containers have the host as their only neighbour.
const ptp = `{"type":"ptp","ipMasq":true,"capabilities":{"ips":true},
	"ipam":{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24"}],[{"subnet":"fd00:44::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}`

// barePtp is ptp for calls without libcni, which have no capabilities.
var barePtp = with(ptp, "capabilities", "{}")

var ptpMain = mainPlugin{kind: "ptp", masquerades: true, reached: []string{"10.44.0.1", "fd00:44::1"}, differs: map[string]string{
	"a backend of masquerading that nobody has is refused, and changes nothing": noRollback,
	"after an ADD that fails all is as before: a gateway out of reach":          noRollback,
	"DEL with the namespace gone leaves nothing":                                ptpLeftWithoutNetns,
	"DEL with the namespace gone and no result leaves nothing":                  ptpLeftWithoutNetns,
	"DEL with another namespace at the path leaves nothing":                     ptpLeftWithoutNetns,
	"DEL without the namespace's path and without a result leaves nothing":      ptpLeftWithoutNetns,
	"DEL with the interface gone leaves nothing":                                ptpLeftWithoutNetns,
}}

var ptpRows = group{name: "ptp", rows: slices.Concat(ptpResults, ptpMain.results(), ptpMain.veths(), ptpLinks, ptpRouting, ptpAddresses, ptpRoutes(), ptpIPv6, ptpPackets, ptpMain.masquerade(),
	ptpRefusals(), ptpFailures(), ptpDels(), ptpLateDels,
	ptpMain.strangers(), ptpMain.gcs(), ptpChecks(), []row{ptpMain.checkNeedsResult()}, ptpStatus, ptpMain.statusOfIPAM(),
	hostileRows(nil, func(l *lab) network { return l.ptp() }))}

// ptp returns the network ptp with more keys, each followed by its value in JSON, and the backend of the row.
func (l *lab) ptp(keys ...string) network { return l.masquerading(ptp, keys...) }

// fixedPtp is ptp with these addresses, each followed by its gateway if it has one, and default routes.
func (l *lab) fixedPtp(ips ...string) network {
	routes := []map[string]string{}
	for family, dst := range map[string]string{".": "0.0.0.0/0", ":": "::/0"} {
		if strings.Contains(strings.Join(ips, ""), family) {
			routes = append(routes, map[string]string{"dst": dst})
		}
	}
	return l.ptp("ipam", with(fixedIPs(ips...), "routes", text(routes)))
}

// An address of each family, with its gateway.
const ptpIPv4Address, ptpIPv6Address = "10.44.0.2/24 10.44.0.1", "fd00:44::2/64 fd00:44::1"

var ptpResults = []row{
	{name: "the result, to the byte", test: func(l *lab) {
		l.printed(l.attach(conf(ptp), "web").printed, `{"cniVersion":"1.0.0",
			"interfaces":[{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.44.0.2/24","gateway":"10.44.0.1","interface":1},{"address":"fd00:44::2/64","gateway":"fd00:44::1","interface":1}],
			"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`)
	}},
	{name: "the result in 0.4.0 and 0.2.0, to the byte", test: func(l *lab) {
		l.printed(l.attach(conf(ptp).in("0.4.0"), "web").printed, `{"cniVersion":"0.4.0",
			"interfaces":[{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"version":"4","interface":1,"address":"10.44.0.2/24","gateway":"10.44.0.1"},
				{"version":"6","interface":1,"address":"fd00:44::2/64","gateway":"fd00:44::1"}],
			"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}],"dns":{}}`)
		l.printed(l.attach(conf(ptp).in("0.2.0"), "old").printed, `{"cniVersion":"0.2.0",
			"ip4":{"ip":"10.44.0.3/24","gateway":"10.44.0.1","routes":[{"dst":"0.0.0.0/0"}]},
			"ip6":{"ip":"fd00:44::3/64","gateway":"fd00:44::1","routes":[{"dst":"::/0"}]},"dns":{}}`)
	}},
	{name: "the result in 1.1.0 has the mtu of both ends", differs: "it leaves out the mtu that interfaces have since 1.1.0", test: func(l *lab) {
		l.printed(l.attach(conf(with(ptp, "mtu", "1400", "ipam", fixedIPs(ptpIPv4Address))).in("1.1.0"), "web").printed, `{"cniVersion":"1.1.0",
			"interfaces":[{"name":"vethX","mac":"MAC","mtu":1400},{"name":"eth0","mac":"MAC","mtu":1400,"sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.44.0.2/24","gateway":"10.44.0.1","interface":1}]}`)
	}},
	{name: "the result names the links as they are", test: func(l *lab) {
		c := l.attach(conf(ptp), "web", ifname("net1"))
		i := c.result.Interfaces
		l.same([]string{i[0].Name, i[1].Name, i[1].Sandbox}, []string{c.hostEnd(), "net1", c.Path()})
		l.has(&l.host.Namespace, i[0].Name, "address", i[0].Mac)
		l.has(&c.Namespace, "net1", "address", i[1].Mac)
	}},
	{name: "CNI_ARGS and a MAC address that is asked for do not matter", test: func(l *lab) {
		c := l.attach(conf(with(ptp, "args", `{"cni":{"mac":"02:00:00"}}`)), "web", args("IgnoreUnknown=1", "COLOUR=green", "MAC=02:aa:00:00:00:01"))
		l.lacks(c.result.Interfaces[1].Mac, "02:aa")
	}},
}

var ptpLinks = []row{
	{name: "both ends of the veth pair are up, and the host end is in no bridge", test: func(l *lab) {
		c := l.attach(conf(ptp), "web")
		l.has(&l.host.Namespace, c.hostEnd(), "master", nil)
		l.isUp(&c.Namespace, "eth0")
		l.isUp(&l.host.Namespace, c.hostEnd())
	}},
	{name: "mtu holds for both ends", test: func(l *lab) {
		c := l.attach(conf(with(ptp, "mtu", "1400")), "web")
		c.has("mtu", 1400)
		l.has(&l.host.Namespace, c.hostEnd(), "mtu", 1400)
	}},
	{name: "an mtu of 0 and below is the kernel's default", test: func(l *lab) {
		for _, mtu := range []string{"0", "-1"} {
			c := l.attach(conf(with(ptp, "mtu", mtu)), "web"+mtu[:1])
			c.has("mtu", 1500)
			l.has(&l.host.Namespace, c.hostEnd(), "mtu", 1500)
		}
	}},
	{name: "the host takes no routers that a container pretends to be", test: func(l *lab) {
		c := l.attach(l.fixedPtp(ptpIPv4Address), "web")
		l.same(l.sysctl(&l.host.Namespace, "ipv6/conf/"+c.hostEnd()+"/accept_ra"), "0")
	}},
	{name: "the host end has a link-local address if the container has an IPv6 address, and no address of IPv6 otherwise", differs: "it always has one", test: func(l *lab) {
		four, both := l.attach(l.fixedPtp(ptpIPv4Address), "four"), l.attach(l.fixedPtp("10.44.0.3/24 10.44.0.1", "fd00:44::3/64 fd00:44::1"), "both")
		both.pings("10.44.0.1", "fd00:44::1")
		four.pings("10.44.0.1")
		linkLocal := func(c *container) bool {
			return strings.Contains(l.host.MustRun(l, "ip", "-6", "address", "show", "dev", c.hostEnd()), "fe80::")
		}
		l.same(linkLocal(four), false)
		l.same(linkLocal(both), true)
	}},
	{name: "a container takes no routers for its own", differs: "it leaves router advertisements on", test: func(l *lab) {
		c := l.attach(conf(ptp), "web")
		l.same(c.sysctl("ipv6/conf/eth0/accept_ra")+c.sysctl("ipv6/conf/eth0/autoconf"), "00")
	}},
	{name: "a container that is on a bridge too has both gateways", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		c.attach(l.ptp("ipam", fixedIPs("10.55.0.2/24 10.55.0.1")).called("back"), "net1")
		c.pings("10.44.0.1", "fd00:44::1", "10.55.0.1")
	}},
}

// allRoutes returns a namespace's routes of the main table, of which only those that match.
func (l *lab) allRoutes(n *netlab.Namespace, family, only string) string {
	var list []string
	for route := range strings.Lines(run(l, n, "ip "+family+" route show")) {
		if strings.Contains(route, only) {
			list = append(list, strings.Join(strings.Fields(route), " "))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

var ptpRouting = []row{
	{name: "the container's routes of IPv4: all by the gateway, which is on the link", test: func(l *lab) {
		c := l.attach(conf(ptp), "web")
		l.same(l.allRoutes(&c.Namespace, "-4", ""), "10.44.0.0/24 via 10.44.0.1 dev eth0 src 10.44.0.2\n"+
			"10.44.0.1 dev eth0 scope link src 10.44.0.2\ndefault via 10.44.0.1 dev eth0")
	}},
	{name: "the container's routes of IPv6: all by the gateway, which is on the link", test: func(l *lab) {
		c := l.attach(conf(ptp), "web")
		l.same(strings.ReplaceAll(l.allRoutes(&c.Namespace, "-6", "fd00"), " pref medium", ""),
			"default via fd00:44::1 dev eth0 metric 1024\nfd00:44::/64 via fd00:44::1 dev eth0 src fd00:44::2 metric 1024\n"+
				"fd00:44::1 dev eth0 src fd00:44::2 metric 1024")
	}},
	{name: "the host has a route to each of the container's addresses", test: func(l *lab) {
		c := l.attach(conf(ptp), "web")
		l.same(l.allRoutes(&l.host.Namespace, "-4", "10.44"), "10.44.0.2 dev "+c.hostEnd()+" scope host")
		l.shows(l.allRoutes(&l.host.Namespace, "-6", "fd00:44::2"), "fd00:44::2 dev "+c.hostEnd()+" metric 1024")
	}},
	{name: "the host end has the gateways' addresses, without a network", test: func(l *lab) {
		c := l.attach(conf(ptp), "web")
		l.same(l.addresses(&l.host.Namespace, c.hostEnd()), []string{"10.44.0.1/32", "fd00:44::1/128"})
	}},
	{name: "there are no other routes than the IPAM plugin's and those to the gateway and the subnet", test: func(l *lab) {
		c := l.attach(l.ptp("ipam", fixedIPs(ptpIPv4Address, ptpIPv6Address)), "web")
		l.same(c.routes("default")+c.routes("::/default"), "")
		c.pings("10.44.0.1", "fd00:44::1")
	}},
	{name: "the host forwards packets of the families that there are addresses of", test: func(l *lab) {
		l.attach(l.fixedPtp(ptpIPv4Address), "four")
		l.same(l.sysctl(&l.host.Namespace, "ipv4/ip_forward")+l.sysctl(&l.host.Namespace, "ipv6/conf/all/forwarding"), "10")
	}},
	{name: "with IPv6 alone IPv4 stays as it is", test: func(l *lab) {
		l.attach(l.fixedPtp(ptpIPv6Address), "six")
		l.same(l.sysctl(&l.host.Namespace, "ipv4/ip_forward")+l.sysctl(&l.host.Namespace, "ipv6/conf/all/forwarding"), "01")
	}},
	{name: "containers share the gateway's address, and reach it when others have gone", test: func(l *lab) {
		a, b, c := l.attach(conf(ptp), "a"), l.attach(conf(ptp), "b"), l.attach(conf(ptp), "c")
		for _, pod := range []*container{a, b, c} {
			pod.pings("10.44.0.1", "fd00:44::1")
		}
		l.must(a.del())
		b.pings("10.44.0.1", "fd00:44::1")
		l.must(c.del())
		b.pings("10.44.0.1", "fd00:44::1")
	}},
	{name: "who has an address now is reached, though an earlier holder is still there", differs: "the host's route to the earlier holder stays",
		test: func(l *lab) {
			old := l.attach(l.fixedPtp(ptpIPv4Address, ptpIPv6Address), "old")
			c := l.attach(l.fixedPtp(ptpIPv4Address, ptpIPv6Address), "web")
			l.serve(&c.Namespace, 80)
			l.answers(tcp(&l.host.Namespace, "10.44.0.2", 80), "web")
			l.answers(tcp(&l.host.Namespace, "fd00:44::2", 80), "web")
			l.must(old.del())
			l.answers(tcp(&l.host.Namespace, "10.44.0.2", 80), "web")
			l.answers(tcp(&l.host.Namespace, "fd00:44::2", 80), "web")
			l.must(c.check())
		}},
}

var ptpAddresses = []row{
	{name: "the gateway is the one that the IPAM plugin says", test: func(l *lab) {
		c := l.attach(l.fixedPtp("10.44.0.2/24 10.44.0.99", "fd00:44::2/64 fd00:44::99"), "web")
		l.same(l.addresses(&l.host.Namespace, c.hostEnd()), []string{"10.44.0.99/32", "fd00:44::99/128"})
		c.pings("10.44.0.99", "fd00:44::99")
	}},
	{name: "a gateway that the IPAM plugin does not say is the first address of the subnet", differs: "it needs one of the IPAM plugin", test: func(l *lab) {
		c := l.attach(l.fixedPtp("10.44.7.9/22", "fd00:44::9:9/112"), "web")
		l.same(l.addresses(&l.host.Namespace, c.hostEnd()), []string{"10.44.4.1/32", "fd00:44::9:1/128"})
		l.shows(c.printed, `"10.44.4.1"`, `"fd00:44::9:1"`)
		c.pings("10.44.4.1", "fd00:44::9:1")
	}},
	{name: "an address without a subnet reaches its gateway, and by it all else", differs: "it can't have an address without a subnet", test: func(l *lab) {
		l.serve(&l.outside().Namespace, 80)
		c := l.attach(l.fixedPtp("10.44.0.2/32 10.44.0.1", "fd00:44::2/128 fd00:44::1"), "web")
		c.hasAddresses("10.44.0.2/32", "fd00:44::2/128")
		c.pings("10.44.0.1", "fd00:44::1")
		l.seenAs(c, netlab.HostIPv4, netlab.HostIPv6)
		l.must(c.check())
	}},
	{name: "a gateway may lie outside the subnet", differs: "it adds routes by the gateway before it is reachable", test: func(l *lab) {
		l.outside()
		c := l.attach(l.fixedPtp("10.44.0.2/24 169.254.1.1", "fd00:44::2/64 fe80::1"), "web")
		c.pings("169.254.1.1", netlab.HostIPv4)
		l.pings(&l.host.Namespace, "10.44.0.2", "fd00:44::2")
		l.must(c.check())
	}},
	{name: "two addresses that share a gateway", differs: "it adds the routes to it twice, which the kernel refuses", test: func(l *lab) {
		c := l.attach(l.fixedPtp("10.44.0.2/24 10.44.0.1", "10.44.0.3/24 10.44.0.1", "fd00:44::2/64 fd00:44::1", "fd00:44::3/64 fd00:44::1"), "web")
		c.pings("10.44.0.1", "fd00:44::1")
		l.pings(&l.host.Namespace, "10.44.0.2", "10.44.0.3", "fd00:44::2", "fd00:44::3")
		l.must(c.check())
	}},
	{name: "two addresses of different subnets", test: func(l *lab) {
		c := l.attach(l.ptp("ipam", fixedIPs("10.44.0.2/24 10.44.0.1", "10.45.0.2/24 10.45.0.1", "fd00:44::2/64 fd00:44::1", "fd00:45::2/64 fd00:45::1")), "web")
		c.pings("10.44.0.1", "10.45.0.1", "fd00:44::1", "fd00:45::1")
		l.pings(&l.host.Namespace, "10.44.0.2", "10.45.0.2", "fd00:44::2", "fd00:45::2")
		l.must(c.check())
	}},
	{name: "an address of a subnet of two reaches the other one", test: func(l *lab) {
		c := l.attach(l.ptp("ipam", fixedIPs("10.44.0.3/31 10.44.0.2", "fd00:44::3/127 fd00:44::2")), "web")
		c.pings("10.44.0.2", "fd00:44::2")
		l.must(c.check())
	}},
}

// ptpRoutes is about the IPAM plugin's routes.
func ptpRoutes() []row {
	return append(ptpMain.routes(nil),
		row{name: "a route goes by another address of the host", test: func(l *lab) {
			l.run("ip address add 10.44.0.254/32 dev lo", "ip address add 10.50.0.1/32 dev lo", "ip link set lo up")
			c := l.attach(l.ptp("ipam", with(fixedIPs(ptpIPv4Address), "routes", `[{"dst":"10.50.0.0/16","gw":"10.44.0.254"}]`)), "web")
			l.shows(c.routes("10.50.0.0/16"), "via 10.44.0.254 dev eth0")
			c.pings("10.50.0.1")
			l.must(c.check())
		}},
	)
}

var ptpIPv6 = []row{
	{name: "no IPv6 address is probed when ADD returns, though the host and the namespace want all probed", differs: probes, test: func(l *lab) {
		l.run("sysctl -qw net.ipv6.conf.default.accept_dad=1")
		c := l.pod("web")
		c.run("sysctl -qw net.ipv6.conf.all.accept_dad=1")
		l.must(c.add(conf(ptp)))
		l.same(l.probed(&c.Namespace, "eth0")+l.probed(&l.host.Namespace, c.hostEnd()), "")
		l.same(c.sysctl("ipv6/conf/eth0/accept_dad")+l.sysctl(&l.host.Namespace, "ipv6/conf/"+c.hostEnd()+"/accept_dad"), "00")
	}},
	{name: "containers reach each other at once", test: func(l *lab) {
		a, b := l.attach(conf(ptp), "a"), l.attach(conf(ptp), "b")
		a.settles()
		b.settles()
		l.pingsAtOnce(&a.Namespace, b.v4, b.v6)
	}},
	{name: "IPv4 alone works on a node and in a container without IPv6", test: func(l *lab) {
		l.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
		c := l.pod("web")
		c.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
		l.must(c.add(l.fixedPtp(ptpIPv4Address)))
		c.pings("10.44.0.1")
		l.must(c.check(), c.del())
	}},
}

var ptpPackets = []row{
	{name: "the container reaches the host, and the host the container", test: func(l *lab) {
		c := l.attach(conf(ptp), "web")
		l.serve(&l.host.Namespace, 80)
		l.serve(&c.Namespace, 80)
		for _, gateway := range []string{"10.44.0.1", "fd00:44::1"} {
			l.answers(tcp(&c.Namespace, gateway, 80), l.host.Name())
			l.answers(udp(&c.Namespace, gateway, 80), l.host.Name())
		}
		l.answers(tcp(&l.host.Namespace, c.v4, 80), "web saw 10.44.0.1")
		l.answers(tcp(&l.host.Namespace, c.v6, 80), "web saw fd00:44::1")
	}},
	{name: "containers of a network reach each other by their own addresses", backends: true, test: func(l *lab) {
		a, b := l.attach(l.ptp(), "a"), l.attach(l.ptp(), "b")
		l.serve(&b.Namespace, 80)
		l.answers(tcp(&a.Namespace, b.v4, 80), "b saw "+a.v4)
		l.answers(udp(&a.Namespace, b.v4, 80), "b saw "+a.v4)
		l.answers(tcp(&a.Namespace, b.v6, 80), "b saw "+a.v6)
	}},
	{name: "a container and one behind a bridge reach each other", test: func(l *lab) {
		a := l.attach(l.ptp("ipMasq", "false"), "a")
		b := l.attach(conf(with(lan, "ipMasq", "false", "ipam", fixedIPs("10.55.0.2/24", "fd00:55::2/64"))).called("back"), "b")
		a.pings(b.v4, b.v6)
		b.pings(a.v4, a.v6)
	}},
	{name: "each of several addresses is masqueraded", backends: true, test: func(l *lab) {
		l.served()
		c := l.attach(l.fixedPtp("10.44.0.2/24 10.44.0.1", "10.45.0.2/24 10.45.0.1", "fd00:44::2/64 fd00:44::1", "fd00:45::2/64 fd00:45::1"), "web")
		for _, subnet := range []string{"4", "5"} {
			c.run("ip route replace default via 10.4" + subnet + ".0.1 src 10.4" + subnet + ".0.2")
			c.run("ip -6 route replace default via fd00:4" + subnet + "::1 dev eth0 src fd00:4" + subnet + "::2")
			l.seenAs(c, netlab.HostIPv4, netlab.HostIPv6)
		}
	}},
	{name: "a published port leads to the container", test: func(l *lab) {
		c := l.attach(conf(ptp, `{"type":"portmap","capabilities":{"portMappings":true}}`, `{"type":"firewall"}`), "web", ports("8080:80/tcp"))
		l.serve(&c.Namespace, 80)
		l.answers(tcp(&l.outside().Namespace, netlab.HostIPv4, 8080), "web")
		l.must(c.check(), c.del())
	}},
}
