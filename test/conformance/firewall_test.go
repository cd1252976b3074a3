package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cnibox/cnibox/test/netlab"
)

var firewallRows = group{name: "firewall", rows: slices.Concat(
	firewallPassing(), firewallAdmin(), firewallResults(), firewallRefusals(),
	firewallPolicies(), firewallDel(), firewallGC(), firewallCheck(), firewallStatus(), firewallZones(),
)}

// Why the reference plugin fails rows; others are at the rows of tuning.
const (
	needsResult    = "its DEL removes nothing without a previous result"
	byAddress      = "its DEL goes by addresses, not by whose they are"
	policyStays    = "a policy stays for ever"
	policyNotSeen  = "its CHECK does not look at the policy"
	checkMakes     = "its CHECK makes chains that are missing"
	falseIsTrue    = "its CHECK takes any answer of firewalld for a yes"
	unknownBackend = "it takes a backend that it does not know for none"
)

// firewall is the plugin's configuration with these keys, and the backend that the row is tried with.
func (l *lab) firewall(keys ...string) string {
	config := with(`{"type":"firewall"}`, keys...)
	if l.backend != "" {
		config = with(config, "backend", text(l.backend))
	}
	return config
}

// guarded is lan with firewall behind it.
func (l *lab) guarded(keys ...string) network { return conf(lan, l.firewall(keys...)) }

// closed has the node drop what it is to forward, as Docker and ufw make it.
func (l *lab) closed() {
	l.bothTables("-P FORWARD DROP")
}

// bothTables calls iptables for both families.
func (l *lab) bothTables(arguments string) {
	l.run("iptables " + arguments)
	l.run("ip6tables " + arguments)
}

// internet is the outside, which answers on port 80.
func (l *lab) internet() *netlab.Namespace {
	l.serve(&l.outside().Namespace, 80)
	return &l.out.Namespace
}

// closedInternet is a node that drops what it is to forward, before the internet.
func (l *lab) closedInternet() {
	l.closed()
	l.internet()
}

// to are TCP connections to both addresses of a container.
func (c *container) to(from *netlab.Namespace) []path {
	return []path{tcp(from, c.v4, 80), tcp(from, c.v6, 80)}
}

// away are connections of a container to the outside.
func (c *container) away() []path {
	from := &c.Namespace
	return []path{tcp(from, netlab.OutsideIPv4, 80), tcp(from, netlab.OutsideIPv6, 80)}
}

// published are connections from outside to a port of the node.
func (l *lab) published(port int) []path {
	from := &l.outside().Namespace
	return []path{tcp(from, netlab.HostIPv4, port), tcp(from, netlab.HostIPv6, port)}
}

// pass makes sure that somebody answers along all paths, which are tried at the same time.
func (l *lab) pass(paths ...path) {
	var wait sync.WaitGroup
	for _, p := range paths {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if _, err := p.ask(l.patience()); err != nil {
				l.Errorf("%s: %v", p, err)
			}
		}()
	}
	wait.Wait()
}

// routed gives the outside routes to lan, so that it can try the containers themselves.
func (l *lab) routed() *netlab.Namespace {
	l.outside().AddRoute(l, "10.44.0.0/24")
	l.out.AddRoute(l, "fd00:44::/64")
	return &l.out.Namespace
}

