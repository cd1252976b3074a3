package conformance

import "strings"

// Why the reference does not find harm.
const (
	blindToMasquerade = "its CHECK does not look at the masquerade"
	blindToPort       = "its CHECK does not look at the port's settings"
)

// onHost runs a command on the node, in which END stands for the container's host end, and inside runs some in the container.
func onHost(command string) func(*lab, *container) {
	return func(l *lab, c *container) {
		harm := command
		if strings.Contains(command, "END") {
			harm = strings.ReplaceAll(command, "END", c.hostEnd())
		}
		l.run(harm)
	}
}

func inside(commands ...string) func(*lab, *container) {
	return func(_ *lab, c *container) {
		for _, command := range commands {
			c.run(command)
		}
	}
}

// bridgeChecks attach a container, do it harm, and have CHECK find that, or not if it is none.
func bridgeChecks() (rows []row) {
	const otherRoute = `{"type":"static","addresses":[{"address":"10.44.0.2/24","gateway":"10.44.0.1"}],"routes":[{"dst":"10.50.0.0/16"},{"dst":"10.51.0.0/16","gw":"10.44.0.8"}]}`
	for _, c := range []struct {
		name, differs, says string
		keys                []string // of bridge
		backends            bool
		harm                func(l *lab, c *container)
	}{
		{name: "the container's IPv4 address is gone", says: "10.44.0.2", harm: inside("ip address del 10.44.0.2/24 dev eth0")},
		{name: "the container's IPv6 address is gone", says: "fd00:44::2", harm: inside("ip address del fd00:44::2/64 dev eth0")},
		{name: "the container's IPv4 address has another prefix length", harm: inside("ip address add 10.44.0.2/25 dev eth0", "ip address del 10.44.0.2/24 dev eth0",
			"ip route replace default via 10.44.0.1", "ip route add 10.44.0.0/24 dev eth0")},
		{name: "the container's IPv4 default route is gone", says: "10.44.0.1", harm: inside("ip route del default")},
		{name: "the container's IPv6 default route is gone", says: "fd00:44::1", harm: inside("ip -6 route del default")},
		{name: "the container's default route has another gateway", says: "0.0.0.0/0", differs: "its CHECK does not compare the gateway of a default route",
			harm: inside("ip route replace default via 10.44.0.9")},
		{name: "another route is gone", says: "10.51.0.0", keys: []string{"ipam", otherRoute}, harm: inside("ip route del 10.51.0.0/16")},
		{name: "a route with a gateway has another one", says: "10.51.0.0", keys: []string{"ipam", otherRoute},
			harm: inside("ip route replace 10.51.0.0/16 via 10.44.0.9")},
		{name: "a route without a gateway has another one than it was given", says: "10.50.0.0", keys: []string{"ipam", otherRoute},
			differs: "its CHECK does not compare the gateway of a route that names none", harm: inside("ip route replace 10.50.0.0/16 via 10.44.0.9")},
		{name: "the route to the container's own subnet is gone", harm: inside("ip route del 10.44.0.0/24")},
		{name: "the container's interface has another MAC address", says: "02:66:66:66:66:66", harm: inside("ip link set eth0 address 02:66:66:66:66:66")},
		{name: "the container's interface is down", harm: inside("ip link set eth0 down")},
		{name: "the container's interface is gone", says: "eth0", harm: inside("ip link del eth0")},
		{name: "the container's interface is no veth", says: "eth0", harm: func(l *lab, c *container) {
			mac := c.result.Interfaces[2].Mac
			for _, command := range []string{"link del eth0", "link add eth0 address " + mac + " type bridge", "address add 10.44.0.2/24 dev eth0",
				"address add fd00:44::2/64 dev eth0 nodad", "link set eth0 up", "route add default via 10.44.0.1", "-6 route add default via fd00:44::1"} {
				c.run("ip " + command)
			}
		}},
		{name: "the container's interface does not lead to the host", harm: func(l *lab, c *container) {
			mac := c.result.Interfaces[2].Mac
			for _, command := range []string{"link del eth0", "link add eth0 address " + mac + " type veth peer name p0", "address add 10.44.0.2/24 dev eth0",
				"address add fd00:44::2/64 dev eth0 nodad", "link set p0 up", "link set eth0 up", "route add default via 10.44.0.1", "-6 route add default via fd00:44::1"} {
				c.run("ip " + command)
			}
		}},
		{name: "the host end has another MAC address", harm: onHost("ip link set END address 02:66:66:66:66:66")},
		{name: "the host end is in no bridge", harm: onHost("ip link set END nomaster")},
		{name: "the host end is in another bridge", harm: func(l *lab, c *container) {
			l.run("ip link add other0 type bridge")
			l.run("ip link set " + c.hostEnd() + " master other0")
		}},
		{name: "the host end has another name", harm: func(l *lab, c *container) {
			end := c.hostEnd()
			l.run("ip link set " + end + " down")
			l.run("ip link set " + end + " name other0 up")
		}},
		{name: "the bridge is gone", says: "lan0", harm: onHost("ip link del lan0")},
		{name: "another kind of link has the bridge's name", says: "lan0", harm: func(l *lab, _ *container) {
			l.run("ip link del lan0")
			l.run("ip link add lan0 type veth peer name other0")
		}},
		{name: "promiscMode is off", says: "lan0", keys: []string{"promiscMode", "true"}, harm: onHost("ip link set lan0 promisc off")},
		{name: "hairpinMode is off", differs: blindToPort, keys: []string{"hairpinMode", "true"}, harm: onHost("bridge link set dev END hairpin off")},
		{name: "hairpinMode is on, and not configured", differs: blindToPort, harm: onHost("bridge link set dev END hairpin on")},
		{name: "portIsolation is off", differs: blindToPort, keys: []string{"portIsolation", "true"}, harm: onHost("bridge link set dev END isolated off")},
		{name: "all rules of the masquerade are flushed", differs: blindToMasquerade, backends: true, harm: onHost("nft flush ruleset")},
		{name: "the chains of the masquerade are empty", differs: blindToMasquerade, backends: true, harm: func(l *lab, _ *container) { l.emptyChains() }},
		{name: "the rules of the spoof check are flushed", differs: "its CHECK does not look at the spoof check",
			keys: []string{"macspoofchk", "true", "ipMasq", "false"}, harm: onHost("nft flush ruleset")},
		{name: "the chains of the spoof check are empty", differs: "its CHECK does not look at the spoof check",
			keys: []string{"macspoofchk", "true", "ipMasq", "false"}, harm: func(l *lab, _ *container) { l.emptyChains() }},
		{name: "the container's lease is gone", harm: onHost("rm -r /var/lib/cni/networks/lan")},
	} {
		rows = append(rows, row{name: "CHECK fails when " + c.name, differs: c.differs, backends: c.backends, test: func(l *lab) {
			web := l.attach(l.lan(c.keys...), "web")
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
		{name: "nothing has changed", keys: []string{"promiscMode", "true", "macspoofchk", "true", "portIsolation", "true"}},
		{name: "the container has more addresses and routes", change: inside("ip address add 10.44.0.77/24 dev eth0", "ip route add 10.60.0.0/16 via 10.44.0.9",
			"ip link add other0 type veth peer name other1")},
		{name: "the host has more links, addresses and rules", change: func(l *lab, c *container) {
			for _, command := range []string{"ip link add other0 type bridge", "ip address add 10.9.9.1/24 dev lan0", "ip address add 10.9.8.1/24 dev other0",
				"nft add table inet another", "iptables -t nat -A POSTROUTING -s 198.51.100.1 -j ACCEPT"} {
				l.run(command)
			}
		}},
		{name: "sysfs is that of another network namespace", keys: []string{"hairpinMode", "true", "portIsolation", "true"},
			change: onHost("unshare -n mount -t sysfs another /sys")},
		{name: "the mtu has changed", change: inside("ip link set eth0 mtu 1400")},
		{name: "other containers have come and gone", change: func(l *lab, _ *container) {
			l.attach(conf(lan), "other")
			l.must(l.attach(conf(lan), "gone").del())
		}},
		{name: "a later plugin has moved the routes to a table of its own", differs: "its CHECK looks into the main table only",
			change: inside("ip route del default", "ip route add default via 10.44.0.1 dev eth0 table 100")},
		{name: "the bridge has another MAC address", differs: "its CHECK compares the bridge's MAC address, which changes with the ports unless the bridge is a gateway",
			change: onHost("ip link set lan0 address 02:66:66:66:66:66")},
		{name: "a route is in a table of its own", differs: "its CHECK looks into the main table only",
			keys: []string{"ipam", `{"type":"static","addresses":[{"address":"10.44.0.2/24"}],"routes":[{"dst":"10.50.0.0/16","table":300}]}`}},
		{name: "there is no ipam", differs: "its CHECK calls an IPAM plugin though there is none", keys: []string{"ipam", "{}"}},
	} {
		rows = append(rows, row{name: "CHECK succeeds, and changes nothing, when " + c.name, choice: c.name == "the bridge has another MAC address",
			differs: c.differs, test: func(l *lab) {
				web := l.attach(l.lan(c.keys...), "web")
				if c.change != nil {
					c.change(l, web)
				}
				before := l.now(web)
				l.must(web.check())
				before.unchanged()
			}})
	}
	return rows
}

var bridgeMoreChecks = []row{
	{name: "CHECK that fails changes nothing", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		c.run("ip address del 10.44.0.2/24 dev eth0")
		l.run("ip link set " + c.hostEnd() + " nomaster")
		before := l.now(c)
		l.refused(c.check())
		before.unchanged()
	}},
	{name: "CHECK succeeds after another container of the network is gone", backends: true, test: func(l *lab) {
		a, b := l.attach(l.lan(), "a"), l.attach(l.lan(), "b")
		l.must(a.del())
		l.must(b.check())
	}},
	{name: "CHECK without a result is refused", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		_, err := l.exec("CHECK", c, bare)
		l.refused(err, "prevResult")
	}},
	{name: "CHECK with another's result is refused", test: func(l *lab) {
		a, b := l.attach(conf(lan), "a"), l.attach(conf(lan), "b")
		_, err := l.exec("CHECK", a, with(bare, "prevResult", b.printed))
		l.refused(err)
	}},
	{name: "CHECK of a container that is detached is refused", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		printed := c.printed
		l.must(c.del())
		_, err := l.exec("CHECK", c, with(bare, "prevResult", printed))
		l.refused(err)
	}},
}

