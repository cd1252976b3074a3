package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// Why the reference plugins fail rows about owners.
const (
	portsNotOwned = "two containers get one port, and the one that had it first keeps it"
	delNeedsPorts = "its DEL removes nothing unless it is given the ports"
	delReadsAll   = "its DEL fails when the configuration is not valid any more"
)

// portmapOwnerRows are about who has a port of the host.
func portmapOwnerRows() (rows []row) {
	for _, c := range []struct{ name, first, second string }{
		{"a TCP port", "8080:80/tcp", "8080:81/tcp"},
		{"a UDP port", "8080:80/udp", "8080:80/udp"},
		{"a port of all addresses", "8080:80/tcp", "0.0.0.0:8080:80/tcp"},
		{"a port of one address", hostSide + ":8080:80/tcp", hostSide + ":8080:80/tcp"},
		{"a port of IPv6", "[::]:8080:80/tcp", "8080:80/tcp"},
		{"an SCTP port", "8080:80/sctp", "8080:80/sctp"},
	} {
		rows = append(rows, row{name: "ADD refuses " + c.name + " that another container has, and nothing has changed", backends: true, differs: portsNotOwned, test: func(l *lab) {
			first := publish(l, published(l), "first", c.first)
			second := l.bare("second")
			s := l.now(second)
			l.refused(add(l, second, second.portmap(mappings("7000:80/tcp", c.second))), "8080")
			s.unchanged()
			l.must(first.check())
			switch {
			case strings.HasSuffix(c.first, "udp"):
				l.answers(udp(&l.host.Namespace, hostSide, 8080), "first")
			case strings.Contains(c.first, "::"):
				l.answers(tcp(&l.host.Namespace, hostSide6, 8080), "first")
			case strings.HasSuffix(c.first, "tcp"):
				l.answers(local(l, 8080), "first")
			}
			l.silent(local(l, 7000))
		}})
	}
	return append(rows, []row{
		{name: "ADD refuses a port that a container of another network has", backends: true, differs: portsNotOwned, test: func(l *lab) {
			publish(l, far(l), "first", "8080:80/tcp")
			second := l.bare("second")
			l.refused(add(l, second, second.portmap(mappings("8080:80/tcp"))), "8080", "far")
			l.answers(tcp(&l.host.Namespace, "10.45.0.1", 8080), "first")
		}},
		{name: "the error of a port that is taken names the network and the container that have it", backends: true, differs: portsNotOwned, test: func(l *lab) {
			first := publish(l, far(l), "first", "8080:80/tcp")
			second := l.bare("second")
			l.refused(add(l, second, second.portmap(mappings("8080:80/tcp"))), "8080", "far", first.ID)
		}},
		{name: "a container has a port once that it asks for on two networks", backends: true, test: func(l *lab) {
			web := publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp")
			second := web.as("net1")
			config := with(second.portmap(mappings("8080:80/tcp", "8080:80/udp")), "name", `"far"`)
			for range 2 {
				l.must(add(l, second, config))
				l.must(check(l, second, config))
				l.must(web.check())
				l.answers(local(l, 8080), "web")
				l.must(del(l, second, config))
				l.must(web.check())
				l.allAnswer("web", local(l, 8080), udp(&l.host.Namespace, hostSide, 8080))
			}
			l.must(add(l, second, config))
			l.must(web.del())
			l.must(del(l, second, config))
			l.silent(local(l, 8080))
		}},
		{name: "one number is published over TCP, UDP and SCTP by three containers", backends: true, test: func(l *lab) {
			sctp := publish(l, published(l), "sctp", "8080:80/sctp")
			l.silent(local(l, 8080), udp(&l.host.Namespace, hostSide, 8080)) // it serves both on port 80
			a := publish(l, published(l), "tcp", "8080:80/tcp")
			b := publish(l, published(l), "udp", "8080:80/udp")
			for range 2 {
				l.answers(local(l, 8080), "tcp")
				l.answers(udp(&l.host.Namespace, hostSide, 8080), "udp")
				l.must(a.check())
				l.must(b.check())
				l.must(sctp.del()) // takes neither away
			}
		}},
		{name: "a port on one address wins over the same port on all, which came first", needs: &netlab.NFTables, differs: "the one that was published first wins", test: func(l *lab) {
			all := publish(l, published(l), "all", "8080:80/tcp", "8080:80/udp")
			one := publish(l, published(l), "one", hostSide+":8080:80/tcp", hostSide+":8080:80/udp")
			l.allAnswer("one", local(l, 8080), udp(&l.host.Namespace, hostSide, 8080))
			l.answers(tcp(&l.host.Namespace, "127.0.0.1", 8080), "all")
			l.must(all.check())
			l.must(one.del())
			l.allAnswer("all", local(l, 8080), udp(&l.host.Namespace, hostSide, 8080))
		}},
		{name: "a port on one address wins over the same port on all, which comes later", backends: true, test: func(l *lab) {
			publish(l, published(l), "one", hostSide+":8080:80/tcp")
			all := publish(l, published(l), "all", "8080:80/tcp")
			l.answers(local(l, 8080), "one")
			l.answers(tcp(&l.host.Namespace, "127.0.0.1", 8080), "all")
			l.must(all.del())
			l.answers(local(l, 8080), "one")
			l.silent(tcp(&l.host.Namespace, "127.0.0.1", 8080))
		}},
		{name: "after DEL another container can have the port, and a second DEL leaves it to that", backends: true, test: func(l *lab) {
			old := publish(l, published(l), "old", "8080:80/tcp", "8080:80/udp")
			l.must(old.del())
			web := publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp")
			l.must(old.del())
			l.must(del(l, old, old.portmap(mappings("8080:80/tcp", "8080:80/udp"))))
			l.allAnswer("web", local(l, 8080), udp(&l.host.Namespace, hostSide, 8080))
			l.must(web.check())
		}},
		{name: "the port of a container that is gone is taken over, and its late DEL leaves it to the new one", backends: true, differs: portsNotOwned, test: func(l *lab) {
			old := publish(l, published(l), "old", "8080:80/tcp", "8081:80/tcp")
			old.Delete(l)
			web := publish(l, published(l), "web", "8080:80/tcp")
			l.allAnswer("web", local(l, 8080), tcp(&l.host.Namespace, hostSide6, 8080), tcp(&l.host.Namespace, "127.0.0.1", 8080))
			l.must(old.del())
			l.answers(local(l, 8080), "web")
			l.must(web.check())
			l.must(web.del())
			publish(l, published(l), "next", "8080:80/tcp", "8081:80/tcp")
			l.allAnswer("next", local(l, 8080), local(l, 8081))
		}},
		{name: "the port of a container that is gone is taken over where libcni's cache is in another directory", backends: true, test: func(l *lab) {
			old := publish(l, published(l), "old", "8080:80/tcp")
			old.Delete(l)
			l.run("mkdir /var/lib/cni/runtime")
			l.run("mv /var/lib/cni/results /var/lib/cni/runtime")
			web := l.bare("web")
			l.must(add(l, web, web.portmap(mappings("8080:80/tcp")), env("CNIBOX_CACHE_DIR=/var/lib/cni/runtime")))
		}},
		{name: "the UDP port of a container that is gone is taken over with its clients", backends: true, differs: portsNotOwned, test: func(l *lab) {
			from := &l.outside().Namespace
			old := publish(l, published(l), "old", "5353:80/udp")
			l.goesTo(from, netlab.HostIPv4, 5353, "old")
			old.DeleteKeepFile(l) // a path without a namespace says as much as no path
			web := publish(l, published(l), "web", "5353:80/udp")
			l.goesTo(from, netlab.HostIPv4, 5353, "web")
			l.must(web.check())
		}},
		{name: "the late DEL of a container whose port was taken over leaves nothing of either", backends: true, differs: "its DEL leaves the masquerading of a container whose namespace is gone", test: func(l *lab) {
			l.warm(published(l), ports("7:7/tcp"))
			s := l.now()
			old := publish(l, published(l), "old", "8080:80/tcp")
			old.Delete(l)
			web := publish(l, published(l), "web", "8080:80/tcp")
			l.must(old.del())
			l.must(web.del())
			web.Delete(l)
			s.unchanged()
		}},
		{name: "the port stays with a container of which it is not known whether it is gone", backends: true, differs: portsNotOwned, test: func(l *lab) {
			old := publish(l, published(l), "old", "8080:80/tcp")
			l.forget() // where the container's namespace was
			second := l.bare("second")
			l.refused(add(l, second, second.portmap(mappings("8080:80/tcp"))), "8080", old.ID)
			l.answers(local(l, 8080), "old")
		}},
		{name: "a slow DEL of a container that is gone leaves the port to one that takes it over meanwhile", test: slowDel},
		{name: "a second ADD of the same ports changes nothing", backends: true, test: func(l *lab) {
			web := publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp")
			s := l.now(web)
			config := web.portmap(mappings("8080:80/tcp", "8080:80/udp"))
			web.mapped(config)
			s.unchanged()
			l.answers(local(l, 8080), "web")
			l.must(del(l, web, config))
			l.silent(local(l, 8080), udp(&l.host.Namespace, hostSide, 8080))
		}},
		{name: "two networks of a container keep their ports apart", backends: true, test: func(l *lab) {
			web := publish(l, published(l), "web", "8080:80/tcp")
			config := with(web.portmap(mappings("8081:80/tcp")), "name", `"second"`)
			web.mapped(config)
			l.allAnswer("web", local(l, 8080), local(l, 8081))
			l.must(del(l, web, config))
			l.silent(local(l, 8081))
			l.answers(local(l, 8080), "web")
			l.must(web.check())
		}},
		{name: "two interfaces of a container keep their ports apart", backends: true, differs: "its DEL removes the ports of all interfaces that a container has in the network", test: func(l *lab) {
			web := publish(l, published(l), "web", "8080:80/tcp")
			second := web.as("net1")
			config := second.portmap(mappings("8081:80/tcp"))
			second.mapped(config)
			l.answers(local(l, 8081), "web")
			l.must(del(l, second, config))
			l.silent(local(l, 8081))
			l.answers(local(l, 8080), "web")
			l.must(web.check())
		}},
	}...)
}

