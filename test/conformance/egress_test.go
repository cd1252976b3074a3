package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

var egressRows = group{name: "egress", rows: slices.Concat(needing(&netlab.NFTables, egressReach(), egressHostile(), egressBeside(), egressNames(), egressLater()), egressRefusals(), egressKernel())}

// otherIPv4 and otherIPv6 are more addresses of the outside, which no list has.
const otherIPv4, otherIPv6 = "192.0.2.253", "2001:db8:2::253"

// egress is the plugin's configuration with these keys.
func egress(keys ...string) string {
	return with(`{"type":"egress","capabilities":{"egress":true}}`, keys...)
}

// routers are the plugins behind which lists can be had, with the same addresses.
var routers = map[string]string{
	"bridge": lan,
	"ptp":    ptp,
}

// listed are rows that are tried behind each of these plugins.
func listed(name string, test func(l *lab, main string)) (rows []row) {
	for _, kind := range []string{"bridge", "ptp"} {
		rows = append(rows, row{name: kind + ": " + name, test: func(l *lab) { test(l, routers[kind]) }})
	}
	return rows
}

// wideOutside is the outside with two addresses of each family, where ports 80 and 81 answer, as they do on the node.
func (l *lab) wideOutside() *netlab.Namespace {
	out := &l.outside().Namespace
	run(l, out, "ip addr add "+otherIPv4+"/24 dev uplink0", "ip addr add "+otherIPv6+"/64 dev uplink0 nodad")
	for _, n := range []*netlab.Namespace{out, &l.host.Namespace} {
		l.serve(n, 80)
		l.serve(n, 81)
	}
	l.outside().AddRoute(l, "10.44.0.0/24")
	l.outside().AddRoute(l, "fd00:44::/64")
	return out
}

// both are paths over TCP and UDP.
func both(from *netlab.Namespace, port int, to ...string) (paths []path) {
	for _, a := range to {
		paths = append(paths, tcp(from, a, port), udp(from, a, port))
	}
	return paths
}

// everywhere are paths to all that a container can ask: the outside's addresses, the node's and the gateway's.
func everywhere(from *netlab.Namespace) []path {
	return slices.Concat(
		both(from, 80, netlab.OutsideIPv4, netlab.OutsideIPv6, otherIPv4, otherIPv6, netlab.HostIPv4, netlab.HostIPv6, "10.44.0.1", "fd00:44::1"),
		both(from, 81, netlab.OutsideIPv4, netlab.OutsideIPv6))
}

// reaches makes sure that these paths of all are open, and the others closed.
func (l *lab) reaches(all []path, open ...path) {
	l.pass(open...)
	l.silent(slices.DeleteFunc(slices.Clone(all), func(p path) bool { return slices.Contains(open, p) })...)
}

