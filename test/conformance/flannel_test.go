package conformance

import (
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// pods is a network as flannel's own manifest has it.
const pods = `{"type":"flannel","delegate":{"bridge":"pods0","hairpinMode":true,"isDefaultGateway":true}}`

// told is flannel with a script for a delegate, which keeps what it is told.
const told = `{"type":"flannel","delegate":{"type":"one"}}`

// What flannel's daemon says of a node.
const (
	subnetFile = "/run/flannel/subnet.env"
	inIPv4     = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	inBoth     = inIPv4 + "FLANNEL_IPV6_NETWORK=fd00:244::/48\nFLANNEL_IPV6_SUBNET=fd00:244:0:3::1/64\n"
)

var flannelRows = group{name: "flannel", rows: withSubnets(slices.Concat(flannelResults, flannelDelegates(), flannelRefusals(), flannelKept,
	flannelDels(), flannelMoreDels, flannelOthers, flannelChecks(), flannelStatus()))}

// withSubnets has the node have subnets of both families.
func withSubnets(rows []row) []row {
	for i, r := range rows {
		rows[i].test = func(l *lab) {
			l.write(subnetFile, inBoth)
			r.test(l)
		}
	}
	return rows
}

// Why the reference differs. No collection has it: these are known from its description.
const (
	oneFile   = "it keeps one file for each container"
	fileFirst = "without its file its DEL does nothing"
	noCheck   = "its CHECK does nothing"
)

// kept returns the names of the files that flannel keeps.
func (l *lab) kept() (names []string) {
	for _, path := range l.files("/var/lib/cni/flannel/*") {
		names = append(names, strings.TrimPrefix(path, "/var/lib/cni/flannel/"))
	}
	return names
}

// keptFile is the file of a container's first attachment.
func (c *container) keptFile() string { return "/var/lib/cni/flannel/" + c.ID }

var flannelResults = []row{
	{name: "the result, to the byte", test: func(l *lab) {
		l.write(subnetFile, inIPv4)
		l.printed(l.attach(conf(pods), "web").printed, `{"cniVersion":"1.0.0",
			"interfaces":[{"name":"pods0","mac":"MAC"},{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.244.3.2/24","gateway":"10.244.3.1","interface":2}],
			"routes":[{"dst":"10.244.0.0/16"},{"dst":"0.0.0.0/0","gw":"10.244.3.1"}]}`)
	}},
	{name: "the result in the version of flannel's own manifest, 0.3.1, to the byte", test: func(l *lab) {
		l.write(subnetFile, inIPv4)
		c := l.attach(conf(pods).in("0.3.1"), "web")
		l.printed(c.printed, `{"cniVersion":"0.3.1",
			"interfaces":[{"name":"pods0","mac":"MAC"},{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"version":"4","interface":2,"address":"10.244.3.2/24","gateway":"10.244.3.1"}],
			"routes":[{"dst":"10.244.0.0/16"},{"dst":"0.0.0.0/0","gw":"10.244.3.1"}],"dns":{}}`)
		l.must(c.del())
		l.gone(&c.Namespace, "eth0")
		l.same(l.kept(), []string(nil))
	}},
	{name: "containers have addresses of the node's subnets and reach each other and the node", test: func(l *lab) {
		web, client := l.attach(conf(pods), "web"), l.attach(conf(pods), "client")
		web.hasAddresses("10.244.3.2/24", "fd00:244:0:3::2/64")
		l.serve(&web.Namespace, 80)
		l.serve(&l.host.Namespace, 81)
		l.answers(tcp(&client.Namespace, "10.244.3.2", 80), "web saw 10.244.3.3")
		l.answers(tcp(&client.Namespace, "fd00:244:0:3::2", 80), "web saw fd00:244:0:3::3")
		l.answers(tcp(&l.host.Namespace, "10.244.3.2", 80), "web")
		l.answers(tcp(&client.Namespace, "10.244.3.1", 81), "host saw 10.244.3.3")
	}},
	{name: "the other nodes' networks are reached through the node, with the MTU of the way there", test: func(l *lab) {
		c := l.attach(conf(pods), "web")
		l.shows(c.routes("10.244.0.0/16"), "via 10.244.3.1", "dev eth0")
		l.shows(c.run("ip -6 route show fd00:244::/48"), "via fd00:244:0:3::1", "dev eth0")
		c.has("mtu", 1450)
	}},
	{name: "the bridge is the containers' gateway, unless the delegate says otherwise", test: func(l *lab) {
		l.attach(conf(`{"type":"flannel","delegate":{"bridge":"pods0"}}`), "web")
		l.same(l.addresses(&l.host.Namespace, "pods0"), []string{"10.244.3.1/24", "fd00:244:0:3::1/64"})
		l.attach(conf(`{"type":"flannel","delegate":{"bridge":"plain0","isGateway":false}}`), "other")
		l.same(l.addresses(&l.host.Namespace, "plain0"), []string{})
	}},
	{name: "what leaves the node is masqueraded where the daemon does not do it", test: func(l *lab) {
		l.serve(&l.outside().Namespace, 80)
		l.write(subnetFile, strings.Replace(inIPv4, "IPMASQ=true", "IPMASQ=false", 1))
		l.answers(tcp(&l.attach(conf(pods), "web").Namespace, netlab.OutsideIPv4, 80), "outside saw "+netlab.HostIPv4)
	}},
	{name: "a list with portmap publishes ports", test: func(l *lab) {
		c := l.attach(conf(pods, `{"type":"portmap","capabilities":{"portMappings":true}}`), "web", ports("8080:80/tcp"))
		l.serve(&c.Namespace, 80)
		l.answers(tcp(&l.outside().Namespace, netlab.HostIPv4, 8080), "web saw "+netlab.OutsideIPv4)
		l.must(c.check(), c.del())
		l.silent(tcp(&l.outside().Namespace, netlab.HostIPv4, 8080))
	}},
	{name: "the result of another plugin is handed on as it is", test: func(l *lab) {
		l.scripts()
		l.printed(l.attach(conf(told), "web").printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"made-by-one"}]}`)
	}},
}

// flannelDelegates are what the delegate is told.
func flannelDelegates() (rows []row) {
	const v4, v6 = `[{"subnet":"10.244.3.0/24"}]`, `[{"subnet":"fd00:244:0:3::/64"}]`
	const to4, to6 = `{"dst":"10.244.0.0/16"}`, `{"dst":"fd00:244::/48"}`
	for _, c := range []struct{ name, subnet, config, want string }{
		{"the delegate's configuration, to the byte", inIPv4, told,
			`"ipMasq":false,"mtu":1450,"ipam":{"type":"host-local","ranges":[` + v4 + `],"routes":[` + to4 + `]}`},
		{"both families", inBoth, told,
			`"ipMasq":false,"mtu":1450,"ipam":{"type":"host-local","ranges":[` + v4 + `,` + v6 + `],"routes":[` + to4 + `,` + to6 + `]}`},
		{"IPv6 alone", strings.NewReplacer("NETWORK=10.244.0.0/16", "IPV6_NETWORK=fd00:244::/48", "SUBNET=10.244.3.1/24", "IPV6_SUBNET=fd00:244:0:3::1/64").Replace(inIPv4), told,
			`"ipMasq":false,"mtu":1450,"ipam":{"type":"host-local","ranges":[` + v6 + `],"routes":[` + to6 + `]}`},
		{"several networks, some of them twice", inIPv4 + "FLANNEL_NETWORK=10.244.0.0/16,10.250.7.0/16,10.244.0.0/16\nFLANNEL_IPV6_NETWORK=\n# and more\n", told,
			`"ipMasq":false,"mtu":1450,"ipam":{"type":"host-local","ranges":[` + v4 + `],"routes":[` + to4 + `,{"dst":"10.250.0.0/16"}]}`},
		{"it masquerades if the daemon does not", strings.Replace(inIPv4, "true", "no", 1), told,
			`"ipMasq":true,"mtu":1450,"ipam":{"type":"host-local","ranges":[` + v4 + `],"routes":[` + to4 + `]}`},
		{"what it has itself it keeps", inIPv4, `{"type":"flannel","delegate":{"type":"one","MTU":1300,"ipMasq":true,"isGateway":false,"more":[{"x":null}]}}`,
			`"MTU":1300,"ipMasq":true,"isGateway":false,"more":[{"x":null}],"ipam":{"type":"host-local","ranges":[` + v4 + `],"routes":[` + to4 + `]}`},
		{"ipam is completed", inIPv4, with(told, "ipam", `{"type":"static","ranges":[],"routes":[{"dst":"192.0.2.0/24","gw":"10.244.3.9"}],"dataDir":"/x"}`),
			`"ipMasq":false,"mtu":1450,"ipam":{"type":"static","ranges":[` + v4 + `],"routes":[{"dst":"192.0.2.0/24","gw":"10.244.3.9"},` + to4 + `],"dataDir":"/x"}`},
		{"runtimeConfig is handed on, and nothing else", inIPv4,
			with(told, "capabilities", `{"mac":true}`, "runtimeConfig", `{"mac":"02:00:00:00:00:01"}`, "dns", `{"domain":"x"}`, "args", `{"cni":{}}`, "prevResult", handedOn("1.0.0")),
			`"runtimeConfig":{"mac":"02:00:00:00:00:01"},"ipMasq":false,"mtu":1450,"ipam":{"type":"host-local","ranges":[` + v4 + `],"routes":[` + to4 + `]}`},
		{"keys in any case", inIPv4, `{"type":"flannel","DELEGATE":{"Type":"one","IPMASQ":true},"Ipam":{"Type":"dhcp"}}`,
			`"IPMASQ":true,"mtu":1450,"ipam":{"type":"dhcp","ranges":[` + v4 + `],"routes":[` + to4 + `]}`},
		{"subnetFile is where the daemon says it", "", with(told, "subnetFile", `"/run/other.env"`),
			`"ipMasq":false,"mtu":8900,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.9.9.0/24"}]],"routes":[{"dst":"10.9.0.0/16"}]}`},
	} {
		rows = append(rows, row{name: "the delegate's configuration: " + c.name, test: func(l *lab) {
			l.scripts()
			l.write(subnetFile, c.subnet)
			l.write("/run/other.env", "FLANNEL_NETWORK=10.9.0.0/16\nFLANNEL_SUBNET=10.9.9.1/24\nFLANNEL_MTU=8900\nFLANNEL_IPMASQ=true")
			l.must(l.verb("ADD", l.pod("web"), c.config))
			l.same(tidy(l.read("/run/one.ADD")), tidy(`{"cniVersion":"1.0.0","name":"lan","type":"one",`+c.want+`}`))
		}})
	}
	return rows
}

