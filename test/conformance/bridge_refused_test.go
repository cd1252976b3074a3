package conformance

import "fmt"

// bridgeRefusals is what ADD refuses before it does anything.
func bridgeRefusals() []row {
	return append(bridgeMain.refusals([]refusal{
		{name: "hairpinMode with promiscMode", keys: []string{"hairpinMode", "true", "promiscMode", "true"}},
		{name: "disableContainerInterface with ipam", keys: []string{"disableContainerInterface", "true"}},
		{name: "an isGateway that is no boolean", keys: []string{"isGateway", `"yes"`}, says: "isGateway"},
		{name: "a bridge's name of 16 characters", keys: []string{"bridge", `"lan0123456789012"`}, says: "lan0123456789012"},
		{name: "a pattern for the bridge's name", keys: []string{"bridge", `"br%d"`}, says: "br%d", differs: "br%d makes br0, and fails"},
		{name: "a slash in a bridge's name", keys: []string{"bridge", `"lan/0"`}, says: "lan/0"},
		{name: "a vlan above 4094", keys: []string{"vlan", "4095"}},
		{name: "a vlan below 0", keys: []string{"vlan", "-1"}, says: "must be between 0 and 4094"},
		{name: "a vlanTrunk with an id of 0", keys: []string{"vlanTrunk", `[{"id":0}]`}, says: "incorrect trunk id parameter"},
		{name: "a vlanTrunk with an id above 4094", keys: []string{"vlanTrunk", `[{"id":4095}]`}, says: "incorrect trunk id parameter"},
		{name: "a vlanTrunk with a minID of 0", keys: []string{"vlanTrunk", `[{"minID":0,"maxID":5}]`}, says: "incorrect trunk minID parameter"},
		{name: "a vlanTrunk with a maxID above 4094", keys: []string{"vlanTrunk", `[{"minID":5,"maxID":4095}]`}, says: "incorrect trunk maxID parameter"},
		{name: "a vlanTrunk with a minID above its maxID", keys: []string{"vlanTrunk", `[{"minID":6,"maxID":5}]`}, says: "minID is greater than maxID in trunk parameter"},
		{name: "a vlanTrunk without a minID", keys: []string{"vlanTrunk", `[{"id":7},{"maxID":5}]`},
			says: "minID and maxID should be configured simultaneously, minID is missing"},
		{name: "a vlanTrunk without a maxID", keys: []string{"vlanTrunk", `[{"id":7,"minID":5}]`},
			says: "minID and maxID should be configured simultaneously, maxID is missing"},
		{name: "a vlanTrunk that is no list", keys: []string{"vlanTrunk", `{"id":7}`}, says: "vlanTrunk"},
		{name: "a name that is too long for the VLAN's gateway", keys: []string{"bridge", `"lan-12-letters"`, "vlan", "4000"}, says: "lan-12-letters.4000", differs: noRollback},
		{name: "a MAC address that is none", keys: []string{"args", `{"cni":{"mac":"02:00:00"}}`}, says: "02:00:00"},
		{name: "a multicast MAC address", keys: []string{"args", `{"cni":{"mac":"03:00:00:00:00:01"}}`}},
		{name: "the MAC address 00:00:00:00:00:00", keys: []string{"args", `{"cni":{"mac":"00:00:00:00:00:00"}}`}},
	}),
		row{name: "an invalid configuration has code 7", differs: always999, test: func(l *lab) {
			for i, keys := range [][]string{{"hairpinMode", "true", "promiscMode", "true"}, {"vlan", "4095"}, {"vlanTrunk", `[{"id":0}]`}, {"bridge", `"lan/0"`}, {"mtu", "67"},
				{"disableContainerInterface", "true"}, {"ipMasqBackend", `"frobnicate"`}, {"args", `{"cni":{"mac":"02:00:00"}}`}} {
				l.code(l.pod(fmt.Sprint("web", i)).add(conf(with(lan, keys...))), 7)
			}
		}},
		row{name: "isDefaultGateway for an address without a subnet or a gateway is refused", test: func(l *lab) {
			for _, address := range []string{"10.44.0.7/32", "fd00:44::7/128"} {
				l.refused(l.pod("web" + address[:2]).add(conf(with(lan, "isDefaultGateway", "true", "capabilities", "{}", "ipam", fixedIPs(address)))))
			}
		}},
		row{name: "a link that is no bridge is refused, and stays as it is", test: func(l *lab) {
			l.run("ip link add lan0 type veth peer name other0")
			web := l.pod("web")
			l.refuses(web, conf(lan), "lan0")
		}},
		row{name: "an argument of CNI_ARGS that nobody knows is refused", test: func(l *lab) {
			l.refused(l.pod("web").add(conf(layer2), args("COLOUR=green")), "COLOUR")
		}},
		row{name: "an argument of CNI_ARGS that nobody knows is taken with IgnoreUnknown", test: func(l *lab) {
			l.attach(conf(lan), "web", args("IgnoreUnknown=true", "COLOUR=green")).pings("10.44.0.1")
		}},
	)
}

// withoutSysctl is what the reference plugins say of an address of IPv6 where that is switched off.
const withoutSysctl = "its error has code 999, and names no sysctl"

// bridgeFailures is what ADD finds out on its way.
func bridgeFailures() []row {
	return append(bridgeMain.failures([]refusal{
		{name: "a bridge with another network's address", differs: noRollback, says: "10.9.9.1/24",
			prepare: func(l *lab, _ *container) {
				l.run("ip address flush dev lan0", "ip address add 10.9.9.1/24 dev lan0")
			}},
		{name: "an address that somebody else has, with enabledad", differs: noRollback, says: "fd00:44::7",
			keys:    []string{"enabledad", "true", "ipam", fixedIPs("fd00:44::7/64 fd00:44::1")},
			prepare: func(l *lab, _ *container) { l.attach(conf(with(lan, "ipam", fixedIPs("fd00:44::7/64"))), "first") }},
	}),
		row{name: "with IPv6 switched off on the host, ADD names the sysctls that switch it on, and changes nothing", differs: withoutSysctl, test: func(l *lab) {
			l.warm(conf(lan))
			l.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1 net.ipv6.conf.lan0.disable_ipv6=1")
			web := l.pod("web")
			l.undoes(web, conf(lan), "net.ipv6.conf.default.disable_ipv6=0 net.ipv6.conf.lan0.disable_ipv6=0")
			l.code(web.add(conf(lan)), 7, "IPv6 is off on lan0 of the host")
			l.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=0 net.ipv6.conf.lan0.disable_ipv6=0")
			l.must(web.add(conf(lan)))
			web.pings("fd00:44::1")
		}},
		row{name: "a second ADD without ipam is refused, and changes nothing", test: func(l *lab) {
			c := l.attach(conf(layer2), "web")
			l.refuses(c, conf(layer2), "eth0")
		}},
		row{name: "ADD after an ADD that failed succeeds", differs: noRollback, test: func(l *lab) {
			l.run("ip link add lan0 type bridge", "ip address add 10.9.9.1/24 dev lan0")
			c := l.pod("web")
			l.refused(c.add(conf(lan)), "lan0")
			l.run("ip address flush dev lan0")
			l.must(c.add(conf(lan)))
			c.pings("10.44.0.1")
		}},
	)
}