// as returns the container as if its interface had another name.
func (c *container) as(ifname string) *container {
	other := *c
	other.runtime = c.RuntimeConf(nil)
	other.runtime.IfName = ifname
	other.printed = strings.ReplaceAll(c.printed, `"`+c.runtime.IfName+`"`, `"`+ifname+`"`)
	return &other
}

// slowDel has containers that are gone, and a slow DEL of each. Before another of its messages to the kernel, a new container with
// the same address, as when a runtime starts it again, asks for the same port until it gets it.
func slowDel(l *lab) {
	const steps = 8
	l.warm(published(l), ports("7:7/tcp"))
	web := l.bare("web")
	l.serve(&web.Namespace, 80)
	port := func(n int) string { return fmt.Sprintf("%d:80/tcp", 8000+n) }
	var old []*container
	for n := range steps {
		c := l.attach(published(l), fmt.Sprintf("old%d", n), ports(port(n)))
		c.Delete(l)
		web.run("ip address add " + c.v4 + "/24 dev eth0")
		old = append(old, c)
	}
	var wait sync.WaitGroup
	for n, c := range old {
		config := c.portmap(mappings(port(n)))
		waits := make(chan struct{})
		wait.Add(2)
		go func() {
			defer wait.Done()
			if err := slowly(l, "DEL", c, config, n+1, waits); err != nil {
				l.Errorf("DEL: %v", err)
			}
		}()
		go func() {
			defer wait.Done()
			<-waits
			l.eventually(func() string {
				as := func(call *netlab.PluginCall) { call.ContainerID = fmt.Sprintf("new%d", n) }
				if _, err := l.exec("ADD", web, config, as); err != nil {
					return err.Error()
				}
				return ""
			})
		}()
	}
	wait.Wait()
	for n := range old {
		l.answers(local(l, 8000+n), "web")
	}
}

