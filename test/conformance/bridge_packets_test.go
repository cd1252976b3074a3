package conformance

import (
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// seenAs makes sure how the outside sees a container.
func (l *lab) seenAs(from *container, v4, v6 string) {
	to := l.outside()
	if v4 != "" {
		l.answers(tcp(&from.Namespace, netlab.OutsideIPv4, 80), "outside saw "+v4)
		l.answers(udp(&from.Namespace, netlab.OutsideIPv4, 80), "outside saw "+v4)
	}
	if v6 != "" {
		l.answers(tcp(&from.Namespace, netlab.OutsideIPv6, 80), to.Name()+" saw "+v6)
	}
}

// served is the outside that answers on port 80, and knows the way to lan.
func (l *lab) served() {
	l.serve(&l.outside().Namespace, 80)
	for _, network := range []string{"10.44.0.0/24", "10.45.0.0/24", "fd00:44::/64", "fd00:45::/64"} {
		l.outside().AddRoute(l, network)
	}
}

// hears has a container listen for a datagram to a group: the sender that it saw.
func (c *container) hears(group netip.AddrPort) func() string {
	var conn *net.UDPConn
	c.Do(func() {
		link, err := net.InterfaceByName("eth0")
		c.lab.must(err)
		conn, err = net.ListenMulticastUDP("udp", link, net.UDPAddrFromAddrPort(group))
		c.lab.must(err)
	})
	c.lab.Cleanup(func() { _ = conn.Close() })
	return func() string {
		_ = conn.SetReadDeadline(time.Now().Add(silence))
		_, from, err := conn.ReadFromUDPAddrPort(make([]byte, 100))
		if err != nil {
			return err.Error()
		}
		return from.Addr().Unmap().WithZone("").String()
	}
}

var bridgeMasquerade = []row{
	{name: "without ipMasq the outside sees the container's address", test: func(l *lab) {
		l.served()
		c := l.attach(l.lan("ipMasq", "false"), "web")
		l.seenAs(c, c.v4, c.v6)
	}},
	{name: "each of several IPv4 addresses is masqueraded", backends: true, test: func(l *lab) {
		l.served()
		l.run("ip link add lan0 type bridge", "ip address add 10.44.0.1/24 dev lan0", "ip address add 10.45.0.1/24 dev lan0")
		l.run("sysctl -qw net.ipv4.ip_forward=1")
		c := l.attach(l.lan("isDefaultGateway", "false", "ipam",
			with(fixedIPs("10.44.0.2/24 10.44.0.1", "10.45.0.2/24 10.45.0.1"), "routes", `[{"dst":"0.0.0.0/0"}]`)), "web")
		l.must(c.check())
		for _, source := range []string{"10.44.0.2", "10.45.0.2"} {
			c.run("ip route replace default via 10.44.0.1 src " + source)
			l.seenAs(c, netlab.HostIPv4, "")
		}
	}},
	{name: "each of several IPv6 addresses is masqueraded", backends: true, test: func(l *lab) {
		l.served()
		c := l.attach(l.fixedLan("fd00:44::2/64", "fd00:45::2/64"), "web")
		l.must(c.check())
		for _, source := range []string{"fd00:44::2", "fd00:45::2"} {
			c.run("ip -6 route replace default via fd00:44::1 dev eth0 src " + source)
			l.seenAs(c, "", netlab.HostIPv6)
		}
	}},
	{name: "what stays in the subnet is not masqueraded, though netfilter looks at what crosses a bridge", backends: true, test: func(l *lab) {
		l.host.FilterBridged(l, true)
		a, b := l.attach(l.lan(), "a"), l.attach(l.lan(), "b")
		l.serve(&b.Namespace, 80)
		l.answers(tcp(&a.Namespace, b.v4, 80), "b saw "+a.v4)
		l.answers(tcp(&a.Namespace, b.v6, 80), "b saw "+a.v6)
	}},
	{name: "what goes to another subnet of the node is masqueraded", backends: true, test: func(l *lab) {
		a := l.attach(l.lan(), "a")
		b := l.attach(l.lan("bridge", `"back0"`, "ipam", fixedIPs("10.55.0.2/24 10.55.0.1")).called("back"), "b")
		l.serve(&b.Namespace, 80)
		l.answers(tcp(&a.Namespace, b.v4, 80), "b saw 10.55.0.1")
	}},
	{name: "what goes to a multicast group is not masqueraded", backends: true, test: func(l *lab) {
		l.host.FilterBridged(l, true)
		a, b := l.attach(l.lan(), "a"), l.attach(l.lan(), "b")
		for group, from := range map[string]string{"239.1.2.3": a.v4, "ff05::1:2:3": a.v6} {
			heard := b.hears(netip.AddrPortFrom(addr(group), 5000))
			l.eventually(func() string {
				_, _ = udp(&a.Namespace, group, 5000).ask(10 * time.Millisecond) // nobody answers
				if got := heard(); got != from {
					return group + " heard " + got + ", not " + from
				}
				return ""
			})
		}
	}},
	{name: "only the network's own containers are masqueraded", backends: true, test: func(l *lab) {
		l.served()
		l.attach(l.lan(), "hidden")
		c := l.attach(l.lan("ipMasq", "false"), "plain")
		l.seenAs(c, c.v4, c.v6)
	}},
	{name: "a container that comes after all rules were flushed is masqueraded", backends: true, test: func(l *lab) {
		l.served()
		l.attach(l.lan(), "before")
		l.flushRules()
		l.seenAs(l.attach(l.lan(), "web"), netlab.HostIPv4, netlab.HostIPv6)
	}},
	{name: "a container that comes after all chains were emptied is masqueraded", test: func(l *lab) {
		l.served()
		l.attach(l.lan(), "before")
		l.emptyChains()
		l.seenAs(l.attach(l.lan(), "web"), netlab.HostIPv4, netlab.HostIPv6)
	}},
	{name: "without ipMasqBackend it is nftables", needs: &netlab.NFTables, choice: true, differs: "its backend is iptables unless nftables is named", test: func(l *lab) {
		c := l.attach(l.lan(), "web")
		l.lacks(l.run("iptables-save")+l.run("ip6tables-save"), c.v4, c.v6)
	}},
	{name: "without ipMasqBackend it is iptables where kube-proxy works with IPVS", test: func(l *lab) {
		l.run("ip link add kube-ipvs0 type bridge") // a dummy link as a rule, which not every kernel has
		c := l.attach(l.lan(), "web")
		l.shows(l.run("iptables-save"), c.v4)
	}},
}

// emptyChains removes the rules of all chains, but neither chains nor what else there is.
func (l *lab) emptyChains() {
	for table := range strings.Lines(l.run("nft list tables")) {
		l.run("nft flush " + table)
	}
}

// forges has a container send from another MAC address than its own.
func (c *container) forges() { c.run("ip link set eth0 address 02:66:66:66:66:66") }

var bridgeSpoofing = []row{
	{name: "macspoofchk drops what a container sends from another MAC address", test: func(l *lab) {
		n := l.lan("macspoofchk", "true")
		honest, evil := l.attach(n, "honest"), l.attach(n, "evil")
		evil.pings("10.44.0.1", "fd00:44::1", honest.v4)
		evil.forges()
		l.unreachable(&evil.Namespace, "10.44.0.1", "fd00:44::1", honest.v4)
		honest.pings("10.44.0.1", "fd00:44::1")
	}},
	{name: "macspoofchk without ipam", test: func(l *lab) {
		n := conf(with(layer2, "macspoofchk", "true"))
		a, b := l.attach(n, "a"), l.attach(n, "b")
		a.run("ip address add 10.44.0.2/24 dev eth0")
		b.run("ip address add 10.44.0.3/24 dev eth0")
		a.pings("10.44.0.3")
		a.forges()
		l.unreachable(&a.Namespace, "10.44.0.3")
	}},
	{name: "macspoofchk knows the MAC address that was asked for", test: func(l *lab) {
		c := l.attach(l.lan("macspoofchk", "true"), "web", capability("mac", `"02:aa:00:00:00:01"`))
		c.pings("10.44.0.1")
		c.forges()
		l.unreachable(&c.Namespace, "10.44.0.1")
		c.run("ip link set eth0 address 02:aa:00:00:00:01")
		c.pings("10.44.0.1")
	}},
	{name: "without macspoofchk a container may send from any MAC address", test: func(l *lab) {
		l.attach(l.lan("macspoofchk", "true"), "checked")
		c := l.attach(l.lan(), "web")
		c.forges()
		c.pings("10.44.0.1")
	}},
	{name: "DEL of one container leaves the others checked", test: func(l *lab) {
		n := l.lan("macspoofchk", "true")
		gone, evil := l.attach(n, "gone"), l.attach(n, "evil")
		l.must(gone.del())
		evil.forges()
		l.unreachable(&evil.Namespace, "10.44.0.1")
	}},
	{name: "a container that comes after all rules were flushed is checked", test: func(l *lab) {
		n := l.lan("macspoofchk", "true")
		l.attach(n, "before")
		l.run("nft flush ruleset")
		evil := l.attach(n, "evil")
		evil.forges()
		l.unreachable(&evil.Namespace, "10.44.0.1")
	}},
}

// unreachable makes sure that no address answers pings, all tried at the same time.
func (l *lab) unreachable(from *netlab.Namespace, to ...string) {
	errs := make(chan error, len(to))
	for _, address := range to {
		go func() { errs <- from.Ping(address, silence) }()
	}
	for range to {
		if <-errs == nil {
			l.Errorf("one of %v answers a ping from %s", to, from.Name())
		}
	}
}

var bridgeIsolation = []row{
	{name: "portIsolation keeps isolated containers from each other, and from nobody else", test: func(l *lab) {
		isolated := l.lan("portIsolation", "true")
		a, b, open := l.attach(isolated, "a"), l.attach(isolated, "b"), l.attach(l.lan(), "open")
		l.has(&l.host.Namespace, a.hostEnd(), "isolated", true)
		a.pings("10.44.0.1", "fd00:44::1", open.v4, open.v6)
		open.pings(b.v4)
		l.unreachable(&a.Namespace, b.v4, b.v6)
	}},
	{name: "without portIsolation containers reach each other", test: func(l *lab) {
		a, b := l.attach(l.lan(), "a"), l.attach(l.lan(), "b")
		a.pings(b.v4, b.v6)
	}},
}