// flannelRefusals are ADDs that are refused before anything is called.
func flannelRefusals() (rows []row) {
	for _, c := range []struct {
		name, subnet, config, says string
		code                       uint
	}{
		{name: "no subnet yet", subnet: "-", says: subnetFile, code: 11},
		{name: "a subnet file that is empty", subnet: "\n", says: "FLANNEL_NETWORK or FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET or FLANNEL_IPV6_SUBNET, FLANNEL_MTU, FLANNEL_IPMASQ", code: 11},
		{name: "a subnet file without the network", subnet: strings.Replace(inIPv4, "NETWORK", "NET", 1), says: "FLANNEL_NETWORK", code: 11},
		{name: "a subnet file without the subnet", subnet: strings.Replace(inIPv4, "SUBNET=", "SUBNET", 1), says: "FLANNEL_SUBNET", code: 11},
		{name: "a subnet file without the MTU", subnet: strings.Replace(inIPv4, "1450", "", 1), says: "FLANNEL_MTU", code: 11},
		{name: "a subnet file without the masquerading", subnet: strings.Replace(inIPv4, "IPMASQ", "MASQ", 1), says: "FLANNEL_IPMASQ", code: 11},
		{name: "a subnet that is none", subnet: inIPv4 + "FLANNEL_IPV6_SUBNET=fd00::x/64", says: "FLANNEL_IPV6_SUBNET", code: 11},
		{name: "an MTU that is none", subnet: strings.Replace(inIPv4, "1450", "-1", 1), says: "FLANNEL_MTU", code: 11},
		{name: "a delegate with a name", config: `{"type":"flannel","delegate":{"type":"one","name":"x"}}`, says: "delegate.name", code: 7},
		{name: "a delegate with ipam", config: `{"type":"flannel","delegate":{"type":"one","ipam":{}}}`, says: "delegate.ipam", code: 7},
		{name: "a delegate whose type is no text", config: `{"type":"flannel","delegate":{"type":7}}`, says: "delegate.type", code: 7},
		{name: "a delegate that is none", config: `{"type":"flannel","delegate":"one"}`, says: "delegate", code: 7},
		{name: "a delegate that is not installed", config: `{"type":"flannel","delegate":{"type":"nowhere"}}`, says: "nowhere", code: 7},
		{name: "itself for a delegate", config: `{"type":"flannel","delegate":{"type":"flannel"}}`, says: "delegate.type", code: 7},
		{name: "a delegate that makes no interface", config: `{"type":"flannel","delegate":{"type":"tuning"}}`, says: "delegate.type", code: 7},
		{name: "an ipam that is none", config: with(told, "ipam", `[]`), says: "ipam", code: 7},
		{name: "a route of ipam that is none", config: with(told, "ipam", `{"routes":[{"dst":"x"}]}`), says: "ipam.routes[0].dst", code: 7},
		{name: "a runtimeConfig that is none", config: with(told, "runtimeConfig", `[]`), says: "runtimeConfig", code: 7},
		{name: "a subnetFile without a leading slash", config: with(told, "subnetFile", `"subnet.env"`), says: "subnetFile", code: 7},
		{name: "a dataDir without a leading slash", config: with(told, "dataDir", `"flannel"`), says: "dataDir", code: 7},
		{name: "a dataDir that can't be written to", config: with(told, "dataDir", `"/run/flannel/subnet.env/x"`), says: "dataDir", code: 5},
	} {
		rows = append(rows, row{name: c.name + " is refused, and nothing is called", differs: always999, test: func(l *lab) {
			l.scripts()
			switch c.subnet {
			case "":
			case "-":
				l.remove(subnetFile)
			default:
				l.write(subnetFile, c.subnet)
			}
			if c.config == "" {
				c.config = told
			}
			web := l.pod("web")
			before := l.now(web)
			l.code(l.verb("ADD", web, c.config), c.code, c.says)
			before.unchanged()
			l.refused(l.verb("STATUS", nil, with(c.config, "cniVersion", `"1.1.0"`)))
		}})
	}
	return rows
}

