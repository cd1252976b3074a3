package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// Why the reference fails rows about what is left.
const leftWithoutNetns = "its DEL removes no masquerading once the namespace is gone"

// bridgeDels are states of an attachment that DEL finds, and what else there is to a DEL.
func bridgeDels() []row {
	gone := func(l *lab, c *container) { c.Delete(l) }
	return append(bridgeMain.dels([]stateOfDel{
		{name: "DEL with the namespace gone removes the spoof check", differs: "its DEL removes no spoof check once the namespace is gone",
			keys: []string{"macspoofchk", "true", "ipMasq", "false"}, state: gone},
		{name: "DEL with the interface and the namespace gone leaves nothing", differs: leftWithoutNetns, backends: true,
			state: func(l *lab, c *container) { c.run("ip link del eth0"); c.Delete(l) }},
		{name: "DEL with the address taken off the interface leaves nothing", differs: "it takes the addresses from the interface", backends: true,
			state: inside("ip address flush dev eth0")},
		{name: "DEL with the bridge gone leaves nothing else", keys: []string{"bridge", `"gone0"`}, backends: true, state: onHost("ip link del gone0")},
		{name: "DEL without macspoofchk, which ADD had, leaves nothing", differs: "its DEL removes the spoof check if it is still configured",
			keys: []string{"macspoofchk", "true"}, state: edited("macspoofchk", "false")},
		{name: "DEL with macspoofchk leaves nothing", keys: []string{"macspoofchk", "true"}},
		{name: "DEL with portIsolation leaves nothing", keys: []string{"portIsolation", "true"}},
		{name: "DEL with enabledad leaves nothing", keys: []string{"enabledad", "true"}},
		{name: "DEL with a configuration that ADD refuses leaves nothing", state: edited("hairpinMode", "true", "promiscMode", "true")},
		{name: "DEL with a MAC address that ADD refuses leaves nothing", state: edited("args", `{"cni":{"mac":"frobnicate"}}`)},
		{name: "DEL with a vlan that ADD refuses leaves nothing", differs: "it reads all keys for DEL", state: edited("vlan", "4095")},
		{name: "DEL with another bridge configured leaves nothing", backends: true, state: edited("bridge", `"other0"`)},
	}),
		row{name: "DEL keeps the bridge, its addresses and forwarding", test: func(l *lab) {
			l.must(l.attach(conf(lan), "web").del())
			l.same(l.addresses(&l.host.Namespace, "lan0"), []string{"10.44.0.1/24", "fd00:44::1/64"})
			l.same(l.sysctl(&l.host.Namespace, "ipv4/ip_forward")+l.sysctl(&l.host.Namespace, "ipv6/conf/all/forwarding"), "11")
		}},
		row{name: "DEL after all rules were flushed removes the rest", backends: true, test: func(l *lab) {
			c := l.attach(l.lan(), "web")
			end := c.hostEnd()
			l.flushRules()
			l.must(c.del())
			l.gone(&l.host.Namespace, end)
			l.same(len(l.files("/var/lib/cni/networks/lan/[1f]*")), 0)
		}},
		row{name: "DEL of one network leaves another with the same bridge", backends: true, test: func(l *lab) {
			c, other := l.attach(l.lan(), "web"), l.pod("other")
			l.must(other.add(l.lan("ipam", fixedIPs("10.44.0.77/24 10.44.0.1")).called("lan2")), c.del())
			other.pings("10.44.0.1")
			l.must(other.check())
		}},
	)
}

// newer makes a container of another id that has the namespace of another, as after a runtime has used its path again.
func (c *container) newer(name string) *container {
	pod := *c.Pod
	pod.ID = strings.Repeat(name[:1], 64)
	return &container{Pod: &pod, lab: c.lab, runtime: pod.RuntimeConf(nil)}
}

// succeeded has the container end without DEL, and a newer one be attached that has the path of its namespace.
func (c *container) succeeded(n network) *container {
	c.Replace(c.lab)
	newer := c.newer("newer")
	c.lab.must(newer.add(n))
	return newer
}

