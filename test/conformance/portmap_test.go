package conformance

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

var portmapRows = group{name: "portmap", rows: slices.Concat(
	portmapResultRows, portmapInvalidRows(),
	portmapPathRows, portmapHostIPRows(), portmapMasqueradeRows(), portmapConditionRows(), portmapFlowRows,
	portmapOwnerRows(), portmapDelRows(), portmapGCRows, portmapCheckRows(), portmapStatusRows(), portmapLocalnetRows,
)}

// published is lan with published ports; keys are more of portmap's.
func published(l *lab, keys ...string) network {
	bridge, portmap := lan, with(`{"type":"portmap","capabilities":{"portMappings":true}}`, keys...)
	if l.backend != "" {
		bridge = with(bridge, "ipMasqBackend", `"`+l.backend+`"`)
		portmap = with(portmap, "backend", `"`+l.backend+`"`)
	}
	return conf(bridge, portmap)
}

// publishedOnly is published with addresses of one subnet.
func publishedOnly(l *lab, subnet string) network {
	n := published(l)
	n.plugins[0] = with(n.plugins[0], "ipam", `{"type":"host-local","ranges":[[{"subnet":"`+subnet+`"}]]}`)
	return n
}

// far is a network like lan, on another bridge and without masquerading.
func far(l *lab) network {
	n := published(l).called("far").beside()
	n.plugins[0] = with(n.plugins[0], "ipMasq", "false")
	return n
}

// publish attaches a container that serves on port 80.
func publish(l *lab, n network, name string, maps ...string) *container {
	c := l.attach(n, name, ports(maps...))
	l.serve(&c.Namespace, 80)
	settles(l)
	return c
}

// settles waits until the host's IPv6 addresses can be used: not all plugins spare them duplicate address detection, and the kernel
// adds the routes to them a little later in any case.
func settles(l *lab) {
	l.eventually(func() string {
		local := l.run("ip -6 route show table local type local")
		for line := range strings.Lines(l.run("ip -6 -o address show scope global")) {
			address, _, _ := strings.Cut(strings.Fields(line)[3], "/")
			if strings.Contains(line, "tentative") || !strings.Contains(local, address+" ") {
				return address + " can't be used yet"
			}
		}
		return ""
	})
}

// mappings are published ports in JSON.
func mappings(maps ...string) string {
	rt := &libcni.RuntimeConf{}
	ports(maps...)(rt)
	return text(rt.CapabilityArgs["portMappings"])
}

// portmap is the plugin's configuration as a runtime calls it with after what has attached c, and with ports in JSON.
func (c *container) portmap(mappings string, keys ...string) string {
	n := published(c.lab, keys...)
	config := with(n.plugins[1], "prevResult", c.printed, "runtimeConfig", `{"portMappings":`+mappings+`}`)
	return without(config, "capabilities") // which runtimes keep to themselves
}

// without returns a JSON object without some keys.
func without(config string, keys ...string) string {
	o := object(config)
	for _, key := range keys {
		delete(o, key)
	}
	return text(o)
}

// bare attaches a container that publishes nothing.
func (l *lab) bare(name string) *container {
	return l.attach(network{name: "lan", version: "1.0.0", plugins: published(l).plugins[:1]}, name)
}

// portmapOnly is portmap's part of a network.
func portmapOnly(n network) network {
	n.plugins = n.plugins[1:]
	return n
}

// mapped publishes ports of an attached container by portmap alone, which must succeed.
func (c *container) mapped(config string, changes ...change) {
	c.lab.must(add(c.lab, c, config, changes...))
}

// add, del and check call a verb of one plugin alone.
func add(l *lab, c *container, config string, changes ...change) error {
	_, err := l.exec("ADD", c, config, changes...)
	return err
}

func del(l *lab, c *container, config string, changes ...change) error {
	_, err := l.exec("DEL", c, config, changes...)
	return err
}

func check(l *lab, c *container, config string) error {
	_, err := l.exec("CHECK", c, config)
	return err
}

// allAnswer makes sure that one and the same answers along all paths.
func (l *lab) allAnswer(want string, paths ...path) {
	for _, p := range paths {
		l.answers(p, want)
	}
}

// warmPorts has what all published ports share on the node, and the container's bridge.
func (c *container) warmPorts(keys ...string) {
	config := c.portmap(mappings("7:7/tcp", "7:7/udp"), keys...)
	c.mapped(config)
	c.lab.must(del(c.lab, c, config))
}