func egressReach() (rows []row) {
	for _, c := range []struct {
		name, allow, deny string
		open              func(from *netlab.Namespace) []path
	}{
		{"allow has addresses: these are reached, and nothing else", `["` + netlab.OutsideIPv4 + `","` + netlab.OutsideIPv6 + `"]`, "",
			func(n *netlab.Namespace) []path {
				return slices.Concat(both(n, 80, netlab.OutsideIPv4, netlab.OutsideIPv6), both(n, 81, netlab.OutsideIPv4, netlab.OutsideIPv6))
			}},
		{"allow has prefixes: what is in them is reached", `["192.0.2.252/31","2001:db8:2::252/127"]`, "",
			func(n *netlab.Namespace) []path { return both(n, 80, otherIPv4, otherIPv6) }},
		{"allow has ports: these are reached over TCP and UDP", `["192.0.2.0/24:80","[2001:db8:2::/64]:80"]`, "",
			func(n *netlab.Namespace) []path {
				return both(n, 80, netlab.OutsideIPv4, netlab.OutsideIPv6, otherIPv4, otherIPv6, netlab.HostIPv4, netlab.HostIPv6)
			}},
		{"allow has ranges of ports of one protocol", `["192.0.2.254:81-90/tcp","[2001:db8:2::254]:1-80/udp"]`, "",
			func(n *netlab.Namespace) []path {
				return []path{tcp(n, netlab.OutsideIPv4, 81), udp(n, netlab.OutsideIPv6, 80)}
			}},
		{"an empty allow reaches nothing", `[]`, "", func(n *netlab.Namespace) []path { return nil }},
		{"allow has the node: it is reached like others", `["192.0.2.1","fd00:44::1"]`, "",
			func(n *netlab.Namespace) []path { return both(n, 80, netlab.HostIPv4, "fd00:44::1") }},
		{"deny closes what allow opens", `["192.0.2.0/24","2001:db8:2::/64"]`, `["192.0.2.253","2001:db8:2::253","192.0.2.1:80","[2001:db8:2::1]:80/tcp","192.0.2.254:81","[2001:db8:2::254]:81"]`,
			func(n *netlab.Namespace) []path {
				return append(both(n, 80, netlab.OutsideIPv4, netlab.OutsideIPv6), udp(n, netlab.HostIPv6, 80))
			}},
		{"deny alone leaves all else open", "", `["192.0.2.254","2001:db8:2::254"]`,
			func(n *netlab.Namespace) []path {
				return both(n, 80, otherIPv4, otherIPv6, netlab.HostIPv4, netlab.HostIPv6, "10.44.0.1", "fd00:44::1")
			}},
	} {
		rows = append(rows, listed(c.name, func(l *lab, main string) {
			l.wideOutside()
			var keys []string
			if c.allow != "" {
				keys = append(keys, "allow", c.allow)
			}
			if c.deny != "" {
				keys = append(keys, "deny", c.deny)
			}
			web := l.attach(conf(main, egress(keys...)), "web")
			l.reaches(everywhere(&web.Namespace), c.open(&web.Namespace)...)
			l.must(web.check())
			other := l.attach(conf(main), "other") // which has no lists
			l.pass(everywhere(&other.Namespace)...)
		})...)
	}
	rows = append(rows, listed("lists of the container narrow the network's", func(l *lab, main string) {
		l.wideOutside()
		n := conf(main, egress("allow", `["192.0.2.0/24:80","2001:db8:2::/64"]`, "deny", `["192.0.2.253"]`))
		own := l.attach(n, "own", capability("egress", `{"allow":["0.0.0.0/0:80","[2001:db8:2::253]:80/tcp","fd00:44::1"],"deny":["192.0.2.1"]}`))
		l.reaches(everywhere(&own.Namespace), append(both(&own.Namespace, 80, netlab.OutsideIPv4), tcp(&own.Namespace, otherIPv6, 80))...)
		l.must(own.check())
		web := l.attach(n, "web")
		l.reaches(everywhere(&web.Namespace), slices.Concat(both(&web.Namespace, 80, netlab.OutsideIPv4, netlab.OutsideIPv6, otherIPv6, netlab.HostIPv4, netlab.HostIPv6),
			both(&web.Namespace, 81, netlab.OutsideIPv6))...)
	})...)
	rows = append(rows, listed("published ports answer, whatever the list says", func(l *lab, main string) {
		l.wideOutside()
		web := l.attach(conf(main, `{"type":"portmap","capabilities":{"portMappings":true}}`, egress("allow", `[]`)), "web", ports("8080:80/tcp", "8080:80/udp"))
		l.serve(&web.Namespace, 80)
		l.pass(both(&l.out.Namespace, 8080, netlab.HostIPv4, netlab.HostIPv6)...)
		l.pass(both(&l.host.Namespace, 80, web.v4, web.v6)...)
		l.silent(everywhere(&web.Namespace)...)
	})...)
	rows = append(rows, listed("a published port counts as the container behind it", func(l *lab, main string) {
		l.wideOutside()
		n := conf(main, `{"type":"portmap","capabilities":{"portMappings":true}}`)
		web := l.attach(n, "web", ports("8080:80/tcp"))
		l.serve(&web.Namespace, 80)
		n.plugins = append(n.plugins, egress("allow", `["192.0.2.1","2001:db8:2::1"]`))
		node := l.attach(n, "node")
		l.silent(tcp(&node.Namespace, netlab.HostIPv4, 8080), tcp(&node.Namespace, netlab.HostIPv6, 8080))
		n.plugins[2] = egress("allow", fmt.Sprintf(`["%s:80","[%s]:80"]`, web.v4, web.v6))
		backend := l.attach(n, "backend")
		l.pass(tcp(&backend.Namespace, netlab.HostIPv4, 8080), tcp(&backend.Namespace, netlab.HostIPv6, 8080))
	})...)
	rows = append(rows, listed("containers of the same network are closed unless they are in the list", func(l *lab, main string) {
		l.outside()
		web := l.attach(conf(main), "web")
		l.serve(&web.Namespace, 80)
		for name, c := range map[string]struct {
			keys string
			open bool
		}{
			"none": {`{"allow":[]}`, false}, "all": {`{"allow":["10.44.0.0/24","fd00:44::/64"]}`, true}, "more": {`{"allow":["0.0.0.0/0","::/0"]}`, true},
			"parts":      {`{"allow":["10.44.0.0/25","10.44.0.128/25","fd00:44::/65","fd00:44:0:0:8000::/65"]}`, true},
			"one":        {`{"allow":["` + web.v4 + `:80","[` + web.v6 + `]:80"]}`, true},
			"port":       {`{"allow":["` + web.v4 + `:81","[` + web.v6 + `]:81"]}`, false},
			"one denied": {`{"deny":["` + web.v4 + `","` + web.v6 + `"]}`, false}, "another denied": {`{"deny":["10.44.0.200","fd00:44::200"]}`, true},
			"deny": {`{"deny":["10.44.0.0/16","fd00:44::/32"]}`, false}, "elsewhere": {`{"deny":["192.0.2.0/24","2001:db8::/32"]}`, true},
		} {
			o := object(c.keys)
			var keys []string
			for key, value := range o {
				keys = append(keys, key, text(value))
			}
			c2 := l.attach(conf(main, egress(keys...)), strings.ReplaceAll(name, " ", "-"))
			l.connects(c.open, both(&c2.Namespace, 80, web.v4, web.v6)...)
			l.serve(&c2.Namespace, 80)
			if c.open && name != "one" || strings.Contains(main, `"ptp"`) { // where it is routed, and so answers
				l.pass(both(&web.Namespace, 80, c2.v4, c2.v6)...)
			} else {
				l.silent(both(&web.Namespace, 80, c2.v4, c2.v6)...)
			}
			l.must(c2.check(), c2.del())
		}
	})...)
	rows = append(rows, listed("internal: the network's own subnets, nothing else, and published ports answer", func(l *lab, main string) {
		l.wideOutside()
		web := l.attach(conf(main), "web")
		l.serve(&web.Namespace, 80)
		in := l.attach(conf(main, `{"type":"portmap","capabilities":{"portMappings":true}}`, egress("internal", "true")), "in", ports("8080:80/tcp"))
		l.serve(&in.Namespace, 80)
		l.pass(both(&in.Namespace, 80, web.v4, web.v6)...)
		l.silent(everywhere(&in.Namespace)...)
		l.pass(tcp(&l.out.Namespace, netlab.HostIPv4, 8080), tcp(&l.out.Namespace, netlab.HostIPv6, 8080))
		l.must(in.check())
	})...)
	return rows
}

