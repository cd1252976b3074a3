package conformance

import (
	"slices"

	"github.com/cnibox/cnibox/test/netlab"
)

var vlanRows = group{name: "vlan", needs: &netlab.VLAN, rows: slices.Concat(onMasterRows("vlan"), vlanOwn)}

var vlanOwn = []row{
	{name: "the container is in the VLAN of that id, with the master's MAC address", test: func(l *lab) {
		n := l.on("vlan")
		l.attach(n, "web").has("id", vlanID, "protocol", "802.1Q", "address", l.link(&l.host.Namespace, netlab.UplinkName)["address"])
	}},
	{name: "containers of different VLANs have nothing to do with each other", test: func(l *lab) {
		n := l.on("vlan", "vlanId", "6", "ipam", fixedIPs("10.46.0.9/24"))
		c := l.attach(n, "web")
		l.serve(&l.out.Namespace, 80)
		l.silent(tcp(&c.Namespace, "10.46.0.1", 80))
	}},
	{name: "vlanId 0 and 4094 are taken", test: func(l *lab) {
		for name, id := range map[string]string{"zero": "0", "last": "4094"} {
			c := l.attach(l.on("vlan", "vlanId", id), name)
			c.has("id", id)
			l.must(c.check(), c.del())
		}
	}},
	noPrevious(func(l *lab) string { return l.on("vlan").plugins[0] }),
	{name: "a vlanId that is none is refused, and changes nothing", test: func(l *lab) {
		l.segment("vlan")
		web := l.pod("web")
		before := l.now(web)
		for _, id := range []string{"-1", "4095", `"5"`} {
			l.refused(web.add(l.on("vlan", "vlanId", id)), "v")
		}
		before.unchanged()
	}},
	{name: "no master is refused, and changes nothing", test: func(l *lab) {
		web := l.pod("web")
		l.refuses(web, l.on("vlan", "master", `""`), "master")
	}},
	{name: "a second container in the same VLAN of a master is refused, and changes nothing", test: func(l *lab) {
		first, second := l.attach(l.on("vlan"), "first"), l.pod("second")
		l.now(first, second).refused(second.add(l.on("vlan")), "vlan")
	}},
	{name: "a master that is down is refused, and changes nothing", differs: leavesLink, test: func(l *lab) {
		n := l.on("vlan", "ipam", fixedIPs("10.46.0.9/24"))
		l.run("ip link set " + netlab.UplinkName + " down")
		web := l.pod("web")
		l.refuses(web, n, "down")
	}},
	{name: "CHECK fails when the link is in another VLAN", test: func(l *lab) {
		c := l.attach(l.on("vlan", "ipam", fixedIPs("10.46.0.9/24")), "web")
		l.must(c.check())
		c.network = l.on("vlan", "ipam", fixedIPs("10.46.0.9/24"), "vlanId", "6")
		l.refused(c.check())
	}},
	{name: "CHECK fails when the MTU is another than is configured", test: func(l *lab) {
		c := l.attach(l.on("vlan", "mtu", "1400"), "web")
		c.run("ip link set eth0 mtu 1300")
		l.refused(c.check(), "1300")
	}},
}