// slowly is exec of a plugin that waits before each of its messages to the kernel, not as long as others do, so that they do not
// disturb each other. It closes the channel when the plugin waits before the n-th, or has come to its end.
func slowly(l *lab, verb string, c *container, config string, n int, waits chan<- struct{}) error {
	plugin, config := l.complete(config)
	cmd := l.host.PluginCommand(l, plugin, c.Call(verb, config))
	log := filepath.Join(l.TempDir(), "calls")
	strace := l.host.Command("strace", "-f", "-b", "execve", "-qq", "-o", log, "-e", "trace=sendto,sendmsg",
		"-e", fmt.Sprintf("inject=sendto,sendmsg:delay_enter=%d", 100_000+n*10_000), cmd.Path)
	strace.Env, strace.Stdin = cmd.Env, cmd.Stdin
	ended := make(chan error, 1)
	go func() {
		_, err := l.host.Output(strace)
		ended <- err
	}()
	sent := regexp.MustCompile(`send(to|msg)\(`)
	for ; ; netlab.Pause(10 * time.Millisecond) {
		select {
		case err := <-ended:
			if waits != nil {
				close(waits)
			}
			return err
		default:
		}
		if calls, _ := os.ReadFile(log); waits != nil && len(sent.FindAll(calls, -1)) >= n {
			close(waits)
			waits = nil
		}
	}
}

