package conformance

// removesAny is why the reference fails rows about a DEL that comes late.
const removesAny = "its DEL removes the interface of whatever namespace the path is"

// mainRows are rows that plugins share which make an interface. network is one of theirs, whose containers reach some addresses.
func mainRows(network func(l *lab) network, backends bool, reached ...string) []row {
	late := func(l *lab, del func(old *container) error) {
		old := l.attach(network(l), "web")
		old.Replace(l)
		newer := old.newer("newer")
		l.must(newer.add(network(l)))
		l.must(del(old))
		l.pings(&newer.Namespace, reached...)
		l.must(newer.check())
	}
	return []row{
		{name: "DEL leaves nothing in the container", test: func(l *lab) {
			n, web := network(l), l.pod("web")
			before := web.Snapshot(l)
			l.must(web.add(n))
			l.must(web.del())
			l.same(before.Diff(web.Snapshot(l), "sysctl"), "")
		}},
		{name: "DEL of a container that was never attached changes nothing", backends: backends, test: func(l *lab) {
			l.attach(network(l), "other")
			never := l.pod("never")
			never.network = network(l)
			before := l.now(never)
			l.must(never.del())
			l.must(never.delBare())
			before.unchanged()
		}},
		{name: "DEL on a node where nothing was ever attached changes nothing", backends: backends, test: func(l *lab) {
			never := l.pod("never")
			never.network = network(l)
			before := l.now(never)
			l.must(never.del())
			before.unchanged()
		}},
		{name: "DEL leaves nothing though the container's lo has the interface's name and MAC address", differs: "its DEL fails, or keeps the address", test: func(l *lab) {
			l.warm(network(l))
			before := l.now()
			for _, del := range []func(*container) error{(*container).del, func(c *container) error {
				_, err := l.exec("DEL", c, with(c.network.plugins[0], "capabilities", "{}"))
				return err
			}} {
				c := l.attach(network(l), "web")
				mac := l.link(&c.Namespace, "eth0")["address"].(string)
				c.run("ip link del eth0")
				c.run("ip link set lo down name eth0 address " + mac)
				l.must(del(c))
				c.Delete(l)
			}
			before.unchanged()
		}},
		{name: "a late DEL leaves the container that has the namespace's path by now", differs: removesAny, test: func(l *lab) {
			late(l, (*container).del)
		}},
		{name: "a late DEL leaves the container that has the namespace's path, address and MAC address by now", differs: removesAny, test: func(l *lab) {
			n := network(l)
			old := l.attach(n, "web")
			gateway := ""
			if len(reached) > 0 {
				gateway = " " + reached[0]
			}
			n.plugins[0] = with(n.plugins[0], "ipam", fixedIPs(old.v4+"/24"+gateway))
			old.Replace(l)
			newer := old.newer("newer")
			l.must(newer.add(n))
			l.must(old.del())
			l.must(newer.check())
		}},
		{name: "a late DEL without a result leaves the container that has the namespace's path by now", differs: removesAny, test: func(l *lab) {
			late(l, func(old *container) error {
				_, err := l.exec("DEL", old, with(old.network.plugins[0], "capabilities", "{}"))
				return err
			})
		}},
	}
}
