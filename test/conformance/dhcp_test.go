package conformance

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/cnibox/cnibox/test/netlab"
)

var dhcpRows = group{name: "dhcp",
	rows: slices.Concat(dhcpResults, dhcpOptions, dhcpRefusals(), dhcpChecks, dhcpDels(), dhcpDaemons)}

// onLAN is a network whose containers get addresses of a server on the node's uplink.
const onLAN = `{"type":"macvlan","master":"uplink0","ipam":{"type":"dhcp"}}`

// leasing returns it with more keys of ipam.
func leasing(keys string) network {
	return conf(with(onLAN, "ipam", `{`+strings.TrimSuffix(`"type":"dhcp",`+keys, ",")+`}`))
}

// bridged is the same through a bridge that the uplink is a port of.
const bridged = `{"type":"bridge","bridge":"lan0","ipam":{"type":"dhcp"}}`

// single is a range of one address, so that a row knows which that is.
const single = "--dhcp-range=192.0.2.50,192.0.2.50,255.255.255.0,1h"

// serveDHCP starts the plugin's daemon, and a server on the node's uplink.
func (l *lab) serveDHCP(options ...string) (*netlab.DHCPServer, *netlab.DHCPDaemon) {
	if !l.suite.has("dhcp") {
		l.foreign("there is no plugin dhcp")
	}
	s := l.outside().ServeDNSMasq(l, options...)
	return s, l.host.StartDHCPDaemon(l)
}

// bridgeUplink makes the uplink a port of the bridge of bridged.
func (l *lab) bridgeUplink() {
	l.run("ip link add lan0 type bridge forward_delay 0", "ip link set uplink0 master lan0", "ip link set lan0 up")
}