// killed is exec of a plugin that is killed before its n-th message to the kernel. It is false if there were fewer.
func killed(l *lab, verb string, c *container, config string, n int) bool {
	plugin, config := l.complete(config)
	cmd := l.host.PluginCommand(l, plugin, c.Call(verb, config))
	strace := l.host.Command("strace", "-f", "-b", "execve", "-qq", "-o", "/dev/null", "-e", "trace=sendto,sendmsg",
		"-e", fmt.Sprintf("inject=sendto,sendmsg:signal=KILL:when=%d", n), cmd.Path)
	strace.Env, strace.Stdin = cmd.Env, cmd.Stdin
	_, err := l.host.Output(strace)
	return err != nil
}

// portmapDelRows are ways to call DEL after an ADD, all of which leave nothing.
func portmapDelRows() (rows []row) {
	const all = "8080:80/tcp 8080:80/udp 127.0.0.1:9090:80/tcp"
	const oneBackend = "its DEL looks in one backend alone"
	for _, c := range []struct {
		name          string
		keys          []string // of the ADD
		differs       string
		before        func(l *lab, web *container, config string) // DEL
		without, with []string                                    // keys of the configuration that DEL gets
		changes       []change
	}{
		{name: ""},
		{name: " without a result", without: []string{"prevResult"}},
		{name: " without the ports", without: []string{"runtimeConfig"}, differs: delNeedsPorts},
		{name: " with as little as a runtime may send", without: []string{"runtimeConfig", "prevResult"}, changes: []change{noNetns}, differs: delNeedsPorts},
		{name: " without a namespace", changes: []change{noNetns}},
		{name: " when the namespace is gone", before: func(l *lab, web *container, _ string) { web.Delete(l) }},
		{name: " when a plain file is where the namespace was", before: func(l *lab, web *container, _ string) { web.DeleteKeepFile(l) }},
		{name: " when another namespace is at the path", before: func(l *lab, web *container, _ string) { web.Replace(l) }},
		{name: " twice", before: func(l *lab, web *container, config string) { l.must(del(l, web, config)) }},
		{name: " with other ports than ADD", with: []string{"runtimeConfig", `{"portMappings":` + mappings("9999:99/tcp") + `}`}},
		{name: " with other options than ADD", with: []string{"snat", "false", "masqAll", "true"}},
		{name: " with a result that has another address", before: func(_ *lab, web *container, _ string) {
			web.printed = strings.ReplaceAll(web.printed, web.v4, "10.44.0.99")
		}},
		{name: " with a result that is none", with: []string{"prevResult", `{"ips":"none"}`}, differs: delReadsAll},
		{name: " with ports that are not valid", with: []string{"runtimeConfig", `{"portMappings":[{"hostPort":0}]}`}, differs: delReadsAll},
		{name: " with options that are not valid", with: []string{"snat", "5", "markMasqBit", "99"}, differs: delReadsAll},
		{name: " with a backend that is not valid", with: []string{"backend", `"none"`}, differs: delReadsAll},
		{name: " after an ADD with backend nftables, which is not named any more", keys: []string{"backend", `"nftables"`}, without: []string{"backend"}, differs: oneBackend},
		{name: " after an ADD with backend iptables, which has changed", keys: []string{"backend", `"iptables"`}, with: []string{"backend", `"nftables"`}, differs: oneBackend},
		{name: " after an ADD with masqAll", keys: []string{"masqAll", `true`}},
		{name: " after an ADD with a mark bit of its own", keys: []string{"markMasqBit", `20`}},
		{name: " after an ADD without snat", keys: []string{"snat", `false`}},
		{name: " after an ADD with conditions in words of iptables", keys: []string{"conditionsV4", `["!","-d","192.0.2.1"]`}},
		{name: " after an ADD with conditions in words of nft", keys: []string{"backend", `"nftables"`, "conditionsV4", `["ip","daddr","192.0.2.1"]`}, differs: "the conditions stay"},
	} {
		rows = append(rows, row{name: "DEL" + c.name + " leaves nothing", backends: c.keys == nil, differs: c.differs, test: func(l *lab) {
			web := l.bare("web")
			web.warmPorts()
			if c.keys != nil {
				web.warmPorts("backend", `"nftables"`)
				web.warmPorts("backend", `"iptables"`)
			}
			if slices.Contains(c.keys, "markMasqBit") {
				web.warmPorts(c.keys...) // the rules for a bit are for all who have it
			}
			s := l.now()
			config := web.portmap(mappings(strings.Fields(all)...), c.keys...)
			web.mapped(config)
			if s.changed() == "" {
				l.Error("ADD changed nothing")
			}
			if c.before != nil {
				c.before(l, web, config)
			}
			config = web.portmap(mappings(strings.Fields(all)...), c.keys...)
			l.must(del(l, web, with(without(config, c.without...), c.with...), c.changes...))
			s.unchangedBut("veth") // which go with their namespace
		}})
	}
	return append(rows, []row{
		{name: "DEL closes the port, over TCP and UDP, for who asks from anywhere", backends: true, test: func(l *lab) {
			web := publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp", hostSide+":9090:80/tcp")
			peer := publish(l, published(l), "peer", "8081:80/tcp")
			from := &l.outside().Namespace
			l.allAnswer("web", tcp(from, netlab.HostIPv4, 8080), local(l, 9090))
			l.must(web.del())
			host := &l.host.Namespace
			l.silent(tcp(from, netlab.HostIPv4, 8080), udp(from, netlab.HostIPv4, 8080), tcp(from, netlab.HostIPv6, 8080), local(l, 8080), local(l, 9090),
				tcp(host, "127.0.0.1", 8080), tcp(&peer.Namespace, hostSide, 8080))
			l.answers(local(l, 8081), "peer")
			l.must(peer.check())
		}},
		{name: "DEL of what was never added changes nothing", backends: true, test: func(l *lab) {
			web := publish(l, published(l), "web", "8080:80/tcp")
			never := l.bare("never")
			s := l.now(web, never)
			l.must(del(l, never, never.portmap(mappings("8080:80/tcp"))))
			s.unchanged()
			l.answers(local(l, 8080), "web")
		}},
		{name: "DEL on a node where nothing was ever published changes nothing", test: func(l *lab) {
			web := l.pod("web")
			s := l.now(web)
			l.must(del(l, web, with(`{"type":"portmap"}`, "runtimeConfig", `{"portMappings":`+mappings("8080:80/tcp")+`}`)))
			l.noLegacyTables()
			s.unchanged()
		}},
		{name: "DEL after an ADD that was killed at any step leaves nothing", test: func(l *lab) {
			web := l.bare("web")
			web.warmPorts()
			s := l.now()
			config := web.portmap(mappings(strings.Fields(all)...))
			for n := 1; killed(l, "ADD", web, config, n); n++ {
				l.must(del(l, web, config))
				s.unchanged()
			}
			l.must(check(l, web, config)) // of the one that came to its end
			l.must(del(l, web, config))
			s.unchanged()
		}},
		{name: "DEL succeeds when somebody has flushed all rules", backends: true, test: func(l *lab) {
			web := publish(l, published(l), "web", "8080:80/tcp")
			config := web.portmap(mappings("8080:80/tcp"))
			l.flushRules()
			l.must(del(l, web, config))
			l.silent(local(l, 8080))
		}},
		{name: "DEL of a container behind a link of its own leaves nothing, not even route_localnet", needs: &netlab.NFTables, differs: "route_localnet stays set", test: func(l *lab) {
			l.bare("warm").warmPorts()
			web := ownLink(l)
			s := l.now()
			config := web.portmap(mappings("8080:80/tcp"))
			web.mapped(config)
			l.answers(tcp(&l.host.Namespace, "127.0.0.1", 8080), "web")
			l.must(del(l, web, config))
			s.unchanged()
		}},
	}...)
}

