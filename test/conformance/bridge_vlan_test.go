package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// inVLAN is the network lan in a VLAN, without masquerading, with more keys of bridge.
func inVLAN(id int, keys ...string) network {
	return conf(with(with(lan, "ipMasq", "false", "vlan", fmt.Sprint(id)), keys...))
}

// trunk is layer2 with a trunk, and with more keys.
func trunk(entries string, keys ...string) network {
	return conf(with(with(layer2, "vlanTrunk", entries), keys...))
}

// vlans returns the VLANs that a port is in, as bridge prints them.
func (l *lab) vlans(port string) []string {
	list := []string{}
	for line := range strings.Lines(l.run("bridge vlan show dev " + port)) {
		if words := strings.Fields(strings.TrimPrefix(line, port)); len(words) > 0 && words[0] != "port" {
			list = append(list, strings.Join(words, " "))
		}
	}
	return list
}

const own100 = "100 PVID Egress Untagged"

// bridgeVLANs are the rows that need a bridge that filters VLANs.
func bridgeVLANs() (rows []row) {
	for _, r := range slices.Concat(vlanPorts, vlanGateways, vlanPackets, vlanBridges, vlanChecks()) {
		r.needs = &netlab.BridgeVLANFiltering
		rows = append(rows, r)
	}
	return rows
}

var vlanPorts = []row{
	{name: "vlan puts the port into a VLAN, without a tag, and out of the bridge's default one", test: func(l *lab) {
		l.same(l.vlans(l.attach(inVLAN(100), "web").hostEnd()), []string{own100})
	}},
	{name: "vlan puts the port out of a default VLAN that is not 1", test: func(l *lab) {
		l.run("ip link add lan0 type bridge vlan_filtering 1 vlan_default_pvid 7")
		l.same(l.vlans(l.attach(inVLAN(100), "web").hostEnd()), []string{own100})
	}},
	{name: "vlan may be the bridge's default one", test: func(l *lab) {
		other := l.attach(conf(with(lan, "ipMasq", "false", "ipam", fixedIPs("10.55.0.2/24"))).called("other"), "other")
		l.run("ip link set lan0 type bridge vlan_filtering 1")
		c := l.attach(inVLAN(1), "web")
		l.same(l.vlans(c.hostEnd()), []string{"1 PVID Egress Untagged"})
		c.pings("10.44.0.1", "fd00:44::1")
		other.pings("10.55.0.1")
	}},
	{name: "preserveDefaultVlan leaves the port in the bridge's default VLAN", test: func(l *lab) {
		c := l.attach(inVLAN(100, "preserveDefaultVlan", "true"), "web")
		l.same(l.vlans(c.hostEnd()), []string{"1 Egress Untagged", own100})
	}},
	{name: "vlanTrunk puts the port into VLANs with a tag, and into 1 without one", test: func(l *lab) {
		c := l.attach(trunk(`[{"minID":200,"maxID":202},{"id":10},{"minID":202,"maxID":203,"id":300},{}]`), "web")
		l.same(l.vlans(c.hostEnd()), []string{"1 PVID Egress Untagged", "10", "200", "201", "202", "203", "300"})
	}},
	{name: "vlanTrunk on a bridge whose default VLAN is not 1", test: func(l *lab) {
		l.run("ip link add lan0 type bridge vlan_filtering 1 vlan_default_pvid 7")
		l.same(l.vlans(l.attach(trunk(`[{"id":10}]`), "web").hostEnd()), []string{"1 PVID Egress Untagged", "10"})
		l.same(l.vlans(l.attach(trunk(`[{"id":7}]`), "other").hostEnd()), []string{"1 PVID Egress Untagged", "7"})
	}},
	{name: "vlanTrunk with preserveDefaultVlan", test: func(l *lab) {
		l.run("ip link add lan0 type bridge vlan_filtering 1 vlan_default_pvid 7")
		c := l.attach(trunk(`[{"id":10}]`, "preserveDefaultVlan", "true"), "web")
		l.same(l.vlans(c.hostEnd()), []string{"1 PVID Egress Untagged", "7 Egress Untagged", "10"})
	}},
	{name: "vlanTrunk with vlan", test: func(l *lab) {
		c := l.attach(trunk(`[{"minID":20,"maxID":21}]`, "vlan", "100"), "web")
		l.same(l.vlans(c.hostEnd()), []string{"20", "21", own100})
	}},
	{name: "vlan stays without a tag when it is in vlanTrunk too", differs: "its trunk gives that VLAN a tag, so the port has none without one", test: func(l *lab) {
		c := l.attach(trunk(`[{"minID":99,"maxID":101}]`, "vlan", "100"), "web")
		l.same(l.vlans(c.hostEnd()), []string{"99", own100, "101"})
	}},
	{name: "vlanTrunk may have all VLANs", test: func(l *lab) {
		l.same(len(l.vlans(l.attach(trunk(`[{"minID":1,"maxID":4094}]`, "vlan", "4094"), "web").hostEnd())), 4094)
	}},
	{name: "a bridge that is made filters VLANs if there is a vlan or a vlanTrunk", test: func(l *lab) {
		for i, n := range []network{inVLAN(100), trunk(`[{"id":10}]`), trunk(`[]`), conf(with(layer2, "vlan", "0")), conf(with(layer2, "vlanTrunk", "null"))} {
			want := 1
			if i > 2 {
				want = 0
			}
			c := l.attach(n, fmt.Sprintf("c%d", i))
			l.has(&l.host.Namespace, "lan0", "vlan_filtering", want)
			l.must(c.del())
			l.run("ip link del lan0")
		}
	}},
	{name: "DEL of a container of a VLAN leaves nothing but its gateway", test: func(l *lab) {
		n := inVLAN(100, "vlanTrunk", `[{"id":10}]`)
		before := l.warmed(n)
		c := l.attach(n, "web")
		l.must(c.del(), c.del())
		before.unchanged()
	}},
	{name: "DEL without anything but the key leaves nothing of a container of a VLAN", test: func(l *lab) {
		n := inVLAN(100)
		before := l.warmed(n)
		c := l.attach(n, "web")
		c.Delete(l)
		l.forget()
		l.must(c.delBare())
		before.unchanged()
	}},
}