// secondIPv4 and secondIPv6 are more addresses of the host that the outside can ask.
const secondIPv4, secondIPv6 = "192.0.2.7", "2001:db8:2::7"

// withSecond returns the outside, with the host's second addresses in place.
func withSecond(l *lab) *netlab.Namespace {
	from := &l.outside().Namespace
	l.run("ip address add " + secondIPv4 + "/24 dev " + netlab.UplinkName)
	l.run("ip address add " + secondIPv6 + "/64 dev " + netlab.UplinkName + " nodad preferred_lft 0") // not a source
	settles(l)
	return from
}

// talk is ask over UDP from one port of the client's: to the kernel its calls are one flow.
func talk(from *netlab.Namespace, to string, port int, wait time.Duration) (string, error) {
	var conn net.Conn
	err := error(unix.EADDRINUSE)
	for end := time.Now().Add(wait); errors.Is(err, unix.EADDRINUSE) && time.Now().Before(end); {
		// A process that is just being started can have the last call's socket for a moment.
		from.Do(func() {
			d := net.Dialer{LocalAddr: &net.UDPAddr{Port: 4000}}
			conn, err = d.Dial("udp", udp(from, to, port).to)
		})
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return "", err
	}
	answer := make([]byte, 512)
	length, err := conn.Read(answer)
	return string(answer[:length]), err
}

// goesTo makes sure who answers the one flow of a client's.
func (l *lab) goesTo(from *netlab.Namespace, to string, port int, want string) {
	if reply, err := talk(from, to, port, l.patience()); err != nil || !strings.HasPrefix(reply, want+" saw ") {
		l.Errorf("the flow to %s: want %q, got %q %v", to, want, reply, err)
	}
}

// bothGoTo is goesTo for both addresses of the host.
func (l *lab) bothGoTo(from *netlab.Namespace, port int, want string) {
	l.goesTo(from, netlab.HostIPv4, port, want)
	l.goesTo(from, netlab.HostIPv6, port, want)
}

// hostSide is an address of every node with lan, and the namespace that asks for it most simply.
const hostSide, hostSide6 = "10.44.0.1", "fd00:44::1"

// local is a TCP connection of the host's to its own port.
func local(l *lab, port int) path { return tcp(&l.host.Namespace, hostSide, port) }

