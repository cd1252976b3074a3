package conformance

// ptpRefusals is what ADD refuses before it does anything.
func ptpRefusals() []row {
	return append(ptpMain.refusals([]refusal{
		{name: "no ipam", keys: []string{"ipam", "{}"}},
		{name: "an ipMasq that is no boolean", keys: []string{"ipMasq", `"yes"`}, says: "ipMasq"},
	}), row{name: "no ipam is refused with code 7 and says what to do", differs: always999, test: func(l *lab) {
		l.code(l.pod("web").add(conf(with(ptp, "ipam", "{}"))), 7, `add "ipam"`)
	}})
}

// ptpFailures is what ADD finds out on its way.
func ptpFailures() []row {
	return append(ptpMain.failures([]refusal{
		{name: "an address without a subnet and without a gateway", says: "10.44.0.2/32", differs: noRollback, keys: []string{"ipam", fixedIPs("10.44.0.2/32")}},
		{name: "a gateway that is the container's own address", says: "10.44.0.2/24", differs: noRollback,
			keys: []string{"ipam", fixedIPs("10.44.0.2/24 10.44.0.2")}},
		{name: "a gateway that is another address of the container", says: "gateway", differs: noRollback,
			keys: []string{"ipam", fixedIPs("10.44.0.2/24 10.44.0.3", "10.44.0.3/24 10.44.0.1")}},
		{name: "a lease file that can't be written", keys: []string{"ipam", `{"type":"host-local","dataDir":"/run/nodir","subnet":"10.44.0.0/24"}`},
			prepare: func(l *lab, _ *container) { l.write("/run/nodir", "no directory") }},
	}),
		row{name: "with IPv6 switched off on the host, ADD names the sysctl that switches it on, and changes nothing", differs: withoutSysctl, test: func(l *lab) {
			l.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1")
			web := l.pod("web")
			l.undoes(web, conf(ptp), "net.ipv6.conf.default.disable_ipv6=0")
			l.code(web.add(conf(ptp)), 7, "IPv6 is off")
			l.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=0")
			l.must(web.add(conf(ptp)))
		}},
		row{name: "after an ADD that can't set a sysctl all is as before", test: func(l *lab) {
			n := l.fixedPtp(ptpIPv4Address)
			web := l.pod("web")
			l.run("mkdir /run/mount") // mount's own
			before := l.now()
			l.forbidSysctls()
			l.refused(web.add(n), "read-only")
			l.run("umount /proc/sys")
			before.unchanged()
			l.lacks(web.run("ip -o link"), "eth0")
		}},
		row{name: "ADD after an ADD that failed succeeds", differs: noRollback, test: func(l *lab) {
			c := l.pod("web")
			l.refused(c.add(conf(with(ptp, "ipam", fixedIPs("10.44.0.2/32")))))
			l.must(c.add(conf(ptp)))
			c.pings("10.44.0.1")
		}},
	)
}
