package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// onMasterRows are the rows that plugins share whose links are made on another one, their master. That is the node's uplink here, with
// the machine outside on the same segment.
func onMasterRows(kind string) []row {
	p := onMasterPlugin(kind)
	return slices.Concat(onMasterResults(kind), onMasterLinks(kind), onMasterRefusals(p), onMasterFailures(p), onMasterDels(p), onMasterLateDels(kind),
		p.strangers(), hostileRows(nil, func(l *lab) network { return l.on(kind) }), onMasterGCs(kind), onMasterChecks(p), onMasterStatus(kind), p.statusOfIPAM())
}

func onMasterPlugin(kind string) mainPlugin {
	p := mainPlugin{kind: kind, reached: []string{"10.46.0.1", "fd00:46::1"}, differs: map[string]string{
		"an IPAM plugin that is not there is refused, and changes nothing":               leavesLink,
		"after an ADD that fails all is as before: a gateway out of reach":               leavesLink,
		"after an ADD that fails all is as before: no free address":                      leavesLink,
		"after an ADD that fails all is as before: an IPAM plugin that gives no address": leavesLink,
	}}
	if kind != "macvlan" { // which deletes a link that it can't rename
		p.differs["after an ADD that fails all is as before: a container that has the interface"] = leavesLink
		p.differs["a second ADD is refused, and changes nothing"] = leavesLink
	}
	return p
}

// The VLAN that rows use, and its link outside.
const (
	vlanID   = "5"
	vlanLink = "vlan5"
)

// segment makes the machine outside, and returns its link that shares a segment with containers: 10.46.0.1 and fd00:46::1.
func (l *lab) segment(kind string) (link string) {
	if l.out != nil {
		return onSegment(kind)
	}
	out, commands := &l.outside().Namespace, []string{}
	if kind == "vlan" {
		commands = append(commands, "ip link add link "+netlab.UplinkName+" name "+vlanLink+" type vlan id "+vlanID)
	}
	link = onSegment(kind)
	run(l, out, append(commands, "ip address add 10.46.0.1/24 dev "+link, "ip address add fd00:46::1/64 dev "+link+" nodad", "ip link set "+link+" up")...)
	return link
}

func onSegment(kind string) string {
	if kind == "vlan" {
		return vlanLink
	}
	return netlab.UplinkName
}

// on is a dual-stack network of a plugin on the segment, with more keys of it, each followed by its value in JSON.
func (l *lab) on(kind string, keys ...string) network {
	l.segment(kind)
	return conf(onMaster(kind, keys...))
}

func onMaster(kind string, keys ...string) string {
	config := fmt.Sprintf(`{"type":%q,"master":%q,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.46.0.0/24"}],[{"subnet":"fd00:46::/64"}]],
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}`, kind, netlab.UplinkName)
	switch kind {
	case "vlan":
		config = with(config, "vlanId", vlanID)
	case "macvlan":
		config = with(config, "capabilities", `{"mac":true}`)
	}
	return with(config, keys...)
}

