package conformance

import "github.com/cnibox/cnibox/test/netlab"

// fixed is the plugin's network with these addresses, each followed by its gateway, and default routes.
func (p mainPlugin) fixed(l *lab, ips ...string) network {
	if p.kind == "ptp" {
		return l.fixedPtp(ips...)
	}
	return l.fixedLan(ips...)
}

// twoGateways are an address of each family, with its gateway.
var twoGateways = []string{"10.44.0.2/24 10.44.0.1", "fd00:44::2/64 fd00:44::1"}

// asReference attaches a container as the reference plugin does: a veth pair whose host end vethabcdef01, with index 4242, is known by
// nothing but where it leads.
func (p mainPlugin) asReference(l *lab, c *container, address string) {
	if p.kind == "ptp" {
		l.asReferencePtp(c, address)
	} else {
		l.asReference(c, "vethabcdef01", address+"/24")
	}
}

// veths are rows that plugins share whose containers reach the host by a veth pair: bridge and ptp.
func (p mainPlugin) veths() []row {
	const oneChain = "both interfaces have one chain of iptables, which the first DEL empties"
	return []row{
		{name: "containers that come at the same time on a new node all get in", test: func(l *lab) { l.allGetIn(p.network(l)) }},
		{name: "the host end has no queue, the container's end has", test: func(l *lab) {
			c := l.attach(p.network(l), "web")
			l.same(l.attributes(&l.host.Namespace, c.hostEnd()).TxQLen, 0)
			l.same(l.attributes(&c.Namespace, "eth0").TxQLen, 1000)
		}},
		{name: "a container has an interface on each of two networks", test: func(l *lab) {
			c := l.attach(p.network(l), "web")
			net1 := c.another()
			l.must(net1.add(p.network(l, "bridge", `"back0"`, "isDefaultGateway", "false", "isGateway", "true",
				"ipam", fixedIPs("10.55.0.2/24 10.55.0.1")).called("back"), ifname("net1")))
			c.pings("10.44.0.1", "fd00:44::1", "10.55.0.1")
			l.must(net1.del())
			c.pings("10.44.0.1", "fd00:44::1")
		}},
		{name: "enabledad has ADD wait until addresses are probed", test: func(l *lab) {
			c := l.attach(p.network(l, "enabledad", "true"), "web")
			l.same(l.probed(&c.Namespace, "eth0"), "")
			l.same(c.sysctl("ipv6/conf/eth0/accept_dad")+c.sysctl("ipv6/conf/eth0/enhanced_dad"), "11")
			c.pings("fd00:44::1")
		}},
		{name: "IPv6 is switched on where the runtime switched it off", test: func(l *lab) {
			c := l.pod("web")
			c.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
			l.must(c.add(p.network(l)))
			c.SetLoopbackUp(l)
			c.hasAddresses("10.44.0.2/24", "fd00:44::2/64")
			c.pings("fd00:44::1", "fd00:44::2", "::1")
		}},
		{name: "ipMasq hides a container behind the host", backends: true, test: func(l *lab) {
			l.served()
			l.seenAs(l.attach(p.network(l), "web"), netlab.HostIPv4, netlab.HostIPv6)
		}},
		{name: "ipMasq is off unless it is set", test: func(l *lab) {
			l.served()
			config := object(p.fixed(l, twoGateways...).plugins[0])
			delete(config, "ipMasq")
			c := l.attach(conf(text(config)), "web")
			l.seenAs(c, c.v4, c.v6)
		}},
		{name: "after DEL the address is not masqueraded any more", backends: true, test: func(l *lab) {
			l.served()
			n := p.fixed(l, twoGateways...)
			l.must(l.attach(n, "web").del())
			next := l.attach(conf(with(n.plugins[0], "ipMasq", "false")), "next")
			l.seenAs(next, next.v4, next.v6)
		}},
		{name: "DEL of one interface leaves another on the same network", backends: true, differs: oneChain, test: func(l *lab) {
			l.serve(&l.outside().Namespace, 80)
			c := l.attach(p.network(l, "isDefaultGateway", "false", "isGateway", "true", "ipam", fixedIPs(twoGateways[0])), "web")
			net1 := c.another()
			other := map[string]string{"bridge": "10.44.0.77/24 10.44.0.1", "ptp": "10.45.0.77/24 10.45.0.1"}[p.kind]
			l.must(net1.add(p.fixed(l, other), ifname("net1")), c.del())
			l.answers(tcp(&c.Namespace, netlab.OutsideIPv4, 80), "outside saw "+netlab.HostIPv4)
			l.must(net1.check())
		}},
		{name: "DEL removes a veth pair that the reference plugin made", test: func(l *lab) {
			c := l.pod("web")
			p.asReference(l, c, "10.44.0.2")
			c.network = p.network(l)
			l.must(c.del())
			l.gone(&l.host.Namespace, "vethabcdef01")
		}},
		{name: "DEL leaves a veth pair of another container, whatever its own container says of its interface", test: func(l *lab) {
			evil, victim := l.attach(p.network(l), "evil"), l.pod("victim")
			p.asReference(l, victim, "10.44.0.77")
			victim.pings("10.44.0.1")
			evil.run("ip link del eth0", "ip link add p0 index 4242 type veth peer name eth0")
			l.must(evil.del())
			victim.pings("10.44.0.1")
		}},
		{name: "DEL leaves a veth pair of another network of its container, whatever the container says of its interface", test: func(l *lab) {
			c := l.pod("web")
			p.asReference(l, c, "10.44.0.77")
			c.run("ip link set eth0 down", "ip link set eth0 name net1", "ip link add p0 index 4242 type veth peer name eth0")
			c.network = p.network(l)
			l.must(c.del())
			l.has(&l.host.Namespace, "vethabcdef01", "ifname", "vethabcdef01")
		}},
	}
}
