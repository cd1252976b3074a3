package conformance

import (
	"cmp"
	"fmt"
	"math/rand"
	"strings"
	"sync"

	"github.com/cnibox/cnibox/test/netlab"
)

// What the rows of sbr and vrf share: a container with an interface that some plugin has made and given addresses and routes, and what both
// promise.

// routing is a plugin that changes how an interface's packets are routed.
type routing struct {
	configs []string          // of ADD; the first is the plain one
	differs map[string]string // why the reference plugin fails rows, by their names
}

// rows are the promises of both plugins.
func (p routing) rows() []row {
	plain := p.configs[0]
	rows := []row{
		{name: "the result is the one before", test: func(l *lab) {
			c := l.wired("web")
			printed := l.answer("ADD", c, with(plain, "prevResult", c.wiredResult()))
			l.printed(printed, c.wiredResult())
		}},
		{name: "the network's version may be 0.3.1", test: func(l *lab) {
			c := l.attach(conf(lan, plain).in("0.3.1"), "web")
			l.shows(c.printed, `"version"`)
			l.must(c.del())
		}},
		{name: "a second ADD is refused, and changes nothing", test: func(l *lab) {
			for i, config := range p.configs {
				c := l.wired(fmt.Sprint("web", i))
				l.must(c.after("ADD", config))
				l.now(c).refused(c.after("ADD", config), "DEL")
			}
		}},
		{name: "two attachments of a container that are made at the same time don't meet", test: func(l *lab) {
			if l.suite.reference {
				l.foreign("whether it fails is a matter of chance")
			}
			c := l.wired("web")
			other := l.beside(c)
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				errs := make([]error, 2)
				var wait sync.WaitGroup
				wait.Go(func() { errs[0] = c.after(verb, plain) })
				wait.Go(func() { errs[1] = other.second(verb, plain) })
				wait.Wait()
				l.must(errs[0])
				l.must(errs[1])
			}
		}},
		{name: "DEL of a list leaves nothing", test: func(l *lab) {
			n := conf(lan, plain)
			before := l.warmed(n)
			c := l.pod("web")
			empty := l.now(c)
			c.network = n
			l.must(c.add(n), c.del())
			empty.unchangedBut(" 1000:")
			c.Delete(l)
			before.unchanged()
		}},
		{name: "DEL of what was never added does nothing", test: func(l *lab) {
			c := l.wired("web")
			l.now(c).unchangedBy(c.after("DEL", plain), c.bareDel(plain))
		}},
		{name: "DEL with a namespace that is gone, not there, or a plain file succeeds, and makes no file", test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", plain), c.after("DEL", plain, noNetns))
			c.DeleteKeepFile(l)
			l.must(c.after("DEL", plain))
			l.remove("/run/netns/web")
			l.must(c.after("DEL", plain))
			l.same(l.files("/run/netns/web"), []string(nil))
		}},
		{name: "a late DEL leaves a newer container at the path alone", test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", plain))
			previous := c.wiredResult()
			c.Replace(l)
			c.wire("02:00:00:00:00:99")
			newer := strings.ReplaceAll(previous, untunedMAC, "02:00:00:00:00:99")
			l.must(l.verb("ADD", c, with(plain, "prevResult", newer), func(call *netlab.PluginCall) { call.ContainerID = "newer" }))
			l.now(c).unchangedBy(c.after("DEL", plain))
		}},
		{name: "a late DEL without a result leaves a newer container at the path alone", test: func(l *lab) {
			c, config := l.wired("web"), p.configs[len(p.configs)-1]
			l.must(c.after("ADD", config))
			c.overtake(lan, config)
			l.now(c).unchangedBy(c.bareDel(config))
		}},
		{name: "a late DEL leaves a newer container at the path alone that has the same addresses", test: func(l *lab) {
			for i, config := range p.configs {
				for _, result := range []bool{true, false} {
					old := l.attach(conf(with(lan, "ipam", fixedIPs("10.44.0.2/24 10.44.0.1")), config), fmt.Sprint("web", i, result))
					newer := old.succeeded(old.network)
					before := l.now(newer)
					del := config
					if result {
						del = with(config, "prevResult", old.printed)
					}
					l.must(old.bareDel(del))
					before.unchanged()
					l.must(newer.del())
				}
			}
		}},
		{name: "GC leaves attachments alone", test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", plain))
			l.now(c).unchangedBy(l.gc(conf(plain)))
		}},
		{name: "CHECK changes nothing", test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", plain))
			before := l.now(c)
			l.must(c.after("CHECK", plain))
			before.unchanged()
		}},
		{name: "CHECK without a previous result is refused", test: func(l *lab) {
			c := l.wired("web")
			l.must(c.after("ADD", plain))
			l.refused(l.verb("CHECK", c, plain), "prevResult")
		}},
		{name: "CHECK of the plugin before finds its addresses and routes", test: func(l *lab) {
			c := l.attach(conf(lan, plain), "web")
			l.must(c.check())
			c.run("ip route del default table " + cmp.Or(c.tableOf(c.v4), c.vrfTable()))
			l.refused(c.check(), "0.0.0.0/0")
		}},
		{name: "STATUS of a configuration that can be used succeeds, and changes nothing", test: func(l *lab) { l.now().unchangedBy(l.status(conf(plain))) }},
	}
	for i := range rows {
		rows[i].differs = p.differs[rows[i].name]
	}
	return rows
}