var flannelKept = []row{
	{name: "the delegate's configuration is kept as the reference plugin does it", test: func(l *lab) {
		l.scripts()
		c := l.attach(conf(told), "web")
		l.same(l.kept(), []string{c.ID})
		l.same(l.run("stat -c %a,%a "+c.keptFile()), "600,600\n")
		l.same(l.run("stat -c %a /var/lib/cni/flannel"), "700\n")
		kept := object(l.read(c.keptFile()))
		l.same(kept["cnibox/ifName"], "eth0")
		delete(kept, "cnibox/ifName")
		l.same(tidy(text(kept)), tidy(l.read("/run/one.ADD")))
	}},
	{name: "what is kept is all that the delegate's DEL needs, so that the reference plugin's can call it", test: func(l *lab) {
		n := conf(strings.Replace(pods, `"bridge"`, `"ipMasq":true,"bridge"`, 1))
		before := l.warmed(n)
		c := l.attach(n, "web")
		l.must(l.verb("DEL", c, l.read(c.keptFile()), noNetns))
		c.Delete(l)
		l.remove(c.keptFile())
		before.unchanged()
	}},
	{name: "dataDir is where it is kept", test: func(l *lab) {
		l.scripts()
		c := l.attach(conf(with(told, "dataDir", `"/var/lib/cni/own/"`)), "web")
		l.same(l.files("/var/lib/cni/own/*"), []string{"/var/lib/cni/own/" + c.ID})
		l.same(l.kept(), []string(nil))
		l.must(c.del())
		l.same(l.files("/var/lib/cni/own/*"), []string(nil))
	}},
	{name: "an ADD that fails keeps nothing", differs: "its failed ADD leaves the file", test: func(l *lab) {
		l.warm(conf(pods))
		web := l.pod("web")
		l.now(web).refused(web.add(conf(with(pods, "delegate", `{"bridge":"pods0","mtu":17}`))), "mtu")
	}},
	{name: "a second ADD is refused, and harms nothing", test: func(l *lab) {
		l.script("wrapped", `exec `+netlab.PluginDir+`/bridge`) // which its DEL would remove
		for i, config := range []string{pods, with(pods, "delegate", `{"type":"wrapped","bridge":"pods0","isGateway":true}`)} {
			c := l.attach(conf(config), []string{"web", "other"}[i])
			l.now(c).refused(c.add(conf(config)), "eth0")
			l.must(c.check())
		}
	}},
	{name: "ADD again after one that was killed leaves one file", test: func(l *lab) {
		c := l.pod("web")
		l.write(c.keptFile(), `{"name":"lan","type":"gone","cnibox/ifName":"eth0"}`)
		l.must(c.add(conf(pods)))
		l.same(l.kept(), []string{c.ID})
		l.must(c.del())
		l.same(l.kept(), []string(nil))
	}},
}

