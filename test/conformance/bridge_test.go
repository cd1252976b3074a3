package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// lan is a dual-stack bridge that is the containers' gateway, layer2 one without addresses.
const (
	lan = `{"type":"bridge","bridge":"lan0","isDefaultGateway":true,"ipMasq":true,"capabilities":{"mac":true,"ips":true},
	"ipam":{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24"}],[{"subnet":"fd00:44::/64"}]]}}`
	layer2 = `{"type":"bridge","bridge":"lan0","capabilities":{"mac":true}}`
)

// bare is lan for calls without libcni, which have no capabilities.
var bare = with(lan, "capabilities", "{}")

var bridgeMain = mainPlugin{kind: "bridge", masquerades: true, reached: []string{"10.44.0.1", "fd00:44::1"}, differs: map[string]string{
	"an IPAM plugin that is not there is refused, and changes nothing":               noRollback,
	"a backend of masquerading that nobody has is refused, and changes nothing":      noRollback,
	"after an ADD that fails all is as before: a gateway out of reach":               noRollback,
	"after an ADD that fails all is as before: no free address":                      noRollback,
	"after an ADD that fails all is as before: an IPAM plugin that gives no address": noRollback,
	"DEL with the namespace gone leaves nothing":                                     leftWithoutNetns,
	"DEL with the namespace gone and no result leaves nothing":                       leftWithoutNetns,
	"DEL with another namespace at the path leaves nothing":                          leftWithoutNetns,
	"DEL with a file left at the namespace's path leaves nothing":                    "its DEL fails then, and releases no address",
	"DEL without the namespace's path and without a result leaves nothing":           "without the path its DEL releases the addresses and no more",
	"DEL with the interface gone leaves nothing":                                     "its DEL removes no rules of iptables once the interface is gone",
}}

var bridgeRows = group{name: "bridge", rows: slices.Concat(bridgeResults, bridgeMain.results(), bridgeMain.veths(), bridgeLinks, bridgeMACs(), bridgeGateways, bridgeRoutes(), bridgeIPv6,
	bridgeOfOthers, bridgeRefusals(), bridgeFailures(), bridgeMasquerade, bridgeMain.masquerade(), bridgeSpoofing, bridgeIsolation, bridgeDels(), bridgeLateDels,
	bridgeMain.strangers(),
	hostileRows(nil, func(l *lab) network { return l.lan() }),
	bridgeMain.gcs("macspoofchk", "true"), bridgeGCs, bridgeChecks(), []row{bridgeMain.checkNeedsResult()}, bridgeMoreChecks, bridgeStatus,
	bridgeMain.statusOfIPAM(), bridgeVLANs())}

// lan returns the network lan with more keys of bridge, each followed by its value in JSON, and the backend of the row.
func (l *lab) lan(keys ...string) network { return l.masquerading(lan, keys...) }

func (l *lab) masquerading(config string, keys ...string) network {
	config = with(config, keys...)
	if l.backend != "" {
		config = with(config, "ipMasqBackend", text(l.backend))
	}
	return conf(config)
}

// fixedIPs is the section ipam for these addresses, each with a prefix length and, after a blank, its gateway if it has one.
func fixedIPs(ips ...string) string {
	var list []map[string]string
	for _, ip := range ips {
		address, gateway, ok := strings.Cut(ip, " ")
		entry := map[string]string{"address": address}
		if ok {
			entry["gateway"] = gateway
		}
		list = append(list, entry)
	}
	return text(map[string]any{"type": "static", "addresses": list})
}

// fixedLan is lan with these addresses.
func (l *lab) fixedLan(ips ...string) network { return l.lan("ipam", fixedIPs(ips...)) }

