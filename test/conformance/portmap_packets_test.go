package conformance

import (
	"fmt"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// portmapPathRows are who reaches a published port, and as whom the container sees it.
var portmapPathRows = []row{
	{name: "from outside: the container sees the client", backends: true, test: func(l *lab) {
		publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp")
		from := &l.outside().Namespace
		l.allAnswer("web saw "+netlab.OutsideIPv4, tcp(from, netlab.HostIPv4, 8080), udp(from, netlab.HostIPv4, 8080))
		l.allAnswer("web saw "+netlab.OutsideIPv6, tcp(from, netlab.HostIPv6, 8080), udp(from, netlab.HostIPv6, 8080))
	}},
	{name: "from the host by its own address: the container sees that address", backends: true, test: func(l *lab) {
		publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp")
		from := &l.host.Namespace
		withSecond(l)
		l.allAnswer("web saw "+netlab.HostIPv4, tcp(from, netlab.HostIPv4, 8080), udp(from, netlab.HostIPv4, 8080))
		l.answers(tcp(from, netlab.HostIPv6, 8080), "web saw "+netlab.HostIPv6)
		l.answers(tcp(from, secondIPv4, 8080), "web") // of all addresses, also of those that come later
		l.answers(tcp(from, secondIPv6, 8080), "web")
	}},
	{name: "from the host by 127.0.0.1: the container sees the host's address towards it", backends: true, test: func(l *lab) {
		publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp")
		from := &l.host.Namespace
		l.allAnswer("web saw "+hostSide, tcp(from, "127.0.0.1", 8080), udp(from, "127.0.0.1", 8080), tcp(from, "127.1.2.3", 8080))
	}},
	{name: "from the container itself: it sees the host's address", backends: true, test: func(l *lab) {
		l.host.FilterBridged(l, false)
		web := publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp")
		l.allAnswer("web saw "+hostSide, tcp(&web.Namespace, hostSide, 8080), udp(&web.Namespace, hostSide, 8080))
		l.allAnswer("web saw "+hostSide6, tcp(&web.Namespace, hostSide6, 8080), udp(&web.Namespace, hostSide6, 8080))
	}},
	{name: "from the container itself, with hairpinMode, where bridged packets are filtered", backends: true, test: func(l *lab) {
		l.host.FilterBridged(l, true)
		n := published(l)
		n.plugins[0] = with(n.plugins[0], "hairpinMode", "true")
		web := publish(l, n, "web", "8080:80/tcp")
		l.answers(tcp(&web.Namespace, hostSide, 8080), "web saw "+hostSide)
		l.answers(tcp(&web.Namespace, hostSide6, 8080), "web saw "+hostSide6)
	}},
	{name: "from another container of the bridge: the container sees the host's address", backends: true, test: func(l *lab) {
		l.host.FilterBridged(l, false)
		publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp")
		peer := &l.attach(published(l), "peer").Namespace
		l.allAnswer("web saw "+hostSide, tcp(peer, hostSide, 8080), udp(peer, hostSide, 8080))
		l.answers(tcp(peer, hostSide6, 8080), "web saw "+hostSide6)
	}},
	{name: "from a container of another bridge: the container sees it", backends: true, test: func(l *lab) {
		publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp")
		remote := l.attach(far(l), "remote")
		l.allAnswer("web saw "+remote.v4, tcp(&remote.Namespace, hostSide, 8080), udp(&remote.Namespace, hostSide, 8080))
		l.answers(tcp(&remote.Namespace, hostSide6, 8080), "web saw "+remote.v6)
	}},
	{name: "to a container behind a link of its own, by 127.0.0.1 too", backends: true, test: func(l *lab) {
		web := ownLink(l)
		web.mapped(web.portmap(mappings("8080:80/tcp")))
		l.allAnswer("web saw 10.47.0.1", tcp(&l.host.Namespace, "10.47.0.1", 8080), tcp(&l.host.Namespace, "127.0.0.1", 8080))
		l.answers(tcp(&web.Namespace, "10.47.0.1", 8080), "web saw 10.47.0.1")
	}},
	{name: "only ports that are published answer, by their protocol", backends: true, test: func(l *lab) {
		publish(l, published(l), "web", "8080:80/tcp", "5353:80/udp")
		from := &l.host.Namespace
		l.answers(local(l, 8080), "web")
		l.silent(local(l, 80), udp(from, hostSide, 8080), local(l, 5353), tcp(from, hostSide6, 5353), tcp(from, "::1", 8080))
	}},
	{name: "the number of a published port at another machine is left alone", backends: true, test: func(l *lab) {
		web := publish(l, published(l), "web", "8080:80/tcp", "8080:80/udp")
		out := &l.outside().Namespace
		l.serve(out, 8080)
		l.allAnswer("outside", tcp(&web.Namespace, netlab.OutsideIPv4, 8080), udp(&l.host.Namespace, netlab.OutsideIPv6, 8080))
		web.ServeTCP(l, ":8080")
		l.answers(tcp(&l.host.Namespace, web.v4, 8080), "web")
	}},
	{name: "a published port comes before a server of the host, which has it back after DEL", backends: true, test: func(l *lab) {
		l.serve(&l.host.Namespace, 8080)
		web := publish(l, published(l), "web", "8080:80/tcp")
		to := []path{local(l, 8080), tcp(&l.host.Namespace, "127.0.0.1", 8080), tcp(&l.host.Namespace, hostSide6, 8080)}
		for _, p := range to {
			l.answers(p, "web")
		}
		l.must(web.del())
		l.attach(published(l), "peer") // so that the bridge is up
		settles(l)
		for _, p := range to {
			l.answers(p, "host")
		}
	}},
	{name: "a server of the host on [::1] is reached there still", needs: &netlab.NFTables, differs: "it redirects [::1], from where no packet gets to a container", test: func(l *lab) {
		l.host.ServeTCP(l, "[::1]:8080")
		publish(l, published(l), "web", "8080:80/tcp")
		l.answers(tcp(&l.host.Namespace, "::1", 8080), "host")
	}},
	{name: "a rule that redirected the port before wins", backends: true, test: func(l *lab) {
		service := l.attach(published(l), "service")
		l.serve(&service.Namespace, 80)
		l.run("iptables -t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination " + service.v4 + ":80")
		publish(l, published(l), "web", "8080:80/tcp")
		l.answers(tcp(&l.outside().Namespace, netlab.HostIPv4, 8080), "service")
		l.answers(tcp(&l.out.Namespace, netlab.HostIPv6, 8080), "web")
	}},
	{name: "a connection that somebody else redirects to the container keeps its source", backends: true, test: func(l *lab) {
		l.host.FilterBridged(l, true)
		web := publish(l, published(l), "web", "8080:80/tcp")
		peer := l.attach(published(l), "peer")
		l.run("iptables -t nat -A PREROUTING -p tcp --dport 9090 -j DNAT --to-destination " + web.v4 + ":80")
		l.answers(tcp(&peer.Namespace, hostSide, 9090), "web saw "+peer.v4)
	}},
}

// ownLink makes a container behind a link of its own, as ptp does, that serves on port 80.
func ownLink(l *lab) *container {
	l.run("sysctl -qw net.ipv4.ip_forward=1")
	c := l.pod("web")
	l.run("ip link add own0 type veth peer name eth0 netns " + c.Path())
	l.run("ip link set own0 up")
	c.run("ip link set eth0 up")
	l.run("ip address add 10.47.0.1/32 dev own0")
	l.run("ip route add 10.47.0.2/32 dev own0 src 10.47.0.1")
	c.run("ip address add 10.47.0.2/32 dev eth0")
	c.run("ip route add 10.47.0.1/32 dev eth0")
	c.run("ip route add default via 10.47.0.1")
	c.printed = fmt.Sprintf(`{"cniVersion":"1.0.0","interfaces":[{"name":"own0"},{"name":"eth0","sandbox":%q}],"ips":[{"address":"10.47.0.2/32","interface":1}]}`, c.Path())
	c.v4 = "10.47.0.2"
	l.serve(&c.Namespace, 80)
	return c
}

func portmapHostIPRows() (rows []row) {
	for _, c := range []struct {
		name, hostIP    string
		answers, silent []string // of the host's addresses, from outside
	}{
		{"an address publishes there alone", netlab.HostIPv4, []string{netlab.HostIPv4}, []string{secondIPv4, netlab.HostIPv6}},
		{"an IPv6 address publishes there alone", netlab.HostIPv6, []string{netlab.HostIPv6}, []string{secondIPv6, netlab.HostIPv4}},
		{"0.0.0.0 publishes on IPv4 only", "0.0.0.0", []string{netlab.HostIPv4, secondIPv4}, []string{netlab.HostIPv6}},
		{":: publishes on IPv6 only", "::", []string{netlab.HostIPv6, secondIPv6}, []string{netlab.HostIPv4}},
		{"an IPv4 address written as IPv6 is the IPv4 address", "::ffff:192.0.2.1", []string{netlab.HostIPv4}, []string{secondIPv4}},
	} {
		rows = append(rows, row{name: "hostIP: " + c.name, backends: true, test: func(l *lab) {
			from := withSecond(l)
			publish(l, published(l), "web", "["+c.hostIP+"]:8080:80/tcp", "["+c.hostIP+"]:8080:80/udp")
			var not []path
			for _, to := range c.silent {
				not = append(not, tcp(from, to, 8080), udp(from, to, 8080))
			}
			for _, to := range c.answers {
				l.allAnswer("web", tcp(from, to, 8080), udp(from, to, 8080))
			}
			l.silent(not...)
		}})
	}
	for _, c := range []struct{ name, hostIP string }{
		{"of a family that the container lacks is left out when it is 0.0.0.0 or ::", "::"},
		{"an address of a family that the container lacks is left out, and the other ports are published", "2001:db8:2::1"},
	} {
		rows = append(rows, row{name: "hostIP: " + c.name, backends: true, test: func(l *lab) {
			web := publish(l, publishedOnly(l, "10.44.0.0/24"), "web", "["+c.hostIP+"]:8081:80/tcp", "8080:80/tcp")
			l.answers(local(l, 8080), "web")
			l.silent(local(l, 8081))
			l.must(web.check())
			l.must(web.del())
		}})
	}
	return append(rows, []row{
		{name: "hostIP: 127.0.0.1 publishes to the host alone", backends: true, test: func(l *lab) {
			publish(l, published(l), "web", "127.0.0.1:8080:80/tcp")
			peer := l.attach(published(l), "peer")
			l.answers(tcp(&l.host.Namespace, "127.0.0.1", 8080), "web saw "+hostSide)
			l.silent(local(l, 8080), tcp(&peer.Namespace, hostSide, 8080), tcp(&l.host.Namespace, "127.0.0.2", 8080), tcp(&l.outside().Namespace, netlab.HostIPv4, 8080))
		}},
		{name: "hostIP: an address that the host gets later", backends: true, test: func(l *lab) {
			publish(l, published(l), "web", "192.0.2.33:8080:80/tcp")
			l.run("ip address add 192.0.2.33/32 dev lo")
			l.answers(tcp(&l.host.Namespace, "192.0.2.33", 8080), "web")
		}},
		{name: "hostIP: containers share a port on addresses of their own, reached from inside too", backends: true, test: func(l *lab) {
			l.host.FilterBridged(l, false)
			l.run("ip address add 192.0.2.33/32 dev lo")
			one := publish(l, published(l), "one", hostSide+":8080:80/tcp")
			two := publish(l, published(l), "two", "192.0.2.33:8080:80/tcp")
			six := publish(l, published(l), "six", "["+hostSide6+"]:8080:80/tcp")
			for _, from := range []*netlab.Namespace{&l.host.Namespace, &one.Namespace, &two.Namespace} {
				l.answers(tcp(from, hostSide, 8080), "one")
				l.answers(tcp(from, "192.0.2.33", 8080), "two")
				l.answers(tcp(from, hostSide6, 8080), "six")
			}
			l.must(one.del())
			l.silent(local(l, 8080))
			l.answers(tcp(&l.host.Namespace, "192.0.2.33", 8080), "two")
			l.must(two.check())
			l.must(six.check())
		}},
	}...)
}

// portmapMasqueradeRows are the keys that say which connections are masqueraded, and how.
func portmapMasqueradeRows() []row {
	rows := []row{
		{name: "snat false: nothing is masqueraded, and neither 127.0.0.1 nor containers of the bridge reach the port", backends: true, test: func(l *lab) {
			l.host.FilterBridged(l, false)
			web := publish(l, published(l, "snat", "false"), "web", "8080:80/tcp")
			peer := l.attach(published(l), "peer")
			l.answers(tcp(&l.outside().Namespace, netlab.HostIPv4, 8080), "web saw "+netlab.OutsideIPv4)
			l.answers(tcp(&l.host.Namespace, netlab.HostIPv4, 8080), "web saw "+netlab.HostIPv4)
			l.silent(tcp(&l.host.Namespace, "127.0.0.1", 8080), tcp(&web.Namespace, hostSide, 8080), tcp(&peer.Namespace, hostSide, 8080), tcp(&peer.Namespace, hostSide6, 8080))
			l.same(l.sysctl(&l.host.Namespace, "ipv4/conf/lan0/route_localnet"), "0")
		}},
		{name: "masqAll: the container sees the host's address in place of every client's", backends: true, test: func(l *lab) {
			from := withSecond(l)
			publish(l, published(l, "masqAll", "true"), "web", "8080:80/tcp", "8080:80/udp", netlab.HostIPv4+":9090:80/tcp")
			l.allAnswer("web saw "+hostSide, tcp(from, secondIPv4, 8080), udp(from, netlab.HostIPv4, 8080), tcp(from, netlab.HostIPv4, 9090))
			l.answers(tcp(from, netlab.HostIPv6, 8080), "web saw "+hostSide6)
			l.allAnswer("web saw "+hostSide, tcp(&l.host.Namespace, netlab.HostIPv4, 8080), tcp(&l.host.Namespace, "127.0.0.1", 8080))
		}},
		{name: "masqAll of one container is not another's", backends: true, test: func(l *lab) {
			publish(l, published(l, "masqAll", "true"), "all", "8081:80/tcp")
			publish(l, published(l), "web", "8080:80/tcp")
			from := &l.outside().Namespace
			l.answers(tcp(from, netlab.HostIPv4, 8081), "all saw "+hostSide)
			l.answers(tcp(from, netlab.HostIPv4, 8080), "web saw "+netlab.OutsideIPv4)
		}},
		{name: "masqAll needs snat: with snat false nothing is masqueraded", backends: true, test: func(l *lab) {
			publish(l, published(l, "masqAll", "true", "snat", "false"), "web", "8080:80/tcp")
			l.answers(tcp(&l.outside().Namespace, netlab.HostIPv4, 8080), "web saw "+netlab.OutsideIPv4)
		}},
		{name: "attachments with different mark bits do not disturb each other", backends: true, test: func(l *lab) {
			l.host.FilterBridged(l, false)
			other := publish(l, published(l, "markMasqBit", "20"), "other", "8081:80/tcp")
			web := publish(l, published(l), "web", "8080:80/tcp")
			l.answers(tcp(&web.Namespace, hostSide, 8080), "web saw "+hostSide)
			l.answers(tcp(&web.Namespace, hostSide, 8081), "other saw "+hostSide)
			l.must(web.check())
			l.must(other.check())
			l.must(other.del())
			l.answers(tcp(&web.Namespace, hostSide, 8080), "web saw "+hostSide)
			l.silent(local(l, 8081))
		}},
		{name: "externalSetMarkChain: that chain marks what has to be masqueraded", test: func(l *lab) {
			l.host.FilterBridged(l, false)
			l.run("ip address add 192.0.2.33/32 dev lo")
			markWith(l)
			web := publish(l, published(l, "externalSetMarkChain", `"MARKS"`), "web", "8080:80/tcp")
			l.allAnswer("web saw 192.0.2.33", tcp(&web.Namespace, hostSide, 8080), tcp(&l.host.Namespace, "127.0.0.1", 8080))
			l.answers(tcp(&l.outside().Namespace, netlab.HostIPv4, 8080), "web saw "+netlab.OutsideIPv4)
			l.must(web.check())
			l.must(web.del())
			l.silent(local(l, 8080))
		}},
		{name: "externalSetMarkChain with masqAll marks every connection", test: func(l *lab) {
			l.run("ip address add 192.0.2.33/32 dev lo")
			markWith(l)
			publish(l, published(l, "externalSetMarkChain", `"MARKS"`, "masqAll", "true"), "web", "8080:80/tcp")
			l.answers(tcp(&l.outside().Namespace, netlab.HostIPv4, 8080), "web saw 192.0.2.33")
		}},
	}
	for _, c := range []struct {
		name string
		keys []string
		bit  int
	}{
		{"what is masqueraded is marked with bit 13 and no other", nil, 13},
		{"markMasqBit: what is masqueraded is marked with that bit and no other", []string{"markMasqBit", "20"}, 20},
		{"markMasqBit 0 is a bit, not the default", []string{"markMasqBit", "0"}, 0},
	} {
		rows = append(rows, row{name: c.name, needs: &netlab.NFTables, backends: true, test: func(l *lab) {
			l.host.FilterBridged(l, false)
			web := publish(l, published(l, c.keys...), "web", "8080:80/tcp")
			l.run("nft add table inet row")
			l.run("nft add chain inet row sent { type filter hook postrouting priority -150 ; }")
			l.run(fmt.Sprintf("nft add rule inet row sent meta mark & %#x != 0 drop", ^uint32(1<<c.bit)))
			for _, to := range []string{hostSide, hostSide6} {
				l.answers(tcp(&web.Namespace, to, 8080), "web saw "+to)
			}
			l.answers(tcp(&l.host.Namespace, "127.0.0.1", 8080), "web saw "+hostSide)
			l.run(fmt.Sprintf("nft add rule inet row sent meta mark & %#x != 0 drop", 1<<c.bit))
			l.silent(tcp(&web.Namespace, hostSide, 8080), tcp(&web.Namespace, hostSide6, 8080), tcp(&l.host.Namespace, "127.0.0.1", 8080))
			l.answers(tcp(&l.outside().Namespace, netlab.HostIPv4, 8080), "web saw "+netlab.OutsideIPv4)
		}})
	}
	return rows
}

// markWith makes the chain MARKS, and has what it marks leave from 192.0.2.33.
func markWith(l *lab) {
	for _, program := range []string{"iptables", "ip6tables"} {
		l.run(program + " -t nat -N MARKS")
		l.run(program + " -t nat -A MARKS -j MARK --or-mark 0x10000")
	}
	l.run("iptables -t nat -A POSTROUTING -m mark --mark 0x10000/0x10000 -j SNAT --to-source 192.0.2.33")
}

// portmapConditionRows are ports that are published for some connections alone.
func portmapConditionRows() []row {
	rows := []row{
		{name: "conditionsV4 and conditionsV6 in words of iptables: other connections get to the host", test: func(l *lab) {
			from := withSecond(l)
			l.serve(&l.host.Namespace, 8080)
			web := publish(l, published(l, "conditionsV4", `["-d","`+netlab.HostIPv4+`"]`, "conditionsV6", `["!","-d","`+netlab.HostIPv6+`"]`), "web", "8080:80/tcp", "8080:80/udp")
			l.answers(tcp(from, netlab.HostIPv4, 8080), "web saw "+netlab.OutsideIPv4)
			l.answers(udp(from, netlab.HostIPv4, 8080), "web")
			l.allAnswer("host", tcp(from, secondIPv4, 8080), tcp(from, netlab.HostIPv6, 8080))
			l.answers(tcp(from, secondIPv6, 8080), "web saw "+netlab.OutsideIPv6)
			l.must(web.check())
			l.must(web.del())
			l.answers(tcp(from, netlab.HostIPv4, 8080), "host")
		}},
		{name: "conditions in words of nft choose the backend", differs: "its backend is iptables unless nftables is named", test: func(l *lab) {
			from := withSecond(l)
			l.serve(&l.host.Namespace, 8080)
			publish(l, published(l, "conditionsV4", `["ip","daddr","`+netlab.HostIPv4+`"]`), "web", "8080:80/tcp")
			l.answers(tcp(from, netlab.HostIPv4, 8080), "web")
			l.answers(tcp(from, secondIPv4, 8080), "host")
			l.answers(tcp(from, secondIPv6, 8080), "web")
		}},
		{name: "conditions in words of nft hold for their own container", differs: "the conditions of the container that came last hold for all", test: func(l *lab) {
			from := withSecond(l)
			publish(l, published(l, "backend", `"nftables"`), "before", "8081:80/tcp")
			web := publish(l, published(l, "backend", `"nftables"`, "conditionsV4", `["ip","daddr","`+netlab.HostIPv4+`"]`), "web", "8080:80/tcp")
			l.answers(tcp(from, secondIPv4, 8081), "before")
			l.silent(tcp(from, secondIPv4, 8080))
			publish(l, published(l, "backend", `"nftables"`), "after", "8082:80/tcp")
			l.answers(tcp(from, netlab.HostIPv4, 8080), "web")
			l.silent(tcp(from, secondIPv4, 8080))
			l.answers(tcp(from, secondIPv4, 8082), "after")
			l.must(web.check())
			web.network = published(l, "backend", `"nftables"`, "conditionsV4", `["ip","daddr","`+secondIPv4+`"]`)
			l.refused(web.check())
			l.must(web.del())
			l.silent(tcp(from, netlab.HostIPv4, 8080))
		}},
		{name: "conditions in words of nft: a container without any has the port otherwise", differs: "the conditions of the container that came last hold for all", test: func(l *lab) {
			from := withSecond(l)
			publish(l, published(l, "backend", `"nftables"`), "all", "8080:80/tcp")
			web := publish(l, published(l, "backend", `"nftables"`, "conditionsV4", `["ip","daddr","`+netlab.HostIPv4+`"]`), "web", "0.0.0.0:8080:80/tcp")
			l.answers(tcp(from, netlab.HostIPv4, 8080), "web")
			l.answers(tcp(from, secondIPv4, 8080), "all")
			l.must(web.del())
			l.answers(tcp(from, netlab.HostIPv4, 8080), "all")
		}},
		{name: "two containers can not publish one port under different conditions", differs: "two containers get one port, and one of them does not answer", test: func(l *lab) {
			from := withSecond(l)
			publish(l, published(l, "backend", `"nftables"`, "conditionsV4", `["ip","daddr","`+netlab.HostIPv4+`"]`), "web", "0.0.0.0:8080:80/tcp")
			l.refused(l.pod("late").add(published(l, "backend", `"nftables"`, "conditionsV4", `["ip","daddr","`+secondIPv4+`"]`), ports("0.0.0.0:8080:80/tcp")), "8080")
			l.answers(tcp(from, netlab.HostIPv4, 8080), "web")
		}},
	}
	for _, words := range []string{
		`["ip","daddr","192.0.2.1"]`,
		`["ip daddr == 192.0.2.1"]`,
		`["ip","daddr","!=","192.0.2.7"]`,
		`["ip","daddr","{","192.0.2.1,","192.0.2.8","}"]`,
		`["ip daddr != { 10.0.0.0/8, 192.0.2.7 }"]`,
		`["ip saddr 192.0.2.0/24 ip daddr 192.0.2.0/30"]`,
		`["iifname","uplink0","ip","daddr","192.0.2.1"]`,
		`["iifname \"up*\" ip daddr 192.0.2.1"]`,
		`["mark","0x10"]`,
		`["mark","and","0xf0","==","0x10"]`,
	} {
		rows = append(rows, row{name: "conditions in words of nft: " + strings.Join(list(words), " "), needs: &netlab.NFTables, test: func(l *lab) {
			from := withSecond(l)
			l.run("nft add table inet row")
			l.run("nft add chain inet row got { type filter hook prerouting priority -150 ; }")
			l.run("nft add rule inet row got ip daddr 192.0.2.1 meta mark set 0x10")
			l.serve(&l.host.Namespace, 8080)
			web := publish(l, published(l, "backend", `"nftables"`, "conditionsV4", words), "web", "8080:80/tcp", "8080:80/udp", "0.0.0.0:9090:80/tcp")
			l.answers(tcp(from, netlab.HostIPv4, 8080), "web saw "+netlab.OutsideIPv4)
			l.allAnswer("web", udp(from, netlab.HostIPv4, 8080), tcp(from, netlab.HostIPv4, 9090))
			l.answers(tcp(from, secondIPv4, 8080), "host")
			l.must(web.check())
		}})
	}
	for _, comment := range []string{`"a -j b"`, `"-j"`, `"it's \"-j\" \\ -p udp --dports 1 -j CNI-DN"`} {
		rows = append(rows, row{name: "DEL takes back a port with conditions that have the comment " + comment, test: func(l *lab) {
			n := published(l, "conditionsV4", `["-m","comment","--comment",`+comment+`,"!","-d","192.0.2.7"]`)
			l.warm(n, ports("8080:80/tcp"))
			before := l.now()
			web := publish(l, n, "web", "8080:80/tcp")
			l.answers(tcp(&l.outside().Namespace, netlab.HostIPv4, 8080), "web")
			l.must(web.check())
			l.must(web.del())
			web.Delete(l)
			l.same(strings.Contains(before.changed(), "CNI-DN"), false)
		}})
	}
	return append(rows, row{name: "conditions in words of nft: of IPv6", test: func(l *lab) {
		from := withSecond(l)
		l.serve(&l.host.Namespace, 8080)
		publish(l, published(l, "backend", `"nftables"`, "conditionsV6", `["ip6","daddr","2001:db8:2::1"]`), "web", "8080:80/tcp")
		l.answers(tcp(from, netlab.HostIPv6, 8080), "web saw "+netlab.OutsideIPv6)
		l.answers(tcp(from, secondIPv6, 8080), "host")
		l.answers(tcp(from, secondIPv4, 8080), "web")
	}})
}

// list decodes a JSON list of strings.
func list(words string) (all []string) {
	for _, w := range object(`{"words":` + words + `}`)["words"].([]any) {
		all = append(all, w.(string))
	}
	return all
}

// portmapFlowRows are UDP clients that keep their port, so that the kernel keeps to where it sent their first packet.
var portmapFlowRows = []row{
	{name: "ADD gets UDP clients that talked to the host before", backends: true, test: func(l *lab) {
		clients := []*netlab.Namespace{&l.outside().Namespace, &l.host.Namespace}
		l.warm(published(l), ports("7:7/udp")) // or the kernel does not follow flows yet
		l.serve(&l.host.Namespace, 5353)
		for _, from := range clients {
			l.bothGoTo(from, 5353, "host")
		}
		publish(l, published(l), "web", "5353:80/udp")
		for _, from := range clients {
			l.bothGoTo(from, 5353, "web")
		}
	}},
	{name: "ADD gets UDP clients that talked to the container that had the port", backends: true, test: func(l *lab) {
		from := &l.outside().Namespace
		old := publish(l, published(l), "old", "5353:80/udp")
		l.goesTo(from, netlab.HostIPv4, 5353, "old")
		l.must(old.del())
		publish(l, published(l), "web", "5353:80/udp")
		l.goesTo(from, netlab.HostIPv4, 5353, "web")
	}},
	{name: "DEL gives UDP clients of the port back to the host", backends: true, differs: "its DEL leaves the flows to the container", test: func(l *lab) {
		from := &l.outside().Namespace
		l.serve(&l.host.Namespace, 5353)
		web := publish(l, published(l), "web", "5353:80/udp")
		l.bothGoTo(from, 5353, "web")
		l.must(web.del())
		l.bothGoTo(from, 5353, "host")
	}},
	{name: "ADD and DEL leave UDP flows to that number elsewhere alone", backends: true, differs: "it cuts all flows to the port's number", test: func(l *lab) {
		out := l.outside()
		l.serve(&out.Namespace, 5353)
		client := l.attach(published(l), "client", ports("7:7/udp"))
		for _, to := range []string{netlab.OutsideIPv4, netlab.OutsideIPv6} {
			l.goesTo(&client.Namespace, to, 5353, "outside")
		}
		flows := func() (ids []string) {
			for _, family := range []string{"ipv4", "ipv6"} {
				for line := range strings.Lines(l.run("conntrack -L -o id -f " + family + " -p udp --orig-port-dst 5353")) {
					words := strings.Fields(line)
					ids = append(ids, words[len(words)-1])
				}
			}
			return ids
		}
		before := flows()
		if len(before) != 2 {
			l.Fatalf("want two flows, got %v", before)
		}
		web := l.attach(published(l), "web", ports("5353:80/udp"))
		l.same(flows(), before)
		l.must(web.del())
		l.same(flows(), before)
	}},
}