// flannelDels attach a container, have DEL find it in some state, and compare with what was there before.
func flannelDels() (rows []row) {
	set := func(content string) func(*lab, *container) {
		return func(l *lab, c *container) { l.write(c.keptFile(), content) }
	}
	for _, c := range []struct {
		name, differs string
		state         func(l *lab, c *container)
		bare          bool
	}{
		{name: "DEL leaves nothing"},
		{name: "DEL without a result leaves nothing", state: func(l *lab, _ *container) { l.forget() }},
		{name: "DEL with the namespace gone leaves nothing", state: func(l *lab, c *container) { c.Delete(l) }},
		{name: "DEL with the namespace gone and no result leaves nothing", state: func(l *lab, c *container) { c.Delete(l); l.forget() }},
		{name: "DEL with a file left at the namespace's path leaves nothing", state: func(l *lab, c *container) { c.DeleteKeepFile(l) }},
		{name: "DEL without the namespace's path and without a result leaves nothing", bare: true},
		{name: "DEL with the interface gone leaves nothing", state: func(_ *lab, c *container) { c.run("ip link del eth0") }},
		{name: "DEL without the daemon's file leaves nothing", state: func(l *lab, _ *container) { l.remove(subnetFile) }},
		{name: "DEL with another subnet leaves nothing", state: func(l *lab, _ *container) {
			l.write(subnetFile, strings.ReplaceAll(inIPv4, "10.244.3", "10.244.9"))
		}},
		{name: "DEL without what was kept leaves nothing", differs: fileFirst, state: func(l *lab, c *container) { l.remove(c.keptFile()) }},
		{name: "DEL without what was kept, the daemon's file and the namespace leaves nothing", differs: fileFirst, state: func(l *lab, c *container) {
			l.remove("/var/lib/cni/flannel/", subnetFile)
			c.Delete(l)
			l.forget()
		}},
		{name: "DEL with an empty file leaves nothing", differs: fileFirst, state: set("")},
		{name: "DEL with a torn file leaves nothing", differs: fileFirst, state: set(`{"cniVersion":"1.0.0","name":"la`)},
		{name: "DEL with a file of something else leaves nothing", differs: fileFirst, state: set(`{"name":"lan","type":7}`)},
		{name: "DEL with another delegate configured leaves nothing", state: func(_ *lab, c *container) {
			c.network = conf(`{"type":"flannel","delegate":{"type":"macvlan","master":"none0"},"ipam":{"type":"static"}}`)
		}},
		{name: "DEL with a configuration that ADD refuses leaves nothing", differs: "it reads all keys for DEL", state: func(_ *lab, c *container) {
			c.network = conf(`{"type":"flannel","delegate":7,"subnetFile":[],"dataDir":"y","runtimeConfig":1}`)
		}},
		{name: "DEL twice is no error", state: func(l *lab, c *container) { l.must(c.del()) }},
	} {
		rows = append(rows, row{name: c.name, differs: c.differs, test: func(l *lab) {
			const list = `{"type":"flannel","delegate":{"bridge":"pods0","isDefaultGateway":true,"ipMasq":true}}`
			l.warm(conf(list))
			web := l.pod("web")
			before := l.now()
			l.must(web.add(conf(list)))
			if c.state != nil {
				c.state(l, web)
			}
			del := web.del
			if c.bare {
				del = web.delBare
			}
			for range 2 {
				l.must(del())
			}
			l.eventually(func() string { return flannelLeft(before) })
		}})
	}
	return rows
}