func firewallPassing() (rows []row) {
	for _, c := range []struct{ family, subnet, outside string }{
		{"IPv4", "10.44.0.0/24", netlab.OutsideIPv4}, {"IPv6", "fd00:44::/64", netlab.OutsideIPv6},
	} {
		rows = append(rows, row{name: "a container with " + c.family + " only", backends: true, test: func(l *lab) {
			l.closedInternet()
			web := l.attach(conf(with(lan, "ipam", `{"type":"host-local","subnet":"`+c.subnet+`"}`), l.firewall()), "web")
			l.pass(tcp(&web.Namespace, c.outside, 80))
			l.must(web.check())
			l.must(web.del())
		}})
	}
	return append(rows, []row{
		{name: "a container connects to the outside through a node that drops forwarded packets", backends: true, test: func(l *lab) {
			l.closedInternet()
			bare := l.attach(conf(lan), "bare")
			l.silent(bare.away()...)
			c := l.attach(l.guarded(), "web")
			l.pass(c.away()...)
			l.pass(udp(&c.Namespace, netlab.OutsideIPv4, 80), udp(&c.Namespace, netlab.OutsideIPv6, 80))
			l.silent(bare.away()...)
			l.must(c.Ping(netlab.OutsideIPv4, l.patience()))
			l.must(c.Ping(netlab.OutsideIPv6, l.patience()))
		}},
		{name: "a node is served that drops with iptables-legacy", backends: true, test: func(l *lab) {
			l.host.UseIPTables(l, "legacy")
			l.run("iptables-legacy -P FORWARD DROP")
			l.run("ip6tables-legacy -P FORWARD DROP")
			l.internet()
			bare := l.attach(conf(lan), "bare")
			l.silent(bare.away()...)
			c := l.attach(l.guarded(), "web")
			l.pass(c.away()...)
			l.must(c.check())
		}},
		{name: "a node is served that begins to drop later", backends: true, test: func(l *lab) {
			l.internet()
			c := l.attach(l.guarded(), "web")
			l.closed()
			l.pass(c.away()...)
		}},
		{name: "rules that drop in chain FORWARD don't stop a container's packets", backends: true, test: func(l *lab) {
			l.bothTables("-A FORWARD -j DROP")
			l.internet()
			l.pass(l.attach(l.guarded(), "web").away()...)
		}},
		{name: "ICMP errors about a container's packets get back to it", backends: true, test: func(l *lab) {
			l.closedInternet()
			c := l.attach(l.guarded(), "web")
			for _, to := range []string{netlab.OutsideIPv4, netlab.OutsideIPv6} {
				p := udp(&c.Namespace, to, 81) // where nobody listens
				if _, err := p.ask(l.patience()); !errors.Is(err, syscall.ECONNREFUSED) {
					l.Errorf("%s: %v", p, err)
				}
			}
		}},
		{name: "new connections from outside don't get to a container", backends: true, test: func(l *lab) {
			l.closed()
			c := l.attach(l.guarded(), "web")
			l.serve(&c.Namespace, 80)
			from := l.routed()
			l.silent(append(c.to(from), udp(from, c.v4, 80), udp(from, c.v6, 80))...)
			l.pass(c.to(&l.host.Namespace)...)
		}},
		{name: "new connections from outside get to a container on a node that drops nothing", backends: true, test: func(l *lab) {
			c := l.attach(l.guarded(), "web")
			l.serve(&c.Namespace, 80)
			l.pass(c.to(l.routed())...)
		}},
		{name: "a published port is let in", needs: &netlab.NFTables, differs: "it leaves published ports to the administrator", test: func(l *lab) {
			l.closed()
			c := l.attach(conf(published(l).plugins[0], published(l).plugins[1], l.firewall()), "web", ports("8080:80/tcp"))
			l.serve(&c.Namespace, 80)
			l.pass(l.published(8080)...)
			l.silent(c.to(l.routed())...)
		}},
		{name: "with backend iptables a published port is up to the administrator", test: func(l *lab) {
			l.backend = "iptables"
			l.closed()
			c := l.attach(conf(published(l).plugins[0], published(l).plugins[1], l.firewall()), "web", ports("8080:80/tcp"))
			l.serve(&c.Namespace, 80)
			l.silent(l.published(8080)...)
			l.bothTables("-A CNI-ADMIN -m conntrack --ctstate DNAT -j ACCEPT")
			l.pass(l.published(8080)...)
		}},
		{name: "all addresses of the result pass, of whichever interface", backends: true, test: func(l *lab) {
			l.closedInternet()
			l.routed()
			c := l.attach(conf(lan), "web")
			_, err := l.exec("ADD", c, with(l.firewall(), "prevResult", `{"cniVersion":"1.0.0",
				"interfaces":[{"name":"lan0"},{"name":"eth0","sandbox":"/run/netns/web"},{"name":"net1","sandbox":"/run/netns/web"}],
				"ips":[{"address":"10.44.0.97/24","interface":1},{"address":"10.44.0.98/24","interface":2},{"address":"10.44.0.99/24"}]}`))
			l.must(err)
			for _, address := range []string{"10.44.0.97", "10.44.0.98", "10.44.0.99"} {
				c.run("ip address add " + address + "/24 dev eth0")
				c.run("ip route replace default via 10.44.0.1 src " + address)
				l.pass(c.away()[0])
			}
		}},
		{name: "a mark that somebody sets opens nothing", backends: true, test: func(l *lab) {
			l.closedInternet()
			l.bothTables("-t mangle -A PREROUTING -j MARK --set-mark 0xffffffff")
			c, bare := l.attach(l.guarded(), "web"), l.attach(conf(lan), "bare")
			l.serve(&c.Namespace, 80)
			l.silent(append(c.to(l.routed()), bare.away()...)...)
			l.pass(c.away()...)
		}},
		{name: "marks of other forwarded packets stay", test: func(l *lab) {
			l.internet()
			l.run("ip address add 192.0.2.7/24 dev " + netlab.UplinkName)
			router := l.attach(conf(with(lan, "ipMasq", "false")), "router")
			for bit := range 32 { // each may be what somebody uses
				l.run(fmt.Sprintf("iptables -t mangle -A PREROUTING -s %s -p tcp --dport %d -j MARK --set-mark %#x", router.v4, 8000+bit, 1<<bit))
				l.run(fmt.Sprintf("iptables -t nat -A POSTROUTING -s %s -m mark --mark %#x/%#x -j SNAT --to-source 192.0.2.7", router.v4, 1<<bit, 1<<bit))
			}
			l.attach(conf(with(lan, "bridge", `"lan1"`, "ipam", `{"type":"host-local","subnet":"10.45.0.0/24"}`), l.firewall()).called("other"), "web")
			var wait []path
			for bit := range 32 {
				l.out.ServeTCP(l, fmt.Sprintf(":%d", 8000+bit))
				wait = append(wait, tcp(&router.Namespace, netlab.OutsideIPv4, 8000+bit))
			}
			for _, p := range wait {
				l.answers(p, "outside saw 192.0.2.7")
				l.stopIfFailed()
			}
		}},
		{name: "a second ADD adds nothing", backends: true, test: func(l *lab) {
			c := l.attach(l.guarded(), "web")
			before := l.now()
			l.must(c.firewall("ADD"))
			before.unchanged()
			l.must(c.check())
		}},
		{name: "two interfaces of a container are let through, each until its own DEL", backends: true, test: func(l *lab) {
			l.closedInternet()
			c := l.attach(l.guarded(), "web")
			second := c.another()
			other := conf(with(lan, "bridge", `"lan1"`, "isDefaultGateway", "false", "isGateway", "true",
				"ipam", `{"type":"host-local","subnet":"10.45.0.0/24"}`), l.firewall())
			l.must(second.add(other.called("other"), ifname("net1")))
			l.must(second.del())
			l.pass(c.away()...)
			l.must(c.check())
		}},
	}...)
}