var portmapResultRows = []row{
	{name: "the result is that of the plugin before, to the byte", backends: true, test: func(l *lab) {
		c := l.attach(published(l), "web", ports("8080:80/tcp"), capability("mac", `"02:aa:00:00:00:01"`))
		l.printed(c.printed, `{"cniVersion":"1.0.0",
			"interfaces":[{"name":"lan0","mac":"MAC"},{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"02:aa:00:00:00:01","sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.44.0.2/24","gateway":"10.44.0.1","interface":2},{"address":"fd00:44::2/64","gateway":"fd00:44::1","interface":2}],
			"routes":[{"dst":"0.0.0.0/0","gw":"10.44.0.1"},{"dst":"::/0","gw":"fd00:44::1"}]}`)
	}},
	{name: "without ports it passes the result on and changes nothing", backends: true, test: func(l *lab) {
		c := l.bare("web")
		s := l.now(c)
		for _, config := range []string{c.portmap("[]"), without(c.portmap("[]"), "runtimeConfig")} {
			printed, err := l.exec("ADD", c, config)
			l.must(err)
			l.same(tidy(printed), tidy(c.printed))
		}
		s.unchanged()
	}},
	{name: "a container without an address publishes nothing, and that is no error", test: func(l *lab) {
		c := l.bare("web")
		s := l.now(c)
		c.printed = without(c.printed, "ips", "routes")
		printed, err := l.exec("ADD", c, c.portmap(mappings("8080:80/tcp")))
		l.must(err)
		l.same(tidy(printed), tidy(c.printed))
		s.unchanged()
	}},
	{name: "ports of an address that the node has no way to, and of its own: it reaches itself by 127.0.0.1 still", backends: true, test: func(l *lab) {
		c := l.bare("web")
		l.serve(&l.host.Namespace, 80)
		for _, addr := range []string{"10.77.0.2", hostSide} {
			c.printed = with(c.printed, "ips", `[{"address":"`+addr+`/24","interface":2}]`)
			config := c.portmap(mappings("8080:80/tcp"))
			l.must(del(l, c, config), add(l, c, config), check(l, c, config))
			l.answers(tcp(&l.host.Namespace, "127.0.0.1", 80), "host")
		}
		l.answers(local(l, 8080), "host")
	}},
	{name: "a container of IPv4 alone publishes on IPv4", backends: true, test: func(l *lab) {
		l.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1") // so that nothing of IPv6 can be needed
		publish(l, publishedOnly(l, "10.44.0.0/24"), "web", "8080:80/tcp")
		l.answers(local(l, 8080), "web saw "+hostSide)
	}},
	{name: "a container of IPv6 alone publishes on IPv6", backends: true, test: func(l *lab) {
		publish(l, publishedOnly(l, "fd00:44::/64"), "web", "8080:80/tcp", "0.0.0.0:8081:80/tcp")
		l.answers(tcp(&l.host.Namespace, hostSide6, 8080), "web saw "+hostSide6)
		l.same(l.sysctl(&l.host.Namespace, "ipv4/conf/lan0/route_localnet"), "0")
	}},
	{name: "ports lead to the first address of each family", backends: true, test: func(l *lab) {
		c := l.bare("web")
		l.serve(&c.Namespace, 80)
		settles(l)
		o := object(c.printed)
		o["ips"] = append(o["ips"].([]any), map[string]any{"address": "10.44.0.77/24", "interface": 2}, map[string]any{"address": "fd00:44::77/64", "interface": 2})
		c.printed = text(o)
		c.mapped(c.portmap(mappings("8080:80/tcp")))
		l.allAnswer("web", local(l, 8080), tcp(&l.host.Namespace, hostSide6, 8080))
	}},
	{name: "addresses of other interfaces of the result are not published", test: func(l *lab) {
		c := l.bare("web")
		l.serve(&c.Namespace, 80)
		o := object(c.printed)
		o["ips"] = append([]any{map[string]any{"address": "10.44.0.77/24", "interface": 0}}, o["ips"].([]any)...)
		c.printed = text(o)
		c.mapped(c.portmap(mappings("8080:80/tcp")))
		l.answers(local(l, 8080), "web")
	}},
	{name: "an address of the result that names no interface is published", test: func(l *lab) {
		c := l.bare("web")
		l.serve(&c.Namespace, 80)
		c.printed = with(without(c.printed, "interfaces"), "ips", `[{"address":"`+c.v4+`/24"}]`)
		c.mapped(c.portmap(mappings("8080:80/tcp")))
		l.answers(local(l, 8080), "web")
	}},
	{name: "a protocol in capitals is the same", backends: true, test: func(l *lab) {
		publish(l, published(l), "web", "8080:80/TCP", "5353:80/Udp")
		l.allAnswer("web", local(l, 8080), udp(&l.host.Namespace, hostSide, 5353))
	}},
	{name: "a mapping that is repeated is taken once", backends: true, test: func(l *lab) {
		c := publish(l, published(l), "web", "8080:80/tcp", "8080:80/tcp", "0.0.0.0:8080:80/tcp")
		l.answers(local(l, 8080), "web")
		l.must(c.check())
		l.must(c.del())
		l.silent(local(l, 8080))
	}},
	{name: "one port of the host with two targets is refused", backends: true, differs: "it takes the first of two targets", test: func(l *lab) {
		c := l.bare("web")
		c.warmPorts()
		s := l.now(c)
		l.refused(add(l, c, c.portmap(mappings("8080:80/tcp", "8080:81/tcp"))), "8080", "80", "81")
		s.unchanged()
	}},
	{name: "one port is published twice: on one address to one target and on all to another", backends: true, test: func(l *lab) {
		c := publish(l, published(l), "web", hostSide+":8080:80/tcp", "8080:81/tcp")
		c.ServeTCP(l, ":81")
		l.silent(udp(&l.host.Namespace, hostSide, 8080))
		l.allAnswer("web", local(l, 8080), tcp(&l.host.Namespace, "127.0.0.1", 8080))
	}},
	{name: "forty ports from 1 to 65535, over TCP and UDP", backends: true, test: func(l *lab) {
		maps := []string{"1:80/tcp", "65535:80/tcp", "1:80/udp", "65535:80/udp"}
		for port := 6001; port <= 6018; port++ {
			maps = append(maps, fmt.Sprintf("%d:80/tcp", port), fmt.Sprintf("%d:80/udp", port))
		}
		c := publish(l, published(l), "web", maps...)
		for _, port := range []int{1, 6001, 6010, 6018, 65535} {
			l.allAnswer("web", local(l, port), udp(&l.host.Namespace, hostSide, port))
		}
		l.must(c.check())
		l.must(c.del())
		l.silent(local(l, 1), local(l, 6018), local(l, 65535), udp(&l.host.Namespace, hostSide, 6018))
	}},
	{name: "eight containers at once", backends: true, test: func(l *lab) {
		const many = 8
		failed := make(chan error, many)
		for i := range many {
			c := l.pod(fmt.Sprintf("web%d", i))
			l.serve(&c.Namespace, 80)
			go func() { failed <- c.add(published(l), ports(fmt.Sprintf("%d:80/tcp", 8000+i))) }()
		}
		for range many {
			if err := <-failed; err != nil {
				l.Error(err)
			}
		}
		for i := range many {
			l.answers(local(l, 8000+i), fmt.Sprintf("web%d", i))
		}
	}},
	{name: "no program has to be in PATH", backends: true, differs: "it runs iptables or nft", test: func(l *lab) {
		c := l.bare("web")
		l.serve(&c.Namespace, 80)
		config := c.portmap(mappings("8080:80/tcp"))
		c.mapped(config, env("PATH=/nowhere"))
		l.answers(local(l, 8080), "web")
		l.must(del(l, c, config, env("PATH=/nowhere")))
		l.silent(local(l, 8080))
	}},
	{name: "backend nftables publishes", test: func(l *lab) {
		l.backend = "nftables"
		c := publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp", hostSide+":8081:80/tcp")
		for _, p := range []path{local(l, 8080), udp(&l.host.Namespace, hostSide, 8080), local(l, 8081), tcp(&l.host.Namespace, hostSide6, 8080)} {
			l.answers(p, "web")
		}
		l.answers(tcp(&l.host.Namespace, "127.0.0.1", 8080), "web saw "+hostSide)
		l.must(c.check())
		l.must(c.del())
		l.silent(local(l, 8080), local(l, 8081))
	}},
	{name: "backend iptables publishes where iptables is the legacy program", test: func(l *lab) {
		l.host.UseIPTables(l, "legacy")
		l.backend = "iptables"
		c := publish(l, published(l), "web", "8080:80/tcp")
		l.answers(local(l, 8080), "web")
		l.answers(tcp(&l.host.Namespace, "127.0.0.1", 8080), "web saw "+hostSide)
		l.must(c.check())
		l.must(c.del())
		l.silent(local(l, 8080))
	}},
	{name: "sctp is published", backends: true, needs: &netlab.SCTP, test: func(l *lab) {
		c := l.attach(published(l), "web", ports("8080:80/sctp"))
		c.ServeSCTP(l, ":80")
		if reply, err := l.outside().DialSCTP(netlab.HostIPv4+":8080", l.patience()); err != nil || reply != "web saw "+netlab.OutsideIPv4 {
			l.Errorf("%q %v", reply, err)
		}
	}},
}