// flannelLeft is what there is more than before, without the daemon's file and what has taken things away.
func flannelLeft(before *state) (left string) {
	for line := range strings.Lines(before.changed()) {
		if strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+ file /run/flannel") {
			left += line
		}
	}
	return left
}

var flannelMoreDels = []row{
	{name: "DEL can be repeated after one that failed", differs: "it removes its file though the delegate's DEL has failed", test: func(l *lab) {
		l.script("moody", `if test "$CNI_COMMAND" = DEL && test -e /run/moody; then echo '{"code":105,"msg":"not now"}'; exit 1; fi
			exec `+netlab.PluginDir+`/bridge`)
		n := conf(`{"type":"flannel","delegate":{"type":"moody","bridge":"pods0","isGateway":true,"ipMasq":true}}`)
		before := l.warmed(n)
		c := l.attach(n, "web")
		l.write("/run/moody", "")
		l.remove(subnetFile)
		c.network = conf(`{"type":"flannel","delegate":{"type":"nowhere"}}`)
		c.Delete(l)
		for range 2 {
			l.refused(c.del(), "not now")
		}
		l.same(l.kept(), []string{c.ID})
		l.remove("/run/moody")
		l.must(c.del())
		l.write(subnetFile, inBoth)
		before.unchanged()
	}},
	{name: "DEL calls the delegate as ADD did, with the result", differs: "it hands on no result", test: func(l *lab) {
		l.scripts()
		c := l.attach(conf(with(told, "ipam", `{"type":"x"}`)), "web")
		added := l.read("/run/one.ADD")
		l.write(subnetFile, strings.ReplaceAll(inIPv4, "10.244.3", "10.244.9"))
		c.network = conf(told)
		l.must(c.del())
		told := object(l.read("/run/one.DEL"))
		l.same(text(told["prevResult"]), `{"cniVersion":"1.0.0","interfaces":[{"name":"made-by-one"}]}`)
		delete(told, "prevResult")
		delete(told, "cnibox/ifName")
		l.same(tidy(text(told)), tidy(added))
	}},
	{name: "DEL of what was never added is no error, with a node that has no subnet too", test: func(l *lab) {
		l.remove(subnetFile)
		c := l.never(conf(pods), "web")
		l.now(c).unchangedBy(c.del(), c.delBare())
	}},
	{name: "DEL finds what the reference plugin kept", test: func(l *lab) {
		l.scripts()
		c := l.never(conf(pods), "web")
		l.write(c.keptFile(), `{"cniVersion":"1.0.0","ipam":{"type":"host-local"},"mtu":1234,"name":"lan","type":"one"}`)
		l.must(c.del())
		l.same(tidy(l.read("/run/one.DEL")), tidy(`{"cniVersion":"1.0.0","ipam":{"type":"host-local"},"mtu":1234,"name":"lan","type":"one"}`))
		l.same(l.kept(), []string(nil))
	}},
	{name: "DEL leaves what was kept of another network's attachment", differs: oneFile, test: func(l *lab) {
		l.scripts()
		c := l.attach(conf(told), "web")
		l.calls()
		c.network = conf(pods).called("late")
		l.must(c.del())
		l.same(l.kept(), []string{c.ID})
		l.same(l.calls(), "")
	}},
}