// firewall calls a verb of the last plugin of the container's network alone, with the result of its ADD.
func (c *container) firewall(verb string, changes ...change) error {
	config := with(c.network.plugins[len(c.network.plugins)-1], "name", text(c.network.name))
	if c.printed != "" {
		config = with(config, "prevResult", c.printed)
	}
	_, err := c.lab.exec(verb, c, config, changes...)
	return err
}

func firewallAdmin() []row {
	const site = `"SITE"`
	return []row{
		{name: "what the administrator's chain CNI-ADMIN drops is dropped", backends: true, test: func(l *lab) {
			l.internet()
			c := l.attach(l.guarded(), "web")
			l.pass(c.away()...)
			l.bothTables("-A CNI-ADMIN -j DROP")
			l.silent(c.away()...)
		}},
		{name: "what the administrator's chain accepts is let in", backends: true, test: func(l *lab) {
			l.closed()
			c := l.attach(l.guarded(), "web")
			l.serve(&c.Namespace, 80)
			from := l.routed()
			l.silent(c.to(from)...)
			l.bothTables("-A CNI-ADMIN -p tcp --dport 80 -j ACCEPT")
			l.pass(c.to(from)...)
		}},
		{name: "iptablesAdminChainName names the administrator's chain", backends: true, test: func(l *lab) {
			l.internet()
			c := l.attach(l.guarded("iptablesAdminChainName", site), "web")
			l.pass(c.away()...)
			l.bothTables("-A SITE -j DROP")
			l.silent(c.away()...)
		}},
		{name: "an administrator's chain that is there keeps its rules", backends: true, test: func(l *lab) {
			l.internet()
			l.bothTables("-N SITE")
			l.bothTables("-A SITE -p tcp --dport 80 -j DROP")
			c := l.attach(l.guarded("iptablesAdminChainName", site), "web")
			l.silent(c.away()...)
			l.must(c.del())
			l.shows(l.run("iptables -S SITE"), "-A SITE -p tcp -m tcp --dport 80 -j DROP")
		}},
		{name: "administrator's chains of two networks are both asked", backends: true, test: func(l *lab) {
			l.internet()
			first := l.attach(l.guarded("iptablesAdminChainName", site), "first")
			second := l.attach(l.guarded(), "second")
			l.pass(append(first.away(), second.away()...)...)
			l.bothTables("-A CNI-ADMIN -p tcp -j DROP")
			l.silent(second.away()...)
			l.bothTables("-F CNI-ADMIN")
			l.bothTables("-A SITE -p tcp -j DROP")
			l.silent(first.away()...)
		}},
		{name: "CHECK finds that the administrator's chain is not asked any more", backends: true, test: func(l *lab) {
			c := l.attach(l.guarded("iptablesAdminChainName", site), "web")
			l.must(c.check())
			l.without("iptables", "-j SITE")
			l.refused(c.check(), "SITE")
		}},
	}
}