// noticedLate is why the reference plugins fail some rows of those.
const noticedLate = "it notices too late, and leaves what it did before"

// portmapInvalidRows are what ADD refuses and leaves no trace of.
func portmapInvalidRows() (rows []row) {
	for _, c := range []struct {
		name     string
		mappings string // a published port if there are none
		keys     []string
		names    string // what the error has to name
		differs  string
	}{
		{"a hostPort of 0", `[{"hostPort":0,"containerPort":80,"protocol":"tcp"}]`, nil, "0", ""},
		{"no hostPort", `[{"containerPort":80,"protocol":"tcp"}]`, nil, "", ""},
		{"a negative containerPort", `[{"hostPort":8080,"containerPort":-1,"protocol":"tcp"}]`, nil, "-1", ""},
		{"a hostPort above 65535, after a good one", `[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":65536,"containerPort":80,"protocol":"tcp"}]`, nil, "65536", noticedLate},
		{"a containerPort above 65535", `[{"hostPort":8080,"containerPort":65536,"protocol":"tcp"}]`, nil, "65536", noticedLate},
		{"a port in quotes", `[{"hostPort":"8080","containerPort":80,"protocol":"tcp"}]`, nil, "", ""},
		{"an unknown protocol", `[{"hostPort":8080,"containerPort":80,"protocol":"icmp"}]`, nil, "icmp", noticedLate},
		{"no protocol", `[{"hostPort":8080,"containerPort":80}]`, nil, "", noticedLate},
		{"a hostIP that is no address", `[{"hostPort":8080,"containerPort":80,"protocol":"tcp","hostIP":"localhost"}]`, nil, "localhost", noticedLate},
		{"mappings that are no list", `{"hostPort":8080}`, nil, "", ""},
		{"an unknown backend", "", []string{"backend", `"ipvs"`}, "ipvs", ""},
		{"snat that is no bool", "", []string{"snat", `"yes"`}, "snat", ""},
		{"masqAll that is no bool", "", []string{"masqAll", `1`}, "masqAll", ""},
		{"markMasqBit 32", "", []string{"markMasqBit", `32`}, "", ""},
		{"markMasqBit -1", "", []string{"markMasqBit", `-1`}, "", ""},
		{"markMasqBit with externalSetMarkChain", "", []string{"markMasqBit", `13`, "externalSetMarkChain", `"MARKS"`}, "externalSetMarkChain", ""},
		{"externalSetMarkChain with backend nftables", "", []string{"backend", `"nftables"`, "externalSetMarkChain", `"MARKS"`}, "externalSetMarkChain", ""},
		{"externalSetMarkChain of a chain that is not there", "", []string{"externalSetMarkChain", `"NOWHERE"`}, "NOWHERE", noticedLate},
		{"conditions in words of iptables with backend nftables", "", []string{"backend", `"nftables"`, "conditionsV4", `["-d","192.0.2.1"]`}, "conditionsV4", ""},
		{"conditions in words of nft with backend iptables", "", []string{"backend", `"iptables"`, "conditionsV6", `["ip6","daddr","2001:db8::1"]`}, "conditionsV6", ""},
		{"conditions in words of both", "", []string{"conditionsV4", `["-d","192.0.2.1"]`, "conditionsV6", `["ip6","daddr","2001:db8::1"]`}, "conditionsV6", ""},
		{"conditions that nft does not know", "", []string{"backend", `"nftables"`, "conditionsV4", `["ip","daddrr","192.0.2.1"]`}, "daddrr", ""},
		{"conditions with a zero byte", "", []string{"backend", `"nftables"`, "conditionsV4", `["ip daddr 192.0.2.1\u0000"]`}, "conditionsV4", "it gives nft what is before it"},
		{"conditions with another command of nft", "", []string{"backend", `"nftables"`, "conditionsV4", `["ip daddr 192.0.2.1; delete table inet x"]`}, "delete table", ""},
		{"conditions with a comment of nft", "", []string{"backend", `"nftables"`, "conditionsV4", `["accept #"]`}, "conditionsV4", "it gives nft all of it, and the port is not published"},
		{"conditions that iptables does not know", "", []string{"conditionsV4", `["--daddrr","192.0.2.1"]`}, "daddrr", noticedLate},
		{"conditions that are no list", "", []string{"conditionsV4", `"-d 192.0.2.1"`}, "conditionsV4", ""},
	} {
		rows = append(rows, row{name: "ADD refuses " + c.name + ", and nothing has changed", differs: c.differs, test: func(l *lab) {
			web := l.bare("web")
			web.warmPorts()
			web.warmPorts("backend", `"iptables"`)
			s := l.now(web)
			if c.mappings == "" {
				c.mappings = mappings("8080:80/tcp")
			}
			l.refused(add(l, web, web.portmap(c.mappings, c.keys...)), c.names)
			s.unchanged()
		}})
	}
	return append(rows, row{name: "an invalid configuration has code 7", differs: always999, test: func(l *lab) {
		web := l.bare("web")
		for _, conditions := range []string{`["ip saddr"]`, `["ip6 saddr fd00::1"]`, `["ip saddr 10.0.0.1; flush ruleset"]`, `["accept #"]`} {
			l.code(add(l, web, web.portmap(mappings("8080:80/tcp"), "backend", `"nftables"`, "conditionsV4", conditions)), 7, "conditionsV4: ")
		}
	}}, row{name: "ADD refuses to be the first plugin of a list", test: func(l *lab) {
		web := l.bare("web")
		s := l.now(web)
		l.refused(add(l, web, without(web.portmap(mappings("8080:80/tcp")), "prevResult")), "chained")
		s.unchanged()
	}})
}