var flannelOthers = []row{
	{name: "a container has several attachments, each with a DEL of its own", differs: oneFile, test: func(l *lab) {
		n, second := conf(pods), conf(strings.Replace(pods, "pods0", "more0", 1), `{"type":"portmap"}`).called("more")
		l.warm(n)
		before := l.warmed(second)
		c := l.attach(n, "web")
		net1, net2 := c.withIfname("net1"), c.withIfname("net2")
		l.must(net1.add(n), net2.add(second))
		l.same(l.addresses(&c.Namespace, "eth0"), []string{"10.244.3.3/24", "fd00:244:0:3::3/64"})
		l.same(l.addresses(&c.Namespace, "net1"), []string{"10.244.3.4/24", "fd00:244:0:3::4/64"})
		l.same(l.kept(), []string{c.ID, c.ID + ":net1:lan", c.ID + ":net2:more"})
		for _, a := range []*container{c, net1, net2} {
			l.must(a.check())
		}
		l.must(c.del(), net1.check(), net2.check())
		l.pings(&l.host.Namespace, net1.v4)
		l.must(c.add(n)) // and back
		l.must(net1.del(), c.check(), net2.check())
		c.Delete(l)
		l.must(net2.del(), c.del())
		l.same(l.kept(), []string(nil))
		before.unchanged()
	}},
	{name: "an attachment beside one of the reference plugin has a file of its own", differs: oneFile, test: func(l *lab) {
		l.scripts()
		c := l.pod("web")
		const reference = `{"cniVersion":"1.0.0","name":"lan","type":"one","mtu":1234}`
		l.write(c.keptFile(), reference)
		net1 := c.attach(conf(pods), "net1")
		l.must(net1.del())
		l.same(l.read(c.keptFile()), reference)
		l.same(l.kept(), []string{c.ID})
	}},
	{name: "GC removes attachments that are not valid, and what was kept of them", differs: noGC, test: func(l *lab) {
		keep := l.attach(conf(pods), "keep")
		before := l.warmed(conf(pods))
		gone := l.attach(conf(pods), "gone")
		gone.attach(conf(pods), "net1")
		gone.Delete(l)
		l.forget()
		l.remove(subnetFile)
		l.must(l.gc(conf(pods), keep))
		l.same(l.kept(), []string{keep.ID})
		l.eventually(func() string { return flannelLeft(before) })
		l.pings(&l.host.Namespace, keep.v4)
	}},
	{name: "GC keeps what the DEL of valid attachments needs", test: func(l *lab) {
		c := l.attach(conf(pods), "web")
		net1 := c.attach(conf(pods), "net1")
		other := l.attach(conf(strings.Replace(pods, "pods0", "more0", 1)).called("more"), "other")
		l.write("/var/lib/cni/flannel/torn", "{")
		l.now(c, other).unchangedBy(l.gc(conf(pods), c, net1))
	}},
	{name: "GC of an attachment whose container has another one that is valid", differs: noGC, test: func(l *lab) {
		c := l.attach(conf(pods), "web")
		net1 := c.attach(conf(pods), "net1")
		l.must(l.gc(conf(pods), net1))
		l.same(l.kept(), []string{c.ID + ":net1:lan"})
		l.must(net1.check())
	}},
	{name: "GC knows what the reference plugin kept by the container", differs: noGC, test: func(l *lab) {
		l.scripts()
		const reference = `{"cniVersion":"1.0.0","name":"lan","type":"one"}`
		valid, gone := l.pod("valid"), l.pod("gone")
		l.write(valid.keptFile(), reference)
		l.write(gone.keptFile(), reference)
		l.must(l.gc(conf(told), valid.withIfname("net7")))
		l.same(l.kept(), []string{valid.ID})
	}},
	{name: "GC that the delegate fails keeps what was kept", differs: noGC, test: func(l *lab) {
		l.scripts()
		l.failing("one GC")
		c := l.attach(conf(told), "web")
		l.refused(l.gc(conf(told)), "one is closed")
		l.same(l.kept(), []string{c.ID})
	}},
}

