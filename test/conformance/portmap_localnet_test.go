package conformance

import (
	"net"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// Why the reference plugins fail rows about 127.0.0.0/8, and ours with backend iptables.
const (
	localnetOpen = "it sets route_localnet and keeps nobody out"
)

// portmapLocalnetRows: published ports answer at 127.0.0.1, for which the kernel has to route such addresses on the containers'
// link. What the node serves there for itself must not be reached from that link all the same.
var portmapLocalnetRows = []row{
	{name: "containers do not reach what the node serves on 127.0.0.1", differs: localnetOpen, test: insideKeptOut},
	{name: "containers do not reach what the node serves on 127.0.0.1, with backend iptables", differs: localnetOpen, test: func(l *lab) {
		l.backend = "iptables"
		insideKeptOut(l)
	}},
	{name: "containers do not reach what the node serves on 127.0.0.1, where iptables wants nf_tables, the kernel has none, and iptables-legacy is beside it",
		differs: "it runs iptables by its plain name alone, which fails", test: func(l *lab) {
			l.backend = "iptables"
			l.host.UseIPTablesInVain(l)
			insideKeptOut(l)
			c := l.attach(published(l), "third", ports("8082:80/tcp"))
			l.must(c.check())
			l.run("iptables-legacy -t raw -F")
			l.refused(c.check(), "127.0.0.1")
		}},
	{name: "containers do not reach a port that is published on 127.0.0.1", differs: localnetOpen, test: func(l *lab) {
		publish(l, published(l), "web", "127.0.0.1:8080:80/tcp", "8081:80/tcp")
		peer := l.attach(published(l), "peer")
		sendsLocal(peer, hostSide)
		l.silent(tcp(&peer.Namespace, "127.0.0.1", 8080), tcp(&peer.Namespace, "127.0.0.1", 8081))
	}},
	{name: "the outside does not reach 127.0.0.1", backends: true, test: func(l *lab) {
		l.serve(&l.host.Namespace, 9999)
		publish(l, published(l), "web", "127.0.0.1:8080:80/tcp", "8081:80/tcp")
		out := &l.outside().Namespace
		l.answers(tcp(out, netlab.HostIPv4, 8081), "web")
		run(l, out, "sysctl -qw net.ipv4.conf.all.route_localnet=1")
		run(l, out, "ip route add 127.0.0.0/8 via "+netlab.HostIPv4)
		l.silent(tcp(out, "127.0.0.1", 9999), udp(out, "127.0.0.1", 9999), tcp(out, "127.0.0.1", 8080), tcp(out, "127.0.0.1", 8081))
	}},
	{name: "containers do not send to the node as 127.0.0.1, where it takes packets from its own addresses", needs: &netlab.NFTables, differs: localnetOpen, test: func(l *lab) {
		publish(l, published(l), "web", "8080:80/tcp")
		l.run("sysctl -qw net.ipv4.conf.lan0.accept_local=1")
		heard := make(chan string, 10)
		listen(l, ":9999", heard)
		peer := l.attach(published(l), "peer")
		peer.run("ip link set lo up")
		peer.run("sysctl -qw net.ipv4.conf.eth0.route_localnet=1")
		l.must(sendAs(peer, "127.0.0.1", hostSide+":9999"))
		l.must(sendAs(peer, peer.v4, hostSide+":9999"))
		for {
			select {
			case from := <-heard:
				if from == "127.0.0.1" {
					l.Error("the node hears 127.0.0.1")
				}
				if from == peer.v4 { // which was sent later
					return
				}
			case <-time.After(l.patience()):
				l.Fatal("the node hears nothing")
			}
		}
	}},
	{name: "a container behind a link of its own does not reach 127.0.0.1", differs: localnetOpen, test: func(l *lab) {
		l.serve(&l.host.Namespace, 9999)
		web := ownLink(l)
		web.mapped(web.portmap(mappings("8080:80/tcp")))
		sendsLocal(web, "10.47.0.1")
		l.silent(tcp(&web.Namespace, "127.0.0.1", 9999), udp(&web.Namespace, "127.0.0.1", 9999))
	}},
	{name: "a container behind a link of its own does not reach 127.0.0.1 after a DEL that can't unset route_localnet", needs: &netlab.NFTables, differs: localnetOpen, test: func(l *lab) {
		l.serve(&l.host.Namespace, 9999)
		web := ownLink(l)
		config := web.portmap(mappings("8080:80/tcp"))
		web.mapped(config)
		sendsLocal(web, "10.47.0.1")
		l.forbidSysctls()
		l.refused(del(l, web, config), "route_localnet")
		l.silent(tcp(&web.Namespace, "127.0.0.1", 9999))
		l.run("umount /proc/sys")
		l.must(del(l, web, config))
	}},
	{name: "127.0.0.1 is kept from containers after the last port is closed", differs: localnetOpen, test: func(l *lab) {
		l.serve(&l.host.Namespace, 9999)
		web := publish(l, published(l), "web", "8080:80/tcp")
		peer := l.attach(published(l), "peer")
		l.must(web.del())
		sendsLocal(peer, hostSide)
		l.silent(tcp(&peer.Namespace, "127.0.0.1", 9999))
	}},
	{name: "after somebody has flushed the ruleset, the next ADD publishes again", backends: true, test: func(l *lab) {
		publish(l, published(l), "old", "8080:80/tcp")
		l.flushRules()
		publish(l, published(l), "web", "8081:80/tcp")
		l.allAnswer("web", local(l, 8081), tcp(&l.host.Namespace, "127.0.0.1", 8081))
	}},
	{name: "after somebody has flushed the ruleset, the next ADD keeps containers from 127.0.0.1 again", differs: localnetOpen, test: func(l *lab) {
		publish(l, published(l), "old", "8080:80/tcp")
		l.flushRules()
		insideKeptOut(l)
	}},
	{name: "after somebody has flushed all chains, the next ADD publishes again", test: publishesAfterFlush},
	{name: "after somebody has flushed all chains, the next ADD publishes again, with backend iptables", test: func(l *lab) {
		l.backend = "iptables"
		publishesAfterFlush(l)
	}},
	{name: "after somebody has flushed all chains, the next ADD keeps containers from 127.0.0.1 again", differs: localnetOpen, test: func(l *lab) {
		publish(l, published(l), "old", "8080:80/tcp")
		flushChains(l, func(chain) bool { return true })
		insideKeptOut(l)
	}},
}

// insideKeptOut publishes ports and makes sure that neither their container nor another one of the bridge reaches 127.0.0.1.
func insideKeptOut(l *lab) {
	l.serve(&l.host.Namespace, 9999)
	l.host.ServeTCP(l, "127.0.0.1:9998")
	web := l.attach(published(l), "web", ports("8081:80/tcp"))
	peer := l.attach(published(l), "peer")
	var paths []path
	for _, c := range []*container{web, peer} {
		sendsLocal(c, hostSide)
		from := &c.Namespace
		paths = append(paths, tcp(from, "127.0.0.1", 9998), tcp(from, "127.0.0.1", 9999), udp(from, "127.0.0.1", 9999))
	}
	l.silent(paths...)
	l.answers(tcp(&l.host.Namespace, "127.0.0.1", 9998), "host") // which is what is kept
}

// sendsLocal has a container send packets for 127.0.0.0/8 to its gateway: its loopback is down.
func sendsLocal(c *container, gateway string) {
	c.run("sysctl -qw net.ipv4.conf.eth0.route_localnet=1")
	c.run("ip route add 127.0.0.0/8 via " + gateway + " dev eth0 src " + c.v4)
}

// publishesAfterFlush makes sure that all chains are there again.
func publishesAfterFlush(l *lab) {
	publish(l, published(l), "old", "8080:80/tcp")
	flushChains(l, func(chain) bool { return true })
	publish(l, published(l), "web", "8081:80/tcp")
	l.allAnswer("web", local(l, 8081), tcp(&l.host.Namespace, "127.0.0.1", 8081))
}

// listen tells the addresses that datagrams to the host come from.
func listen(l *lab, address string, heard chan<- string) {
	var conn net.PacketConn
	var err error
	l.host.Do(func() { conn, err = net.ListenPacket("udp4", address) })
	l.must(err)
	l.Cleanup(func() { conn.Close() })
	go func() {
		for {
			_, from, err := conn.ReadFrom(make([]byte, 512))
			if err != nil {
				return // the row has ended
			}
			heard <- from.(*net.UDPAddr).IP.String()
		}
	}()
}

// sendAs sends a datagram from one of the container's addresses.
func sendAs(c *container, from, to string) (err error) {
	c.Do(func() {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
		var conn net.Conn
		if conn, err = d.Dial("udp4", to); err == nil {
			_, err = conn.Write([]byte("hello\n"))
			conn.Close()
		}
	})
	return err
}
