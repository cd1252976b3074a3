package conformance

import (
	"fmt"

	"github.com/cnibox/cnibox/test/netlab"
)

// ptpLeftWithoutNetns is why the reference fails rows about what is left of ptp.
const ptpLeftWithoutNetns = "its DEL removes no masquerading unless it finds the interface"

// ptpDels are states of an attachment that DEL finds, and what else there is to a DEL.
func ptpDels() []row {
	return append(ptpMain.dels([]stateOfDel{
		{name: "DEL with the addresses taken off the interface leaves nothing", differs: ptpLeftWithoutNetns, backends: true,
			state: inside("ip address flush dev eth0")},
		{name: "DEL with the host end's addresses and routes gone leaves nothing", state: onHost("ip address flush dev END")},
		{name: "DEL with the host end down leaves nothing", state: onHost("ip link set END down")},
		{name: "DEL with a backend that ADD refuses leaves nothing", state: edited("ipMasqBackend", `"frobnicate"`)},
	}),
		row{name: "DEL without an ipam section removes the veth pair and the masquerade", backends: true, differs: "its DEL fails then", test: func(l *lab) {
			web := l.attach(l.ptp(), "web")
			end := web.hostEnd()
			web.network = l.ptp("ipam", "{}")
			l.must(web.del())
			l.gone(&l.host.Namespace, end)
			l.lacks(l.run("nft list ruleset")+l.run("iptables-save"), "10.44.0.2")
		}},
		row{name: "DEL removes all else when the IPAM plugin fails, and says so", differs: "its DEL stops at the IPAM plugin", test: func(l *lab) {
			web := l.attach(l.ptp(), "web")
			end := web.hostEnd()
			web.network = l.ptp("ipam", `{"type":"frobnicate"}`)
			l.refused(web.del(), "frobnicate")
			l.gone(&l.host.Namespace, end)
			l.lacks(l.run("nft list ruleset"), "10.44.0.2")
		}},
	)
}

var ptpLateDels = []row{
	{name: "a late DEL leaves the masquerade and the routes of who has the address by now", backends: true, test: func(l *lab) {
		l.serve(&l.outside().Namespace, 80)
		n := l.fixedPtp(ptpIPv4Address, ptpIPv6Address)
		old := l.attach(n, "old")
		old.vanish()
		newer := l.attach(n, "newer")
		l.must(old.del())
		l.seenAs(newer, netlab.HostIPv4, netlab.HostIPv6)
		l.must(newer.check())
	}},
	{name: "DEL with a result removes a veth pair that the reference plugin made, whatever its addresses", test: func(l *lab) {
		c := l.pod("web")
		l.asReferencePtp(c, "10.44.0.2")
		l.run("ip address flush dev vethabcdef01")
		mac := l.link(&c.Namespace, "eth0")["address"]
		l.must(l.verb("DEL", c, with(barePtp, "prevResult", fmt.Sprintf(
			`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":%q,"sandbox":%q}]}`, mac, c.Path()))))
		l.gone(&l.host.Namespace, "vethabcdef01")
	}},
	{name: "DEL leaves an interface that neither looks like one of ptp nor is in the result", choice: true, differs: removesAny, test: func(l *lab) {
		c := l.never(conf(ptp), "web")
		l.run("ip link add stranger0 type veth peer name eth0 netns web")
		l.must(c.del())
		c.has("ifname", "eth0")
	}},
	{name: "DEL without a result leaves a veth pair that hangs in a bridge, whatever its addresses", differs: removesAny, test: func(l *lab) {
		c := l.never(conf(ptp), "web")
		l.asReferencePtp(c, "10.44.0.2")
		l.run("ip link add own0 up type bridge", "ip link set vethabcdef01 master own0")
		l.must(c.del())
		l.has(&l.host.Namespace, "vethabcdef01", "master", "own0")
	}},
	{name: "DEL leaves a container of a bridge that has the namespace's path by now", differs: removesAny, test: func(l *lab) {
		c := l.never(conf(ptp), "web")
		l.asReference(c, "vethabcdef01", "10.44.0.77/24")
		l.must(c.del())
		l.has(&l.host.Namespace, "vethabcdef01", "ifname", "vethabcdef01")
	}},
	{name: "DEL removes the veth pair of a container that has given it away", differs: "it looks for the interface in the container", test: func(l *lab) {
		before := l.warmed(l.ptp())
		evil, friend := l.attach(l.ptp(), "evil"), l.pod("friend")
		evil.run("ip link set eth0 netns " + friend.Path())
		l.must(evil.del())
		before.unchanged()
		l.lacks(friend.run("ip -o link"), "eth0")
	}},
}

// asReferencePtp attaches a container as the reference plugin does: a veth pair whose host end, with index 4242, is known by nothing
// but where it leads.
func (l *lab) asReferencePtp(c *container, address string) {
	l.run("ip link add vethabcdef01 index 4242 type veth peer name eth0 netns " + c.Name())
	l.run("ip link set vethabcdef01 up", "ip address add 10.44.0.1/32 dev vethabcdef01")
	c.run("ip address add "+address+"/32 dev eth0", "ip link set eth0 up", "ip route add 10.44.0.1 dev eth0")
	l.run("ip route add " + address + " dev vethabcdef01 scope host")
}
