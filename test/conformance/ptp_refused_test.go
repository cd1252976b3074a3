package conformance

// ptpRefusals is what ADD refuses before it does anything.
func ptpRefusals() (rows []row) {
	for _, c := range []struct{ name, config, says, differs string }{
		{name: "no ipam", config: with(ptp, "ipam", "{}")},
		{name: "an mtu below 68", config: with(ptp, "mtu", "67")},
		{name: "an mtu above 65535", config: with(ptp, "mtu", "65536")},
		{name: "an mtu that is no number", config: with(ptp, "mtu", `"1400"`), says: "mtu"},
		{name: "an ipMasq that is no boolean", config: with(ptp, "ipMasq", `"yes"`), says: "ipMasq"},
		{name: "an IPAM plugin that is not there", config: with(ptp, "ipam", `{"type":"frobnicate"}`), says: "frobnicate"},
		{name: "a backend of masquerading that nobody has", config: with(ptp, "ipMasqBackend", `"frobnicate"`), says: "frobnicate", differs: noPtpRollback},
	} {
		rows = append(rows, row{name: c.name + " is refused, and changes nothing", differs: c.differs, test: func(l *lab) {
			l.warm(conf(ptp))
			web := l.pod("web")
			l.refuses(web, conf(c.config), c.says)
		}})
	}
	return append(rows, row{name: "no ipam is refused with code 7 and says what to do", differs: always999, test: func(l *lab) {
		err := l.pod("web").add(conf(with(ptp, "ipam", "{}")))
		l.code(err, 7)
		l.refused(err, `add "ipam"`)
	}})
}

// noPtpRollback is why the reference fails several rows.
const noPtpRollback = "its failed ADD leaves the veth pair"

// ptpFailures is what ADD finds out on its way.
func ptpFailures() (rows []row) {
	range1 := `{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24","rangeStart":"10.44.0.5","rangeEnd":"10.44.0.5"}]]}`
	for _, c := range []struct {
		name, config, says, differs string
		prepare                     func(l *lab, web *container)
	}{
		{name: "a route's gateway out of reach", differs: noPtpRollback, says: "172.31.0.1",
			config: with(ptp, "ipam", `{"type":"host-local","subnet":"10.44.0.0/24","routes":[{"dst":"10.60.0.0/16","gw":"172.31.0.1"}]}`)},
		{name: "an address without a subnet and without a gateway", says: "10.44.0.2/32", differs: noPtpRollback, config: with(ptp, "ipam", fixedIPs("10.44.0.2/32"))},
		{name: "a gateway that is the container's own address", says: "10.44.0.2/24", differs: noPtpRollback,
			config: with(ptp, "ipam", fixedIPs("10.44.0.2/24 10.44.0.2"))},
		{name: "a gateway that is another address of the container", says: "gateway", differs: noPtpRollback,
			config: with(ptp, "ipam", fixedIPs("10.44.0.2/24 10.44.0.3", "10.44.0.3/24 10.44.0.1"))},
		{name: "a container that has the interface", says: "eth0", config: ptp,
			prepare: func(_ *lab, web *container) { web.run("ip link add eth0 type bridge") }},
		{name: "no free address", config: with(ptp, "ipam", range1),
			prepare: func(l *lab, _ *container) { l.attach(conf(with(ptp, "ipam", range1)), "first") }},
		{name: "an IPAM plugin that gives no address", config: with(ptp, "ipam", `{"type":"static"}`)},
		{name: "a lease file that can't be written", config: with(ptp, "ipam", `{"type":"host-local","dataDir":"/run/nodir","subnet":"10.44.0.0/24"}`),
			prepare: func(l *lab, _ *container) { l.write("/run/nodir", "no directory") }},
	} {
		rows = append(rows, row{name: "after an ADD that fails all is as before: " + c.name, differs: c.differs, test: func(l *lab) {
			l.warm(conf(ptp))
			web := l.pod("web")
			if c.prepare != nil {
				c.prepare(l, web)
			}
			l.undoes(web, conf(c.config), c.says)
		}})
	}
	return append(rows,
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
		row{name: "a second ADD is refused, and changes nothing", test: func(l *lab) {
			c := l.attach(conf(ptp), "web")
			l.refuses(c, conf(ptp))
		}},
		row{name: "ADD after an ADD that failed succeeds", differs: noPtpRollback, test: func(l *lab) {
			c := l.pod("web")
			l.refused(c.add(conf(with(ptp, "ipam", fixedIPs("10.44.0.2/32")))))
			l.must(c.add(conf(ptp)))
			l.pings(&c.Namespace, "10.44.0.1")
		}},
	)
}