// flannelChecks attach a container, do something, and have CHECK find it or not.
func flannelChecks() (rows []row) {
	for _, c := range []struct {
		name, says string // nothing to say: CHECK succeeds
		do         []string
	}{
		{name: "CHECK finds nothing", do: nil},
		{name: "CHECK minds neither another subnet nor none", do: []string{"rm " + subnetFile}},
		{name: "CHECK works without what was kept", do: []string{"rm -r /var/lib/cni/flannel"}},
		{name: "CHECK finds that the interface is gone", says: "eth0", do: []string{"ip -n web link del eth0"}},
		{name: "CHECK finds that the interface is down", says: "eth0", do: []string{"ip -n web link set eth0 down"}},
		{name: "CHECK finds that the address is gone", says: "10.244.3.2", do: []string{"ip -n web address flush dev eth0"}},
		{name: "CHECK finds that the route to other nodes is gone", says: "10.244.0.0", do: []string{"ip -n web route del 10.244.0.0/16"}},
		{name: "CHECK finds that the lease is gone", says: "10.244.3.2", do: []string{"rm -r /var/lib/cni/networks/lan"}},
	} {
		differs := noCheck
		if c.says == "" {
			differs = ""
		}
		rows = append(rows, row{name: c.name, differs: differs, test: func(l *lab) {
			web := l.attach(conf(pods), "web")
			for _, command := range c.do {
				l.run(command)
			}
			if c.says == "" {
				l.must(web.check())
				return
			}
			l.refused(web.check(), c.says)
		}})
	}
	return append(rows, row{name: "CHECK without a subnet and what was kept asks to be repeated", differs: noCheck, test: func(l *lab) {
		web := l.attach(conf(pods), "web")
		l.remove("/var/lib/cni/flannel", subnetFile)
		l.code(web.check(), 11)
	}})
}

