package conformance

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// noneAdded makes sure that there is nothing that was not there before. That a port of
// the bridge is isolated goes with the port.
func (s *state) noneAdded() {
	for line := range strings.Lines(s.changed()) {
		if strings.HasPrefix(line, "+") && !strings.Contains(line, " isolated ") {
			s.lab.Errorf("there is %s", line)
		}
	}
}

func firewallDel() (rows []row) {
	for _, c := range []struct {
		name, differs string
		before        func(l *lab, c *container) // DEL
		config        string                     // that DEL gets
		changes       []change
	}{
		{name: "DEL"},
		{name: "DEL without a namespace", changes: []change{noNetns}},
		{name: "DEL with the namespace gone", before: func(l *lab, c *container) { c.Delete(l) }},
		{name: "DEL with a plain file for the namespace", before: func(l *lab, c *container) { c.DeleteKeepFile(l) }},
		{name: "DEL without a previous result", differs: needsResult, changes: []change{noNetns}, before: func(_ *lab, c *container) { c.printed = "" }},
		{name: "DEL with other keys in the configuration", config: `{"type":"firewall","iptablesAdminChainName":"OTHER","ingressPolicy":"isolated"}`},
		{name: "DEL with another backend in the configuration", config: `{"type":"firewall","backend":"firewalld"}`,
			differs: "its DEL fails when the backend is not there"},
		{name: "DEL with a policy that there is not", config: `{"type":"firewall","ingressPolicy":"closed"}`,
			differs: "its DEL fails with a policy that it does not know"},
	} {
		rows = append(rows, row{name: c.name + " leaves nothing", differs: c.differs, backends: true, test: func(l *lab) {
			l.warm(l.guarded())
			web := l.attach(conf(lan), "web")
			before := l.now()
			web.network = l.guarded()
			l.must(web.firewall("ADD"))
			if before.changed() == "" {
				l.Error("ADD makes nothing")
			}
			if c.before != nil {
				c.before(l, web)
			}
			if c.config != "" {
				web.network.plugins[1] = c.config
			}
			l.must(web.firewall("DEL", c.changes...))
			before.noneAdded()
		}})
	}
	return append(rows,
		row{name: "DEL of a list leaves nothing", backends: true, test: func(l *lab) {
			n := l.guarded()
			l.warm(n)
			before := l.now()
			c := l.attach(n, "web")
			l.must(c.del())
			l.must(c.del())
			c.Delete(l)
			before.unchanged()
		}},
		row{name: "DEL of a list with a policy leaves nothing", backends: true, test: func(l *lab) {
			n := l.guarded("ingressPolicy", `"isolated"`)
			l.warm(n)
			before := l.now()
			c := l.attach(n, "web")
			l.must(c.del())
			c.Delete(l)
			before.unchanged()
		}},
		row{name: "DEL of what was never added does nothing", backends: true, test: func(l *lab) {
			l.warm(l.guarded())
			c := l.attach(conf(lan), "web")
			c.network = l.guarded()
			before := l.now()
			l.must(c.firewall("DEL"))
			l.noLegacyTables()
			l.same(before.changed(), "")
		}},
		row{name: "after DEL the container's packets are dropped again", backends: true, test: func(l *lab) {
			l.closedInternet()
			c, other := l.attach(l.guarded(), "web"), l.attach(l.guarded(), "other")
			l.pass(c.away()...)
			l.must(c.firewall("DEL"))
			l.silent(c.away()...)
			l.pass(other.away()...)
			l.must(other.check())
		}},
		row{name: "a late DEL leaves an address to the container that has it by now", backends: true, differs: byAddress, test: func(l *lab) {
			l.closedInternet()
			c, old := l.attach(conf(lan), "web"), l.pod("old")
			l.must(add(l, old, with(l.firewall(), "prevResult", c.printed)))
			c.network = l.guarded()
			l.must(c.firewall("ADD"))
			l.must(del(l, old, with(l.firewall(), "prevResult", c.printed)))
			l.pass(c.away()...)
			l.must(c.firewall("CHECK"))
		}},
	)
}