var dhcpResults = []row{
	{name: "the result, to the byte", test: func(l *lab) {
		l.serveDHCP(single)
		l.printed(l.attach(conf(onLAN), "web").printed, `{"cniVersion":"1.0.0",
			"interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"address":"192.0.2.50/24","gateway":"192.0.2.254","interface":0}],"routes":[{"dst":"0.0.0.0/0","gw":"192.0.2.254"}]}`)
	}},
	{name: "the result in 0.4.0, to the byte", test: func(l *lab) {
		l.serveDHCP(single)
		l.printed(l.attach(conf(onLAN).in("0.4.0"), "web").printed, `{"cniVersion":"0.4.0",
			"interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"version":"4","address":"192.0.2.50/24","gateway":"192.0.2.254","interface":0}],
			"routes":[{"dst":"0.0.0.0/0","gw":"192.0.2.254"}],"dns":{}}`)
	}},
	{name: "a macvlan has the leased address, and reaches the server", test: func(l *lab) {
		l.serveDHCP()
		c := l.attach(conf(onLAN), "web")
		l.serve(&l.outside().Namespace, 80)
		l.answers(tcp(&c.Namespace, netlab.OutsideIPv4, 80), "outside saw "+c.v4)
		l.shows(c.routes("default"), "via "+netlab.OutsideIPv4)
		l.must(c.check())
	}},
	{name: "a container on a bridge has the leased address, and reaches the server", test: func(l *lab) {
		l.serveDHCP()
		l.bridgeUplink()
		c := l.attach(conf(bridged), "web")
		l.serve(&l.outside().Namespace, 80)
		l.answers(tcp(&c.Namespace, netlab.OutsideIPv4, 80), "outside saw "+c.v4)
	}},
	{name: "an ipvlan, which has its master's MAC address, has a leased address of its own", needs: &netlab.IPVLAN,
		differs: "it does not ask for answers by broadcast, and others don't reach an ipvlan without its address", test: func(l *lab) {
			s := l.outside().ServeDNSMasq(l)
			var flags []string
			if l.suite.reference { // it gets no answer
				flags = []string{"-timeout", "1s", "-resendtimeout", "5s"}
			}
			l.host.StartDHCPDaemon(l, flags...)
			n := conf(with(onLAN, "type", `"ipvlan"`))
			web, db := l.attach(n, "web"), l.attach(n, "db")
			l.same(web.v4 != db.v4, true)
			l.serve(&l.outside().Namespace, 80)
			l.answers(tcp(&web.Namespace, netlab.OutsideIPv4, 80), "outside saw "+web.v4)
			l.must(web.del())
			l.eventually(func() string { return wantCount("releases", s.Released(), 1) })
			l.must(db.check())
		}},
	{name: "the server's DNS is in the result", differs: "it does not report DNS", test: func(l *lab) {
		l.serveDHCP("--dhcp-option=6,192.0.2.53,192.0.2.54", "--dhcp-option=15,lan.example", "--dhcp-option=119,a.example,b.example")
		l.bridgeUplink()
		l.same(text(l.attach(conf(bridged), "web").result.DNS),
			`{"nameservers":["192.0.2.53","192.0.2.54"],"domain":"lan.example","search":["a.example","b.example"]}`)
	}},
	{name: "the server's MTU is that of the routes", differs: "it does not report the MTU", test: func(l *lab) {
		l.serveDHCP("--dhcp-option=26,1400")
		l.shows(l.attach(conf(onLAN), "web").routes("default"), "mtu 1400")
	}},
	{name: "a server's MTU above the link's is not that of the routes", test: func(l *lab) {
		l.serveDHCP("--dhcp-option=26,9000")
		l.bridgeUplink()
		c := l.attach(conf(bridged), "web")
		l.shows(c.routes("default"), "via "+netlab.OutsideIPv4)
		l.lacks(c.routes("default")+c.printed, "mtu")
	}},
	{name: "a server's MTU below 68 is not that of the routes", test: func(l *lab) {
		l.serveDHCP("--dhcp-option=26,67")
		l.lacks(l.attach(conf(onLAN), "web").routes("default"), "mtu")
	}},
	{name: "a server's domains are in the result if they are domain names", differs: "it does not report DNS", test: func(l *lab) {
		l.serveDHCP("--dhcp-option=15,6c:61:6e:0a:6e:61:6d:65:73:65:72:76:65:72", // lan, a new line, nameserver
			"--dhcp-option=119,a.example", "--dhcp-option=6,192.0.2.53")
		l.bridgeUplink()
		l.same(text(l.attach(conf(bridged), "web").result.DNS), `{"nameservers":["192.0.2.53"],"search":["a.example"]}`)
	}},
	{name: "static routes that are asked for come in place of the router", test: func(l *lab) {
		l.serveDHCP("--dhcp-option=121,10.60.0.0/16,192.0.2.9,10.61.0.0/16,0.0.0.0", "--dhcp-option=33,10.0.0.0,192.0.2.8")
		c := l.attach(leasing(`"request":[{"option":"121"},{"option":"33"}]`), "web")
		l.shows(c.routes("10.60.0.0/16"), "via 192.0.2.9")
		l.shows(c.routes("10.61.0.0/16"), "scope link")
		l.same(c.routes("default")+c.routes("10.0.0.0/8"), "")
	}},
	{name: "static routes of the old kind come beside the router", test: func(l *lab) {
		l.serveDHCP("--dhcp-option=33,10.0.0.0,192.0.2.8")
		c := l.attach(leasing(`"request":[{"option":"33"}]`), "web")
		l.shows(c.routes("10.0.0.0/8"), "via 192.0.2.8")
		l.shows(c.routes("default"), "via "+netlab.OutsideIPv4)
	}},
	{name: "routes have the priority that is configured", test: func(l *lab) {
		l.serveDHCP()
		l.shows(l.attach(leasing(`"priority":50`), "web").routes("default"), "metric 50")
	}},
	{name: "without a router there is no route", test: func(l *lab) {
		l.serveDHCP("--dhcp-option=3")
		c := l.attach(conf(onLAN), "web")
		l.same(len(c.result.Routes), 0)
		l.same(c.result.IPs[0].Gateway == nil, true)
	}},
	{name: "a second ADD by the IPAM plugin returns the same address", test: func(l *lab) {
		l.serveDHCP()
		c := l.attach(conf(onLAN), "db")
		again := l.answer("ADD", c, with(onLAN, "type", `"dhcp"`))
		l.same(l.result(again).IPs[0].Address.IP.String(), c.v4)
	}},
	{name: "another container of the same id and path gets a lease through its own interface", differs: "it returns the lease of the container that is gone",
		needs: &netlab.Cookie, test: func(l *lab) {
			s, _ := l.serveDHCP()
			c := l.attach(conf(onLAN), "web")
			c.Replace(l)
			l.must(c.add(conf(onLAN)))
			l.same(s.Extended(), 2)
			l.must(c.check())
		}},
	{name: "an IPv6 address is leased", differs: "it has no DHCPv6", test: func(l *lab) {
		s, _ := l.serveDHCP(single, "--dhcp-range=2001:db8:2::1000,2001:db8:2::1000,64,1h", "--dhcp-option=option6:dns-server,[2001:db8:2::53]")
		l.bridgeUplink()
		c := l.attach(conf(with(bridged, "ipam", `{"type":"dhcp","families":["ipv6"]}`)), "web")
		c.hasAddresses("2001:db8:2::1000/128")
		l.same(c.result.DNS.Nameservers, []string{"2001:db8:2::53"})
		l.must(c.check(), c.del())
		l.eventually(func() string { return wantCount("releases", s.Released(), 1) })
	}},
	{name: "addresses of both families are leased", differs: "it has no DHCPv6", test: func(l *lab) {
		s, _ := l.serveDHCP()
		c := l.attach(leasing(`"families":["ipv4","ipv6"]`), "web")
		l.same(len(l.addresses(&c.Namespace, "eth0")), 2)
		l.must(c.del())
		l.eventually(func() string { return wantCount("releases", s.Released(), 2) })
	}},
}

