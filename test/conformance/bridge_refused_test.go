package conformance

// bridgeRefusals is what ADD refuses before it does anything.
func bridgeRefusals() (rows []row) {
	for _, c := range []struct {
		name, config, says, differs string
	}{
		{name: "hairpinMode with promiscMode", config: with(lan, "hairpinMode", "true", "promiscMode", "true")},
		{name: "disableContainerInterface with ipam", config: with(lan, "disableContainerInterface", "true")},
		{name: "an mtu below 68", config: with(lan, "mtu", "67")},
		{name: "an mtu above 65535", config: with(lan, "mtu", "65536")},
		{name: "an mtu that is no number", config: with(lan, "mtu", `"1400"`), says: "mtu"},
		{name: "an isGateway that is no boolean", config: with(lan, "isGateway", `"yes"`), says: "isGateway"},
		{name: "a bridge's name of 16 characters", config: with(lan, "bridge", `"lan0123456789012"`), says: "lan0123456789012"},
		{name: "a slash in a bridge's name", config: with(lan, "bridge", `"lan/0"`), says: "lan/0"},
		{name: "an IPAM plugin that is not there", config: with(lan, "ipam", `{"type":"frobnicate"}`), says: "frobnicate", differs: noRollback},
		{name: "a backend of masquerading that nobody has", config: with(lan, "ipMasqBackend", `"frobnicate"`), says: "frobnicate", differs: noRollback},
		{name: "a vlan above 4094", config: with(lan, "vlan", "4095")},
		{name: "a vlan below 0", config: with(lan, "vlan", "-1"), says: "must be between 0 and 4094"},
		{name: "a vlanTrunk with an id of 0", config: with(lan, "vlanTrunk", `[{"id":0}]`), says: "incorrect trunk id parameter"},
		{name: "a vlanTrunk with an id above 4094", config: with(lan, "vlanTrunk", `[{"id":4095}]`), says: "incorrect trunk id parameter"},
		{name: "a vlanTrunk with a minID of 0", config: with(lan, "vlanTrunk", `[{"minID":0,"maxID":5}]`), says: "incorrect trunk minID parameter"},
		{name: "a vlanTrunk with a maxID above 4094", config: with(lan, "vlanTrunk", `[{"minID":5,"maxID":4095}]`), says: "incorrect trunk maxID parameter"},
		{name: "a vlanTrunk with a minID above its maxID", config: with(lan, "vlanTrunk", `[{"minID":6,"maxID":5}]`), says: "minID is greater than maxID in trunk parameter"},
		{name: "a vlanTrunk without a minID", config: with(lan, "vlanTrunk", `[{"id":7},{"maxID":5}]`),
			says: "minID and maxID should be configured simultaneously, minID is missing"},
		{name: "a vlanTrunk without a maxID", config: with(lan, "vlanTrunk", `[{"id":7,"minID":5}]`),
			says: "minID and maxID should be configured simultaneously, maxID is missing"},
		{name: "a vlanTrunk that is no list", config: with(lan, "vlanTrunk", `{"id":7}`), says: "vlanTrunk"},
		{name: "a name that is too long for the VLAN's gateway", config: with(lan, "bridge", `"lan-12-letters"`, "vlan", "4000"), says: "lan-12-letters.4000", differs: noRollback},
		{name: "a MAC address that is none", config: with(lan, "args", `{"cni":{"mac":"02:00:00"}}`), says: "02:00:00"},
		{name: "a multicast MAC address", config: with(lan, "args", `{"cni":{"mac":"03:00:00:00:00:01"}}`)},
		{name: "the MAC address 00:00:00:00:00:00", config: with(lan, "args", `{"cni":{"mac":"00:00:00:00:00:00"}}`)},
	} {
		rows = append(rows, row{name: c.name + " is refused, and changes nothing", differs: c.differs, test: func(l *lab) {
			l.warm(conf(lan))
			web := l.pod("web")
			l.refuses(web, conf(c.config), c.says)
		}})
	}
	return append(rows,
		row{name: "a pattern for the bridge's name is refused, and changes nothing", differs: "br%d makes br0, and fails", test: func(l *lab) {
			l.warm(conf(lan))
			web := l.pod("web")
			l.refuses(web, conf(with(lan, "bridge", `"br%d"`)), "br%d")
		}},
		row{name: "a link that is no bridge is refused, and stays as it is", test: func(l *lab) {
			l.run("ip link add lan0 type veth peer name other0")
			web := l.pod("web")
			l.refuses(web, conf(lan), "lan0")
		}},
		row{name: "an argument of CNI_ARGS that nobody knows is refused", test: func(l *lab) {
			l.refused(l.pod("web").add(conf(layer2), args("COLOUR=green")), "COLOUR")
		}},
		row{name: "an argument of CNI_ARGS that nobody knows is taken with IgnoreUnknown", test: func(l *lab) {
			c := l.attach(conf(lan), "web", args("IgnoreUnknown=true", "COLOUR=green"))
			l.pings(&c.Namespace, "10.44.0.1")
		}},
	)
}