// without takes away the rules of iptables, or ip6tables, that have a text.
func (l *lab) without(program, part string) {
	kept := ""
	for line := range strings.Lines(l.run(program + "-save")) {
		if !strings.HasPrefix(line, "-A ") || !strings.Contains(line, part) {
			kept += line
		}
	}
	l.host.Feed(l, kept, program+"-restore")
}

func firewallResults() []row {
	const previous = `{"cniVersion":"1.0.0","interfaces":[{"name":"lan0","mac":"02:00:00:00:00:01"},{"name":"vethX"},
		{"name":"eth0","mac":"02:00:00:00:00:02","sandbox":"/run/netns/web"}],
		"ips":[{"address":"10.44.0.2/24","gateway":"10.44.0.1","interface":2},{"address":"fd00:44::2/64"}],
		"routes":[{"dst":"0.0.0.0/0","gw":"10.44.0.1"},{"dst":"10.9.0.0/16"}],"dns":{"nameservers":["10.44.0.1"],"options":["ndots:2"]}}`
	return []row{
		{name: "the result is the one before", backends: true, test: func(l *lab) {
			printed, err := l.exec("ADD", l.pod("web"), with(l.firewall(), "prevResult", previous))
			l.must(err)
			l.printed(printed, previous)
		}},
		{name: "a result without addresses is let be", backends: true, test: func(l *lab) {
			const empty = `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/web"}],"dns":{"domain":"site"}}`
			c := l.pod("web")
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				printed, err := l.exec(verb, c, with(l.firewall(), "prevResult", empty))
				l.must(err)
				if verb == "ADD" {
					l.printed(printed, empty)
				}
			}
		}},
		{name: "the network's version may be 0.4.0", backends: true, test: func(l *lab) {
			l.closedInternet()
			c := l.attach(l.guarded().in("0.4.0"), "web")
			l.shows(c.printed, `"version"`)
			l.pass(c.away()...)
			l.must(c.check())
			l.must(c.del())
		}},
	}
}

func firewallRefusals() (rows []row) {
	for _, c := range []struct{ name, key, value, differs string }{
		{"a backend that there is not", "backend", `"ebtables"`, unknownBackend},
		{"a backend in other letters", "backend", `"IPTables"`, unknownBackend},
		{"a policy that there is not", "ingressPolicy", `"closed"`, noUndo},
		{"a policy in other letters", "ingressPolicy", `"Isolated"`, noUndo},
		{"a name of a chain with a blank", "iptablesAdminChainName", `"no chain"`, ""},
		{"a name of a chain that is too long", "iptablesAdminChainName", `"ADMIN-OF-A-SITE-THAT-LIKES-NAMES"`, ""},
		{"a zone that is a number", "firewalldZone", `7`, ""},
	} {
		rows = append(rows, row{name: c.name + " is refused, and nothing changes", differs: c.differs, test: func(l *lab) {
			l.warm(l.guarded())
			web := l.attach(conf(lan), "web")
			before := l.now()
			l.refused(add(l, web, with(`{"type":"firewall"}`, c.key, c.value, "prevResult", web.printed)), strings.Trim(c.value, `"7`))
			l.same(before.changed(), "")
		}})
	}
	return append(rows,
		row{name: "firewalld is refused when it does not run, and nothing changes", test: func(l *lab) {
			c := l.attach(conf(lan), "web")
			before := l.now()
			l.refused(add(l, c, with(`{"type":"firewall","backend":"firewalld"}`, "prevResult", c.printed)))
			l.same(before.changed(), "")
		}},
		row{name: "a policy without an interface in the result is refused", backends: true, test: func(l *lab) {
			_, err := l.exec("ADD", l.pod("web"), with(l.firewall("ingressPolicy", `"isolated"`), "prevResult",
				`{"cniVersion":"1.0.0","ips":[{"address":"10.44.0.2/24"}]}`))
			l.refused(err)
		}},
		row{name: "firewall that stands first in its list is refused", backends: true, test: func(l *lab) {
			c := l.pod("web")
			before := l.now()
			for _, verb := range []string{"ADD", "CHECK"} {
				_, err := l.exec(verb, c, l.firewall())
				l.refused(err, "prevResult")
			}
			l.same(before.changed(), "")
		}},
		row{name: "versions before 0.4.0 are refused", test: func(l *lab) {
			c := l.pod("web")
			for _, version := range []string{"0.2.0", "0.3.0", "0.3.1"} {
				l.refused(add(l, c, with(l.firewall(), "cniVersion", text(version), "prevResult", `{"cniVersion":`+text(version)+`}`)), version)
			}
		}},
	)
}