// vanish has a container's namespace be gone, and waits for the kernel.
func (c *container) vanish() {
	end := c.hostEnd()
	c.Delete(c.lab)
	c.lab.eventually(func() string {
		if c.lab.link(&c.lab.host.Namespace, end) != nil {
			return end + " is there"
		}
		return ""
	})
}

var bridgeLateDels = []row{
	{name: "a late DEL leaves the masquerade of who has the address by now", backends: true, test: func(l *lab) {
		l.serve(&l.outside().Namespace, 80)
		n := l.fixedLan("10.44.0.2/24", "fd00:44::2/64")
		old := l.attach(n, "old")
		old.vanish()
		newer := l.attach(n, "newer")
		l.must(old.del())
		l.seenAs(newer, netlab.HostIPv4, netlab.HostIPv6)
		l.must(newer.check())
	}},
	{name: "a late DEL without a result leaves the masquerade of who has the address by now", backends: true, test: func(l *lab) {
		l.serve(&l.outside().Namespace, 80)
		n := l.fixedLan("10.44.0.2/24", "fd00:44::2/64")
		old := l.attach(n, "old")
		old.vanish()
		newer := l.attach(n, "newer")
		l.must(old.delBare())
		l.seenAs(newer, netlab.HostIPv4, netlab.HostIPv6)
	}},
	{name: "GC of the last holder leaves the masquerade of who has the address by now", backends: true, test: func(l *lab) {
		l.serve(&l.outside().Namespace, 80)
		n := l.fixedLan("10.44.0.2/24", "fd00:44::2/64")
		l.attach(n, "old").vanish()
		newer := l.attach(n, "newer")
		l.must(l.gc(n, newer))
		l.seenAs(newer, netlab.HostIPv4, netlab.HostIPv6)
	}},
	{name: "a late DEL leaves another link that has the name of the host end", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		end := c.hostEnd()
		c.vanish()
		l.run("ip link add " + end + " type veth peer name other0")
		l.must(c.del())
		l.has(&l.host.Namespace, end, "link", "other0")
	}},
	{name: "a late DEL leaves a container whose host end has the name of the old one", test: func(l *lab) {
		c := l.attach(conf(lan), "web")
		end := c.hostEnd()
		c.vanish()
		other := l.pod("other")
		l.run("ip link add "+end+" master lan0 type veth peer name eth0 netns other", "ip link set "+end+" up")
		other.run("ip address add 10.44.0.77/24 dev eth0", "ip link set eth0 up")
		l.must(c.del())
		other.pings("10.44.0.1")
	}},
	{name: "DEL with a result removes a veth pair that the reference plugin made, though it is in no bridge", test: func(l *lab) {
		c := l.pod("web")
		l.asReference(c, "vethabcdef01", "")
		l.run("ip link set vethabcdef01 nomaster")
		mac := l.link(&c.Namespace, "eth0")["address"]
		l.must(l.verb("DEL", c, with(layer2, "capabilities", "{}", "prevResult", fmt.Sprintf(
			`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":%q,"sandbox":%q}]}`, mac, c.Path()))))
		l.gone(&l.host.Namespace, "vethabcdef01")
	}},
	{name: "DEL leaves an interface that is neither in the bridge nor in the result", choice: true,
		differs: removesAny, test: func(l *lab) {
			c := l.never(conf(layer2), "web")
			l.run("ip link add stranger0 type veth peer name eth0 netns web")
			l.must(c.del())
			c.has("ifname", "eth0")
		}},
}

// asReference attaches a container as the reference plugin does: a veth pair whose host end, with index 4242, is known by nothing
// but where it leads.
func (l *lab) asReference(c *container, hostEnd, address string) {
	if l.link(&l.host.Namespace, "lan0") == nil {
		l.run("ip link add lan0 up type bridge")
	}
	l.run("ip link add "+hostEnd+" index 4242 master lan0 type veth peer name eth0 netns "+c.Name(), "ip link set "+hostEnd+" up")
	if address != "" {
		c.run("ip address add " + address + " dev eth0")
	}
	c.run("ip link set eth0 up")
}