func egressBeside() (rows []row) {
	list := egress("allow", `["192.0.2.254:80","[2001:db8:2::254]:80"]`)
	for _, policy := range []string{"open", "same-bridge", "isolated"} {
		rows = append(rows, row{name: "firewall, " + policy + ": its policy and the list are both kept, on a node that drops what it forwards", test: func(l *lab) {
			l.wideOutside()
			l.closed()
			other := l.serving(l.guardedBridge(2, policy), "other")
			n := conf(lan, `{"type":"firewall","ingressPolicy":`+text(policy)+`}`)
			beside := l.serving(n, "beside")
			n.plugins = append(n.plugins, list)
			web := l.attach(n, "web")
			l.reaches(append(everywhere(&web.Namespace), append(beside.to(&web.Namespace), other.to(&web.Namespace)...)...), both(&web.Namespace, 80, netlab.OutsideIPv4, netlab.OutsideIPv6)...)
			l.pass(both(&beside.Namespace, 80, otherIPv4, otherIPv6)...)
			l.must(web.check(), beside.check())
		}})
	}
	return append(rows,
		row{name: "bridge with macspoofchk: both are kept", test: func(l *lab) {
			l.wideOutside()
			web := l.attach(conf(with(lan, "macspoofchk", "true"), list), "web")
			l.reaches(everywhere(&web.Namespace), both(&web.Namespace, 80, netlab.OutsideIPv4, netlab.OutsideIPv6)...)
			l.must(web.check(), web.del())
		}},
		row{name: "a rule of others that accepts before opens nothing", test: func(l *lab) {
			l.wideOutside()
			l.run("nft add table inet row", "nft add chain inet row in { type filter hook input priority -400 ; policy accept ; }", "nft add chain inet row onward { type filter hook forward priority -400 ; policy accept ; }",
				"nft add rule inet row onward accept", "nft add rule inet row in accept")
			l.bothTables("-I FORWARD -j ACCEPT")
			l.bothTables("-I INPUT -j ACCEPT")
			web := l.attach(conf(lan, list), "web")
			l.reaches(everywhere(&web.Namespace), both(&web.Namespace, 80, netlab.OutsideIPv4, netlab.OutsideIPv6)...)
		}},
		row{name: "two networks of a container have a list each", test: func(l *lab) {
			l.wideOutside()
			web := l.attach(conf(lan, list), "web")
			second := conf(with(ptp, "ipam", `{"type":"host-local","ranges":[[{"subnet":"10.45.0.0/24"}]],"routes":[{"dst":"192.0.2.253/32"}]}`), egress("allow", `["192.0.2.253"]`)).called("second")
			other := web.attach(second, "net1")
			l.pass(both(&web.Namespace, 80, netlab.OutsideIPv4, otherIPv4)...)
			l.silent(both(&web.Namespace, 80, netlab.HostIPv4)...)
			l.must(web.check(), other.check(), other.del())
			l.pass(both(&web.Namespace, 80, netlab.OutsideIPv4)...)
		}})
}