func flannelStatus() []row {
	return append(aboutPlugin("flannel", pods), []row{
		{name: "STATUS of a node that has a subnet", test: func(l *lab) { l.must(l.status(conf(pods))) }},
		{name: "STATUS of a node that has none has code 50", differs: noStatus, test: func(l *lab) {
			l.remove(subnetFile)
			l.code(l.status(conf(pods)), 50)
			l.refused(l.status(conf(pods)), subnetFile, "daemon")
			l.write(subnetFile, "FLANNEL_MTU=1450\n")
			l.code(l.status(conf(pods)), 50)
		}},
		{name: "STATUS is that of the delegate", differs: noStatus, test: func(l *lab) {
			l.scripts()
			l.must(l.status(conf(told)))
			l.failing("one STATUS")
			l.code(l.status(conf(told)), 105)
			l.refused(l.status(conf(with(pods, "ipam", `{"type":"nowhere"}`))), "nowhere")
		}},
		{name: "STATUS has code 50 when nothing can be kept", differs: noStatus, test: func(l *lab) {
			l.run("mount -o remount,bind,ro /var/lib/cni")
			l.code(l.status(conf(told)), 7)
			l.scripts()
			l.code(l.status(conf(told)), 50)
			l.refused(l.status(conf(told)), "/var/lib/cni", "dataDir")
		}},
	}...)
}