// batched runs commands of ip in the container, in which TABLE stands for the one that packets from its address are led to.
func batched(commands string) func(*lab, *container) {
	return func(_ *lab, c *container) {
		harm := commands + "\n"
		if strings.Contains(harm, "TABLE") {
			harm = strings.ReplaceAll(harm, "TABLE", c.tableOf("10.47.0.2"))
		}
		c.batch(harm)
	}
}

// routingChecks are rows about harm that CHECK finds, of configurations with the keys of each case.
func routingChecks(config string, cases []event) []row {
	attach := func(l *lab, keys ...string) *container {
		web := l.wired("web")
		web.network = conf(with(config, keys...))
		l.must(web.after("ADD", web.network.plugins[0]))
		return web
	}
	check := func(c *container) error { return c.after("CHECK", c.network.plugins[0]) }
	return checks("CHECK finds that ", attach, check, cases)
}

// refusedADD is a configuration that ADD refuses, or a container.
type refusedADD struct {
	name, config, says, differs string
	harm                        string // commands of ip in the container
}

// refusedADDs are rows about them.
func refusedADDs(cases []refusedADD) (rows []row) {
	for _, c := range cases {
		rows = append(rows, row{name: c.name + " is refused, and nothing changes", differs: c.differs, test: func(l *lab) {
			web := l.wired("web")
			web.batch(c.harm + "\n")
			before := l.now(web)
			config := c.config
			if _, given := object(config)["prevResult"]; !given {
				config = with(config, "prevResult", web.wiredResult())
			}
			l.refused(l.verb("ADD", web, config), c.says)
			before.unchangedBut(" 1000:")
		}})
	}
	return rows
}

// removal is a DEL that leaves nothing once the plugin that made the interface has deleted that, as it does next.
type removal struct {
	name, add, del, differs string // configurations; that of DEL is ADD's unless it is given
	there                   string // commands of ip before there is an interface
	bare                    bool   // without a result
	harm                    func(l *lab, c *container)
}

// removals are rows about them.
func removals(cases []removal) (rows []row) {
	for _, c := range cases {
		rows = append(rows, row{name: c.name, differs: c.differs, test: func(l *lab) {
			web := l.pod("web")
			web.batch(c.there + "\n")
			before := l.now(web)
			web.wire(untunedMAC)
			l.must(web.after("ADD", c.add))
			if c.harm != nil {
				c.harm(l, web)
			}
			for range 2 {
				if del := cmp.Or(c.del, c.add); c.bare {
					l.must(web.bareDel(del))
				} else {
					l.must(web.after("DEL", del))
				}
			}
			if l.link(&web.Namespace, "eth0") != nil {
				web.run("ip link del eth0")
			}
			before.unchangedBut(" 1000:")
		}})
	}
	return rows
}

// cantRead is why the reference plugins fail rows about configurations that became wrong.
const cantRead = "its DEL fails when it can't read the configuration"

