package conformance

// lan is a dual-stack bridge that is the containers' gateway.
const lan = `{"type":"bridge","bridge":"lan0","isDefaultGateway":true,"ipMasq":true,"capabilities":{"mac":true,"ips":true},
	"ipam":{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24"}],[{"subnet":"fd00:44::/64"}]]}}`

var bridgeRows = group{name: "bridge", rows: []row{
	{name: "the result, to the byte", test: func(l *lab) {
		c := l.attach(conf(lan), "web", capability("mac", `"02:AA:00:00:00:01"`))
		l.printed(c.printed, `{"cniVersion":"1.0.0",
			"interfaces":[{"name":"lan0","mac":"MAC"},{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"02:aa:00:00:00:01","sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.44.0.2/24","gateway":"10.44.0.1","interface":2},{"address":"fd00:44::2/64","gateway":"fd00:44::1","interface":2}],
			"routes":[{"dst":"0.0.0.0/0","gw":"10.44.0.1"},{"dst":"::/0","gw":"fd00:44::1"}]}`)
	}},
	{name: "hairpinMode sets the port to hairpin", test: func(l *lab) {
		c := l.attach(conf(with(lan, "hairpinMode", "true")), "web")
		l.has(&l.host.Namespace, c.hostEnd(), "hairpin", true)
	}},
	{name: "mtu holds for both ends, and for a bridge that is made", test: func(l *lab) {
		c := l.attach(conf(with(lan, "mtu", "1400")), "web")
		l.has(&c.Namespace, "eth0", "mtu", 1400)
		l.has(&l.host.Namespace, c.hostEnd(), "mtu", 1400)
		l.has(&l.host.Namespace, "lan0", "mtu", 1400)
	}},
	{name: "DEL leaves nothing", test: func(l *lab) {
		l.warm(conf(lan))
		before := l.now()
		c := l.attach(conf(lan), "web")
		l.must(c.del())
		c.Delete(l)
		before.unchanged()
	}},
	{name: "DEL with the namespace gone leaves nothing", differs: "its DEL removes no masquerading once the namespace is gone", test: func(l *lab) {
		l.warm(conf(lan))
		before := l.now()
		c := l.attach(conf(lan), "web")
		c.Delete(l)
		l.must(c.del())
		before.unchanged()
	}},
	{name: "a bridge with another network's address is refused", test: func(l *lab) {
		l.run("ip link add lan0 type bridge")
		l.run("ip address add 10.9.9.1/24 dev lan0")
		c := l.pod("web")
		l.refused(c.add(conf(lan)), "lan0")
	}},
}}