func egressRefusals() (rows []row) {
	for _, c := range []struct{ keys, what string }{
		{`{"deny":["*.example.com"]}`, "allow"}, {`{"allow":["*.example.com"],"deny":["a.example.com:80"]}`, "deny[0]"}, {`{"allow":["a*.example.com"]}`, "allow[0]"},
		{`{"allow":["10.0.0.300"]}`, "allow[0]"}, {`{"allow":["10.0.0.0/33"]}`, "allow[0]"}, {`{"allow":["10.0.0.1","10.0.0.1:0"]}`, "allow[1]"},
		{`{"allow":["10.0.0.1:99999"]}`, "allow[0]"}, {`{"allow":["10.0.0.1/8"]}`, "10.0.0.0/8"}, {`{"allow":["10.0.0.1:9-8"]}`, "allow[0]"}, {`{"allow":["10.0.0.1/tcp"]}`, "allow[0]"},
		{`{"deny":["fe80::1%eth0"]}`, "deny[0]"}, {`{"deny":["::ffff:10.0.0.1"]}`, "deny[0]"}, {`{"deny":["[10.0.0.1]:80"]}`, "deny[0]"}, {`{"deny":["[fd00::1"]}`, "deny[0]"},
		{`{"deny":[""]}`, "deny[0]"}, {`{"deny":["10.0.0.1:80/icmp"]}`, "deny[0]"}, {`{"allow":["10.0.0.1:80/udp/tcp"]}`, "allow[0]"}, {`{"allow":"10.0.0.1"}`, "allow"}, {`{"internal":true,"allow":[]}`, "allow"}, {`{"internal":true,"deny":["a.example.com"]}`, "leave the names out"},
		{`{"allow":null}`, "null"}, {`{"deny":null}`, "null"},
		{`{"backend":"firewalld"}`, "backend"},
	} {
		rows = append(rows, row{name: "a configuration that can't be right is refused: " + c.keys, test: func(l *lab) {
			var keys []string
			for key, value := range object(c.keys) {
				keys = append(keys, key, text(value))
			}
			w := l.attach(conf(lan), "web")
			_, err := l.exec("ADD", w, with(egress(keys...), "prevResult", w.printed))
			l.code(err, 7, c.what)
		}})
	}
	return append(rows,
		row{name: `backend "iptables" is refused, as it can't be enforced`, test: func(l *lab) {
			w := l.attach(conf(lan), "web")
			_, err := l.exec("ADD", w, with(egress("allow", "[]", "backend", `"iptables"`), "prevResult", w.printed))
			l.code(err, 50, "iptables")
			l.code(l.status(conf(lan, egress("allow", "[]", "backend", `"iptables"`))), 50, "iptables")
		}},
		row{name: "behind macvlan it is refused: the host sees nothing", needs: nil, test: func(l *lab) {
			l.outside()
			w := l.pod("web")
			err := w.add(conf(`{"type":"macvlan","master":"uplink0","ipam":{"type":"host-local","subnet":"10.44.0.0/24"}}`, egress("allow", "[]")))
			l.code(err, 7, "macvlan")
		}},
		row{name: "behind a bridge whose gateway is not the host it is refused", test: func(l *lab) {
			w := l.pod("web")
			err := w.add(conf(`{"type":"bridge","bridge":"lan0","ipam":{"type":"host-local","subnet":"10.44.0.0/24"}}`, egress("allow", "[]")))
			l.code(err, 7, "isGateway")
		}})
}