// wiredAddresses and wiredRoutes are those of the interface, as ip takes them.
const (
	wiredAddresses = "address add 10.47.0.2/24 dev eth0\naddress add fd00:47::2/64 dev eth0 nodad\n"
	wiredRoutes    = `route add 10.60.0.0/16 via 10.47.0.1
route add 192.0.2.0/24 dev eth0 scope link
route add default via 10.47.0.1 metric 50 mtu 1400 advmss 1300
route add fd00:60::/48 via fd00:47::1
route add fd00:61::/48 dev eth0 metric 7
route add default via fd00:47::1
`
)

// wired makes the container.
func (l *lab) wired(name string) *container {
	c := l.pod(name)
	c.wire(untunedMAC)
	return c
}

// wire makes the interface, and gives it its addresses and routes.
func (c *container) wire(mac string) {
	c.batch("link add eth0 address " + mac + " type veth peer name peer0\nlink set peer0 up\nlink set eth0 up\n" + wiredAddresses + wiredRoutes)
}

// batch runs commands of ip in the container, one on each line: first those of no family in particular, then those that begin with -6.
func (c *container) batch(commands string) {
	var v6 strings.Builder
	for line := range strings.Lines(commands) {
		if own, ok := strings.CutPrefix(line, "-6 "); ok {
			v6.WriteString(own)
			commands = strings.Replace(commands, line, "\n", 1)
		}
	}
	if strings.TrimSpace(commands) != "" {
		c.Feed(c.lab, commands, "ip", "-batch", "-")
	}
	if v6.Len() > 0 {
		c.Feed(c.lab, v6.String(), "ip", "-6", "-batch", "-")
	}
}

// wiredResult is the result of the plugin that made the interface.
func (c *container) wiredResult() string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","interfaces":[{"name":"peer0","mac":"02:00:00:00:00:0f"},{"name":%q,"mac":%q,"sandbox":%q}],
		"ips":[{"address":"10.47.0.2/24","gateway":"10.47.0.1","interface":1},{"address":"fd00:47::2/64","gateway":"fd00:47::1","interface":1}],
		"routes":[{"dst":"10.60.0.0/16"},{"dst":"fd00:60::/48","gw":"fd00:47::1"},{"dst":"0.0.0.0/0"}],"dns":{"domain":"site"}}`,
		c.runtime.IfName, untunedMAC, c.Path())
}

// after calls a verb of a plugin as a runtime does, with the result of the plugin that made the interface.
func (c *container) after(verb, config string, changes ...change) error {
	return c.lab.verb(verb, c, with(config, "prevResult", c.wiredResult()), changes...)
}

// bareDel calls DEL with a namespace alone.
func (c *container) bareDel(config string) error {
	return c.lab.verb("DEL", c, config)
}

// randomRoutes are routes of the interface such as people and plugins make them, as ip takes them. Equal seeds give equal routes.
func randomRoutes(seed int64) string {
	random := rand.New(rand.NewSource(seed))
	pick := func(list ...string) string { return list[random.Intn(len(list))] }
	var out strings.Builder
	for i := range 30 {
		v4 := random.Intn(2) == 0
		add, prefix, far, source := fmt.Sprintf("-6 route add fd00:%x::/%d", 0x100+i, 32+random.Intn(17)), "fd00:47::", "fd00:bad::1", "fd00:47::2"
		if v4 {
			add, prefix, far, source = fmt.Sprintf("route add 10.%d.0.0/%d", 100+i, 16+random.Intn(9)), "10.47.0.", "172.31.0.1", "10.47.0.2"
		}
		onLink := " dev eth0"
		if v4 {
			onLink += " scope " + pick("link", "global")
		}
		out.WriteString(add + pick("", "", " src "+source) + pick("", "", fmt.Sprint(" metric ", 1+random.Intn(3000))))
		out.WriteString(pick("", "", " mtu 1300", " advmss 1200", " mtu lock 1280", " window 9000 initcwnd 12"))
		out.WriteString(pick("", "", " proto static", " proto ra", " proto 99"))
		if v4 {
			out.WriteString(pick("", "", "", " tos 0x10"))
		}
		out.WriteString(pick(onLink, " via "+prefix+"1", " via "+far+" dev eth0 onlink",
			" nexthop via "+prefix+"1 dev eth0 weight 2 nexthop via "+prefix+"5 dev eth0") + "\n")
	}
	return out.String()
}