func wantCount(what string, is, want int) string {
	if is == want {
		return ""
	}
	return fmt.Sprintf("%d %s, want %d", is, what, want)
}

// dhcpOptions are about what servers are told, and asked for.
var dhcpOptions = []row{
	{name: "servers know an attachment by its container, network and interface", test: func(l *lab) {
		s, _ := l.serveDHCP()
		c := l.attach(conf(onLAN), "web")
		id := fmt.Sprintf("%x", "\x00"+c.ID+"/lan/eth0")
		l.shows(strings.ReplaceAll(l.read(s.Leases()), ":", ""), id)
	}},
	{name: "a client identifier that is configured comes in its place", test: func(l *lab) {
		s, _ := l.serveDHCP()
		l.attach(leasing(`"provide":[{"option":"dhcp-client-identifier","value":"lab-17"}]`), "web")
		l.shows(strings.ReplaceAll(l.read(s.Leases()), ":", ""), hex.EncodeToString([]byte("lab-17")))
	}},
	{name: "a host name is sent, that of CNI_ARGS before that of the configuration", test: func(l *lab) {
		s, _ := l.serveDHCP()
		n := leasing(`"provide":[{"option":"host-name","value":"fixed","fromArg":"K8S_POD_NAME"}]`)
		l.attach(n, "web", args("IgnoreUnknown=1", "K8S_POD_NAME=web-1"))
		l.attach(n, "db")
		l.shows(l.read(s.Leases()), " web-1 ", " fixed ")
	}},
	{name: "options that are asked for by name and number are asked for", test: func(l *lab) {
		s, _ := l.serveDHCP()
		l.attach(leasing(`"request":[{"option":"host-name"},{"option":"42"}]`), "web")
		l.shows(s.Log(), "12:hostname", "42:ntp-server", "3:router", "1:netmask")
	}},
	{name: "with skipDefault nothing else is asked for", test: func(l *lab) {
		s, _ := l.serveDHCP()
		l.attach(leasing(`"request":[{"option":"subnet-mask","skipDefault":true}]`), "web")
		l.shows(s.Log(), "1:netmask")
		l.lacks(s.Log(), "3:router")
	}},
}

