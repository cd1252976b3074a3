package conformance

import (
	"fmt"
	"strings"
)

// What comes after ADD.

func tuningBackups() []row {
	return []row{
		{name: "the values before are recorded in the reference's form", test: func(l *lab) {
			c := l.tuned(allAttributes)
			l.same(c.recorded(), allRecorded)
			l.same(l.run("stat -c %a "+c.backup()), "600\n")
		}},
		{name: "only values are recorded that are configured", test: func(l *lab) {
			l.same(l.tuned(arpFilter+`,"mtu":1400,"allmulti":true`).recorded(), "{\n \"mtu\": 1500,\n \"allmulti\": false\n}")
		}},
		{name: "the record says the network", differs: "it does not record it", test: func(l *lab) {
			c := l.tuned(`"mtu":1400`)
			l.same(l.read(c.backup()), fmt.Sprintf("{\n \"mtu\": 1500,\n \"network\": \"lan\",\n \"containerID\": %q,\n \"ifname\": \"eth0\"\n}", c.ID))
		}},
		{name: "without attributes nothing is recorded", test: func(l *lab) {
			l.tuned(arpFilter)
			l.same(l.files("/run/cni/tuning/*"), []string(nil))
		}},
		{name: "the record is called by container and interface", test: func(l *lab) {
			c := l.fresh("web", ifname("net1"))
			l.must(c.tune("ADD", `"mtu":1400`))
			l.same(l.files("/run/cni/tuning/*"), []string{"/run/cni/tuning/" + c.ID + "_net1.json"})
		}},
		{name: "dataDir is where the record is", test: func(l *lab) {
			const keys = `"mtu":1400,"dataDir":"/var/lib/cni/records/"`
			c := l.tuned(keys)
			l.shows(l.read("/var/lib/cni/records/"+c.ID+"_eth0.json"), `"mtu": 1500`)
			l.same(l.files("/run/cni/tuning/*"), []string(nil))
			l.must(c.tune("DEL", keys))
			c.looks(untuned)
			l.same(l.files("/var/lib/cni/records/*"), []string(nil))
		}},
		{name: "a second ADD keeps what the first one recorded", differs: overwrites, test: func(l *lab) {
			c := l.tuned(`"mac":"02:00:00:00:00:aa","mtu":1400`)
			l.must(c.tune("ADD", `"mac":"02:00:00:00:00:bb","mtu":1300,"txQLen":77`))
			c.looks("02:00:00:00:00:bb mtu 1300 txqlen 77")
			l.same(c.recorded(), "{\n \"mac\": \""+untunedMAC+"\",\n \"mtu\": 1500,\n \"txQLen\": 1000\n}")
			l.must(c.tune("DEL", ""+`"mac":"02:00:00:00:00:bb","mtu":1300,"txQLen":77`))
			c.looks(untuned)
		}},
		{name: "DEL sets back what the reference or cnibox recorded", test: func(l *lab) {
			for i, network := range []string{"", ",\n \"network\": \"lan\""} {
				c := l.fresh(fmt.Sprint("web", i))
				c.run("ip link set eth0 promisc on allmulticast on mtu 1400 txqueuelen 77")
				l.write(c.backup(), "{\n \"promisc\": false,\n \"mtu\": 1450,\n \"allmulti\": false,\n \"txQLen\": 500"+network+"\n}")
				l.must(c.tune("DEL", `"mtu":1400`))
				c.looks(untunedMAC + " mtu 1450 txqlen 500")
				l.same(l.read(c.backup()), "")
			}
		}},
	}
}

