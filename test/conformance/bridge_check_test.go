package conformance

import (
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// blindToPort is why the reference does not find harm.
const blindToPort = "its CHECK does not look at the port's settings"

// addressedAgain are commands of ip that give eth0 what ADD gave it.
const addressedAgain = "address add 10.44.0.2/24 dev eth0\naddress add fd00:44::2/64 dev eth0 nodad\nlink set eth0 up\n" +
	"route add default via 10.44.0.1\nroute add default via fd00:44::1\n"

// bridgeChecks attach a container, do it harm, and have CHECK find that, or not if it is none.
func bridgeChecks() (rows []row) {
	const otherRoute = `{"type":"static","addresses":[{"address":"10.44.0.2/24","gateway":"10.44.0.1"}],"routes":[{"dst":"10.50.0.0/16"},{"dst":"10.51.0.0/16","gw":"10.44.0.8"}]}`
	rows = bridgeMain.harmed([]event{
		{name: "the container's IPv4 address has another prefix length", happens: inside("ip address add 10.44.0.2/25 dev eth0", "ip address del 10.44.0.2/24 dev eth0",
			"ip route replace default via 10.44.0.1", "ip route add 10.44.0.0/24 dev eth0")},
		{name: "another route is gone", says: "10.51.0.0", keys: []string{"ipam", otherRoute}, happens: inside("ip route del 10.51.0.0/16")},
		{name: "a route with a gateway has another one", says: "10.51.0.0", keys: []string{"ipam", otherRoute},
			happens: inside("ip route replace 10.51.0.0/16 via 10.44.0.9")},
		{name: "a route without a gateway has another one than it was given", says: "10.50.0.0", keys: []string{"ipam", otherRoute},
			differs: "its CHECK does not compare the gateway of a route that names none", happens: inside("ip route replace 10.50.0.0/16 via 10.44.0.9")},
		{name: "the container's interface is no veth", says: "eth0", happens: func(l *lab, c *container) {
			mac := c.result.Interfaces[2].Mac
			c.batch("link del eth0\nlink add eth0 address " + mac + " type bridge\n" + addressedAgain)
		}},
		{name: "the container's interface does not lead to the host", happens: func(l *lab, c *container) {
			mac := c.result.Interfaces[2].Mac
			c.batch("link del eth0\nlink add eth0 address " + mac + " type veth peer name p0\nlink set p0 up\n" + addressedAgain)
		}},
		{name: "the host end has another MAC address", happens: onHost("ip link set END address 02:66:66:66:66:66")},
		{name: "the host end is in no bridge", happens: onHost("ip link set END nomaster")},
		{name: "the host end is in another bridge", happens: func(l *lab, c *container) {
			l.run("ip link add other0 type bridge", "ip link set "+c.hostEnd()+" master other0")
		}},
		{name: "the host end has another name", happens: func(l *lab, c *container) {
			end := c.hostEnd()
			l.run("ip link set "+end+" down", "ip link set "+end+" name other0 up")
		}},
		{name: "the host end has a smaller MTU", differs: "its CHECK does not compare the MTU", happens: onHost("ip link set END mtu 1000")},
		{name: "the bridge has another name", says: "lan0", happens: onHost("ip link set lan0 down", "ip link set lan0 name other0 up")},
		{name: "the bridge is gone", says: "lan0", happens: onHost("ip link del lan0")},
		{name: "another kind of link has the bridge's name", says: "lan0", happens: func(l *lab, _ *container) {
			l.run("ip link del lan0", "ip link add lan0 type veth peer name other0")
		}},
		{name: "promiscMode is off", says: "lan0", keys: []string{"promiscMode", "true"}, happens: onHost("ip link set lan0 promisc off")},
		{name: "hairpinMode is off", differs: blindToPort, keys: []string{"hairpinMode", "true"}, happens: onHost("bridge link set dev END hairpin off")},
		{name: "hairpinMode is on, and not configured", differs: blindToPort, happens: onHost("bridge link set dev END hairpin on")},
		{name: "portIsolation is off", differs: blindToPort, keys: []string{"portIsolation", "true"}, happens: onHost("bridge link set dev END isolated off")},
		{name: "all rules of the masquerade are flushed", differs: blindToMasquerade, backends: true, happens: func(l *lab, _ *container) { l.flushRules() }},
		{name: "the chains of the masquerade are empty", differs: blindToMasquerade, backends: true, happens: func(l *lab, _ *container) {
			netlab.Need(l, netlab.NFTables)
			l.emptyChains()
		}},
		{name: "the rules of the spoof check are flushed", differs: "its CHECK does not look at the spoof check",
			keys: []string{"macspoofchk", "true", "ipMasq", "false"}, happens: onHost("nft flush ruleset")},
		{name: "the chains of the spoof check are empty", differs: "its CHECK does not look at the spoof check",
			keys: []string{"macspoofchk", "true", "ipMasq", "false"}, happens: func(l *lab, _ *container) { l.emptyChains() }},
	})
	return append(rows, bridgeMain.unharmed([]event{
		{name: "nothing has changed", keys: []string{"promiscMode", "true", "macspoofchk", "true", "portIsolation", "true"}},
		{name: "the host has more links, addresses and rules", happens: onHost("ip link add other0 type bridge", "ip address add 10.9.9.1/24 dev lan0",
			"ip address add 10.9.8.1/24 dev other0", "nft add table bridge another", "iptables -t nat -A POSTROUTING -s 198.51.100.1 -j ACCEPT")},
		{name: "sysfs is that of another network namespace", keys: []string{"hairpinMode", "true", "portIsolation", "true"},
			happens: onHost("unshare -n mount -t sysfs another /sys")},
		{name: "the bridge has another MAC address", choice: true, differs: "its CHECK compares the bridge's MAC address, which changes with the ports unless the bridge is a gateway",
			happens: onHost("ip link set lan0 address 02:66:66:66:66:66")},
		{name: "there is no ipam", differs: "its CHECK calls an IPAM plugin though there is none", keys: []string{"ipam", "{}"}},
	})...)
}

var bridgeMoreChecks = []row{
	{name: "CHECK that fails changes nothing", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		c.run("ip address del 10.44.0.2/24 dev eth0")
		l.run("ip link set " + c.hostEnd() + " nomaster")
		l.now(c).refused(c.check())
	}},
	{name: "CHECK succeeds by another path of the namespace", differs: "it compares the texts of the paths", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		l.must(l.verb("CHECK", c, with(lan, "prevResult", strings.ReplaceAll(c.printed, c.Path(), "/var"+c.Path()))))
	}},
	{name: "CHECK succeeds after another container of the network is gone", backends: true, test: func(l *lab) {
		a, b := l.attach(l.lan(), "a"), l.attach(l.lan(), "b")
		l.must(a.del(), b.check())
	}},
	{name: "CHECK with another's result is refused", test: func(l *lab) {
		a, b := l.attach(conf(lan), "a"), l.attach(conf(lan), "b")
		l.refused(l.verb("CHECK", a, with(bare, "prevResult", b.printed)))
	}},
	{name: "CHECK of a container that is detached is refused", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		printed := c.printed
		l.must(c.del())
		l.refused(l.verb("CHECK", c, with(bare, "prevResult", printed)))
	}},
}

var bridgeStatus = []row{
	{name: "STATUS of a network that nothing is attached to yet is good, and changes nothing", test: func(l *lab) {
		l.now().unchangedBy(l.status(conf(lan)), l.status(conf(with(layer2, "macspoofchk", "true"))))
	}},
	{name: "STATUS of a network in use is good", test: func(l *lab) {
		l.attach(conf(lan), "web")
		l.must(l.status(conf(lan)))
	}},
	{name: "STATUS fails when a link that is no bridge has the bridge's name", differs: "its STATUS does not look at the bridge", test: func(l *lab) {
		l.run("ip link add lan0 type veth peer name other0")
		l.code(l.status(conf(lan)), 50, "lan0")
	}},
	{name: "STATUS fails with a configuration that ADD refuses", differs: "its STATUS does not look at the keys together", test: func(l *lab) {
		l.refused(l.status(conf(with(lan, "hairpinMode", "true", "promiscMode", "true"))))
	}},
}