// pings makes sure that an address answers pings.
func (l *lab) pings(from *netlab.Namespace, to ...string) {
	for _, address := range to {
		l.eventually(func() string {
			if err := from.Ping(address, silence); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// pingsAtOnce makes sure that it answers the first one.
func (l *lab) pingsAtOnce(from *netlab.Namespace, to ...string) {
	for _, address := range to {
		if err := from.Ping(address, l.patience()); err != nil {
			l.Errorf("the first ping: %v", err)
		}
	}
}

// settles waits until the kernel takes packets for a container's IPv6 address, some milliseconds after it has it.
func (c *container) settles() {
	c.lab.eventually(func() string {
		if !strings.Contains(c.routes("::/"+c.v6), "local "+c.v6) {
			return "no route to " + c.v6
		}
		return ""
	})
}

// routes returns a container's routes to a destination, as ip prints them, of all tables.
func (c *container) routes(dst string) string {
	family := "-4"
	if strings.Contains(dst, ":") {
		family = "-6"
	}
	return c.run("ip " + family + " route show table all " + strings.TrimPrefix(dst, "::/"))
}

// probed returns a link's addresses that are being probed.
func (l *lab) probed(n *netlab.Namespace, link string) string {
	return run(l, n, "ip -6 -o address show dev "+link+" scope global tentative")
}

var bridgeResults = []row{
	{name: "the result, to the byte", test: func(l *lab) {
		c := l.attach(conf(lan), "web", capability("mac", `"02:AA:00:00:00:01"`))
		l.printed(c.printed, `{"cniVersion":"1.0.0",
			"interfaces":[{"name":"lan0","mac":"MAC"},{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"02:aa:00:00:00:01","sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.44.0.2/24","gateway":"10.44.0.1","interface":2},{"address":"fd00:44::2/64","gateway":"fd00:44::1","interface":2}],
			"routes":[{"dst":"0.0.0.0/0","gw":"10.44.0.1"},{"dst":"::/0","gw":"fd00:44::1"}]}`)
	}},
	{name: "the result without ipam, to the byte", test: func(l *lab) {
		c := l.attach(conf(layer2), "web")
		l.printed(c.printed, `{"cniVersion":"1.0.0",
			"interfaces":[{"name":"lan0","mac":"MAC"},{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}]}`)
	}},
	{name: "the result names the links as they are", test: func(l *lab) {
		c := l.attach(conf(lan), "web", ifname("net1"))
		i := c.result.Interfaces
		l.same([]string{i[0].Name, i[1].Name, i[2].Name, i[2].Sandbox}, []string{"lan0", c.hostEnd(), "net1", c.Path()})
		l.has(&l.host.Namespace, "lan0", "address", i[0].Mac)
		l.has(&l.host.Namespace, i[1].Name, "address", i[1].Mac, "master", "lan0")
		l.has(&c.Namespace, "net1", "address", i[2].Mac)
	}},
	{name: "dns without ipam is in the result", test: func(l *lab) {
		l.same(text(l.attach(conf(with(layer2, "dns", `{"nameservers":["192.0.2.53"]}`)), "web").result.DNS), `{"nameservers":["192.0.2.53"]}`)
	}},
}

// allGetIn attaches several containers at the same time to a network of lan's addresses.
func (l *lab) allGetIn(n network) {
	const containers = 8
	pods, errs := make([]*container, containers), make(chan error, containers)
	for i := range pods {
		pods[i] = l.pod(fmt.Sprintf("c%d", i))
		go func() { errs <- pods[i].add(n) }()
	}
	for range pods {
		if err := <-errs; err != nil {
			l.Error(err)
		}
	}
	seen := map[string]bool{}
	for i, c := range pods {
		if c.result == nil || seen[c.v4] || seen[c.v6] {
			l.Fatalf("no address of its own: %s", c.printed)
		}
		seen[c.v4], seen[c.v6] = true, true
		next := pods[(i+1)%containers]
		c.pings("10.44.0.1", "fd00:44::1", next.v4, next.v6)
	}
}

// noRollback is why the reference fails several rows.
const noRollback = "its failed ADD leaves the veth pair"

var bridgeLinks = []row{
	{name: "the bridge is cni0 unless it is named", test: func(l *lab) {
		c := l.attach(conf(`{"type":"bridge"}`), "web")
		l.has(&l.host.Namespace, c.hostEnd(), "master", "cni0")
	}},
	{name: "the bridge and both ends of the veth pair are up", test: func(l *lab) {
		c := l.attach(conf(layer2), "web")
		l.isUp(&c.Namespace, "eth0")
		l.isUp(&l.host.Namespace, c.hostEnd())
		l.isUp(&l.host.Namespace, "lan0")
	}},
	{name: "hairpinMode sets the port to hairpin", test: func(l *lab) {
		c := l.attach(conf(with(lan, "hairpinMode", "true")), "web")
		l.has(&l.host.Namespace, c.hostEnd(), "hairpin", true, "isolated", false)
	}},
	{name: "a port is neither hairpin nor isolated unless it is asked for", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		l.has(&l.host.Namespace, c.hostEnd(), "hairpin", false, "isolated", false, "learning", true, "state", "forwarding")
	}},
	{name: "mtu holds for both ends, and for a bridge that is made", test: func(l *lab) {
		c := l.attach(conf(with(lan, "mtu", "1400")), "web")
		c.has("mtu", 1400)
		l.has(&l.host.Namespace, c.hostEnd(), "mtu", 1400)
		l.has(&l.host.Namespace, "lan0", "mtu", 1400)
	}},
	{name: "mtu does not change what a bridge was set to", test: func(l *lab) {
		l.run("ip link add lan0 type bridge", "ip link set lan0 mtu 1450")
		l.attach(conf(with(lan, "mtu", "1400")), "web")
		l.has(&l.host.Namespace, "lan0", "mtu", 1450)
	}},
	{name: "mtu 0 is the kernel's default", test: func(l *lab) {
		c := l.attach(conf(with(lan, "mtu", "0")), "web")
		c.has("mtu", 1500)
		l.has(&l.host.Namespace, c.hostEnd(), "mtu", 1500)
	}},
	{name: "an mtu below 0 counts as not set", test: func(l *lab) { l.attach(conf(with(lan, "mtu", "-1")), "web").has("mtu", 1500) }},
	{name: "promiscMode makes the bridge promiscuous", test: func(l *lab) {
		l.attach(conf(with(lan, "promiscMode", "true")), "web")
		l.shows(l.run("ip link show lan0"), "PROMISC")
	}},
	{name: "promiscMode makes a bridge promiscuous that was there", test: func(l *lab) {
		l.attach(conf(lan), "first")
		l.lacks(l.run("ip link show lan0"), "PROMISC")
		l.attach(conf(with(lan, "promiscMode", "true")), "second")
		l.shows(l.run("ip link show lan0"), "PROMISC")
	}},
	{name: "a bridge stays promiscuous when another network does not ask for it", test: func(l *lab) {
		l.attach(conf(with(lan, "promiscMode", "true")), "first")
		l.must(l.attach(conf(lan), "second").del())
		l.shows(l.run("ip link show lan0"), "PROMISC")
	}},
	{name: "disableContainerInterface leaves the container's end down", test: func(l *lab) {
		c := l.attach(conf(with(layer2, "disableContainerInterface", "true")), "web")
		l.lacks(c.run("ip link show eth0"), "UP")
		l.shows(l.run("ip link show "+c.hostEnd()), "UP")
	}},
	{name: "without ipam there are no addresses, whatever is asked of the gateway", test: func(l *lab) {
		c := l.attach(conf(with(layer2, "isDefaultGateway", "true", "ipMasq", "true", "ipam", "{}")), "web")
		c.hasAddresses()
		l.same(l.addresses(&l.host.Namespace, "lan0"), []string{})
		l.isUp(&c.Namespace, "eth0")
	}},
	{name: "the host end has no IPv6 address", differs: "its host ends have link-local addresses", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		l.run("ip link add later0 up type veth peer later1", "ip link set later1 up")
		netlab.Until(l, "the kernel to give an address to a link that was made later", func() bool { return l.run("ip -6 address show dev later0 scope link") != "" })
		l.same(l.run("ip -6 address show dev "+c.hostEnd()), "")
	}},
	{name: "IPv4 addresses have the broadcast address of their subnet", test: func(l *lab) {
		c := l.attach(l.fixedLan("10.44.0.2/26 10.44.0.1"), "web")
		l.shows(c.run("ip address show dev eth0"), "inet 10.44.0.2/26 brd 10.44.0.63 scope global eth0")
		l.shows(l.run("ip address show dev lan0"), "inet 10.44.0.1/26 brd 10.44.0.63 scope global lan0")
	}},
	{name: "an IPv4 address of a subnet without room for one has no broadcast address", test: func(l *lab) {
		c := l.attach(conf(with(layer2, "ipam", fixedIPs("10.44.0.2/31", "10.44.0.9/32"))), "web")
		c.hasAddresses("10.44.0.2/31", "10.44.0.9/32")
		l.lacks(c.run("ip address show dev eth0"), "brd 10.")
	}},
	{name: "a bridge keeps its MAC address as containers come and go",
		differs: "the bridge that it makes has the lowest MAC address of its ports unless it is a gateway", test: func(l *lab) {
			first := l.attach(conf(layer2), "first")
			mac := first.result.Interfaces[0].Mac
			l.attach(conf(layer2), "second")
			l.has(&l.host.Namespace, "lan0", "address", mac)
			l.must(first.del())
			l.has(&l.host.Namespace, "lan0", "address", mac)
		}},
	{name: "a gateway's bridge keeps its MAC address as containers come and go", test: func(l *lab) {
		first := l.attach(conf(lan), "first")
		mac := first.result.Interfaces[0].Mac
		l.attach(conf(lan), "second")
		l.has(&l.host.Namespace, "lan0", "address", mac)
		l.must(first.del())
		l.has(&l.host.Namespace, "lan0", "address", mac)
	}},
	{name: "vlan 0 and preserveDefaultVlan change nothing", test: func(l *lab) {
		l.attach(conf(with(lan, "vlan", "0", "preserveDefaultVlan", "true")), "web").pings("10.44.0.1")
	}},
	{name: "an empty vlanTrunk changes nothing", test: func(l *lab) {
		l.run("ip link add lan0 type bridge") // not every kernel can filter VLANs, which one that is made would do
		l.attach(conf(with(lan, "vlanTrunk", "[]")), "web").pings("10.44.0.1")
	}},
}

func bridgeMACs() (rows []row) {
	rows = bridgeMain.macs([]string{"args", `{"cni":{"mac":"` + macOfConfig + `"}}`}, []macCase{
		{"a MAC address can be asked for by MAC of CNI_ARGS", true, false, false, macOfArgs},
		{"a MAC address can be asked for by args.cni.mac", false, true, false, macOfConfig},
		{"a MAC address can be asked for by the capability mac", false, false, true, macOfRuntime},
		{"args.cni.mac comes before MAC of CNI_ARGS", true, true, false, macOfConfig},
		{"the capability mac comes before MAC of CNI_ARGS", true, false, true, macOfRuntime},
		{"the capability mac comes before args.cni.mac", false, true, true, macOfRuntime},
	})
	return append(rows,
		row{name: "a MAC address may be written with hyphens", test: func(l *lab) {
			l.same(l.attach(conf(lan), "web", capability("mac", `"02-AA-00-00-00-01"`)).result.Interfaces[2].Mac, "02:aa:00:00:00:01")
		}},
		row{name: "a MAC address may be written with dots", test: func(l *lab) {
			l.same(l.attach(conf(lan), "web", capability("mac", `"02aa.0000.0001"`)).result.Interfaces[2].Mac, "02:aa:00:00:00:01")
		}},
		row{name: "a MAC address without ipam", test: func(l *lab) {
			l.attach(conf(layer2), "web", capability("mac", `"02:aa:00:00:00:01"`)).has("address", "02:aa:00:00:00:01")
		}},
		row{name: "containers have different MAC addresses", test: func(l *lab) {
			a, b := l.attach(conf(layer2), "a"), l.attach(conf(layer2), "b")
			macs := []string{a.result.Interfaces[1].Mac, a.result.Interfaces[2].Mac, b.result.Interfaces[1].Mac, b.result.Interfaces[2].Mac}
			slices.Sort(macs)
			l.same(len(slices.Compact(macs)), 4)
		}},
		row{name: "the container announces its IPv4 addresses", test: func(l *lab) {
			l.same(l.attach(conf(lan), "web", capability("mac", `"02:aa:00:00:00:01"`)).sysctl("ipv4/conf/eth0/arp_notify"), "1")
		}},
		row{name: "the host reaches at once who has an address next, with another MAC address",
			differs: "the host keeps the neighbour entry of the address's last holder", test: func(l *lab) {
				n := l.fixedLan("10.44.0.2/24 10.44.0.1", "fd00:44::2/64 fd00:44::1")
				l.attach(l.lan(), "stays", capability("ips", `["10.44.0.9","fd00:44::9"]`)) // so that the bridge keeps its carrier
				before := l.attach(n, "before", capability("mac", `"02:aa:00:00:00:01"`))
				l.pings(&l.host.Namespace, "10.44.0.2", "fd00:44::2")
				l.must(before.del())
				l.attach(n, "after", capability("mac", `"02:aa:00:00:00:02"`)).settles()
				l.pingsAtOnce(&l.host.Namespace, "10.44.0.2", "fd00:44::2")
			}},
		row{name: "a neighbour reaches at once who has an address next", choice: true, differs: randomMACs, test: func(l *lab) {
			if l.suite.name == "copies" {
				l.foreign("the IPAM plugin is another program, which the next row is about")
			}
			l.handsOn()
		}},
		row{name: "a neighbour reaches at once who has an address next, when the IPAM plugin is another program", choice: true, differs: randomMACs, test: func(l *lab) {
			l.run("cp -L " + netlab.PluginDir + "/static " + netlab.PluginDir + "/copy")
			l.run("mv " + netlab.PluginDir + "/copy " + netlab.PluginDir + "/static")
			l.handsOn()
		}},
	)
}

const randomMACs = "MAC addresses are random, and neighbours remember that of the address's last holder"

// handsOn has one container follow another at its addresses, which a neighbour knows.
func (l *lab) handsOn() {
	n := l.fixedLan("10.44.0.2/24 10.44.0.1", "fd00:44::2/64 fd00:44::1")
	neighbour := l.attach(l.lan(), "neighbour", capability("ips", `["10.44.0.9","fd00:44::9"]`))
	before := l.attach(n, "before")
	neighbour.pings("10.44.0.2", "fd00:44::2")
	l.must(before.del())
	l.attach(n, "after").settles()
	l.pingsAtOnce(&neighbour.Namespace, "10.44.0.2", "fd00:44::2")
}

var bridgeGateways = []row{
	{name: "isGateway gives the bridge the gateways' addresses and lets the host forward packets", test: func(l *lab) {
		c := l.attach(l.lan("isDefaultGateway", "false", "isGateway", "true"), "web")
		l.same(l.addresses(&l.host.Namespace, "lan0"), []string{"10.44.0.1/24", "fd00:44::1/64"})
		l.same(l.sysctl(&l.host.Namespace, "ipv4/ip_forward")+l.sysctl(&l.host.Namespace, "ipv6/conf/all/forwarding"), "11")
		c.pings("10.44.0.1", "fd00:44::1")
		l.same(c.routes("default")+c.routes("::/default"), "")
	}},
	{name: "isGateway gives the bridge the gateway of each of several subnets", differs: "its bridge has one IPv4 address", test: func(l *lab) {
		n := l.lan("ipam", `{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24"}],[{"subnet":"10.45.0.0/24"}],[{"subnet":"fd00:44::/64"}],[{"subnet":"fd00:45::/64"}]]}`)
		gateways := []string{"10.44.0.1", "10.45.0.1", "fd00:44::1", "fd00:45::1"}
		for _, name := range []string{"first", "second"} {
			c := l.attach(n, name)
			c.pings(gateways...)
			l.must(c.check())
		}
		got := l.addresses(&l.host.Namespace, "lan0")
		slices.Sort(got)
		l.same(got, []string{"10.44.0.1/24", "10.45.0.1/24", "fd00:44::1/64", "fd00:45::1/64"})
	}},
	{name: "isGateway lets the host forward packets of the families that it has a gateway of", test: func(l *lab) {
		l.attach(l.fixedLan("10.44.0.2/24"), "web")
		l.same(l.sysctl(&l.host.Namespace, "ipv4/ip_forward")+l.sysctl(&l.host.Namespace, "ipv6/conf/all/forwarding"), "10")
	}},
	{name: "isGateway with IPv6 alone leaves IPv4 as it is", test: func(l *lab) {
		l.attach(l.fixedLan("fd00:44::2/64"), "web")
		l.same(l.sysctl(&l.host.Namespace, "ipv4/ip_forward")+l.sysctl(&l.host.Namespace, "ipv6/conf/all/forwarding"), "01")
	}},
	{name: "without isGateway the bridge has no address and the host does not forward", test: func(l *lab) {
		c := l.attach(l.lan("isDefaultGateway", "false", "ipMasq", "false"), "web")
		l.same(l.addresses(&l.host.Namespace, "lan0"), []string{})
		l.same(l.sysctl(&l.host.Namespace, "ipv4/ip_forward")+l.sysctl(&l.host.Namespace, "ipv6/conf/all/forwarding"), "00")
		c.hasAddresses("10.44.0.2/24", "fd00:44::2/64")
	}},
	{name: "without isGateway containers of a network reach each other", test: func(l *lab) {
		n := l.lan("isDefaultGateway", "false", "ipMasq", "false")
		a, b := l.attach(n, "a"), l.attach(n, "b")
		a.pings(b.v4, b.v6)
	}},
	{name: "the gateway is the one that the IPAM plugin says", test: func(l *lab) {
		c := l.attach(l.fixedLan("10.44.0.2/24 10.44.0.99", "fd00:44::2/64 fd00:44::99"), "web")
		l.same(l.addresses(&l.host.Namespace, "lan0"), []string{"10.44.0.99/24", "fd00:44::99/64"})
		l.shows(c.routes("default")+c.routes("::/default"), "default via 10.44.0.99 dev eth0", "default via fd00:44::99 dev eth0")
	}},
	{name: "a gateway that the IPAM plugin does not say is the first address of the subnet", test: func(l *lab) {
		c := l.attach(l.fixedLan("10.44.7.9/22", "fd00:44::9:9/112"), "web")
		l.same(l.addresses(&l.host.Namespace, "lan0"), []string{"10.44.4.1/22", "fd00:44::9:1/112"})
		l.shows(c.printed, `"10.44.4.1"`, `"fd00:44::9:1"`)
	}},
	{name: "without isGateway there is no gateway that the IPAM plugin does not say", test: func(l *lab) {
		l.lacks(l.attach(conf(with(layer2, "ipam", fixedIPs("10.44.0.2/24"))), "web").printed, "gateway", "gw")
	}},
	{name: "isDefaultGateway makes a default route for each family", test: func(l *lab) {
		c := l.attach(l.lan(), "web")
		l.shows(c.routes("default"), "default via 10.44.0.1 dev eth0")
		l.shows(c.routes("::/default"), "default via fd00:44::1 dev eth0")
	}},
	{name: "the routes of a container's second network may be those of the first, and come before them", test: func(l *lab) {
		const ipam = `{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24"}],[{"subnet":"fd00:44::/64"}]],"routes":[{"dst":"10.60.0.0/16"},{"dst":"fd00:60::/48"}]}`
		first := l.lan("ipam", ipam)
		second := conf(strings.NewReplacer("lan0", "far0", "10.44.", "10.45.", "fd00:44:", "fd00:45:").Replace(first.plugins[0])).called("far")
		c := l.attach(first, "web")
		before := c.Snapshot(l)
		net1 := c.attach(second, "net1")
		l.shows(c.run("ip route get 10.60.0.1"), "via 10.45.0.1 dev net1")
		l.shows(c.run("ip route get 192.0.2.9"), "via 10.45.0.1 dev net1")
		l.shows(c.run("ip -6 route show fd00:60::/48"), "dev eth0", "dev net1")
		l.must(c.check(), net1.check(), net1.del(), c.check())
		l.same(before.Diff(c.Snapshot(l), "sysctl"), "")
	}},
	{name: "isDefaultGateway leaves the IPAM plugin's default route with a gateway alone", test: func(l *lab) {
		c := l.attach(l.lan("ipam", with(fixedIPs("10.44.0.2/24", "fd00:44::2/64"), "routes", `[{"dst":"0.0.0.0/0","gw":"10.44.0.9"}]`)), "web")
		l.same(strings.TrimSpace(c.routes("default")), "default via 10.44.0.9 dev eth0")
		l.same(text(c.result.Routes), `[{"dst":"0.0.0.0/0","gw":"10.44.0.9"},{"dst":"::/0","gw":"fd00:44::1"}]`)
	}},
	{name: "isDefaultGateway adds nothing to the IPAM plugin's default route without a gateway",
		differs: "there are two default routes then, which the kernel refuses", test: func(l *lab) {
			c := l.attach(l.lan("ipam", with(fixedIPs("10.44.0.2/24", "fd00:44::2/64"), "routes", `[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`)), "web")
			l.same(strings.TrimSpace(c.routes("default")), "default via 10.44.0.1 dev eth0")
			l.shows(c.routes("::/default"), "default via fd00:44::1 dev eth0")
			l.same(text(c.result.Routes), `[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`)
		}},
	{name: "two subnets of IPv6 have a gateway each", test: func(l *lab) {
		c := l.attach(l.fixedLan("fd00:44::2/64", "fd00:45::2/64"), "web")
		c.hasAddresses("fd00:45::2/64", "fd00:44::2/64")
		c.pings("fd00:44::1", "fd00:45::1")
	}},
	{name: "two subnets of IPv4 have a gateway each", differs: "it gives the bridge one IPv4 address", test: func(l *lab) {
		c := l.attach(l.fixedLan("10.44.0.2/24", "10.45.0.2/24"), "web")
		c.hasAddresses("10.44.0.2/24", "10.45.0.2/24")
		c.pings("10.44.0.1", "10.45.0.1")
	}},
	{name: "a bridge with another network's address is refused", test: func(l *lab) {
		l.run("ip link add lan0 type bridge", "ip address add 10.9.9.1/24 dev lan0")
		l.refused(l.pod("web").add(conf(lan)), "lan0")
	}},
	{name: "a bridge with an IPv6 address of an overlapping network is refused", test: func(l *lab) {
		l.run("ip link add lan0 type bridge", "ip address add fd00:44::9/48 dev lan0")
		l.refused(l.pod("web").add(l.fixedLan("fd00:44::2/64")), "lan0", "fd00:44::1/64")
	}},
	{name: "a bridge may have the gateway's address already, and IPv6 addresses of other networks", test: func(l *lab) {
		l.run("ip link add lan0 type bridge")
		for _, a := range []string{"10.44.0.1/24", "fd00:9::1/64"} {
			l.run("ip address add " + a + " dev lan0")
		}
		c := l.attach(conf(lan), "web")
		l.same(l.addresses(&l.host.Namespace, "lan0"), []string{"10.44.0.1/24", "fd00:44::1/64", "fd00:9::1/64"})
		c.pings("10.44.0.1", "fd00:44::1")
	}},
	{name: "forceAddress takes conflicting addresses from the bridge, and no others", test: func(l *lab) {
		l.run("ip link add lan0 type bridge")
		for _, a := range []string{"10.9.9.1/24", "fd00:44::9/48", "fd00:9::1/64"} {
			l.run("ip address add " + a + " dev lan0")
		}
		c := l.attach(l.lan("forceAddress", "true"), "web")
		l.same(l.addresses(&l.host.Namespace, "lan0"), []string{"10.44.0.1/24", "fd00:44::1/64", "fd00:9::1/64"})
		c.pings("10.44.0.1", "fd00:44::1")
	}},
	{name: "containers of one subnet share the gateway", test: func(l *lab) {
		a, b := l.attach(l.lan(), "a"), l.attach(l.lan(), "b")
		a.pings("10.44.0.1", b.v4)
		b.pings("10.44.0.1", a.v6)
	}},
}

func bridgeRoutes() []row {
	return append(bridgeMain.routes([]routeCase{
		{"a route with a gateway goes by it", `{"dst":"10.50.0.0/16","gw":"10.44.0.9"}`, "10.50.0.0/16", "via 10.44.0.9 dev eth0", "", ""},
		{"an IPv6 route with a gateway goes by it", `{"dst":"fd00:50::/48","gw":"fd00:44::9"}`, "fd00:50::/48", "via fd00:44::9 dev eth0", "", ""},
		{"a route with the gateway 0.0.0.0 goes by none", `{"dst":"10.50.0.0/16","gw":"0.0.0.0"}`, "10.50.0.0/16", "10.50.0.0/16 dev eth0", "via", ""},
		{"an IPv6 route with the gateway :: goes by none", `{"dst":"fd00:50::/48","gw":"::"}`, "fd00:50::/48", "fd00:50::/48 dev eth0", "via",
			"the kernel refuses that gateway"},
		{"an IPv6 route has its priority", `{"dst":"fd00:50::/48","priority":50}`, "fd00:50::/48", "metric 50", "", ""},
		{"a destination need not be masked", `{"dst":"10.50.7.7/16"}`, "10.50.0.0/16", "via 10.44.0.1", "",
			"the kernel refuses one that is not"},
	}),
		row{name: "routes are in the result as the IPAM plugin says", test: func(l *lab) {
			routes := `[{"dst":"10.50.0.0/16","mtu":1300,"advmss":1200,"priority":50,"table":300},{"dst":"10.51.0.0/16","gw":"10.44.0.9","scope":0}]`
			c := l.attach(l.lan("isDefaultGateway", "false", "ipam", with(fixedIPs("10.44.0.2/24 10.44.0.1"), "routes", routes)), "web")
			l.printed(text(c.result.Routes), routes)
		}},
		row{name: "a route without any gateway goes by the link", test: func(l *lab) {
			c := l.attach(conf(with(layer2, "ipam", with(fixedIPs("10.44.0.2/24"), "routes", `[{"dst":"10.50.0.0/16"}]`))), "web")
			l.shows(c.routes("10.50.0.0/16"), "10.50.0.0/16 dev eth0")
		}},
	)
}

var bridgeIPv6 = []row{
	{name: "an IPv6 address can be used when ADD returns, though the namespace wants all addresses probed", test: func(l *lab) {
		c := l.pod("web")
		c.run("sysctl -qw net.ipv6.conf.all.accept_dad=1")
		l.must(c.add(conf(lan)))
		l.same(l.probed(&c.Namespace, "eth0"), "")
	}},
	{name: "the gateway's IPv6 address can be used when ADD returns", differs: probes, test: func(l *lab) {
		l.attach(conf(lan), "web")
		l.same(l.probed(&l.host.Namespace, "lan0"), "")
	}},
	{name: "the gateway's IPv6 address can be used when ADD returns, on a bridge that was there",
		differs: probes, test: func(l *lab) {
			l.run("ip link add lan0 type bridge", "ip link set lan0 up")
			l.attach(conf(lan), "web")
			l.same(l.probed(&l.host.Namespace, "lan0"), "")
		}},
	{name: "without enabledad nothing is probed on the container's interface", test: func(l *lab) {
		l.same(l.attach(conf(lan), "web").sysctl("ipv6/conf/eth0/accept_dad"), "0")
	}},
	{name: "enabledad refuses an address that somebody else has", test: func(l *lab) {
		n := l.lan("enabledad", "true", "ipam", fixedIPs("fd00:44::2/64 fd00:44::1"))
		l.attach(n, "first")
		l.refused(l.pod("second").add(n), "eth0")
	}},
	{name: "the container takes no router for its own that another container pretends to be", differs: believesRouters, test: func(l *lab) {
		for name, n := range map[string]network{"web": conf(lan), "old": l.fixedLan("10.44.0.9/24")} {
			c := l.attach(n, name)
			l.same(c.sysctl("ipv6/conf/eth0/accept_ra")+c.sysctl("ipv6/conf/eth0/autoconf"), "00")
		}
	}},
	{name: "acceptRA has the container listen to routers", test: func(l *lab) {
		l.same(l.attach(l.lan("acceptRA", "true"), "web").sysctl("ipv6/conf/eth0/accept_ra"), "1")
	}},
	{name: "without ipam the container listens to routers", test: func(l *lab) {
		c := l.attach(conf(layer2), "web")
		l.same(c.sysctl("ipv6/conf/eth0/accept_ra")+c.sysctl("ipv6/conf/eth0/autoconf"), "11")
	}},
	{name: "IPv6 stays switched off in a container with IPv4 alone", test: func(l *lab) {
		c := l.pod("web")
		c.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
		l.must(c.add(l.fixedLan("10.44.0.2/24")))
		l.same(c.sysctl("ipv6/conf/eth0/disable_ipv6"), "1")
	}},
	{name: "IPv6 addresses stay when the container's interface goes down and up", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		c.run("ip link set eth0 down", "ip link set eth0 up")
		c.hasAddresses("10.44.0.2/24", "fd00:44::2/64")
	}},
	{name: "a bridge that is made takes no router advertisements", test: func(l *lab) {
		l.attach(conf(layer2), "web")
		l.same(l.sysctl(&l.host.Namespace, "ipv6/conf/lan0/accept_ra"), "0")
	}},
}

// bridgeOfOthers is about bridges that the plugin has not made.
var bridgeOfOthers = []row{
	{name: "a bridge that was there is set up", test: func(l *lab) {
		l.run("ip link add lan0 type bridge")
		c := l.attach(conf(lan), "web")
		c.pings("10.44.0.1")
		// If not, Linux 5.10 does not deliver what the ping above sends.
		id := "8000." + strings.ReplaceAll(c.result.Interfaces[0].Mac, ":", "")
		l.same(strings.TrimSpace(l.run("cat /sys/class/net/lan0/bridge/bridge_id")), id)
	}},
	{name: "a bridge that was there keeps its settings", test: func(l *lab) {
		l.run("ip link add lan0 type bridge ageing_time 12300 mcast_snooping 0 group_fwd_mask 8")
		l.attach(conf(lan), "web")
		l.has(&l.host.Namespace, "lan0", "ageing_time", 12300, "mcast_snooping", 0, "group_fwd_mask", "0x8")
	}},
	{name: "a bridge that was there keeps a MAC address that it was given", test: func(l *lab) {
		l.run("ip link add lan0 address fe:00:00:00:00:77 type bridge")
		c := l.attach(conf(lan), "web")
		l.has(&l.host.Namespace, "lan0", "address", "fe:00:00:00:00:77")
		l.same(c.result.Interfaces[0].Mac, "fe:00:00:00:00:77")
	}},
	{name: "a gateway's bridge that was there keeps the MAC address of the result", test: func(l *lab) {
		l.run("ip link add lan0 type bridge")
		c := l.attach(conf(lan), "web")
		mac := c.result.Interfaces[0].Mac
		l.has(&l.host.Namespace, "lan0", "address", mac)
		other := l.attach(conf(lan), "other")
		l.has(&l.host.Namespace, "lan0", "address", mac)
		l.must(other.del())
		l.has(&l.host.Namespace, "lan0", "address", mac)
	}},
	{name: "containers on a bridge that was there reach the gateway while others come and go", test: func(l *lab) {
		l.run("ip link add lan0 type bridge")
		containers := []*container{l.attach(conf(lan), "a"), l.attach(conf(lan), "b")}
		for _, c := range containers {
			c.pings("10.44.0.1")
		}
		// The first to go is the one that the bridge might have its address of.
		goes, stays := containers[0], containers[1]
		if l.link(&l.host.Namespace, "lan0")["address"] == stays.result.Interfaces[1].Mac {
			goes, stays = stays, goes
		}
		l.must(goes.del())
		l.pingsAtOnce(&stays.Namespace, "10.44.0.1")
	}},
	{name: "a gateway's bridge keeps the MAC address of the port that was there before", test: func(l *lab) {
		l.run("ip link add lan0 type bridge", "ip link add port0 address fe:00:00:00:00:01 type veth peer name port1")
		l.run("ip link set port0 master lan0")
		c := l.attach(conf(lan), "web")
		l.has(&l.host.Namespace, "lan0", "address", "fe:00:00:00:00:01")
		l.same(c.result.Interfaces[0].Mac, "fe:00:00:00:00:01")
	}},
	{name: "a port of others keeps its MAC address and its packets as containers come and go", test: func(l *lab) {
		machine := l.pod("machine")
		l.run("ip link add lan0 type bridge", "ip link add port0 address 02:00:00:00:00:01 type veth peer name eth0 netns "+machine.Path())
		l.run("ip link set port0 master lan0 up", "ip link set lan0 up")
		machine.run("ip address add 10.44.0.200/24 dev eth0", "ip link set eth0 up")
		stays := l.attach(conf(lan), "stays")
		machine.pings("10.44.0.1", stays.v4)
		for i := range 20 {
			c := l.attach(conf(lan), fmt.Sprintf("c%d", i))
			l.pingsAtOnce(&machine.Namespace, "10.44.0.1", stays.v4, c.v4)
			l.must(c.del())
			l.pingsAtOnce(&machine.Namespace, "10.44.0.1", stays.v4)
			l.has(&l.host.Namespace, "port0", "address", "02:00:00:00:00:01", "master", "lan0")
			l.has(&l.host.Namespace, "lan0", "address", stays.result.Interfaces[0].Mac)
		}
	}},
	{name: "a bridge that was there takes router advertisements as before", choice: true, differs: "it switches them off on any bridge", test: func(l *lab) {
		l.run("ip link add lan0 up type bridge")
		before := l.sysctl(&l.host.Namespace, "ipv6/conf/lan0/accept_ra")
		l.attach(conf(layer2), "web")
		l.same(l.sysctl(&l.host.Namespace, "ipv6/conf/lan0/accept_ra"), before)
	}},
	{name: "a bridge that is down, as an ADD may leave it that was killed, takes no router advertisements any more", test: func(l *lab) {
		l.run("ip link add lan0 type bridge")
		l.attach(conf(layer2), "web")
		l.same(l.sysctl(&l.host.Namespace, "ipv6/conf/lan0/accept_ra"), "0")
	}},
}

// Why rows about bridges fail.
const (
	probes          = "the kernel probes it for one to two seconds"
	believesRouters = "it leaves router advertisements on, which any container of the bridge can send (the class of CVE-2020-10749)"
)