// unchangedBut makes sure that nothing is different but some links.
func (s *state) unchangedBut(links string) {
	s.lab.eventually(func() string {
		var left []string
		for line := range strings.Lines(s.changed()) {
			if !strings.Contains(line, links) {
				left = append(left, line)
			}
		}
		return strings.Join(left, "")
	})
}

// portmapGCRows are about ports of attachments whose DEL never came.
var portmapGCRows = []row{
	{name: "GC closes the ports of attachments that are not valid, and no others", backends: true, differs: noGC, test: func(l *lab) {
		n := published(l)
		keep := publish(l, n, "keep", "8080:80/tcp", hostSide+":9090:80/tcp")
		publish(l, n, "lost", "8081:80/tcp", "8081:80/udp", hostSide+":9091:80/tcp")
		foreign := publish(l, far(l), "foreign", "8082:80/tcp")
		l.answers(local(l, 8081), "lost")
		l.must(l.gc(portmapOnly(n), keep))
		host := &l.host.Namespace
		l.silent(local(l, 8081), udp(host, hostSide, 8081), tcp(host, hostSide6, 8081), tcp(host, "127.0.0.1", 8081), local(l, 9091))
		l.allAnswer("keep", local(l, 8080), local(l, 9090))
		l.answers(local(l, 8082), "foreign")
		l.must(keep.check())
		l.must(foreign.check())
		publish(l, n, "next", "8081:80/tcp")
		l.answers(local(l, 8081), "next")
	}},
	{name: "GC with nothing valid closes all ports of the network", backends: true, differs: noGC, test: func(l *lab) {
		n := published(l)
		web := publish(l, n, "web", "8080:80/tcp")
		publish(l, far(l), "foreign", "8082:80/tcp")
		l.must(l.gc(portmapOnly(n)))
		l.silent(local(l, 8080))
		l.answers(local(l, 8082), "foreign")
		l.must(web.del())
	}},
	{name: "GC leaves nothing of what is not valid", backends: true, differs: noGC, test: func(l *lab) {
		web := l.bare("web")
		web.warmPorts()
		s := l.now()
		web.mapped(web.portmap(mappings("8080:80/tcp", "8080:80/udp", "127.0.0.1:9090:80/tcp")))
		l.must(l.gc(portmapOnly(published(l))))
		s.unchanged()
	}},
	{name: "GC of a network does not touch one whose name begins alike", backends: true, test: func(l *lab) {
		publish(l, published(l).called("lan2"), "web", "8080:80/tcp")
		l.must(l.gc(portmapOnly(published(l))))
		l.answers(local(l, 8080), "web")
	}},
	{name: "GC closes the ports of an interface that is not valid, of a container with one that is", backends: true, differs: noGC, test: func(l *lab) {
		web := publish(l, published(l), "web", "8080:80/tcp")
		second := web.as("net1")
		second.mapped(second.portmap(mappings("8081:80/tcp")))
		l.answers(local(l, 8081), "web")
		l.must(l.gc(portmapOnly(published(l)), web))
		l.silent(local(l, 8081))
		l.answers(local(l, 8080), "web")
		l.must(web.check())
	}},
	{name: "GC without a list of attachments removes nothing", backends: true, test: func(l *lab) {
		publish(l, published(l), "web", "8080:80/tcp")
		s := l.now()
		_, err := l.exec("GC", nil, `{"type":"portmap","cniVersion":"1.1.0"}`)
		l.must(err)
		s.unchanged()
		l.answers(local(l, 8080), "web")
	}},
	{name: "GC takes back a port on a link of its own with route_localnet when the link is gone", differs: noGC, test: func(l *lab) {
		l.bare("warm").warmPorts()
		s := l.now()
		web := ownLink(l)
		web.mapped(web.portmap(mappings("8080:80/tcp")))
		l.run("ip link del own0")
		l.must(l.gc(portmapOnly(published(l))))
		s.unchangedBut("own0")
	}},
}