var vlanGateways = []row{
	{name: "the result of a VLAN with a gateway, to the byte", test: func(l *lab) {
		c := l.attach(inVLAN(100), "web")
		l.printed(c.printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"lan0","mac":"MAC"},{"name":"vethX","mac":"MAC"},
			{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"},{"name":"lan0.100","mac":"MAC"}],
			"ips":[{"address":"10.44.0.2/24","gateway":"10.44.0.1","interface":2},{"address":"fd00:44::2/64","gateway":"fd00:44::1","interface":2}],
			"routes":[{"dst":"0.0.0.0/0","gw":"10.44.0.1"},{"dst":"::/0","gw":"fd00:44::1"}]}`)
		l.has(&l.host.Namespace, "lan0.100", "address", c.result.Interfaces[3].Mac)
	}},
	{name: "the result of a VLAN without a gateway has three interfaces", test: func(l *lab) {
		l.same(len(l.attach(inVLAN(100, "isDefaultGateway", "false"), "web").result.Interfaces), 3)
		l.same(len(l.attach(conf(with(layer2, "vlan", "100", "isGateway", "true")), "other").result.Interfaces), 3)
		l.same(l.link(&l.host.Namespace, "lan0.100"), map[string]any(nil))
	}},
	{name: "the result of 1.1.0 has the mtu of a VLAN's gateway", differs: "its results have no mtu", test: func(l *lab) {
		l.same(l.attach(inVLAN(100, "mtu", "1400").in("1.1.0"), "web").result.Interfaces[3].Mtu, 1400)
		l.has(&l.host.Namespace, "lan0.100", "mtu", 1400)
	}},
	{name: "a VLAN's gateway is a link of its own", test: func(l *lab) {
		c := l.attach(inVLAN(100), "web")
		l.same(l.addresses(&l.host.Namespace, "lan0.100"), []string{"10.44.0.1/24", "fd00:44::1/64"})
		l.same(l.addresses(&l.host.Namespace, "lan0"), []string{})
		l.same(l.sysctl(&l.host.Namespace, "ipv4/ip_forward")+l.sysctl(&l.host.Namespace, "ipv6/conf/all/forwarding"), "11")
		c.pings("10.44.0.1", "fd00:44::1")
	}},
	{name: "a VLAN's gateway takes no router advertisements", differs: "it leaves them on", test: func(l *lab) {
		l.attach(inVLAN(100), "web")
		l.same(l.sysctl(&l.host.Namespace, "ipv6/conf/lan0.100/accept_ra"), "0")
	}},
	{name: "a container with preserveDefaultVlan reaches its VLAN's gateway", test: func(l *lab) {
		l.attach(inVLAN(100, "preserveDefaultVlan", "true", "vlanTrunk", `[{"id":10}]`), "web").pings("10.44.0.1", "fd00:44::1")
	}},
	{name: "containers of a VLAN share its gateway, and VLANs of a bridge have one each", test: func(l *lab) {
		a, b := l.attach(inVLAN(100), "a"), l.attach(inVLAN(100), "b")
		other := l.attach(inVLAN(200, "ipam", fixedIPs("10.55.0.2/24", "fd00:55::2/64")).called("other"), "other")
		for _, c := range []*container{a, b} {
			c.pings("10.44.0.1", "fd00:44::1")
		}
		other.pings("10.55.0.1", "fd00:55::1")
		l.same(l.addresses(&l.host.Namespace, "lan0.200"), []string{"10.55.0.1/24", "fd00:55::1/64"})
	}},
	{name: "a VLAN's gateway that another plugin made is used", test: func(l *lab) {
		l.run("ip link add lan0 type bridge vlan_filtering 1", "ip link set lan0 up", "ip link add lan0.100 type veth peer name p0",
			"ip link set p0 master lan0 up", "bridge vlan add dev p0 vid 100 pvid untagged", "ip link set lan0.100 up", "ip address add 10.44.0.1/24 dev lan0.100")
		mac := l.link(&l.host.Namespace, "lan0.100")["address"]
		c := l.attach(inVLAN(100), "web")
		l.same(c.result.Interfaces[3].Mac, mac)
		c.pings("10.44.0.1", "fd00:44::1")
	}},
	{name: "a VLAN device on the bridge is used as the VLAN's gateway", test: func(l *lab) {
		netlab.Need(l, netlab.VLAN)
		l.run("ip link add lan0 type bridge vlan_filtering 1", "ip link set lan0 up", "bridge vlan add dev lan0 vid 100 self",
			"ip link add link lan0 name lan0.100 type vlan id 100", "ip link set lan0.100 up")
		l.attach(inVLAN(100), "web").pings("10.44.0.1", "fd00:44::1")
	}},
	{name: "a VLAN's gateway is connected again when its bridge was deleted", differs: "its port stays out of the bridge that is made", test: func(l *lab) {
		l.must(l.attach(inVLAN(100), "before").del())
		l.run("ip link del lan0")
		l.attach(inVLAN(100), "web").pings("10.44.0.1", "fd00:44::1")
	}},
	{name: "a VLAN's gateway that another plugin made is connected again", differs: "its port stays out of the bridge that is made", test: func(l *lab) {
		l.run("ip link add lan0.100 type veth peer name p0")
		l.attach(inVLAN(100), "web").pings("10.44.0.1", "fd00:44::1")
		l.same(l.vlans("p0"), []string{own100})
	}},
	{name: "a VLAN's gateway masquerades, though netfilter looks at what crosses a bridge", backends: true,
		differs: "what crosses the bridge to the gateway is masqueraded there, and the host drops it", test: func(l *lab) {
			l.host.FilterBridged(l, true)
			l.served()
			l.seenAs(l.attach(l.lan("vlan", "100"), "web"), netlab.HostIPv4, netlab.HostIPv6)
		}},
	{name: "containers of a VLAN do not reach 127.0.0.1 of the node, though netfilter looks at what crosses a bridge", backends: true, test: func(l *lab) {
		l.host.FilterBridged(l, true)
		n := published(l)
		n.plugins[0] = with(n.plugins[0], "vlan", "100")
		web := publish(l, n, "web", "8080:80/tcp")
		l.serve(&l.host.Namespace, 9999)
		sendsLocal(web, hostSide)
		l.silent(tcp(&web.Namespace, "127.0.0.1", 9999), udp(&web.Namespace, "127.0.0.1", 9999))
	}},
	{name: "a link that leads elsewhere is refused as a VLAN's gateway, and stays as it is", differs: "it takes the link as it is", test: func(l *lab) {
		l.run("ip link add other0 type bridge", "ip link add lan0.100 type veth peer name p0", "ip link set p0 master other0")
		l.attach(conf(with(layer2, "vlan", "100")), "first")
		c := l.pod("web")
		before := l.now()
		l.refused(c.add(inVLAN(100)), "lan0.100")
		before.unchanged()
	}},
	{name: "another network's address on a VLAN's gateway is refused, and all is as before", differs: noRollback, test: func(l *lab) {
		l.warm(inVLAN(100))
		l.run("ip address flush dev lan0.100 scope global", "ip address add 10.9.9.1/24 dev lan0.100")
		c := l.pod("web")
		before, links := l.now(), c.run("ip -o link")
		l.refused(c.add(inVLAN(100)), "lan0.100", "10.9.9.1/24")
		before.unchanged()
		l.same(c.run("ip -o link"), links)
	}},
	{name: "forceAddress replaces the address of a VLAN's gateway", test: func(l *lab) {
		l.warm(inVLAN(100))
		l.run("ip address flush dev lan0.100 scope global", "ip address add 10.9.9.1/24 dev lan0.100")
		l.attach(inVLAN(100, "forceAddress", "true"), "web")
		l.same(l.addresses(&l.host.Namespace, "lan0.100"), []string{"10.44.0.1/24", "fd00:44::1/64"})
	}},
	{name: "a VLAN's gateway keeps its MAC address as containers come and go", test: func(l *lab) {
		first := l.attach(inVLAN(100), "first")
		l.attach(inVLAN(100), "second")
		l.must(first.del())
		l.has(&l.host.Namespace, "lan0.100", "address", first.result.Interfaces[3].Mac)
	}},
	{name: "a bridge that filters VLANs keeps its MAC address as containers come and go", differs: "it has the lowest MAC address of its ports", test: func(l *lab) {
		n := conf(with(layer2, "vlan", "100"))
		first := l.attach(n, "first")
		mac := first.result.Interfaces[0].Mac
		l.attach(n, "second")
		l.has(&l.host.Namespace, "lan0", "address", mac)
		l.must(first.del())
		l.has(&l.host.Namespace, "lan0", "address", mac)
		l.attach(inVLAN(200), "third")
		l.has(&l.host.Namespace, "lan0", "address", mac)
	}},
	{name: "containers of a VLAN that come at the same time on a new node all get in", test: func(l *lab) { l.allGetIn(inVLAN(100)) }},
}

// vlanPackets are about who reaches whom. All containers are of one subnet.
var vlanPackets = []row{
	{name: "containers of one VLAN reach each other, those of two do not", test: func(l *lab) {
		a, b := l.attach(separated(100, 2), "a"), l.attach(separated(100, 3), "b")
		l.attach(separated(200, 4), "other")
		none := l.attach(separated(0, 5), "none")
		a.pings("10.44.0.3", "fd00:44::3")
		l.unreachable(&b.Namespace, "10.44.0.4", "fd00:44::4", "10.44.0.5", "fd00:44::5")
		l.unreachable(&none.Namespace, "10.44.0.4")
	}},
	{name: "a container with a trunk reaches those of its VLANs by tags", test: func(l *lab) {
		netlab.Need(l, netlab.VLAN)
		a, b := l.attach(separated(100, 2), "a"), l.attach(separated(200, 3), "b")
		c := l.attach(trunk(`[{"id":100}]`), "trunk")
		c.tag(100, "10.44.0.9/24")
		c.pings("10.44.0.2")
		l.unreachable(&c.Namespace, "10.44.0.3")
		c.run("ip link del eth0.100")
		c.tag(200, "10.44.0.9/24")
		l.unreachable(&c.Namespace, "10.44.0.3")
		l.unreachable(&b.Namespace, "10.44.0.9")
		l.unreachable(&a.Namespace, "10.44.0.9")
	}},
	{name: "a container that sends tags of its own gets into no other VLAN", test: func(l *lab) {
		netlab.Need(l, netlab.VLAN)
		other, c := l.attach(separated(200, 2), "other"), l.attach(separated(100, 3), "hostile")
		c.run("ip address flush dev eth0")
		c.tag(200, "10.44.0.3/24")
		l.unreachable(&c.Namespace, "10.44.0.2")
		l.unreachable(&other.Namespace, "10.44.0.3")
	}},
}

// separated is a network of a VLAN, for a container with the addresses that end in n.
func separated(vlan, n int) network {
	return conf(with(layer2, "vlan", fmt.Sprint(vlan), "ipam", fixedIPs(fmt.Sprintf("10.44.0.%d/24", n), fmt.Sprintf("fd00:44::%d/64", n))))
}

// tag gives the container a link for packets with the tag of a VLAN.
func (c *container) tag(vlan int, address string) {
	name := fmt.Sprintf("eth0.%d", vlan)
	c.run(fmt.Sprintf("ip link add link eth0 name %s type vlan id %d", name, vlan), "ip address add "+address+" dev "+name)
	c.run("ip link set " + name + " up")
}

const separatesNothing = "it puts ports into VLANs of a bridge that does not look at them"

var vlanBridges = []row{
	{name: "a vlan or vlanTrunk on a bridge that does not filter VLANs is refused, and changes nothing", differs: separatesNothing, test: func(l *lab) {
		l.warm(conf(with(lan, "ipMasq", "false")))
		for i, n := range []network{inVLAN(100), trunk(`[{"id":10}]`)} {
			c := l.pod(fmt.Sprintf("c%d", i))
			before := l.now(c)
			l.code(c.add(n), 7, "lan0", "ip link set dev lan0 type bridge vlan_filtering 1")
			before.unchanged()
		}
	}},
	{name: "a bridge that filters VLANs since takes containers of VLANs", test: func(l *lab) {
		l.attach(conf(layer2), "first")
		l.run("ip link set dev lan0 type bridge vlan_filtering 1")
		l.attach(inVLAN(100), "web").pings("10.44.0.1")
	}},
	{name: "STATUS fails when the bridge does not filter VLANs that are configured", differs: "its STATUS does not look at the bridge", test: func(l *lab) {
		l.must(l.status(inVLAN(100)))
		l.warm(conf(with(lan, "ipMasq", "false")))
		l.code(l.status(inVLAN(100)), 50, "lan0")
		l.must(l.status(conf(with(lan, "ipMasq", "false"))))
	}},
}

func vlanChecks() (rows []row) {
	for _, c := range []struct {
		name, says, harm string
		keys             []string
	}{
		{name: "the port is not in its VLAN", says: "100", harm: "bridge vlan del dev END vid 100"},
		{name: "the port is in another VLAN", says: "100", harm: "bridge vlan add dev END vid 200 pvid untagged"},
		{name: "the port is in another VLAN with a tag", says: "200", harm: "bridge vlan add dev END vid 200"},
		{name: "the port's own VLAN has a tag", says: "100", harm: "bridge vlan add dev END vid 100 pvid"},
		{name: "the port is not in a VLAN of its trunk", says: "12", keys: []string{"vlanTrunk", `[{"minID":10,"maxID":15}]`}, harm: "bridge vlan del dev END vid 12"},
		{name: "a VLAN of the port's trunk has no tag", says: "12", keys: []string{"vlanTrunk", `[{"minID":10,"maxID":15}]`}, harm: "bridge vlan add dev END vid 12 untagged"},
		{name: "the port's own VLAN is another, with preserveDefaultVlan", says: "100", keys: []string{"preserveDefaultVlan", "true"}, harm: "bridge vlan add dev END vid 1 pvid"},
		{name: "the bridge does not filter VLANs any more", says: "lan0", harm: "ip link set dev lan0 type bridge vlan_filtering 0"},
		{name: "the VLAN's gateway is gone", says: "lan0.100", harm: "ip link del lan0.100"},
		{name: "the bridge itself is not in the gateway's VLAN", says: "100", harm: "bridge vlan del dev lan0 vid 100 self"},
	} {
		rows = append(rows, row{name: "CHECK fails when " + c.name, differs: "its CHECK does not look at VLANs", test: func(l *lab) {
			l.run("ip link add lan0 address fe:00:00:00:00:77 type bridge vlan_filtering 1") // so that the reference's CHECK finds no other MAC address
			web := l.attach(inVLAN(100, c.keys...), "web")
			l.must(web.check())
			l.run(strings.ReplaceAll(c.harm, "END", web.hostEnd()))
			l.refused(web.check(), c.says)
		}})
	}
	return append(rows, row{name: "CHECK of a container of VLANs succeeds, and changes nothing", test: func(l *lab) {
		for i, n := range []network{inVLAN(100), inVLAN(100, "vlanTrunk", `[{"minID":10,"maxID":15},{"id":100}]`), trunk(`[{"id":10}]`, "ipam", fixedIPs("10.44.0.99/24")),
			inVLAN(200, "preserveDefaultVlan", "true", "isDefaultGateway", "false")} {
			web := l.attach(n, fmt.Sprintf("c%d", i))
			l.now(web).unchangedBy(web.check())
		}
	}})
}
