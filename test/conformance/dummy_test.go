package conformance

import (
	"slices"

	"github.com/cnibox/cnibox/test/netlab"
)

// service is a dual-stack network of dummy links.
const service = `{"type":"dummy","ipam":{"type":"host-local","ranges":[[{"subnet":"10.45.0.0/24"}],[{"subnet":"fd00:45::/64"}]]}}`

var dummyMain = mainPlugin{kind: "dummy"}

var dummyRows = group{name: "dummy", needs: &netlab.Dummy,
	rows: slices.Concat(dummyResults, dummyRefusals(), dummyChecks(), dummyMain.dels(nil), dummyOthers,
		hostileRows(nil, func(*lab) network { return conf(service) }),
		dummyMain.strangers())}

var dummyResults = []row{
	{name: "the result, to the byte", test: func(l *lab) {
		l.printed(l.attach(conf(service), "web").printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.45.0.2/24","gateway":"10.45.0.1","interface":0},{"address":"fd00:45::2/64","gateway":"fd00:45::1","interface":0}]}`)
	}},
	{name: "the result in 0.4.0, to the byte", test: func(l *lab) {
		l.printed(l.attach(conf(with(service, "ipam", fixedIPs("10.45.0.2/24"))).in("0.4.0"), "web").printed,
			`{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"version":"4","address":"10.45.0.2/24","interface":0}],"dns":{}}`)
	}},
	{name: "the link is a dummy link, up, as the result says", test: func(l *lab) {
		c := l.attach(conf(service), "web", ifname("net1"))
		l.has(&c.Namespace, "net1", "operstate", "UNKNOWN", "address", c.result.Interfaces[0].Mac)
		l.shows(c.run("ip -d link show net1"), "NOARP,UP", "dummy")
		l.same(l.addresses(&c.Namespace, "net1"), []string{"10.45.0.2/24", "fd00:45::2/64"})
	}},
	{name: "its addresses answer inside", test: func(l *lab) {
		c := l.attach(conf(loop, service), "web")
		l.serve(&c.Namespace, 80)
		l.answers(tcp(&c.Namespace, "10.45.0.2", 80), "web")
		l.answers(tcp(&c.Namespace, "fd00:45::2", 80), "web")
	}},
	{name: "the IPAM plugin's routes are set", test: func(l *lab) {
		c := l.attach(conf(with(service, "ipam", with(fixedIPs("10.45.0.2/24 10.45.0.1"), "routes", `[{"dst":"10.60.0.0/16"}]`))), "web")
		l.shows(c.routes("10.60.0.0/16"), "via 10.45.0.1", "dev eth0")
	}},
	{name: "dns is the IPAM plugin's", test: func(l *lab) {
		c := l.attach(conf(with(service, "ipam", with(fixedIPs("10.45.0.2/24"), "dns", `{"nameservers":["10.45.0.53"]}`))), "web")
		l.same(text(c.result.DNS), `{"nameservers":["10.45.0.53"]}`)
	}},
	{name: "the network's own dns comes before the IPAM plugin's", differs: "it ignores the network's own dns", test: func(l *lab) {
		l.same(text(l.attach(conf(with(service, "dns", `{"nameservers":["192.0.2.53"]}`)), "web").result.DNS), `{"nameservers":["192.0.2.53"]}`)
	}},
	{name: "a container has several", test: func(l *lab) {
		c := l.attach(conf(service), "web")
		net1 := c.attach(conf(service), "net1")
		l.same(l.addresses(&c.Namespace, "net1"), []string{"10.45.0.3/24", "fd00:45::3/64"})
		l.must(c.del(), net1.check())
	}},
}

// dummyRefusals are ADDs that fail.
func dummyRefusals() (rows []row) {
	const noName = "its error does not name the interface"
	const full = `{"type":"host-local","ranges":[[{"subnet":"10.45.0.0/24","rangeStart":"10.45.0.5","rangeEnd":"10.45.0.5"}]]}`
	const unreachable = `{"type":"host-local","subnet":"10.45.0.0/24","routes":[{"dst":"10.60.0.0/16","gw":"172.31.0.1"}]}`
	for _, c := range []struct {
		name, config, says, differs string
		prepare                     func(l *lab, web *container)
	}{
		{name: "no ipam", config: `{"type":"dummy"}`, says: "dummy interface requires an IPAM configuration"},
		{name: "an ipam without a type", config: with(service, "ipam", `{}`), says: "dummy interface requires an IPAM configuration"},
		{name: "an IPAM plugin that is not there", config: with(service, "ipam", `{"type":"frobnicate"}`), says: "frobnicate"},
		{name: "no free address", config: with(service, "ipam", full),
			prepare: func(l *lab, _ *container) { l.attach(conf(with(service, "ipam", full)), "first") }},
		{name: "an IPAM plugin that gives no address", config: with(service, "ipam", `{"type":"static"}`), differs: "its failed ADD leaves the link"},
		{name: "a gateway out of reach", config: with(service, "ipam", unreachable), says: "172.31.0.1"},
		{name: "a container that has the interface", config: service, says: "eth0", differs: noName,
			prepare: func(_ *lab, web *container) { web.run("ip link add eth0 type bridge") }},
		{name: "a second ADD", config: service, says: "eth0", differs: noName, prepare: func(l *lab, web *container) { l.must(web.add(conf(service))) }},
	} {
		rows = append(rows, row{name: c.name + " is refused, and all is as before", differs: c.differs, test: func(l *lab) {
			web := l.pod("web")
			if c.prepare != nil {
				c.prepare(l, web)
			}
			l.refuses(web, conf(c.config), c.says)
		}})
	}
	return rows
}

// dummyChecks attach a container, do it harm, and have CHECK find that.
func dummyChecks() []row {
	return dummyMain.harmed([]event{
		{name: "the container's interface is no dummy link", says: "eth0", happens: inside("ip link del eth0", "ip link add eth0 type bridge", "ip link set eth0 up")},
		{name: "a route is gone", says: "10.60.0.0", differs: "its CHECK does not look at routes",
			keys: []string{"ipam", with(fixedIPs("10.45.0.2/24 10.45.0.1"), "routes", `[{"dst":"10.60.0.0/16"}]`)}, happens: inside("ip route del 10.60.0.0/16")},
	})
}

var dummyOthers = []row{
	{name: "DEL without the namespace's path and without a result releases the addresses", test: func(l *lab) {
		l.now().unchangedBy(l.attach(conf(service), "web").delBare())
	}},
	{name: "DEL without ipam, which ADD had, removes the link", differs: "its DEL fails without ipam", test: func(l *lab) {
		c := l.attach(conf(service), "web")
		c.network = conf(`{"type":"dummy"}`)
		l.must(c.del())
		l.gone(&c.Namespace, "eth0")
	}},
	{name: "GC releases the addresses of all that are not valid", differs: noGC, test: func(l *lab) {
		kept, gone := l.attach(conf(service), "kept"), l.attach(conf(service), "gone")
		gone.Delete(l)
		l.must(l.gc(conf(service), kept))
		l.same(len(l.files("/var/lib/cni/networks/lan/10.45.0.*")), 1)
		l.must(kept.check())
	}},
	{name: "STATUS is that of the IPAM plugin", test: func(l *lab) {
		l.must(l.status(conf(service)))
		l.refused(l.status(conf(with(service, "ipam", `{"type":"frobnicate"}`))), "frobnicate")
	}},
}
