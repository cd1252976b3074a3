package conformance

// blindToHost is why the reference does not find harm on the host.
const blindToHost = "its CHECK does not look at the host's side"

// ptpChecks attach a container, do it harm, and have CHECK find that, or not if it is none.
func ptpChecks() (rows []row) {
	for _, c := range []struct {
		name, differs, says string
		backends            bool
		harm                func(l *lab, c *container)
	}{
		{name: "the container's IPv4 address is gone", says: "10.44.0.2", harm: inside("ip address del 10.44.0.2/24 dev eth0")},
		{name: "the container's IPv6 address is gone", says: "fd00:44::2", harm: inside("ip address del fd00:44::2/64 dev eth0")},
		{name: "the container's IPv4 default route is gone", says: "0.0.0.0", harm: inside("ip route del default")},
		{name: "the container's IPv6 default route is gone", says: "::", harm: inside("ip -6 route del default")},
		{name: "the container's IPv4 route to the gateway is gone", says: "10.44.0.1", differs: "its CHECK does not look at the route to the gateway",
			harm: inside("ip route del 10.44.0.1")},
		{name: "the container's IPv6 route to the gateway is gone", says: "fd00:44::1", differs: "its CHECK does not look at the route to the gateway",
			harm: inside("ip -6 route del fd00:44::1")},
		{name: "the container's IPv4 route to the gateway leads out by another interface", says: "10.44.0.1", differs: "its CHECK does not look at the route to the gateway",
			harm: inside("ip link add other0 up type bridge", "ip route del 10.44.0.1", "ip route add 10.44.0.1 dev other0 scope link")},
		{name: "the container's IPv6 route to the gateway leads out by another interface", says: "fd00:44::1", differs: "its CHECK does not look at the route to the gateway",
			harm: inside("ip link add other0 up type bridge", "ip -6 route del fd00:44::1", "ip -6 route add fd00:44::1 dev other0")},
		{name: "the route to the container's own IPv4 subnet is gone", harm: inside("ip route del 10.44.0.0/24")},
		{name: "the route to the container's own IPv6 subnet is gone", harm: inside("ip -6 route del fd00:44::/64")},
		{name: "the container's interface has another MAC address", says: "02:66:66:66:66:66", harm: inside("ip link set eth0 address 02:66:66:66:66:66")},
		{name: "the container's interface is down", harm: inside("ip link set eth0 down")},
		{name: "the container's interface is gone", says: "eth0", harm: inside("ip link del eth0")},
		{name: "the container's interface is another veth", differs: blindToHost, harm: func(_ *lab, c *container) {
			mac := c.result.Interfaces[1].Mac
			for _, command := range []string{"link del eth0", "link add p0 type veth peer name eth0 address " + mac, "address add 10.44.0.2/24 dev eth0",
				"address add fd00:44::2/64 dev eth0 nodad", "link set p0 up", "link set eth0 up", "route add 10.44.0.1 dev eth0",
				"route add default via 10.44.0.1", "-6 route add fd00:44::1 dev eth0", "-6 route add default via fd00:44::1"} {
				c.run("ip " + command)
			}
		}},
		{name: "the host end lacks the IPv4 gateway's address", says: "10.44.0.1", differs: blindToHost, harm: onHost("ip address del 10.44.0.1/32 dev END")},
		{name: "the host end lacks the IPv6 gateway's address", says: "fd00:44::1", differs: blindToHost, harm: onHost("ip address del fd00:44::1/128 dev END")},
		{name: "the host has no route to the IPv4 address", says: "10.44.0.2", differs: blindToHost, harm: onHost("ip route del 10.44.0.2 dev END")},
		{name: "the host has no route to the IPv6 address", says: "fd00:44::2", differs: blindToHost, harm: onHost("ip -6 route del fd00:44::2 dev END")},
		{name: "the host routes the address elsewhere", says: "10.44.0.2", differs: blindToHost, harm: func(l *lab, _ *container) {
			l.run("ip link add other0 up type bridge")
			l.run("ip route replace 10.44.0.2 dev other0 scope host")
		}},
		{name: "the host end is down", differs: blindToHost, harm: onHost("ip link set END down")},
		{name: "the host end has another MAC address", differs: blindToHost, harm: onHost("ip link set END address 02:66:66:66:66:66")},
		{name: "all rules of the masquerade are flushed", differs: blindToMasquerade, backends: true, harm: onHost("nft flush ruleset")},
		{name: "the container's lease is gone", harm: onHost("rm -r /var/lib/cni/networks/lan")},
	} {
		rows = append(rows, row{name: "CHECK fails when " + c.name, differs: c.differs, backends: c.backends, test: func(l *lab) {
			web := l.attach(l.ptp(), "web")
			l.must(web.check())
			c.harm(l, web)
			l.refused(web.check(), c.says)
		}})
	}
	for _, c := range []struct {
		name, differs string
		keys          []string
		change        func(l *lab, c *container)
	}{
		{name: "nothing has changed"},
		{name: "the container has more addresses and routes", change: inside("ip address add 10.46.0.77/24 dev eth0", "ip route add 10.60.0.0/16 via 10.44.0.1")},
		{name: "other containers have come and gone", change: func(l *lab, _ *container) {
			l.attach(conf(ptp), "other")
			l.must(l.attach(conf(ptp), "gone").del())
		}},
		{name: "the mtu has changed", change: inside("ip link set eth0 mtu 1400")},
		{name: "a later plugin has moved the routes to a table of its own", differs: "its CHECK looks into the main table only",
			change: inside("ip route del default", "ip route del 10.44.0.0/24", "ip route del 10.44.0.1", "ip route add 10.44.0.1 dev eth0 scope link table 100",
				"ip route add 10.44.0.0/24 via 10.44.0.1 dev eth0 table 100 onlink", "ip route add default via 10.44.0.1 dev eth0 table 100 onlink")},
		{name: "the default route is in a table of its own", differs: "its CHECK looks into the main table only",
			keys: []string{"ipam", with(fixedIPs(ptpIPv4Address), "routes", `[{"dst":"10.50.0.0/16","table":300}]`)}},
	} {
		rows = append(rows, row{name: "CHECK succeeds, and changes nothing, when " + c.name, differs: c.differs, test: func(l *lab) {
			web := l.attach(l.ptp(c.keys...), "web")
			if c.change != nil {
				c.change(l, web)
			}
			before := l.now(web)
			l.must(web.check())
			before.unchanged()
		}})
	}
	return append(rows, row{name: "CHECK without a result is refused", test: func(l *lab) {
		_, err := l.exec("CHECK", l.attach(conf(ptp), "web"), barePtp)
		l.refused(err, "prevResult")
	}})
}

var ptpStatus = []row{
	{name: "STATUS of a network is good, before and after ADD, and changes nothing", test: func(l *lab) {
		before := l.now()
		l.must(l.status(conf(ptp)))
		before.unchanged()
		l.attach(conf(ptp), "web")
		l.must(l.status(conf(ptp)))
	}},
	{name: "STATUS fails with a configuration that ADD refuses", differs: "its STATUS does not look at the keys", test: func(l *lab) {
		l.refused(l.status(conf(with(ptp, "ipMasqBackend", `"frobnicate"`))), "frobnicate")
	}},
	{name: "STATUS fails without ipam", test: func(l *lab) {
		l.refused(l.status(conf(with(ptp, "ipam", "{}"))))
	}},
	{name: "STATUS fails without the IPAM plugin", test: func(l *lab) {
		l.refused(l.status(conf(with(ptp, "ipam", `{"type":"frobnicate"}`))), "frobnicate")
	}},
	{name: "STATUS fails when the IPAM plugin is not ready", differs: "its IPAM plugins have no STATUS", test: func(l *lab) {
		l.write("/var/lib/cni/networks", "no directory")
		l.refused(l.status(conf(ptp)), "/var/lib/cni/networks")
	}},
}