var bridgeStatus = []row{
	{name: "STATUS of a network that nothing is attached to yet is good, and changes nothing", test: func(l *lab) {
		before := l.now()
		l.must(l.status(conf(lan)))
		l.must(l.status(conf(with(layer2, "macspoofchk", "true"))))
		before.unchanged()
	}},
	{name: "STATUS of a network in use is good", test: func(l *lab) {
		l.attach(conf(lan), "web")
		l.must(l.status(conf(lan)))
	}},
	{name: "STATUS fails when a link that is no bridge has the bridge's name", differs: "its STATUS does not look at the bridge", test: func(l *lab) {
		l.run("ip link add lan0 type veth peer name other0")
		err := l.status(conf(lan))
		l.refused(err, "lan0")
		l.code(err, 50)
	}},
	{name: "STATUS fails with a configuration that ADD refuses", differs: "its STATUS does not look at the keys together", test: func(l *lab) {
		l.refused(l.status(conf(with(lan, "hairpinMode", "true", "promiscMode", "true"))))
	}},
	{name: "STATUS fails without the IPAM plugin", test: func(l *lab) {
		l.refused(l.status(conf(with(lan, "ipam", `{"type":"frobnicate"}`))), "frobnicate")
	}},
	{name: "STATUS fails when the IPAM plugin is not ready", differs: "its IPAM plugins have no STATUS", test: func(l *lab) {
		l.write("/var/lib/cni/networks", "no directory")
		l.refused(l.status(conf(lan)), "/var/lib/cni/networks")
	}},
}