// bridgeFailures is what ADD finds out on its way.
func bridgeFailures() (rows []row) {
	range1 := `{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24","rangeStart":"10.44.0.5","rangeEnd":"10.44.0.5"}]]}`
	for _, c := range []struct {
		name, config, says, differs string
		prepare                     func(l *lab, web *container)
	}{
		{name: "a gateway out of reach", differs: noRollback, says: "172.31.0.1",
			config: with(lan, "ipam", `{"type":"host-local","subnet":"10.44.0.0/24","routes":[{"dst":"10.60.0.0/16","gw":"172.31.0.1"}]}`)},
		{name: "a bridge with another network's address", differs: noRollback, says: "10.9.9.1/24", config: lan,
			prepare: func(l *lab, _ *container) {
				l.run("ip address flush dev lan0")
				l.run("ip address add 10.9.9.1/24 dev lan0")
			}},
		{name: "a container that has the interface", says: "eth0", config: lan,
			prepare: func(_ *lab, web *container) { web.run("ip link add eth0 type bridge") }},
		{name: "no free address", differs: noRollback, config: with(lan, "ipam", range1),
			prepare: func(l *lab, _ *container) { l.attach(conf(with(lan, "ipam", range1)), "first") }},
		{name: "an IPAM plugin that gives no address", differs: noRollback, config: with(lan, "ipam", `{"type":"static"}`)},
		{name: "an address that somebody else has, with enabledad", differs: noRollback, says: "fd00:44::7",
			config:  with(lan, "enabledad", "true", "ipam", fixedIPs("fd00:44::7/64 fd00:44::1")),
			prepare: func(l *lab, _ *container) { l.attach(conf(with(lan, "ipam", fixedIPs("fd00:44::7/64"))), "first") }},
	} {
		rows = append(rows, row{name: "after an ADD that fails all is as before: " + c.name, differs: c.differs, test: func(l *lab) {
			l.warm(conf(lan))
			web := l.pod("web")
			if c.prepare != nil {
				c.prepare(l, web)
			}
			l.undoes(web, conf(c.config), c.says)
		}})
	}
	return append(rows,
		row{name: "a second ADD is refused, and changes nothing", test: func(l *lab) {
			c := l.attach(conf(lan), "web")
			l.refuses(c, conf(lan), "eth0")
		}},
		row{name: "a second ADD without ipam is refused, and changes nothing", test: func(l *lab) {
			c := l.attach(conf(layer2), "web")
			l.refuses(c, conf(layer2), "eth0")
		}},
		row{name: "ADD after an ADD that failed succeeds", differs: noRollback, test: func(l *lab) {
			l.run("ip link add lan0 type bridge")
			l.run("ip address add 10.9.9.1/24 dev lan0")
			c := l.pod("web")
			l.refused(c.add(conf(lan)), "lan0")
			l.run("ip address flush dev lan0")
			l.must(c.add(conf(lan)))
			l.pings(&c.Namespace, "10.44.0.1")
		}},
	)
}
