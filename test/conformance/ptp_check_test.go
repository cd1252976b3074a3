package conformance

// blindToHost is why the reference does not find harm on the host.
const blindToHost = "its CHECK does not look at the host's side"

// ptpChecks attach a container, do it harm, and have CHECK find that, or not if it is none.
func ptpChecks() (rows []row) {
	rows = ptpMain.harmed([]event{
		{name: "the container's IPv4 route to the gateway is gone", says: "10.44.0.1", differs: "its CHECK does not look at the route to the gateway",
			happens: inside("ip route del 10.44.0.1")},
		{name: "the container's IPv6 route to the gateway is gone", says: "fd00:44::1", differs: "its CHECK does not look at the route to the gateway",
			happens: inside("ip -6 route del fd00:44::1")},
		{name: "the container's IPv4 route to the gateway leads out by another interface", says: "10.44.0.1", differs: "its CHECK does not look at the route to the gateway",
			happens: inside("ip link add other0 up type bridge", "ip route del 10.44.0.1", "ip route add 10.44.0.1 dev other0 scope link")},
		{name: "the container's IPv6 route to the gateway leads out by another interface", says: "fd00:44::1", differs: "its CHECK does not look at the route to the gateway",
			happens: inside("ip link add other0 up type bridge", "ip -6 route del fd00:44::1", "ip -6 route add fd00:44::1 dev other0")},
		{name: "the route to the container's own IPv4 subnet is gone", happens: inside("ip route del 10.44.0.0/24")},
		{name: "the route to the container's own IPv6 subnet is gone", happens: inside("ip -6 route del fd00:44::/64")},
		{name: "the container's interface is another veth", differs: blindToHost, happens: func(_ *lab, c *container) {
			mac := c.result.Interfaces[1].Mac
			c.batch("link del eth0\nlink add p0 type veth peer name eth0 address " + mac + "\nlink set p0 up\nlink set eth0 up\n" +
				"route add 10.44.0.1 dev eth0\n-6 route add fd00:44::1 dev eth0\n" + addressedAgain)
		}},
		{name: "the host end lacks the IPv4 gateway's address", says: "10.44.0.1", differs: blindToHost, happens: onHost("ip address del 10.44.0.1/32 dev END")},
		{name: "the host end lacks the IPv6 gateway's address", says: "fd00:44::1", differs: blindToHost, happens: onHost("ip address del fd00:44::1/128 dev END")},
		{name: "the host has no route to the IPv4 address", says: "10.44.0.2", differs: blindToHost, happens: onHost("ip route del 10.44.0.2 dev END")},
		{name: "the host has no route to the IPv6 address", says: "fd00:44::2", differs: blindToHost, happens: onHost("ip -6 route del fd00:44::2 dev END")},
		{name: "the host routes the address elsewhere", says: "10.44.0.2", differs: blindToHost, happens: func(l *lab, _ *container) {
			l.run("ip link add other0 up type bridge", "ip route replace 10.44.0.2 dev other0 scope host")
		}},
		{name: "the host end is down", differs: blindToHost, happens: onHost("ip link set END down")},
		{name: "the host end has another MAC address", differs: blindToHost, happens: onHost("ip link set END address 02:66:66:66:66:66")},
		{name: "all rules of the masquerade are flushed", differs: blindToMasquerade, backends: true, happens: func(l *lab, _ *container) { l.flushRules() }},
	})
	return append(rows, ptpMain.unharmed([]event{
		{name: "nothing has changed"},
		{name: "a later plugin has moved the routes to a table of its own", differs: onlyMainTable,
			happens: inside("ip route del default", "ip route del 10.44.0.0/24", "ip route del 10.44.0.1", "ip route add 10.44.0.1 dev eth0 scope link table 100",
				"ip route add 10.44.0.0/24 via 10.44.0.1 dev eth0 table 100 onlink", "ip route add default via 10.44.0.1 dev eth0 table 100 onlink")},
		{name: "the default route is in a table of its own", differs: onlyMainTable,
			keys: []string{"ipam", with(fixedIPs(ptpIPv4Address), "routes", `[{"dst":"10.50.0.0/16","table":300}]`)}},
	})...)
}

var ptpStatus = []row{
	{name: "STATUS of a network is good, before and after ADD, and changes nothing", test: func(l *lab) {
		l.now().unchangedBy(l.status(conf(ptp)))
		l.attach(conf(ptp), "web")
		l.must(l.status(conf(ptp)))
	}},
	{name: "STATUS fails with a configuration that ADD refuses", differs: "its STATUS does not look at the keys", test: func(l *lab) {
		l.refused(l.status(conf(with(ptp, "ipMasqBackend", `"frobnicate"`))), "frobnicate")
	}},
	{name: "STATUS fails without ipam", test: func(l *lab) { l.refused(l.status(conf(with(ptp, "ipam", "{}")))) }},
}