// dhcpRefusals are ADDs that fail.
func dhcpRefusals() (rows []row) {
	const leaves = "its macvlan's failed ADD leaves the link"
	const noRange = "--dhcp-range=192.0.2.0,static"
	for _, c := range []struct{ name, ipam, says, differs string }{
		{name: "an option that is unknown", ipam: `"request":[{"option":"colour"}]`, says: "colour", differs: leaves},
		{name: "an option whose number is too large", ipam: `"provide":[{"option":"256","value":"x"}]`, says: "256", differs: leaves},
		{name: "a value that is too long", ipam: `"provide":[{"option":"host-name","value":"` + strings.Repeat("x", 256) + `"}]`, differs: leaves},
		{name: "a family that is unknown", ipam: `"families":["ipx"]`, says: "ipx", differs: "it has no families"},
		{name: "no family", ipam: `"families":[]`, says: "families", differs: "it has no families"},
		{name: "a socket that is not there", ipam: `"daemonSocketPath":"/run/none.sock"`, says: "/run/none.sock", differs: leaves},
		{name: "a server without an address", says: "eth0", differs: leaves},
	} {
		rows = append(rows, row{name: c.name + " is refused, and all is as before", differs: c.differs, test: func(l *lab) {
			if !l.suite.has("dhcp") {
				l.foreign("there is no plugin dhcp")
			}
			l.outside().ServeDNSMasq(l, noRange)
			l.host.StartDHCPDaemon(l, "-timeout", "100ms", "-resendtimeout", "300ms")
			web := l.pod("web")
			l.now(web).refused(web.add(leasing(c.ipam)), c.says)
		}})
	}
	return append(rows,
		row{name: "an interface that is not there is refused", test: func(l *lab) {
			l.serveDHCP()
			l.refused(l.verb("ADD", l.pod("web"), with(onLAN, "type", `"dhcp"`)), "eth0")
		}},
		row{name: "an interface that is not there is refused with code 7", differs: always999, test: func(l *lab) {
			l.serveDHCP()
			l.code(l.verb("ADD", l.pod("web"), with(onLAN, "type", `"dhcp"`)), 7, "eth0")
		}},
	)
}

var dhcpChecks = []row{
	{name: "CHECK asks no server", differs: "its CHECK is its ADD, which asks for a lease if there is none", test: func(l *lab) {
		s, _ := l.serveDHCP()
		c := l.attach(conf(onLAN), "web")
		asked := s.Extended()
		l.must(c.check(), l.verb("DEL", c, with(onLAN, "type", `"dhcp"`)))
		l.refused(c.check(), "lease")
		l.same(s.Extended(), asked)
	}},
	{name: "CHECK fails when the lease is of another address than ADD reported", differs: "its CHECK is its ADD", test: func(l *lab) {
		l.serveDHCP()
		c := l.attach(conf(onLAN), "web")
		l.must(l.verb("CHECK", c, with(onLAN, "type", `"dhcp"`, "prevResult", c.printed)))
		l.refused(l.verb("CHECK", c, with(onLAN, "type", `"dhcp"`, "prevResult", strings.ReplaceAll(c.printed, c.v4+"/", "192.0.2.7/"))), c.v4)
	}},
	{name: "CHECK fails when the daemon is down", test: func(l *lab) {
		_, daemon := l.serveDHCP()
		c := l.attach(conf(onLAN), "web")
		daemon.Stop(l, syscall.SIGTERM)
		l.refused(c.check(), "DHCP daemon")
	}},
	{name: "ADD has code 11 when the daemon is down", differs: always999, test: func(l *lab) {
		_, daemon := l.serveDHCP()
		daemon.Stop(l, syscall.SIGTERM)
		l.code(l.pod("web").add(conf(onLAN)), 11, "DHCP daemon", "start it")
	}},
	{name: "STATUS has code 50 when the daemon is down", differs: noStatus, test: func(l *lab) {
		_, daemon := l.serveDHCP()
		l.must(l.status(conf(onLAN)))
		daemon.Stop(l, syscall.SIGTERM)
		l.code(l.status(conf(onLAN)), 50)
	}},
}