func egressLater() (rows []row) {
	rows = append(rows, listed("internal has no address of the node, by which all routers of a subnet are meant neither", func(l *lab, main string) {
		l.wideOutside()
		c := l.attach(conf(main, egress("internal", `true`)), "web")
		l.silent(udp(&c.Namespace, "fd00:44::", 80), udp(&c.Namespace, "fd00:44::1", 80), udp(&c.Namespace, "10.44.0.1", 80))
	})...)
	list := egress("allow", `["192.0.2.254:80","2001:db8:2::/64"]`)
	rows = append(rows, listed("DEL leaves nothing, and opens nothing for others", func(l *lab, main string) {
		l.wideOutside()
		n := conf(main, list)
		before := l.warmed(n)
		one, two := l.attach(n, "one"), l.attach(n, "two")
		l.must(one.del())
		l.pass(both(&two.Namespace, 80, netlab.OutsideIPv4, netlab.OutsideIPv6)...)
		l.silent(both(&two.Namespace, 80, otherIPv4, netlab.HostIPv4)...)
		l.must(two.check(), two.del())
		two.Delete(l)
		one.Delete(l)
		before.unchanged()
	})...)
	rows = append(rows, listed("DEL needs the key alone, and may come again", func(l *lab, main string) {
		n := conf(main, list)
		before := l.warmed(n)
		one := l.attach(n, "one")
		l.forget()
		l.must(one.delBare(), one.delBare())
		one.Delete(l)
		before.unchanged()
	})...)
	rows = append(rows, listed("GC takes what is of attachments that are not valid", func(l *lab, main string) {
		n := conf(main, list)
		l.warm(n)
		l.must(l.gc(n))
		before := l.now()
		one, two := l.attach(n, "one"), l.attach(n, "two")
		l.must(l.gc(n, one))
		l.must(one.check())
		l.refused(two.check())
		l.must(l.gc(n))
		one.Delete(l)
		two.Delete(l)
		l.clear("/var/lib/cni/results")
		before.unchanged()
	})...)
	for _, c := range []struct{ what, of, element string }{
		{"an address of somebody's in its list's set", "allow4_v1_", "203.0.113.0/24"}, {"most of all addresses", "allow4_v1_", "128.0.0.0/2"}, {"an address of IPv6", "allow6_v1_", "2001:db8:9::/48"},
		{"ports of somebody's", "portsallow4_v1_", "203.0.113.0/24 . tcp . 1-65535"}, {"an address for good that no name leads to", "names0_4_v1_", "203.0.113.9"},
		{"an address for a while that no name leads to", "names0_4_v1_", "203.0.113.9 timeout 1h"},
	} {
		rows = append(rows, row{name: "CHECK notices in its list: " + c.what, test: func(l *lab) {
			web := l.attach(conf(lan, egress("allow", `["192.0.2.254","2001:db8:2::254","192.0.2.253:80","api.example.com:80"]`)), "web")
			l.must(web.check())
			l.run("nft add element inet cnibox-egress " + l.nameOfRules(c.of) + " { " + c.element + " }")
			l.refused(web.check(), "have something else besides")
		}})
	}
	for _, harm := range []string{
		"delete table inet cnibox-egress", "flush table inet cnibox-egress", "flush chain inet cnibox-egress judge_v1", "flush chain inet cnibox-egress LIST", "flush set inet cnibox-egress DENY",
		"flush map inet cnibox-egress judged4_v1", "flush map inet cnibox-egress owners_v1", "flush set inet cnibox-egress pairs6_v1",
		"delete table bridge cnibox-egress", "flush chain bridge cnibox-egress forward_v1", "flush set bridge cnibox-egress checked_v1",
		"insert rule inet cnibox-egress LIST accept", "insert rule inet cnibox-egress forward_v1 accept", "insert rule inet cnibox-egress judge_v1 return", "insert rule bridge cnibox-egress forward_v1 accept",
	} {
		rows = append(rows, row{name: "CHECK notices: " + strings.NewReplacer("LIST", "its list", "DENY", "its list's addresses").Replace(harm), test: func(l *lab) {
			c := l.attach(conf(lan, egress("deny", `["192.0.2.254"]`)), "web")
			l.must(c.check())
			command := strings.NewReplacer("LIST", l.nameOfRules("list_v1_"), "DENY", l.nameOfRules("deny4_v1_")).Replace(harm)
			l.run("nft " + command)
			l.refused(c.check(), "egress")
		}})
	}
	return append(rows,
		row{name: "after ADD nothing of somebody's is left that opens the list", test: func(l *lab) {
			l.wideOutside()
			n := conf(lan, list)
			l.must(l.attach(n, "one").check())
			l.run("nft insert rule inet cnibox-egress forward_v1 accept")
			web := l.attach(n, "web")
			l.silent(both(&web.Namespace, 81, netlab.OutsideIPv4)...)
			l.must(web.check())
		}},
		row{name: "CHECK after the lists were edited says that the container has to start again", test: func(l *lab) {
			c := l.attach(conf(lan, list), "web")
			for _, other := range []string{egress("allow", `["192.0.2.254:81"]`), egress("allow", `["10.44.0.0/24","fd00:44::/64"]`), egress("deny", `["192.0.2.254"]`), egress("internal", "true")} {
				c.network = conf(lan, other)
				l.refused(c.check(), "start the container again")
			}
			c.network = conf(lan, egress("allow", `["2001:DB8:2::/64","192.0.2.254/32:80-80"]`)) // the same in other words
			l.must(c.check())
		}},
		row{name: "STATUS of a list succeeds, and changes nothing", test: func(l *lab) { l.now().unchangedBy(l.status(conf(lan, list))) }})
}

// nameOfRules returns the first name in the table of lists that begins so.
func (l *lab) nameOfRules(prefix string) string {
	rules := l.run("nft list table inet cnibox-egress")
	_, behind, found := strings.Cut(rules, prefix)
	if !found {
		l.Fatalf("there is no %s…:\n%s", prefix, rules)
	}
	return prefix + strings.Fields(behind)[0]
}