func tuningDel() (rows []row) {
	for _, c := range []struct {
		name, keys, differs string
		restored            bool // or else the interface is gone
		harm                func(l *lab, c *container)
		changes             []change
	}{
		{name: "DEL sets the interface back", keys: allAttributes, restored: true},
		{name: "DEL with nothing configured any more sets the interface back", keys: `"mtu":0`, restored: true},
		{name: "DEL with a configuration that became wrong sets the interface back", keys: `"mac":"zz","mtu":70000,"sysctl":{"kernel.x":"1"}`, restored: true},
		{name: "DEL with a configuration of wrong types sets the interface back", keys: `"mtu":"x","sysctl":7`, restored: true, differs: "its DEL fails when it can't read the configuration"},
		{name: "DEL by another path of the namespace sets the interface back", keys: allAttributes, restored: true,
			harm: func(_ *lab, c *container) { c.printed = strings.ReplaceAll(c.printed, c.Path(), "/var"+c.Path()) }},
		{name: "DEL without a namespace leaves nothing", keys: allAttributes, changes: []change{noNetns}, differs: fileLeaks},
		{name: "DEL with the namespace gone leaves nothing", keys: allAttributes, differs: fileLeaks, harm: func(l *lab, c *container) { c.Delete(l) }},
		{name: "DEL with a plain file for the namespace leaves nothing", keys: allAttributes, differs: fileLeaks, harm: func(l *lab, c *container) { c.DeleteKeepFile(l) }},
		{name: "DEL with the interface gone leaves nothing", keys: allAttributes, differs: fileLeaks, harm: func(l *lab, c *container) { c.run("ip link del eth0") }},
		{name: "DEL with a torn record leaves nothing", keys: allAttributes, differs: "its DEL leaves a record that it can't read", harm: func(l *lab, c *container) {
			l.write(c.backup(), `{ "mtu": 15`)
		}},
	} {
		rows = append(rows, row{name: c.name, differs: c.differs, test: func(l *lab) {
			before := l.now()
			web := l.tuned(allAttributes)
			if c.harm != nil {
				c.harm(l, web)
			}
			for range 2 {
				l.must(web.tune("DEL", c.keys, c.changes...))
			}
			if c.restored {
				web.looks(untuned)
			}
			l.lacks(before.changed(), "/tuning/")
		}})
	}
	return append(rows,
		row{name: "DEL without a previous result sets the interface back", test: func(l *lab) {
			c := l.tuned(allAttributes)
			l.must(c.bareDel(tuning(`"mtu":1400`)))
			c.looks(untuned)
			l.same(l.read(c.backup()), "")
		}},
		row{name: "DEL of what was never added does nothing", test: func(l *lab) {
			c := l.fresh("web")
			l.now(c).unchangedBy(c.tune("DEL", allAttributes))
		}},
		row{name: "DEL sets nothing back that was not recorded", test: func(l *lab) {
			c := l.tuned(`"mtu":1400`)
			c.run("ip link set eth0 txqueuelen 5 promisc on")
			l.must(c.tune("DEL", allAttributes))
			c.looks(untunedMAC + " mtu 1500 txqlen 5 promisc")
		}},
		row{name: "DEL keeps to the container and interface it is for", test: func(l *lab) {
			c, other := l.tuned(`"mtu":1400`), l.fresh("other")
			l.must(other.tune("ADD", `"mtu":1400`), c.tune("DEL", `"mtu":1400`))
			other.looks(untunedMAC + " mtu 1400 txqlen 1000")
			l.same(other.recorded(), "{\n \"mtu\": 1500\n}")
		}},
		row{name: "the trace says that DEL leaves an interface alone which is not the attachment's", differs: "it has no trace", test: func(l *lab) {
			c := l.tuned(`"mtu":1400`)
			c.Replace(l)
			c.addLink("02:00:00:00:00:99")
			r := l.process("DEL", c, with(tuning(`"mtu":1400`), "prevResult", c.printed), env("CNIBOX_TRACE=1"))
			l.must(failure(r))
			l.shows(r.Stderr, "leave eth0 alone")
		}},
		row{name: "a late DEL leaves the interface of a newer container at the path alone", differs: anyInterface, test: func(l *lab) {
			c := l.tuned(allAttributes)
			c.Replace(l)
			c.addLink("02:00:00:00:00:99")
			c.run("ip link set eth0 mtu 1450")
			l.must(c.tune("DEL", allAttributes))
			c.looks("02:00:00:00:00:99 mtu 1450 txqlen 1000")
			l.same(l.read(c.backup()), "")
		}},
		row{name: "a late DEL leaves the interface of a newer container at the path alone that has the same MAC address", differs: anyInterface, test: func(l *lab) {
			n := conf(with(lan, "capabilities", "{}", "ipam", fixedIPs("10.44.0.2/24 10.44.0.1")), tuning(`"mtu":1400,"mac":"02:00:00:00:00:aa"`))
			old := l.attach(n, "web")
			newer := old.succeeded(n)
			l.must(old.del())
			newer.looks("02:00:00:00:00:aa mtu 1400 txqlen 1000")
			l.must(newer.check())
		}},
		row{name: "a late DEL without a result leaves the interface of a newer container at the path alone", differs: anyInterface, test: func(l *lab) {
			c := l.tuned(`"mtu":1400`)
			c.overtake(with(lan, "mtu", "1450"))
			before := l.now(c)
			l.must(c.bareDel(tuning(`"mtu":1400`)))
			l.lacks(before.changed(), "link")
			l.same(l.read(c.backup()), "")
		}},
		row{name: "DEL sets back what it can, and says on standard error what it can't", differs: ignoresErrors, test: func(l *lab) {
			const keys = `"mtu":1400,"txQLen":77`
			c := l.tuned(keys)
			l.write(c.backup(), `{"mtu": 70000, "txQLen": 1000}`)
			del := l.process("DEL", c, with(tuning(keys), "prevResult", c.printed))
			l.must(failure(del))
			l.shows(del.Stderr, "70000")
			c.looks(untunedMAC + " mtu 1400 txqlen 1000")
			l.same(l.read(c.backup()), "")
		}},
		row{name: "DEL of a list leaves nothing", test: func(l *lab) {
			n := conf(lan, tuning(allAttributes+","+arpFilter))
			before := l.warmed(n)
			c := l.attach(n, "web")
			l.must(c.check(), c.del())
			c.Delete(l)
			before.unchanged()
		}},
		row{name: "DEL of a list with the namespace gone leaves nothing", differs: fileLeaks, test: func(l *lab) {
			n := conf(with(lan, "ipMasq", "false"), tuning(allAttributes))
			before := l.warmed(n)
			c := l.attach(n, "web")
			c.Delete(l)
			l.must(c.del())
			before.unchanged()
		}},
	)
}