// portmapCheckRows are what CHECK finds, and what it does not mind.
func portmapCheckRows() (rows []row) {
	for _, c := range []struct {
		name string
		keys []string
		maps string
	}{
		{"", nil, "8080:80/tcp 8080:80/udp 5000:80/sctp"},
		{" with addresses of the host", nil, hostSide + ":8080:80/tcp [" + hostSide6 + "]:8080:80/udp 127.0.0.1:9090:80/tcp [::]:9091:80/tcp 0.0.0.0:9092:80/tcp"},
		{" with masqAll", []string{"masqAll", "true"}, "8080:80/tcp"},
		{" without snat", []string{"snat", "false"}, "8080:80/tcp"},
		{" with a mark bit", []string{"markMasqBit", "20"}, "8080:80/tcp"},
	} {
		rows = append(rows, row{name: "CHECK is content after ADD" + c.name + ", and changes nothing", backends: true, test: func(l *lab) {
			web := l.bare("web")
			config := web.portmap(mappings(strings.Fields(c.maps)...), c.keys...)
			web.mapped(config)
			s := l.now(web)
			l.must(check(l, web, config))
			s.unchanged()
		}})
	}
	const published = "8080:80/tcp 8081:80/udp " + hostSide + ":9090:80/tcp"
	const ownRules = "its CHECK looks at the container's own rules alone"
	for _, c := range []struct {
		name, differs string
		harm          func(l *lab, web *container) // what is there
		change        []string                     // of the configuration that CHECK gets: a text, and what is there in its place
		with          []string                     // and more keys
	}{
		{name: "all rules are flushed", harm: func(l *lab, _ *container) { l.flushRules() }},
		{name: "all chains are flushed", harm: func(l *lab, _ *container) { flushChains(l, func(chain) bool { return true }) }},
		{name: "the chains that packets enter by are flushed", differs: ownRules, harm: func(l *lab, _ *container) {
			flushChains(l, func(c chain) bool { return c.hook != "" && c.hook != "postrouting" })
		}},
		{name: "the chains that masquerade are flushed", differs: ownRules, harm: func(l *lab, _ *container) {
			flushChains(l, func(c chain) bool { return c.hook == "postrouting" })
		}},
		{name: "route_localnet is reset", differs: "its CHECK does not look at route_localnet", harm: func(l *lab, _ *container) {
			l.run("sysctl -qw net.ipv4.conf.lan0.route_localnet=0")
		}},
		{name: "the ports were given back", harm: func(l *lab, web *container) {
			l.must(del(l, web, web.portmap(mappings(strings.Fields(published)...))))
		}},
		{name: "one more port is asked for", with: []string{"runtimeConfig", `{"portMappings":` + mappings(strings.Fields("7000:80/tcp "+published)...) + `}`}},
		{name: "a port leads to another one of the container", change: []string{`"containerPort":80,"hostIP":"","hostPort":8080`, `"containerPort":81,"hostIP":"","hostPort":8080`}},
		{name: "a port leads to another address", change: []string{`"10.44.0.2/24"`, `"10.44.0.9/24"`}},
		{name: "a port leads to another IPv6 address", change: []string{`"fd00:44::2/64"`, `"fd00:44::9/64"`}},
		{name: "a port is of another protocol", change: []string{`"protocol":"udp"`, `"protocol":"tcp"`}},
		{name: "a port is to be published on another address", change: []string{`"hostIP":"` + hostSide + `"`, `"hostIP":"192.0.2.1"`}},
		{name: "masqAll is asked for and was not", with: []string{"masqAll", "true"}},
	} {
		rows = append(rows, row{name: "CHECK fails when " + c.name, backends: true, differs: c.differs, test: func(l *lab) {
			web := l.bare("web")
			config := web.portmap(mappings(strings.Fields(published)...))
			web.mapped(config)
			l.must(check(l, web, config))
			if c.harm != nil {
				c.harm(l, web)
			}
			s := l.now(web)
			changed := with(strings.NewReplacer(c.change...).Replace(config), c.with...)
			if c.harm == nil && changed == config {
				l.Fatal("CHECK gets what ADD got")
			}
			l.refused(check(l, web, changed))
			s.unchanged()
		}})
	}
	return append(rows, []row{
		{name: "CHECK without ports is content", backends: true, test: func(l *lab) {
			web := l.bare("web")
			l.must(check(l, web, web.portmap("[]")))
		}},
		{name: "CHECK without a result is refused", test: func(l *lab) {
			web := l.bare("web")
			config := web.portmap(mappings("8080:80/tcp"))
			web.mapped(config)
			l.refused(check(l, web, without(config, "prevResult")))
		}},
		{name: "CHECK fails when another container has the port", backends: true, test: func(l *lab) {
			web, peer := l.bare("web"), l.bare("peer")
			peer.mapped(peer.portmap(mappings("8080:80/tcp")))
			l.refused(check(l, web, web.portmap(mappings("8080:80/tcp"))))
		}},
		{name: "CHECK does not mind that others add and remove ports", backends: true, test: func(l *lab) {
			web, peer := l.bare("web"), l.bare("peer")
			config := web.portmap(mappings("8080:80/tcp"))
			web.mapped(config)
			peer.mapped(peer.portmap(mappings("8081:80/tcp")))
			l.must(check(l, web, config))
			l.must(del(l, peer, peer.portmap(mappings("8081:80/tcp"))))
			l.must(check(l, web, config))
		}},
	}...)
}