// dhcpDels attach a container, have DEL find it in some state, and look whether the server hears of it.
func dhcpDels() (rows []row) {
	const unheard = "its DHCPRELEASE has no sender's address: the server's kernel drops it"
	for _, c := range []struct {
		name, config, differs string
		state                 func(l *lab, c *container)
		del                   func(c *container) error
	}{
		{name: "DEL releases the lease of a macvlan", config: onLAN, differs: unheard},
		{name: "DEL releases the lease of a container on a bridge", config: bridged, differs: "its bridge deletes the link first"},
		{name: "DEL with the namespace gone releases the lease", config: onLAN, differs: "it releases nothing then",
			state: func(_ *lab, c *container) { c.Delete(c.lab) }},
		{name: "DEL with the namespace gone releases the lease on a bridge", config: bridged, differs: "it releases nothing then",
			state: func(_ *lab, c *container) { c.Delete(c.lab) }},
		{name: "DEL with the interface gone releases the lease", config: onLAN, differs: "it releases nothing then",
			state: func(_ *lab, c *container) { c.run("ip link del eth0") }},
		{name: "DEL without the namespace's path and without a result releases the lease", config: onLAN, differs: unheard,
			del: (*container).delBare},
		{name: "DEL with a configuration that is wrong releases the lease", config: onLAN, differs: "its DEL fails then",
			state: func(_ *lab, c *container) { c.network = leasing(`"request":7`) }},
		{name: "DEL twice releases the lease once", config: onLAN, differs: unheard, state: func(l *lab, c *container) { l.must(c.del()) }},
		{name: "GC releases the leases that are not valid", config: onLAN, differs: noGC, del: func(c *container) error { return c.lab.gc(c.network) }},
	} {
		rows = append(rows, row{name: c.name, differs: c.differs, test: func(l *lab) {
			s, _ := l.serveDHCP()
			if c.config == bridged {
				l.bridgeUplink()
			}
			before := l.now()
			web := l.attach(conf(c.config), "web")
			if c.state != nil {
				c.state(l, web)
			}
			del := (*container).del
			if c.del != nil {
				del = c.del
			}
			l.must(del(web))
			l.eventually(func() string { return wantCount("releases", s.Released(), 1) })
			before.unchanged()
		}})
	}
	return append(rows,
		row{name: "DEL of what was never added is no error", test: func(l *lab) {
			l.serveDHCP()
			web := l.never(conf(onLAN), "web")
			l.must(web.del())
		}},
		row{name: "GC leaves the leases of other networks", differs: noGC, test: func(l *lab) {
			s, _ := l.serveDHCP()
			other := conf(onLAN)
			other.name = "other"
			web, db := l.attach(conf(onLAN), "web"), l.attach(other, "db")
			l.must(l.gc(conf(onLAN)))
			l.eventually(func() string { return wantCount("releases", s.Released(), 1) })
			l.must(db.check())
			l.refused(web.check(), "lease")
		}},
		row{name: "GC removes files that can be none of a lease", differs: noGC, test: func(l *lab) {
			l.serveDHCP()
			web := l.attach(conf(onLAN), "web")
			before := l.files("/run/cni/dhcp.leases/*.json")
			l.write("/run/cni/dhcp.leases/torn.json", "{")
			l.write("/run/cni/dhcp.leases/nobody.json", `{"command":"ADD"}`)
			l.run("mkfifo /run/cni/dhcp.leases/pipe.json", "truncate -s 4G /run/cni/dhcp.leases/large.json")
			l.run("ln -s /dev/null /run/cni/dhcp.leases/device.json")
			l.must(l.gc(conf(onLAN), web))
			l.same(l.files("/run/cni/dhcp.leases/*.json"), before)
			l.must(web.check())
		}},
		row{name: "GC leaves the leases that are valid", test: func(l *lab) {
			s, _ := l.serveDHCP()
			web := l.attach(conf(onLAN), "web")
			l.must(l.gc(conf(onLAN), web))
			l.same(s.Released(), 0)
			l.must(web.check())
		}})
}