func firewallGC() []row {
	return []row{
		{name: "GC shuts out attachments that are not valid, and only them", backends: true, differs: noGC, test: func(l *lab) {
			l.closedInternet()
			kept, lost := l.attach(l.guarded(), "kept"), l.attach(l.guarded(), "lost")
			l.pass(lost.away()...)
			l.must(l.gc(conf(l.firewall()), kept))
			l.silent(lost.away()...)
			l.pass(kept.away()...)
			l.must(kept.check())
			l.refused(lost.firewall("CHECK"))
		}},
		{name: "GC without valid attachments leaves nothing", backends: true, differs: noGC, test: func(l *lab) {
			l.warm(l.guarded("ingressPolicy", `"isolated"`))
			c := l.attach(conf(lan), "web")
			before := l.now()
			c.network = l.guarded("ingressPolicy", `"isolated"`)
			l.must(c.firewall("ADD"))
			l.must(l.gc(conf(l.firewall())))
			before.noneAdded()
		}},
		{name: "GC keeps what containers of other networks have", backends: true, test: func(l *lab) {
			l.closedInternet()
			c := l.attach(l.guarded("ingressPolicy", `"same-bridge"`).called("other"), "web")
			l.must(l.gc(conf(l.firewall())))
			l.pass(c.away()...)
			l.must(c.check())
		}},
		{name: "GC shuts out another interface of a valid container", backends: true, differs: noGC, test: func(l *lab) {
			l.closedInternet()
			l.routed()
			c := l.attach(l.guarded(), "web")
			second := c.another()
			second.runtime.IfName = "net1"
			l.must(add(l, second, with(l.firewall(), "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"10.44.0.99/24"}]}`)))
			c.run("ip address add 10.44.0.99/24 dev eth0")
			c.run("ip route replace default via 10.44.0.1 src 10.44.0.99")
			l.pass(c.away()[0])
			l.must(l.gc(conf(l.firewall()), c))
			l.silent(c.away()[0])
			c.run("ip route replace default via 10.44.0.1 src " + c.v4)
			l.pass(c.away()[0])
		}},
		{name: "GC of a node with nothing does nothing", backends: true, test: func(l *lab) {
			before := l.now()
			l.must(l.gc(conf(l.firewall())))
			l.same(before.changed(), "")
		}},
	}
}

func firewallCheck() (rows []row) {
	for _, c := range []struct {
		name, harm string
		needs      *netlab.Feature
	}{
		{"CHECK finds that all rules are flushed", "nft flush ruleset", &netlab.NFTables},
		{"CHECK finds that chain FORWARD of iptables is flushed", "iptables -F FORWARD", nil},
		{"CHECK finds that chain FORWARD of ip6tables is flushed", "ip6tables -F FORWARD", nil},
		{"CHECK finds that all chains of iptables are flushed", "iptables -F", nil},
	} {
		rows = append(rows, row{name: c.name, needs: c.needs, backends: true, test: func(l *lab) {
			web := l.attach(l.guarded(), "web")
			l.must(web.check())
			l.run(c.harm)
			l.refused(web.check())
		}})
	}
	return append(rows,
		row{name: "CHECK finds that one address is not let through", backends: true, test: func(l *lab) {
			c := l.attach(conf(lan), "web")
			c.network = l.guarded()
			for _, only := range []string{c.v4, c.v6} {
				bits := map[bool]string{true: "/24", false: "/64"}[only == c.v4]
				l.must(add(l, c, with(l.firewall(), "prevResult", `{"cniVersion":"1.0.0","ips":[{"address":"`+only+bits+`"}]}`)))
				l.refused(c.firewall("CHECK"))
				l.must(c.firewall("DEL"))
			}
		}},
		row{name: "CHECK finds that what ADD made is gone", backends: true, test: func(l *lab) {
			c, other := l.attach(l.guarded(), "web"), l.attach(l.guarded(), "other")
			l.must(c.firewall("DEL"))
			l.refused(c.firewall("CHECK"))
			l.must(other.check())
		}},
		row{name: "CHECK finds a rule of iptables gone that lets one address through", test: func(l *lab) {
			l.backend = "iptables"
			c, other := l.attach(l.guarded(), "web"), l.attach(l.guarded(), "other")
			l.without("ip6tables", c.v6)
			l.refused(c.check(), c.v6)
			l.must(other.check())
		}},
		row{name: "CHECK does not mind containers that come and go", backends: true, test: func(l *lab) {
			n := l.guarded("ingressPolicy", `"isolated"`)
			first, c := l.attach(n, "first"), l.attach(n, "web")
			l.must(first.del())
			l.attach(n, "last")
			l.must(c.check())
		}},
		row{name: "CHECK does not mind rules of others", backends: true, test: func(l *lab) {
			c := l.attach(l.guarded(), "web")
			l.bothTables("-P FORWARD DROP")
			l.bothTables("-A FORWARD -j DROP")
			l.bothTables("-A CNI-ADMIN -p tcp --dport 25 -j DROP")
			l.must(c.check())
		}},
		row{name: "CHECK changes nothing", backends: true, test: func(l *lab) {
			c := l.attach(l.guarded("ingressPolicy", `"isolated"`), "web")
			before := l.now(c)
			l.must(c.check())
			l.same(before.changed(), "")
		}},
		row{name: "CHECK of a policy succeeds where sysfs is that of another network namespace", backends: true, test: func(l *lab) {
			c := l.attach(l.guarded("ingressPolicy", `"isolated"`), "web")
			l.run("unshare -n mount -t sysfs another /sys")
			l.must(c.check())
		}},
		row{name: "CHECK that fails makes nothing", backends: true, differs: checkMakes, test: func(l *lab) {
			c := l.attach(l.guarded(), "web")
			l.flushRules()
			before := l.now(c)
			l.refused(c.check())
			l.same(before.changed(), "")
		}},
		row{name: "the next ADD mends chain FORWARD for all containers", backends: true, test: func(l *lab) {
			l.closedInternet()
			c := l.attach(l.guarded(), "web")
			l.bothTables("-F FORWARD")
			l.silent(c.away()...)
			l.attach(l.guarded(), "other")
			l.pass(c.away()...)
			l.must(c.check())
		}},
		row{name: "a second ADD mends what was flushed", backends: true, test: func(l *lab) {
			l.internet()
			l.routed()
			c := l.attach(l.guarded(), "web")
			l.flushRules()
			l.closed()
			l.must(c.firewall("ADD"))
			l.must(c.firewall("CHECK"))
			l.pass(c.away()...)
		}},
	)
}

func firewallStatus() (rows []row) {
	for _, c := range []struct{ name, key, value string }{
		{"a backend that there is not", "backend", `"ebtables"`},
		{"a policy that there is not", "ingressPolicy", `"closed"`},
		{"a name of a chain with a blank", "iptablesAdminChainName", `"no chain"`},
		{"that firewalld does not run", "backend", `"firewalld"`},
	} {
		rows = append(rows, row{name: "STATUS finds " + c.name, differs: noStatus, test: func(l *lab) {
			l.refused(l.status(conf(with(`{"type":"firewall"}`, c.key, c.value))), strings.Trim(c.value, `"`))
		}})
	}
	return append(rows,
		row{name: "STATUS of a node that has what it takes succeeds, and makes nothing", backends: true, test: func(l *lab) {
			before := l.now()
			l.must(l.status(conf(l.firewall("ingressPolicy", `"isolated"`))))
			l.same(before.changed(), "")
		}},
		row{name: "STATUS has the code of a plugin that is not available when firewalld does not run", differs: noStatus, test: func(l *lab) {
			l.code(l.status(conf(`{"type":"firewall","backend":"firewalld"}`)), 50)
		}},
	)
}

// firewalld starts one on the node, which is to drop what it does not know.
func (l *lab) firewalld() *firewalldtest.Daemon {
	return firewalldtest.Start(l, l.host, "nftables")
}

// silentBus gives the node a D-Bus that accepts and does not answer, as where systemd holds its socket and it is down. It hangs up after
// a while, and says so.
func (l *lab) silentBus() (hasHungUp *atomic.Bool) {
	hasHungUp = &atomic.Bool{}
	firewalldtest.Bus(l, l.host, func(conn net.Conn) {
		_ = conn.SetReadDeadline(time.Now().Add(l.patience()))
		_, err := io.Copy(io.Discard, conn)
		hasHungUp.CompareAndSwap(false, errors.Is(err, os.ErrDeadlineExceeded))
	})
	return hasHungUp
}

func firewallZones() []row {
	return []row{
		{name: "with firewalld the container's addresses are sources of zone trusted until DEL", needs: &netlab.NFTables, test: func(l *lab) {
			daemon := l.firewalld()
			l.internet()
			bare := l.attach(conf(lan), "bare")
			c, other := l.attach(l.guarded(), "web"), l.attach(l.guarded(), "other")
			l.silent(bare.away()...)
			l.pass(c.away()...)
			l.same(daemon.Sources(l, "trusted"), []string{c.v4 + "/32", c.v6 + "/128", other.v4 + "/32", other.v6 + "/128"})
			l.must(c.check())
			l.must(c.del())
			l.same(daemon.Sources(l, "trusted"), []string{other.v4 + "/32", other.v6 + "/128"})
		}},
		{name: "firewalldZone names the zone", needs: &netlab.NFTables, test: func(l *lab) {
			daemon := l.firewalld()
			c := l.attach(l.guarded("firewalldZone", `"work"`, "backend", `"firewalld"`), "web")
			l.same(daemon.Sources(l, "work"), []string{c.v4 + "/32", c.v6 + "/128"})
			l.same(daemon.Sources(l, "trusted"), []string{})
			l.must(c.check())
			l.must(c.del())
			l.same(daemon.Sources(l, "work"), []string{})
		}},
		{name: "with backend iptables a firewalld is let be", needs: &netlab.NFTables, test: func(l *lab) {
			daemon := l.firewalld()
			l.attach(l.guarded("backend", `"iptables"`), "web")
			l.same(daemon.Sources(l, "trusted"), []string{})
		}},
		{name: "CHECK finds that firewalld has forgotten an address", differs: falseIsTrue, needs: &netlab.NFTables, test: func(l *lab) {
			daemon := l.firewalld()
			c := l.attach(l.guarded(), "web")
			l.must(c.check())
			daemon.Reload(l)
			l.refused(c.check(), c.v4)
		}},
		{name: "DEL without a previous result takes addresses out of firewalld's zone", differs: needsResult, needs: &netlab.NFTables, test: func(l *lab) {
			daemon := l.firewalld()
			c := l.attach(l.guarded("firewalldZone", `"work"`), "web")
			l.must(del(l, c, c.network.plugins[1], noNetns))
			l.same(daemon.Sources(l, "work"), []string{})
		}},
		{name: "GC takes addresses out of firewalld's zone", differs: noGC, needs: &netlab.NFTables, test: func(l *lab) {
			daemon := l.firewalld()
			kept := l.attach(l.guarded(), "kept")
			l.attach(l.guarded(), "lost")
			daemon.AddSource(l, "trusted", "10.9.9.9/32") // somebody else's
			l.must(l.gc(conf(l.firewall()), kept))
			l.same(daemon.Sources(l, "trusted"), []string{kept.v4 + "/32", kept.v6 + "/128", "10.9.9.9/32"})
		}},
		{name: "a policy holds with firewalld", needs: &netlab.NFTables, test: func(l *lab) {
			l.firewalld()
			l.internet()
			one, two := l.serving(l.guardedBridge(1, "same-bridge"), "one"), l.serving(l.guardedBridge(2, "same-bridge"), "two")
			l.pass(one.away()...)
			l.silent(append(one.to(&two.Namespace), two.to(&one.Namespace)...)...)
		}},
		{name: "DELs of what firewalld knows nothing of don't wait for a D-Bus that does not answer", differs: "it waits for ever", test: func(l *lab) {
			list := []*container{l.attach(l.guarded(), "one"), l.attach(l.guarded(), "two"), l.attach(l.guarded(), "three")}
			hasHungUp := l.silentBus()
			var wait sync.WaitGroup
			for _, c := range list {
				wait.Go(func() {
					if err := c.del(); err != nil {
						l.Error(err)
					}
				})
			}
			wait.Wait()
			l.same(hasHungUp.Load(), false)
		}},
		{name: "a firewalld that refuses leaves packets to nftables, and nothing behind", differs: "its ADD fails", needs: &netlab.NFTables, test: func(l *lab) {
			l.warm(l.guarded())
			l.closedInternet()
			before := l.now()
			firewalldtest.Refuse(l, l.host)
			c := l.attach(l.guarded(), "web")
			l.pass(c.away()...)
			l.must(c.check())
			l.same(l.files("/run/cnibox/firewalld/sources"), []string(nil))
			l.must(c.del())
			l.run("rm -r /run/dbus")
			before.unchanged()
		}},
		{name: "DEL succeeds after an ADD that firewalld has refused", needs: &netlab.NFTables, test: func(l *lab) {
			firewalldtest.Refuse(l, l.host)
			c := l.pod("web")
			l.refused(c.add(l.guarded("backend", `"firewalld"`)), "Not Authorized")
			l.must(c.del())
			l.same(l.files(leaseDir+"10.*"), []string(nil))
		}},
		{name: "DEL goes on past a D-Bus that does not answer any more, and GC does the rest", differs: "it waits for ever", needs: &netlab.NFTables, test: func(l *lab) {
			daemon := l.firewalld()
			c := l.attach(l.guarded(), "web")
			l.run("mv /run/dbus/system_bus_socket /run/dbus/aside")
			l.silentBus()
			l.must(c.del())
			l.same(l.files(leaseDir+"10.*"), []string(nil))
			l.run("mv /run/dbus/aside /run/dbus/system_bus_socket")
			l.must(l.gc(l.guarded()))
			l.same(daemon.Sources(l, "trusted"), []string{})
		}},
		{name: "STATUS succeeds when firewalld runs", needs: &netlab.NFTables, test: func(l *lab) {
			l.firewalld()
			l.must(l.status(conf(l.firewall("backend", `"firewalld"`))))
		}},
	}
}