func tuningGC() []row {
	net := conf(tuning(`"mtu":1400`))
	// two returns containers that have been tuned.
	two := func(l *lab) (kept, lost *container) {
		kept, lost = l.tuned(`"mtu":1400`), l.fresh("lost")
		l.must(lost.tune("ADD", `"mtu":1400`))
		return kept, lost
	}
	return []row{
		{name: "GC removes the records of attachments that are not valid", differs: noGC, test: func(l *lab) {
			kept, lost := two(l)
			l.must(l.gc(net, kept))
			l.same(l.files("/run/cni/tuning/*"), []string{kept.backup()})
			l.must(lost.tune("DEL", `"mtu":1400`), l.gc(net))
			l.same(l.files("/run/cni/tuning/*"), []string(nil))
		}},
		{name: "GC keeps what DEL needs of valid attachments", test: func(l *lab) {
			kept, lost := two(l)
			l.must(l.gc(net, kept, lost))
			for _, c := range []*container{kept, lost} {
				l.must(c.tune("DEL", `"mtu":1400`))
				c.looks(untuned)
			}
		}},
		{name: "GC removes the record of another interface of a valid container", differs: noGC, test: func(l *lab) {
			kept := l.tuned(`"mtu":1400`)
			second := kept.another()
			second.runtime.IfName = "net1"
			second.run("ip link add net1 address " + untunedMAC + " type veth peer name peer1")
			l.must(second.tune("ADD", `"mtu":1400`), l.gc(net, kept))
			l.same(l.files("/run/cni/tuning/*"), []string{kept.backup()})
		}},
		{name: "GC looks in dataDir", differs: noGC, test: func(l *lab) {
			const keys = `"mtu":1400,"dataDir":"/var/lib/cni/records"`
			l.tuned(keys)
			l.must(l.gc(conf(tuning(keys))))
			l.same(l.files("/var/lib/cni/records/*"), []string(nil))
		}},
		{name: "GC of one network keeps the records of another", test: func(l *lab) {
			other := conf(with(lan, "ipMasq", "false"), tuning(`"mtu":1400`)).called("other")
			c := l.attach(other, "web")
			l.must(l.gc(net))
			l.same(c.recorded(), "{\n \"mtu\": 1500\n}")
		}},
		{name: "GC of one network keeps the records of another where libcni has no results", test: func(l *lab) {
			c := l.fresh("web")
			l.must(l.verb("ADD", c, with(tuning(`"mtu":1400`), "prevResult", c.previous(), "name", `"other"`)), l.gc(net))
			l.same(c.recorded(), "{\n \"mtu\": 1500\n}")
		}},
		{name: "GC removes the record of a container that another network has, too", differs: noGC, test: func(l *lab) {
			c := l.attach(conf(with(lan, "ipMasq", "false"), tuning(`"mtu":1400`)).called("other"), "web")
			second := c.another()
			second.runtime.IfName = "net1"
			second.addLink(untunedMAC)
			l.must(second.tune("ADD", `"mtu":1400`), l.gc(net))
			l.same(l.files("/run/cni/tuning/*"), []string{c.backup()})
		}},
		{name: "GC removes what the reference recorded of containers that libcni has no result of", differs: noGC, test: func(l *lab) {
			c := l.attach(conf(with(lan, "ipMasq", "false"), tuning(`"mtu":1400`)).called("other"), "web")
			l.write(c.backup(), `{"mtu": 1500}`)
			l.write("/run/cni/tuning/gone_eth0.json", `{"mtu": 1500}`)
			l.must(l.gc(net))
			l.same(l.files("/run/cni/tuning/*"), []string{c.backup()})
			l.forget()
			l.must(l.gc(net))
			l.same(l.files("/run/cni/tuning/*"), []string{c.backup()})
		}},
		{name: "GC keeps other files in dataDir", test: func(l *lab) {
			const keys = `"mtu":1400,"dataDir":"/var/lib/cni/shared"`
			for _, name := range []string{"notes.json", "notes", "some_thing.json", "some_thing.txt"} {
				l.write("/var/lib/cni/shared/"+name, `{"mtu":1500,"owner":"somebody else"}`)
			}
			l.now().unchangedBy(l.gc(conf(tuning(keys))))
		}},
	}
}