func onMasterResults(kind string) []row {
	return []row{
		{name: "the result, to the byte", test: func(l *lab) {
			l.printed(l.attach(l.on(kind), "web").printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
				"ips":[{"address":"10.46.0.2/24","gateway":"10.46.0.1","interface":0},{"address":"fd00:46::2/64","gateway":"fd00:46::1","interface":0}],
				"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`)
		}},
		{name: "the result in 0.4.0 and 0.2.0, to the byte", test: func(l *lab) {
			c := l.attach(l.on(kind).in("0.4.0"), "web")
			l.printed(c.printed, `{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
				"ips":[{"version":"4","address":"10.46.0.2/24","gateway":"10.46.0.1","interface":0},
					{"version":"6","address":"fd00:46::2/64","gateway":"fd00:46::1","interface":0}],
				"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}],"dns":{}}`)
			l.must(c.del())
			l.printed(l.attach(l.on(kind).in("0.2.0"), "old").printed, `{"cniVersion":"0.2.0",
				"ip4":{"ip":"10.46.0.3/24","gateway":"10.46.0.1","routes":[{"dst":"0.0.0.0/0"}]},
				"ip6":{"ip":"fd00:46::3/64","gateway":"fd00:46::1","routes":[{"dst":"::/0"}]},"dns":{}}`)
		}},
		{name: "the result in 1.1.0 has the MTU", differs: "its results have none", test: func(l *lab) {
			l.shows(tidy(l.attach(l.on(kind, "mtu", "1400").in("1.1.0"), "web").printed), `"mtu": 1400`)
		}},
		{name: "the result names the link as it is", test: func(l *lab) {
			c := l.attach(l.on(kind), "web", ifname("net1"))
			own := c.result.Interfaces[0]
			l.same([]string{own.Name, own.Sandbox}, []string{"net1", c.Path()})
			l.has(&c.Namespace, "net1", "address", own.Mac)
			l.shows(c.run("ip link show net1"), "LOWER_UP")
		}},
		{name: "dns is the network's own, and the IPAM plugin's is left out", test: func(l *lab) {
			ipam := with(fixedIPs("10.46.0.7/24"), "dns", `{"nameservers":["10.46.0.53"]}`)
			c := l.attach(l.on(kind, "ipam", ipam), "web")
			l.same(text(c.result.DNS), `{}`)
			l.must(c.del(), c.add(l.on(kind, "ipam", ipam, "dns", `{"domain":"own","options":["ndots:5"]}`)))
			l.same(text(c.result.DNS), `{"domain":"own","options":["ndots:5"]}`)
		}},
	}
}

func onMasterLinks(kind string) []row {
	return []row{
		{name: "the container and a host of the segment reach each other", test: func(l *lab) {
			c := l.attach(l.on(kind), "web")
			l.pingsAtOnce(&c.Namespace, "10.46.0.1", "fd00:46::1")
			l.serve(&c.Namespace, 80)
			l.answers(tcp(&l.out.Namespace, c.v4, 80), "web saw 10.46.0.1")
			l.answers(tcp(&l.out.Namespace, c.v6, 80), "web saw fd00:46::1")
		}},
		{name: "ADD leaves no link on the host, and one in the container", test: func(l *lab) {
			n := l.on(kind)
			links := l.run("ip -br link")
			c := l.attach(n, "web")
			l.same(l.run("ip -br link"), links)
			l.same(len(l.linksOf(&c.Namespace)), 2)
		}},
		{name: "the host may have a link that is called as the container's", test: func(l *lab) {
			n := l.on(kind)
			l.run("ip link add eth0 type veth peer name other0")
			c := l.attach(n, "web")
			c.pings("10.46.0.1")
			l.must(c.del())
			l.has(&l.host.Namespace, "eth0", "link", "other0")
		}},
		{name: "the MTU is the master's unless it is set", test: func(l *lab) {
			n := l.on(kind)
			l.run("ip link set " + netlab.UplinkName + " mtu 1450")
			c := l.attach(n, "web")
			c.has("mtu", 1450)
			l.must(c.del(), c.add(l.on(kind, "mtu", "1300")))
			c.has("mtu", 1300)
		}},
		{name: "the MTU may be as large as the master's", test: func(l *lab) { l.attach(l.on(kind, "mtu", "1500"), "web").has("mtu", 1500) }},
		{name: "linkInContainer makes the link on one of the container", test: func(l *lab) {
			n := l.on(kind, "linkInContainer", "true")
			c := l.pod("web")
			c.run("ip link add "+netlab.UplinkName+" index 77 type veth peer name base0", "ip link set "+netlab.UplinkName+" up")
			l.must(c.add(n))
			c.has("link", netlab.UplinkName)
			l.must(c.check(), c.del())
			l.gone(&c.Namespace, "eth0")
		}},
		{name: "routes are installed with what they ask for", differs: "it leaves out mtu and advmss", test: func(l *lab) {
			ipam := with(fixedIPs("10.46.0.7/24 10.46.0.1"), "routes",
				`[{"dst":"10.50.0.0/16","mtu":1300,"advmss":1200,"priority":50,"table":300},{"dst":"10.51.0.0/16","scope":253}]`)
			c := l.attach(l.on(kind, "ipam", ipam), "web")
			l.shows(c.routes("10.50.0.0/16"), "via 10.46.0.1", "mtu 1300", "advmss 1200", "metric 50", "table 300")
			l.shows(c.routes("10.51.0.0/16"), "scope link")
		}},
		{name: "IPv6 addresses that IPAM hands out once are used at once", differs: "it waits for duplicate address detection", test: func(l *lab) {
			l.same(l.attach(l.on(kind), "web").sysctl("ipv6/conf/eth0/accept_dad"), "0")
		}},
		{name: "an IPv6 address that the configuration names is looked for on the segment first", test: func(l *lab) {
			n := l.on(kind, "ipam", fixedIPs("fd00:46::7/64 fd00:46::1"))
			c := l.attach(n, "web")
			l.same(l.probed(&c.Namespace, "eth0"), "")
			c.pings("fd00:46::1")
		}},
		{name: "neighbours learn that an address has another MAC address", differs: map[string]string{"vlan": "it does not tell them"}[kind], test: func(l *lab) {
			link := l.segment(kind)
			out := &l.out.Namespace
			for _, a := range []string{"10.46.0.2", "fd00:46::2"} {
				run(l, out, "ip neigh replace "+a+" lladdr 02:66:66:66:66:66 nud stale dev "+link)
			}
			c := l.attach(l.on(kind), "web")
			l.eventually(func() string {
				for _, a := range []string{c.v4, c.v6} {
					if known := run(l, out, "ip neigh show "+a); !strings.Contains(known, c.result.Interfaces[0].Mac) {
						return known
					}
				}
				return ""
			})
		}},
		{name: "the container does not listen to whoever says that it is a router", differs: "it does", test: func(l *lab) {
			l.same(l.attach(l.on(kind), "web").sysctl("ipv6/conf/eth0/accept_ra"), "0")
		}},
		{name: "acceptRA lets the container listen to the routers of the segment", test: func(l *lab) {
			l.same(l.attach(l.on(kind, "acceptRA", "true"), "web").sysctl("ipv6/conf/eth0/accept_ra"), "1")
		}},
		{name: "a container has an interface on each of two networks", test: func(l *lab) {
			c := l.attach(l.on(kind), "web")
			net1 := c.another()
			back := l.on(kind, "ipam", fixedIPs("10.55.0.2/24")).called("back")
			if kind == "vlan" {
				back = l.on(kind, "ipam", fixedIPs("10.55.0.2/24"), "vlanId", "6").called("back")
			}
			l.must(net1.add(back, ifname("net1")), net1.del())
			c.pings("10.46.0.1", "fd00:46::1")
			l.must(c.check())
		}},
	}
}

// onMasterRefusals is what ADD refuses before it does anything.
func onMasterRefusals(p mainPlugin) []row {
	nameless := "its error does not name the master"
	if p.kind == "ipvlan" {
		nameless = ""
	}
	return append(p.refusals(shared(p, []refusal{
		{name: "a master that is not there", says: "other0", differs: nameless, keys: []string{"master", `"other0"`}},
		{name: "a master that is not in the container", says: netlab.UplinkName, differs: nameless, keys: []string{"linkInContainer", "true"}},
		{name: "a master that is no string", says: "master", keys: []string{"master", "5"}},
		{name: "a linkInContainer that is no boolean", says: "linkInContainer", keys: []string{"linkInContainer", `"yes"`}},
		{name: "an mtu above the master's", says: "invalid MTU 1501, must be [0, master MTU(1500)]", keys: []string{"mtu", "1501"}, except: "ipvlan"},
		{name: "an mtu below 68", says: "mtu", keys: []string{"mtu", "67"}, differs: "it takes any below the master's"},
		{name: "a mode that there is none of", says: "frobnicate", keys: []string{"mode", `"frobnicate"`}, except: "vlan"},
		{name: "a MAC address that is none", keys: []string{"mac", `"02:00:00"`}, except: "ipvlan vlan"},
		{name: "a MAC address that is no string", keys: []string{"mac", "7"}, except: "ipvlan vlan"},
		{name: "a multicast MAC address", keys: []string{"mac", `"03:00:00:00:00:01"`}, except: "ipvlan vlan"},
		{name: "no ipam", says: "ipam", keys: []string{"ipam", "{}"}, except: "macvlan", differs: leavesLink},
	})), row{name: "what is refused has an error that says what to do", differs: "its errors have no details", test: func(l *lab) {
		l.code(l.verb("ADD", l.pod("web"), onMaster(p.kind, "capabilities", "{}", "master", `"other0"`)), 7)
	}})
}

const leavesLink = "its failed ADD leaves the link"

// onMasterFailures is what ADD finds out on its way.
func onMasterFailures(p mainPlugin) []row {
	return append(p.failures([]refusal{
		{name: "an IPv6 address that somebody else has", differs: leavesLink, says: "fd00:46::7",
			keys: []string{"ipam", fixedIPs("fd00:46::7/64 fd00:46::1")}, prepare: func(l *lab, _ *container) {
				run(l, &l.out.Namespace, "ip address add fd00:46::7/64 nodad dev "+l.segment(p.kind))
			}},
	}),
		row{name: "ADD after an ADD that failed succeeds", differs: leavesLink, test: func(l *lab) {
			bad := p.network(l, "ipam", `{"type":"host-local","subnet":"10.46.0.0/24","routes":[{"dst":"10.60.0.0/16","gw":"172.31.0.1"}]}`)
			c := l.pod("web")
			l.refused(c.add(bad))
			l.must(c.add(p.network(l)))
			c.pings("10.46.0.1")
		}},
	)
}

// onMasterDels are states of an attachment that DEL finds, and what else there is to a DEL.
func onMasterDels(p mainPlugin) []row {
	readsAll, looks := "", "" // the others' DEL has enough with the result
	if p.kind == "vlan" {
		readsAll, looks = "its DEL reads what ADD needs", "its DEL looks for the master"
	}
	return append(p.dels([]stateOfDel{
		{name: "DEL without the namespace's path and without a result gives back the address", state: func(l *lab, c *container) { c.Delete(l) }, bare: true},
		{name: "DEL with another master configured, which is not there, leaves nothing", differs: readsAll, state: edited("master", `"other0"`)},
		{name: "DEL with no master configured leaves nothing", differs: readsAll, state: edited("master", `""`)},
		{name: "DEL with linkInContainer, which ADD did not have, leaves nothing", differs: readsAll, state: edited("linkInContainer", "true")},
		{name: "DEL with values that ADD refuses leaves nothing", differs: readsAll, state: edited("mode", `"frobnicate"`, "vlanId", "4095", "mtu", "99999")},
		{name: "DEL with values of the wrong kind leaves nothing", differs: "it reads all keys for DEL",
			state: edited("mode", "7", "vlanId", `"5"`, "mtu", `"1400"`, "master", "{}", "mac", "7")},
	}),
		row{name: "DEL with the master gone gives back the address", differs: looks, test: func(l *lab) {
			web := l.attach(p.network(l), "web")
			l.run("ip link del " + netlab.UplinkName)
			l.must(web.del())
			l.same(len(l.files("/var/lib/cni/networks/lan/[1f]*")), 0)
		}},
		row{name: "DEL with a section ipam that can't be read leaves nothing of host-local's", differs: "its DEL fails then", test: func(l *lab) {
			web := l.attach(p.network(l), "web")
			l.must(l.verb("DEL", web, onMaster(p.kind, "capabilities", "{}", "ipam", "5")))
			l.gone(&web.Namespace, "eth0")
			l.same(len(l.files("/var/lib/cni/networks/lan/[1f]*")), 0)
		}},
	)
}

func onMasterLateDels(kind string) []row {
	fails := map[string]string{"ipvlan": "its ADD fails", "vlan": "its ADD fails"}[kind] // macvlan's MAC addresses are random there
	return []row{
		{name: "what a container has whose namespace is going without DEL is waited for", differs: fails, test: func(l *lab) {
			n := l.on(kind, "ipam", fixedIPs("10.46.0.9/24"))
			c := l.attach(n, "web")
			keeps := c.Command("sleep", "infinity")
			l.must(c.Start(keeps))
			c.Replace(l)
			go func() {
				netlab.Pause(2 * time.Second) // less than ADD waits
				_ = keeps.Process.Kill()
			}()
			l.must(c.add(n))
			_ = keeps.Wait()
		}},
		{name: "DEL removes a link that the reference plugin made, with and without a result", test: func(l *lab) {
			for name, result := range map[string]bool{"with": true, "without": false} {
				l.segment(kind)
				c := l.never(l.on(kind), name)
				suffix := map[string]string{"vlan": " id " + vlanID}[kind]
				l.run("ip link add link " + netlab.UplinkName + " name veth0 netns " + name + " type " + kind + suffix)
				c.run("ip link set veth0 name eth0")
				config := onMaster(kind, "capabilities", "{}")
				if result {
					config = with(config, "prevResult", fmt.Sprintf(`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":%q,"sandbox":%q}]}`,
						l.link(&c.Namespace, "eth0")["address"], c.Path()))
				}
				l.must(l.verb("DEL", c, config))
				l.gone(&c.Namespace, "eth0")
			}
		}},
		{name: "DEL leaves the host's links, whatever the container has made", test: func(l *lab) {
			c := l.attach(l.on(kind), "web")
			links := l.run("ip -br link")
			c.run("ip link del eth0", "ip link add "+netlab.UplinkName+" index 4242 type veth peer name eth0")
			l.must(c.del())
			l.same(l.run("ip -br link"), links)
		}},
	}
}

func onMasterGCs(kind string) []row {
	return []row{
		{name: "GC gives back the addresses of containers that are gone", differs: noGC, test: func(l *lab) {
			keep := l.attach(l.on(kind), "keep")
			before := l.now(keep)
			if kind == "vlan" { // one container can have it
				l.takeAddress("10.46.0.77")
			} else {
				l.attach(l.on(kind), "lost").Delete(l)
			}
			l.must(l.gc(l.on(kind), keep))
			before.unchanged()
			l.must(keep.check())
		}},
		{name: "GC works though the master is gone", differs: noGC, test: func(l *lab) {
			l.attach(l.on(kind), "lost").Delete(l)
			n := l.on(kind)
			l.run("ip link del " + netlab.UplinkName)
			l.must(l.gc(n))
			l.same(len(l.files("/var/lib/cni/networks/lan/[1f]*")), 0)
		}},
	}
}

// onMasterChecks attach a container, do it harm, and have CHECK find that, or not if it is none.
func onMasterChecks(p mainPlugin) []row {
	addressesAgain := inside("ip address add 10.44.0.2/24 dev eth0", "ip address add fd00:44::2/64 dev eth0 nodad", "ip link set eth0 up",
		"ip route add default via 10.44.0.1", "ip route add default via fd00:44::1")
	rows := p.harmed([]event{
		{name: "another kind of link has the interface's name", says: "eth0", happens: func(l *lab, c *container) {
			mac := c.result.Interfaces[0].Mac
			c.run("ip link del eth0", "ip link add eth0 address "+mac+" type bridge")
			addressesAgain(l, c)
		}},
		{name: "the interface is on a link that the container has made", says: netlab.UplinkName, differs: "its CHECK does not compare the master",
			happens: func(l *lab, c *container) {
				mac := c.result.Interfaces[0].Mac
				index := fmt.Sprint(l.link(&l.host.Namespace, netlab.UplinkName)["ifindex"])
				c.run("ip link del eth0")
				if p.kind == "macvlan" {
					c.run("ip link add base0 index " + index + " type veth peer name base1 index 99")
					c.run("ip link add link base0 name eth0 address " + mac + " type macvlan mode bridge")
				} else {
					c.run("ip link add base0 index " + index + " address " + mac + " type veth peer name base1 index 99")
					c.run("ip link add link base0 name eth0 type " + p.kind + map[string]string{"ipvlan": " mode l2", "vlan": " id " + vlanID}[p.kind])
				}
				c.run("ip link set base0 up")
				addressesAgain(l, c)
			}},
	})
	for _, lost := range []string{"mtu", "advmss", "priority"} {
		rows = append(rows, row{name: "CHECK fails when a route has another " + lost, differs: "its CHECK does not compare it", test: func(l *lab) {
			web := l.attach(p.network(l, "ipam", with(fixedIPs("10.46.0.7/24 10.46.0.1"), "routes", `[{"dst":"10.50.0.0/16",`+text(lost)+`:700}]`)), "web")
			l.must(web.check())
			web.run("ip route del 10.50.0.0/16", "ip route add 10.50.0.0/16 via 10.46.0.1")
			l.refused(web.check(), "10.50.0.0/16")
		}})
	}
	return append(rows, p.unharmed([]event{{name: "nothing has changed", keys: []string{"mtu", "1400"}}})...)
}

func onMasterStatus(kind string) []row {
	return []row{
		{name: "STATUS is good, and changes nothing", test: func(l *lab) {
			n := l.on(kind)
			l.now().unchangedBy(l.status(n))
		}},
		{name: "STATUS of a network with linkInContainer is good", test: func(l *lab) {
			l.must(l.status(l.on(kind, "linkInContainer", "true", "master", `"base0"`)))
		}},
		{name: "STATUS fails without the master", differs: "its STATUS does not look at the master", test: func(l *lab) {
			l.code(l.status(l.on(kind, "master", `"other0"`)), 50, "other0")
		}},
		{name: "STATUS fails with a configuration that ADD refuses", differs: "its STATUS does not look at all keys", test: func(l *lab) {
			l.refused(l.status(l.on(kind, "mtu", "67")), "mtu")
		}},
	}
}
