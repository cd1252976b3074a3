package conformance

import (
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// Why the reference does not find harm.
const (
	blindToMasquerade = "its CHECK does not look at the masquerade"
	onlyMainTable     = "its CHECK looks into the main table only"
)

// flushRules removes all rules, and those of iptables, which keeps them in nf_tables.
func (l *lab) flushRules() {
	netlab.Need(l, netlab.NFTables)
	l.run("nft flush ruleset")
}

// onHost runs commands on the node, in which END stands for the container's host end, and inside runs some in the container, with the
// addresses of its own network in place of bridge's.
func onHost(commands ...string) func(*lab, *container) {
	return func(l *lab, c *container) {
		harm := slices.Clone(commands)
		for i, command := range harm {
			if strings.Contains(command, "END") {
				harm[i] = strings.ReplaceAll(command, "END", c.hostEnd())
			}
		}
		l.run(harm...)
	}
}

func inside(commands ...string) func(*lab, *container) {
	return func(_ *lab, c *container) {
		c.run(strings.Split(c.here(strings.Join(commands, "\n")), "\n")...)
	}
}

// event is what happens to an attachment between ADD and CHECK.
type event struct {
	name, differs, says, except string
	keys                        []string // of ADD's configuration
	backends, choice            bool
	happens                     func(l *lab, c *container)
}

func (e event) exceptions() string { return e.except }

var harms = []event{
	{name: "the container's IPv4 address is gone", says: "10.44.0.2", happens: inside("ip address del 10.44.0.2/24 dev eth0")},
	{name: "the container's IPv6 address is gone", says: "fd00:44::2", happens: inside("ip address del fd00:44::2/64 dev eth0")},
	{name: "the container's IPv4 default route is gone", except: "tap dummy", happens: inside("ip route del default")},
	{name: "the container's IPv6 default route is gone", except: "tap dummy", happens: inside("ip -6 route del default")},
	{name: "the container's default route has another gateway", says: "0.0.0.0/0", except: "ptp tap dummy",
		differs: "its CHECK does not compare the gateway of a default route", happens: inside("ip route replace default via 10.44.0.9")},
	{name: "the route to the container's own subnet is gone", except: "ptp tap dummy", happens: inside("ip route del 10.44.0.0/24")},
	{name: "the container's interface has another MAC address", says: "02:66:66:66:66:66", except: "ipvlan",
		happens: inside("ip link set eth0 address 02:66:66:66:66:66")},
	{name: "the container's interface is down", happens: inside("ip link set eth0 down")},
	{name: "the container's interface is gone", says: "eth0", happens: inside("ip link del eth0")},
	{name: "the container's lease is gone", except: "tap", happens: inside("rm -r /var/lib/cni/networks/lan")},
}

// harmed attach a container, do it the harm that plugins share and the plugin's own, and have CHECK find that.
func (p mainPlugin) harmed(own []event) (rows []row) {
	attach := func(l *lab, keys ...string) *container { return l.attach(p.network(l, keys...), "web") }
	for _, r := range checks("CHECK fails when ", attach, (*container).check, append(shared(p, harms), own...)) {
		rows = append(rows, p.row(r))
	}
	return rows
}

// checks are rows that attach a container, do it harm, and have CHECK find that; prefix is before their names.
func checks(prefix string, attach func(l *lab, keys ...string) *container, check func(*container) error, cases []event) (rows []row) {
	for _, c := range cases {
		rows = append(rows, row{name: prefix + c.name, differs: c.differs, backends: c.backends, test: func(l *lab) {
			web := attach(l, c.keys...)
			l.must(check(web))
			c.happens(l, web)
			l.refused(check(web), web.here(c.says))
		}})
	}
	return rows
}

var events = []event{
	{name: "the container has more addresses and routes", happens: inside("ip address add 10.44.0.77/24 dev eth0", "ip route add 10.60.0.0/16 via 10.44.0.1",
		"ip link add other0 type veth peer name other1")},
	{name: "the mtu has changed", except: "macvlan ipvlan vlan", happens: inside("ip link set eth0 mtu 1400")},
	{name: "other containers have come and gone", except: "macvlan ipvlan vlan", happens: func(l *lab, c *container) {
		l.attach(c.network, "other")
		l.must(l.attach(c.network, "gone").del())
	}},
	{name: "a later plugin has moved the routes to a table of its own", except: "ptp", differs: onlyMainTable,
		happens: inside("ip route del default", "ip route add default via 10.44.0.1 dev eth0 table 100")},
	{name: "a route is in a table of its own", except: "ptp", differs: onlyMainTable,
		keys: []string{"ipam", with(fixedIPs("10.44.0.2/24"), "routes", `[{"dst":"10.50.0.0/16","table":300}]`)}},
}

// unharmed attach a container, have happen what is no harm, and have CHECK find none.
func (p mainPlugin) unharmed(own []event) (rows []row) {
	for _, c := range append(shared(p, events), own...) {
		rows = append(rows, p.row(row{name: "CHECK succeeds, and changes nothing, when " + c.name, differs: c.differs, choice: c.choice, test: func(l *lab) {
			web := l.attach(p.network(l, c.keys...), "web")
			if c.happens != nil {
				c.happens(l, web)
			}
			l.now(web).unchangedBy(web.check())
		}}))
	}
	return rows
}

// checkNeedsResult is a row of its own: nothing has happened, and the runtime has lost the result.
func (p mainPlugin) checkNeedsResult() row {
	return row{name: "CHECK without a result is refused", test: func(l *lab) {
		c := l.attach(p.network(l), "web")
		l.refused(l.verb("CHECK", c, with(c.network.plugins[0], "capabilities", "{}")), "prevResult")
	}}
}

// statusOfIPAM are rows about STATUS that asks the IPAM plugin.
func (p mainPlugin) statusOfIPAM() []row {
	return []row{
		{name: "STATUS fails without the IPAM plugin", test: func(l *lab) { l.refused(l.status(p.network(l, "ipam", `{"type":"frobnicate"}`)), "frobnicate") }},
		{name: "STATUS fails when the IPAM plugin is not ready", differs: "its IPAM plugins have no STATUS", test: func(l *lab) {
			l.write("/var/lib/cni/networks", "no directory")
			l.refused(l.status(p.network(l)), "/var/lib/cni/networks")
		}},
	}
}
