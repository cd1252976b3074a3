package conformance

// readOnlyRows are about a node whose /proc/sys can't be written to, as that of a node that is a container.
func readOnlyRows() (rows []row) {
	const plain = `{"type":"host-local","subnet":"10.44.0.0/24"}`
	sysctls := func(l *lab, c *container, values ...string) {
		l.outside() // macvlan's master
		l.run("sysctl -qw net.ipv4.ip_forward=1")
		for _, v := range values {
			l.run("sysctl -qw net.ipv6.conf.default." + v)
			c.run("sysctl -qw net.ipv6.conf.default." + v)
		}
	}
	for _, p := range []struct{ plugin, config string }{
		{"bridge", `{"type":"bridge","bridge":"lan0","isGateway":true,"ipam":` + plain + `}`},
		{"ptp", `{"type":"ptp","ipam":` + plain + `}`},
		{"macvlan", `{"type":"macvlan","ipam":` + plain + `}`},
	} {
		serves := func(l *lab, c *container) {
			l.forbidSysctls()
			l.must(c.add(conf(p.config)), c.check(), c.del())
		}
		rows = append(rows,
			row{name: "with /proc/sys read-only " + p.plugin + " serves IPv4 where interfaces have no IPv6", test: func(l *lab) {
				c := l.pod("web")
				sysctls(l, c, "disable_ipv6=1")
				serves(l, c)
			}},
			row{name: "with /proc/sys read-only " + p.plugin + " serves IPv4 where routers are refused already", test: func(l *lab) {
				c := l.pod("web")
				sysctls(l, c, "accept_ra=0", "autoconf=0")
				serves(l, c)
			}},
			row{name: "with /proc/sys read-only " + p.plugin + " serves IPv4 where routers can't be refused", test: func(l *lab) {
				c := l.pod("web")
				sysctls(l, c)
				serves(l, c)
			}},
			row{name: "with /proc/sys read-only " + p.plugin + " serves IPv6 where interfaces have it", differs: "its ADD fails for want of keep_addr_on_down", test: func(l *lab) {
				c := l.pod("web")
				sysctls(l, c)
				l.run("sysctl -qw net.ipv6.conf.all.forwarding=1")
				l.forbidSysctls()
				l.must(c.add(conf(with(p.config, "ipam", `{"type":"host-local","subnet":"fd00:44::/64"}`))), c.check(), c.del())
			}},
			row{name: "with /proc/sys read-only " + p.plugin + "'s trace says that routers are not refused, and STATUS is well", differs: "it refuses no routers, and has no STATUS", test: func(l *lab) {
				c := l.pod("web")
				sysctls(l, c)
				l.forbidSysctls()
				l.must(l.verb("STATUS", nil, with(p.config, "cniVersion", `"1.1.0"`)))
				l.shows(l.process("ADD", c, p.config, env("CNIBOX_TRACE=1")).Stderr, "router advertisements are not refused", "read-only")
			}})
	}
	return append(rows,
		row{name: "with /proc/sys read-only bridge and macvlan serve IPv4 with acceptRA", test: func(l *lab) {
			l.run("sysctl -qw net.ipv4.ip_forward=1")
			l.outside()
			l.forbidSysctls()
			for _, plugin := range []string{`{"type":"bridge","bridge":"lan0"}`, `{"type":"macvlan"}`} {
				n := conf(with(plugin, "ipam", plain, "acceptRA", "true"))
				l.must(l.status(n))
				c := l.pod(object(plugin)["type"].(string))
				l.must(c.add(n), c.check(), c.del())
			}
		}},
		row{name: "with /proc/sys read-only the error of an address of IPv6 says what to do", differs: noDetails, test: func(l *lab) {
			c := l.pod("web")
			sysctls(l, c, "disable_ipv6=1")
			l.forbidSysctls()
			_, err := l.exec("ADD", c, `{"type":"bridge","bridge":"lan0","ipam":{"type":"host-local","subnet":"fd00:44::/64"}}`)
			l.code(err, 999)
			l.refused(err, "disable_ipv6", "read-only", "writable")
		}},
		row{name: "with /proc/sys read-only the error of a host that does not forward says what to do", differs: noDetails, test: func(l *lab) {
			c := l.pod("web")
			sysctls(l, c, "disable_ipv6=1")
			l.run("sysctl -qw net.ipv4.ip_forward=0")
			l.forbidSysctls()
			l.code(l.verb("ADD", c, `{"type":"bridge","bridge":"lan0","isGateway":true,"ipam":`+plain+`}`), 999, "ip_forward", "read-only", "writable")
		}},
	)
}