// chain is a chain of the packet filter, in its table.
type chain struct{ family, table, name, hook string }

// flushChains removes the rules of some chains of nftables, where iptables keeps its own too.
func flushChains(l *lab, which func(chain) bool) {
	netlab.Need(l, netlab.NFTables)
	var flush []string
	listed := object(l.run("nft -j list chains"))
	for _, entry := range listed["nftables"].([]any) {
		c, ok := entry.(map[string]any)["chain"].(map[string]any)
		if !ok {
			continue
		}
		hook, _ := c["hook"].(string)
		if this := (chain{fmt.Sprint(c["family"]), fmt.Sprint(c["table"]), fmt.Sprint(c["name"]), hook}); which(this) {
			flush = append(flush, fmt.Sprintf("flush chain %s %s %s", this.family, this.table, this.name))
		}
	}
	if len(flush) == 0 {
		l.Fatal("there is no such chain")
	}
	l.run("nft " + strings.Join(slices.Compact(flush), " ; "))
}

// portmapStatusRows are what STATUS says.
func portmapStatusRows() []row {
	rows := []row{{name: "STATUS is content, and changes nothing", backends: true, test: func(l *lab) {
		s := l.now()
		l.must(l.status(published(l)))
		s.unchanged()
	}}}
	for _, c := range []struct{ name, key, value, names string }{
		{"an unknown backend", "backend", `"ipvs"`, "ipvs"},
		{"options that are not valid", "snat", `"yes"`, "snat"},
		{"conditions that are more than that", "conditionsV4", `["ip daddr 192.0.2.1; flush ruleset"]`, "conditionsV4"},
	} {
		rows = append(rows, row{name: "STATUS fails with " + c.name, differs: noStatus, test: func(l *lab) {
			l.refused(l.status(portmapOnly(published(l, c.key, c.value))), c.names)
		}})
	}
	return rows
}