func tuningCheck() []row {
	const keys = allAttributes + "," + arpFilter
	tune := func(l *lab, _ ...string) *container { return l.tuned(keys) }
	rows := checks("CHECK finds ", tune, func(c *container) error { return c.tune("CHECK", keys) }, []event{
		{name: "another MAC address", happens: inside("ip link set eth0 address 02:00:00:00:00:07"), says: "02:00:00:00:00:07"},
		{name: "another promiscuous mode", happens: inside("ip link set eth0 promisc off"), says: "eth0"},
		{name: "another MTU", happens: inside("ip link set eth0 mtu 1300"), says: "1300"},
		{name: "another allmulti", happens: inside("ip link set eth0 allmulticast off"), says: "eth0"},
		{name: "another queue", happens: inside("ip link set eth0 txqueuelen 5"), says: "5"},
		{name: "another sysctl", happens: inside("sysctl -qw net.ipv4.conf.eth0.arp_filter=0"), says: "arp_filter"},
		{name: "that the interface is gone", happens: inside("ip link del eth0"), says: "eth0"},
	})
	return append(rows,
		row{name: "CHECK finds allmulti that is to be off", test: func(l *lab) {
			c := l.tuned(`"allmulti":false`)
			l.must(c.tune("CHECK", `"allmulti":false`))
			c.run("ip link set eth0 allmulticast on")
			l.refused(c.tune("CHECK", `"allmulti":false`), "eth0")
		}},
		row{name: "CHECK compares what args.cni, CNI_ARGS and runtimeConfig ask for", test: func(l *lab) {
			c := l.tuned(`"mtu":1400`)
			l.refused(c.tune("CHECK", `"mtu":1400,"args":{"cni":{"mtu":1300}}`), "1300")
			l.refused(c.tune("CHECK", `"mtu":1400`, env("CNI_ARGS=MAC=02:00:00:00:00:0b")), "02:00:00:00:00:0b")
			l.refused(c.tune("CHECK", `"mtu":1400,"runtimeConfig":{"mac":"02:00:00:00:00:0c"}`), "02:00:00:00:00:0c")
			l.must(c.tune("CHECK", `"mtu":1400`))
		}},
		row{name: "CHECK knows a MAC address in any form", differs: macAsWritten, test: func(l *lab) {
			l.must(l.tuned(`"mac":"02-00-00-00-00-AA"`).tune("CHECK", `"mac":"02:00:00:00:00:AA"`))
		}},
		row{name: "CHECK takes tabs between numbers for blanks", differs: comparesBlanks, test: func(l *lab) {
			const keys = `"sysctl":{"net.ipv4.ip_local_port_range":"20000 60999"}`
			c := l.tuned(keys)
			l.must(c.tune("CHECK", keys))
			c.MustRun(l, "sysctl", "-qw", "net.ipv4.ip_local_port_range=20001 60999")
			l.refused(c.tune("CHECK", keys), "20001")
		}},
		row{name: "CHECK leaves alone what is not configured", test: func(l *lab) {
			c := l.tuned(`"txQLen":77`)
			c.run("ip link set eth0 address 02:00:00:00:00:07 mtu 1300 allmulticast on")
			l.must(c.tune("CHECK", `"txQLen":77`))
		}},
		row{name: "CHECK leaves promiscuous mode alone when it is not configured", differs: promiscOff, test: func(l *lab) {
			c := l.tuned(`"txQLen":77`)
			c.run("ip link set eth0 promisc on")
			l.must(c.tune("CHECK", `"txQLen":77`))
		}},
		row{name: "CHECK changes nothing", test: func(l *lab) {
			c := l.tuned(keys)
			before := l.now(c)
			l.must(c.tune("CHECK", keys))
			c.run("ip link set eth0 txqueuelen 5")
			l.refused(c.tune("CHECK", keys))
			c.run("ip link set eth0 txqueuelen 77")
			before.unchanged()
		}},
		row{name: "CHECK without a previous result is refused", test: func(l *lab) {
			l.refused(l.verb("CHECK", l.tuned(`"mtu":1400`), tuning(`"mtu":1400`)), "prevResult")
		}},
	)
}