// collected is warm with a GC, after which nothing is left of a network but what stays with the node.
func (l *lab) collected(n network) {
	l.warm(n)
	l.must(l.gc(n))
}

// beside is the network on another bridge, with other addresses.
func (n network) beside() network {
	n.plugins = slices.Clone(n.plugins)
	n.plugins[0] = strings.NewReplacer("lan0", "far0", "10.44.", "10.45.", "fd00:44:", "fd00:45:").Replace(n.plugins[0])
	return n
}

var bridgeGCs = []row{
	{name: "GC lists links once, however many come and go", test: func(l *lab) { l.must(l.listsOnce(l.lan("capabilities", "{}").plugins[0])) }},
	{name: "GC of a network with a very long name removes all that its attachments have, and no other network's", differs: noGC, backends: true, test: func(l *lab) {
		n := published(l).called(strings.Repeat("n", 120))
		n.plugins = append([]string{with(n.plugins[0], "macspoofchk", "true"), n.plugins[1]}, l.firewall("ingressPolicy", `"same-bridge"`))
		keep, other := l.attach(n, "keep", ports("8080:80/tcp")), l.attach(n.beside().called(n.name+"o"), "other", ports("8081:80/tcp"))
		l.warm(n)
		before := l.now(keep, other)
		l.attach(n, "lost", ports("8082:80/tcp")).Delete(l)
		l.must(l.gc(n, keep))
		before.unchanged()
		l.must(keep.check(), other.check())
	}},
	{name: "GC of a network with a very long name removes host ends whose container is there", differs: noGC, test: func(l *lab) {
		n := l.lan().called(strings.Repeat("n", 120))
		keep, other := l.attach(n, "keep"), l.attach(n.beside().called(n.name+"o"), "other")
		l.warm(n)
		before := l.now(keep, other)
		l.attach(n, "lost")
		l.must(l.gc(n, keep))
		before.unchanged()
		l.must(keep.check(), other.check())
	}},
	{name: "GC removes spoof checks", differs: noGC, test: func(l *lab) {
		n := conf(with(layer2, "macspoofchk", "true"))
		l.collected(n)
		before := l.now()
		l.attach(n, "lost").Delete(l)
		l.must(l.gc(n))
		before.unchanged()
	}},
	{name: "GC removes what ADD made and the configuration does not have any more", differs: noGC, backends: true, test: func(l *lab) {
		n := l.lan("macspoofchk", "true")
		l.collected(n)
		before := l.now()
		l.attach(n, "lost").Delete(l)
		l.must(l.gc(l.lan("ipMasq", "false")))
		before.unchanged()
	}},
	{name: "GC removes another interface of a container that has a valid one", differs: noGC, backends: true, test: func(l *lab) {
		l.warm(l.lan())
		c := l.attach(l.lan(), "web")
		before := l.now()
		c.attach(l.lan("isDefaultGateway", "false"), "net1")
		l.must(l.gc(l.lan(), c))
		before.unchanged()
		l.gone(&c.Namespace, "net1")
		c.pings("10.44.0.1")
	}},
	{name: "GC leaves a veth pair that is not from CNI", test: func(l *lab) {
		l.collected(conf(lan))
		l.asReference(l.pod("other"), "vethabcdef01", "10.44.0.77/24")
		l.now().unchangedBy(l.gc(conf(lan)))
	}},
	{name: "GC after the last container of a subnet leaves nothing of its masquerade", backends: true, test: func(l *lab) {
		other := l.lan("bridge", `"other0"`, "ipam", fixedIPs("10.55.0.2/24", "fd00:55::2/64")).called("other")
		l.warm(other)
		l.attach(other, "other") // has what all networks share
		l.warm(l.lan("ipMasq", "false"))
		l.now().unchangedBy(l.attach(l.lan(), "web").del(), l.gc(l.lan()))
	}},
}