// dhcpDaemons are about daemons that end, and others that come after them.
var dhcpDaemons = []row{
	{name: "a lease outlives the daemon's end", differs: "it forgets all leases, and its CHECK gets another one", test: func(l *lab) {
		s, daemon := l.serveDHCP()
		c := l.attach(conf(onLAN), "web")
		daemon.Stop(l, syscall.SIGTERM)
		l.host.StartDHCPDaemon(l)
		l.must(c.check(), c.del())
		l.eventually(func() string { return wantCount("releases", s.Released(), 1) })
	}},
	{name: "a daemon that was killed is started again in spite of its socket, and extends the leases",
		differs: "the old socket is an error to it", test: func(l *lab) {
			s, daemon := l.serveDHCP()
			c := l.attach(conf(onLAN), "web")
			daemon.Stop(l, syscall.SIGKILL)
			asked := s.Extended()
			l.host.StartDHCPDaemon(l)
			l.eventually(func() string { return wantCount("requests", min(s.Extended()-asked, 1), 1) })
			l.must(c.check())
		}},
	{name: "DEL while the daemon is down succeeds, and the next daemon releases the lease", differs: "its DEL fails then", test: func(l *lab) {
		s, daemon := l.serveDHCP()
		before := l.now()
		c := l.attach(conf(onLAN), "web")
		daemon.Stop(l, syscall.SIGKILL)
		l.must(c.del(), c.del())
		c.Delete(l)
		l.host.StartDHCPDaemon(l)
		l.eventually(func() string { return wantCount("releases", s.Released(), 1) })
		before.unchanged()
	}},
	{name: "DEL while the daemon is down is made up for though the interface is still there", differs: "its DEL fails then", test: func(l *lab) {
		s, daemon := l.serveDHCP()
		c := l.attach(conf(onLAN), "web")
		daemon.Stop(l, syscall.SIGKILL)
		l.must(l.verb("DEL", c, with(onLAN, "type", `"dhcp"`)))
		l.host.StartDHCPDaemon(l)
		l.eventually(func() string { return wantCount("releases", s.Released(), 1) })
		l.eventually(func() string { // the daemon forgets the lease a moment after
			if c.check() == nil {
				return "CHECK finds the lease yet"
			}
			return ""
		})
	}},
	{name: "DEL of what was never added succeeds while the daemon is down", differs: "its DEL fails then", test: func(l *lab) {
		web := l.never(conf(onLAN), "web")
		l.outside()
		l.must(web.del())
	}},
	{name: "two daemons at one socket are refused", test: func(l *lab) {
		l.serveDHCP()
		_, err := l.host.Output(l.host.Command("/opt/cni/bin/dhcp", "daemon"))
		l.refused(err)
	}},
	{name: "the daemon writes its process id where it is told, and removes it and its socket at the end", test: func(l *lab) {
		web := l.never(conf(onLAN), "web")
		l.outside()
		daemon := l.host.StartDHCPDaemon(l, "-pidfile", "/run/dhcp.pid")
		l.must(web.del()) // it serves by now, and has not only begun to
		l.eventually(func() string {
			if l.read("/run/dhcp.pid") == "" {
				return "there is no pidfile"
			}
			return ""
		})
		daemon.Stop(l, syscall.SIGTERM)
		l.same(len(l.files("/run/dhcp.pid"))+len(l.files("/run/cni/dhcp.sock")), 0)
	}},
	{name: "the daemon's socket is root's alone", differs: "only its directory is", test: func(l *lab) {
		l.outside()
		l.host.StartDHCPDaemon(l)
		l.same(strings.TrimSpace(l.run("stat -c %a /run/cni/dhcp.sock")), "600")
	}},
	{name: "the daemon finds the host's files below another directory", test: func(l *lab) {
		web, s := l.pod("web"), l.outside().ServeDNSMasq(l)
		l.write("/run/host/run/netns/web", "")
		l.run("mount --bind /run/netns/web /run/host/run/netns/web", "mkdir /run/host/run/cni", "ln -s /run/host/run/cni /run/cni")
		// In the daemon's own mount namespace nothing is at the path without the prefix.
		l.write("/run/contained", "#!/bin/sh\numount /run/netns/web\nexec \"$@\"\n")
		l.host.StartDHCPDaemonUnder(l, []string{"unshare", "--mount", "sh", "/run/contained"}, "-hostprefix", "/run/host")
		l.must(web.add(conf(onLAN)))
		l.shows(s.Log(), "DHCPACK")
	}},
	{name: "the daemon refuses to listen where something else is than a socket, and leaves it", differs: "it fails with the error of the kernel",
		test: func(l *lab) {
			l.outside()
			l.write("/run/file", "precious")
			_, err := l.host.Output(l.host.Command("timeout", fmt.Sprint(l.patience().Seconds()), "/opt/cni/bin/dhcp", "daemon", "-socketpath", "/run/file"))
			l.refused(err, "/run/file is no socket")
			l.same(l.read("/run/file"), "precious")
		}},
	{name: "the daemon survives a request that is none", test: func(l *lab) {
		l.serveDHCP()
		c := l.attach(conf(onLAN), "web")
		l.host.Do(func() {
			conn, err := net.Dial("unix", netlab.DHCPSocket)
			l.must(err)
			defer conn.Close()
			_, err = fmt.Fprintln(conn, `{"command":"ADD"}`)
			l.must(err)
			_, _ = io.ReadAll(conn)
		})
		l.must(c.check())
	}},
}