func tuningStatus() []row {
	return []row{
		{name: "STATUS of a configuration that can be used succeeds", test: func(l *lab) {
			l.write("/etc/cni/tuning/allowlist.conf", "arp_filter")
			l.now().unchangedBy(l.status(conf(tuning(allAttributes + "," + arpFilter))))
		}},
		{name: "STATUS finds a mac that is none", differs: noStatus, test: func(l *lab) { l.refused(l.status(conf(tuning(`"mac":"zz"`))), "zz") }},
		{name: "STATUS finds an mtu and a txQLen that no link can have", differs: noStatus, test: func(l *lab) {
			for _, keys := range []string{`"mtu":67`, `"mtu":65537`, `"txQLen":-1`, `"txQLen":2147483648`} {
				l.refused(l.status(conf(tuning(keys))), strings.Split(keys, ":")[1])
			}
		}},
		{name: "STATUS finds a sysctl outside of net", differs: noStatus, test: func(l *lab) {
			l.refused(l.status(conf(tuning(`"sysctl":{"kernel.hostname":"x"}`))), "hostname")
		}},
		{name: "STATUS finds a dataDir that can't be written", differs: noStatus, test: func(l *lab) {
			l.write("/run/plain", "a file")
			l.code(l.verb("STATUS", nil, tuning(`"mtu":1400,"cniVersion":"1.1.0","dataDir":"/run/plain/records"`)), 50, "/run/plain")
		}},
		{name: "STATUS does not mind a dataDir that is not needed", test: func(l *lab) {
			l.write("/run/plain", "a file")
			l.must(l.status(conf(tuning(arpFilter + `,"dataDir":"/run/plain/records"`))))
		}},
		{name: "STATUS finds a sysctl that the allowlist does not allow", differs: noStatus, test: func(l *lab) {
			l.write("/etc/cni/tuning/allowlist.conf", "^net.core")
			l.refused(l.status(conf(tuning(arpFilter))), "arp_filter")
		}},
		{name: "STATUS finds that /proc/sys is read-only", differs: noStatus, test: func(l *lab) {
			l.forbidSysctls()
			l.refused(l.status(conf(tuning(arpFilter))), "read-only")
		}},
	}
}

// forbidSysctls makes /proc/sys read-only, as it is in containers.
func (l *lab) forbidSysctls() {
	l.run("mount --bind /proc/sys /proc/sys", "mount -o remount,bind,ro /proc/sys")
}
