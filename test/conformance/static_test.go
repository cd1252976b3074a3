package conformance

import (
	"slices"
	"strings"
)

var staticRows = group{name: "static", rows: slices.Concat(staticResults, staticAddresses(), staticErrors(), staticEdits(), namespacesOf(ofStatic(oneAddress)))}

const (
	oneAddress   = `"addresses":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}]`
	twoAddresses = `"addresses":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"fd00::3/64"}]`
)

// ofStatic returns static's configuration with keys of ipam, and more pairs of keys and values beside ipam.
func ofStatic(keys string, beside ...string) string {
	return with(`{"type":"static","ipam":{`+strings.TrimSuffix(`"type":"static",`+keys, ",")+`}}`, beside...)
}

// fixed returns the network lan, a bridge whose containers get addresses of static.
func fixed(keys string, beside ...string) network {
	return conf(with(ofStatic(keys, beside...), "type", `"bridge"`, "bridge", `"lan0"`, "capabilities", `{"ips":true}`))
}

var staticResults = []row{
	{name: "the result, to the byte", test: func(l *lab) {
		out, err := l.exec("ADD", l.pod("web"), ofStatic(twoAddresses+`,"routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1"},{"dst":"::/0"}],
			"dns":{"nameservers":["192.0.2.1"],"domain":"a.example","search":["b.example"],"options":["ndots:5"]}`))
		l.must(err)
		l.printed(out, `{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"fd00::3/64"}],
			"routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1"},{"dst":"::/0"}],
			"dns":{"nameservers":["192.0.2.1"],"domain":"a.example","search":["b.example"],"options":["ndots:5"]}}`)
	}},
	{name: "the result of version 0.2.0, to the byte", test: func(l *lab) {
		out := l.answer("ADD", l.pod("web"), ofStatic(twoAddresses+`,"routes":[{"dst":"0.0.0.0/0"}]`, "cniVersion", `"0.2.0"`))
		l.printed(out, `{"cniVersion":"0.2.0","ip4":{"ip":"10.1.2.3/24","gateway":"10.1.2.1","routes":[{"dst":"0.0.0.0/0"}]},"ip6":{"ip":"fd00::3/64"},"dns":{}}`)
	}},
	{name: "routes go into the result with all their keys", test: func(l *lab) {
		const routes = `[{"dst":"192.168.0.0/16","gw":"10.1.2.9","mtu":1400,"advmss":1300,"priority":7,"table":100,"scope":253}]`
		out := l.answer("ADD", l.pod("web"), ofStatic(oneAddress+`,"routes":`+routes, "cniVersion", `"1.1.0"`))
		l.printed(text(object(out)["routes"]), routes)
	}},
	{name: "the container has the addresses, the routes and the dns", test: func(l *lab) {
		c := l.attach(fixed(twoAddresses+`,"routes":[{"dst":"192.168.0.0/16"}],"dns":{"nameservers":["192.0.2.1"]}`), "web")
		c.hasAddresses("10.1.2.3/24", "fd00::3/64")
		l.shows(c.run("ip route"), "192.168.0.0/16 via 10.1.2.1 dev eth0")
		l.printed(text(object(c.printed)["dns"]), `{"nameservers":["192.0.2.1"]}`)
	}},
	{name: "no address is a result without any", test: func(l *lab) {
		out := l.answer("ADD", l.pod("web"), ofStatic(`"routes":[{"dst":"0.0.0.0/0"}]`))
		l.printed(out, `{"cniVersion":"1.0.0","routes":[{"dst":"0.0.0.0/0"}]}`)
	}},
	{name: "the dns beside ipam is not static's", test: func(l *lab) {
		out := l.answer("ADD", l.pod("web"), ofStatic(oneAddress, "dns", `{"nameservers":["192.0.2.1"]}`))
		l.lacks(out, "192.0.2.1")
	}},
	{name: "what the reference plugin prints of its own settings is read, which has address and Address", test: func(l *lab) {
		out, err := l.exec("ADD", l.pod("web"), ofStatic(""), raw(`{"cniVersion":"1.0.0","name":"lan","type":"static","ipam":{"type":"static",
			"addresses":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","Address":{"IP":"10.1.2.3","Mask":"////AA=="},"Version":"4"}]}}`))
		l.must(err)
		l.printed(out, `{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}]}`)
	}},
	{name: "keys are matched in any case", test: func(l *lab) {
		l.attach(fixed(`"Addresses":[{"ADDRESS":"10.1.2.3/24","GateWay":"10.1.2.1"}]`), "web").ips("10.1.2.3/24>10.1.2.1")
	}},
	{name: "two addresses of a family need version 0.3.0", test: func(l *lab) {
		const two = `"addresses":[{"address":"10.1.2.3/24"},{"address":"10.1.3.3/24"}]`
		l.refused(l.verb("ADD", l.pod("web"), ofStatic(two, "cniVersion", `"0.2.0"`)), "0.2.0")
		out := l.answer("ADD", l.pod("db"), ofStatic(two, "cniVersion", `"0.3.0"`))
		l.same(l.ipsOf(out), "10.1.2.3/24 10.1.3.3/24")
	}},
	{name: "nothing but the runtime's result is kept", test: func(l *lab) { l.now().unchangedBy(l.verb("ADD", l.pod("web"), ofStatic(twoAddresses))) }},
	{name: "two containers may have the same address", test: func(l *lab) {
		for _, name := range []string{"web", "db"} {
			out := l.answer("ADD", l.pod(name), ofStatic(oneAddress))
			l.same(l.ipsOf(out), "10.1.2.3/24>10.1.2.1")
		}
	}},
	{name: "DEL succeeds, whatever is configured", test: func(l *lab) {
		c := l.pod("web")
		for _, config := range []string{ofStatic(twoAddresses), ofStatic(`"addresses":7`), ofStatic(`"addresses":[{"address":"x"}]`), `{"type":"static"}`} {
			l.must(l.verb("DEL", c, config, noNetns, cniArgs("nonsense")))
		}
	}},
	{name: "DEL of a bridge with an edited configuration succeeds", test: func(l *lab) {
		c := l.attach(fixed(twoAddresses), "web")
		c.network = fixed(`"addresses":[{"address":"somewhere"}]`)
		l.must(c.del())
		l.gone(&c.Namespace, "eth0")
	}},
	{name: "CHECK succeeds after ADD", test: func(l *lab) {
		l.must(l.attach(fixed(twoAddresses), "web").check(), l.attach(fixed(`"addresses":[]`), "db", capability("ips", `["10.1.2.9/24"]`)).check())
	}},
	{name: "CHECK looks at the addresses of its interface", differs: refAbsent, test: func(l *lab) {
		_, err := l.exec("CHECK", l.pod("web"), ofStatic(oneAddress, "prevResult", `{"cniVersion":"1.0.0",
			"interfaces":[{"name":"eth0","sandbox":"/run/netns/web"},{"name":"eth1","sandbox":"/run/netns/web"}],"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":1}]}`))
		l.refused(err, "10.1.2.3", "eth0")
	}},
	{name: "CHECK does not mind addresses and gateways that are not configured", test: func(l *lab) {
		l.must(l.verb("CHECK", l.pod("web"), ofStatic(`"addresses":[{"address":"10.1.2.3/24"}]`, "prevResult",
			`{"cniVersion":"1.0.0","ips":[{"address":"192.0.2.1/24"},{"address":"10.1.2.3/24","gateway":"10.1.2.1"}]}`)))
	}},
	{name: "CHECK needs the result of ADD", test: func(l *lab) { l.refused(l.verb("CHECK", l.pod("web"), ofStatic(oneAddress)), "prevResult") }},
	{name: "GC succeeds", test: func(l *lab) {
		c := l.attach(fixed(oneAddress), "web")
		l.must(l.gc(fixed(oneAddress), c), c.check())
	}},
	{name: "STATUS succeeds with a valid configuration, and changes nothing", test: func(l *lab) { l.now().unchangedBy(l.status(fixed(twoAddresses))) }},
	{name: "STATUS fails with an invalid configuration", differs: noStatus, test: func(l *lab) {
		l.refused(l.status(fixed(`"addresses":[{"address":"10.1.2.3"}]`)), "10.1.2.3")
	}},
	{name: "an invalid configuration has code 7", differs: always999, test: func(l *lab) {
		l.code(l.verb("ADD", l.pod("web"), ofStatic(`"addresses":[{"address":"10.1.2.3"}]`)), 7)
	}},
}

const (
	refAbsent  = "its CHECK does not mind an address that the container does not have"
	refGateway = "it applies GATEWAY to the addresses of CNI_ARGS only"
)

// staticAddresses are rows about where addresses come from.
func staticAddresses() (rows []row) {
	all := []string{"args", `{"cni":{"ips":["10.5.0.5/16"]}}`}
	for _, r := range []struct {
		name, keys string
		beside     []string
		options    []option
		want       string
		differs    string
	}{
		{name: "the configured addresses, in their order", keys: `"addresses":[{"address":"fd00::3/64","gateway":"fd00::1"},{"address":"10.1.2.3/24"}]`, want: "fd00::3/64>fd00::1 10.1.2.3/24"},
		{name: "IP of CNI_ARGS is added to the configured addresses", keys: twoAddresses, options: []option{args("IgnoreUnknown=1", "IP=10.4.0.4/16")}, want: "10.1.2.3/24>10.1.2.1 fd00::3/64 10.4.0.4/16"},
		{name: "IP of CNI_ARGS can be several, with blanks", options: []option{args("IgnoreUnknown=1", "IP=10.4.0.4/16, fd04::4/64")}, want: "10.4.0.4/16 fd04::4/64"},
		{name: "GATEWAY of CNI_ARGS is for the addresses of IP in its network", options: []option{args("IgnoreUnknown=1", "IP=10.4.0.4/16,fd04::4/64", "GATEWAY=fd04::1, 10.4.0.1")}, want: "10.4.0.4/16>10.4.0.1 fd04::4/64>fd04::1"},
		{name: "GATEWAY of CNI_ARGS is for configured addresses in its network, too", keys: twoAddresses, options: []option{args("IgnoreUnknown=1", "GATEWAY=10.1.2.254,fd00::1")},
			want: "10.1.2.3/24>10.1.2.254 fd00::3/64>fd00::1", differs: refGateway},
		{name: "GATEWAY of CNI_ARGS in no address's network is ignored", keys: twoAddresses, options: []option{args("IgnoreUnknown=1", "GATEWAY=192.0.2.1")}, want: "10.1.2.3/24>10.1.2.1 fd00::3/64"},
		{name: "args.cni.ips replaces the configured addresses and IP of CNI_ARGS", keys: twoAddresses, beside: all, options: []option{args("IgnoreUnknown=1", "IP=10.4.0.4/16", "GATEWAY=10.5.0.1")}, want: "10.5.0.5/16"},
		{name: "the capability ips replaces all others", keys: twoAddresses, beside: all,
			options: []option{args("IgnoreUnknown=1", "IP=10.4.0.4/16", "GATEWAY=10.6.0.1"), capability("ips", `["10.6.0.6/16","fd06::6/64"]`)}, want: "10.6.0.6/16 fd06::6/64"},
		{name: "empty lists replace nothing", keys: twoAddresses, beside: []string{"args", `{"cni":{"ips":[]}}`}, options: []option{capability("ips", `[]`)}, want: "10.1.2.3/24>10.1.2.1 fd00::3/64"},
		{name: "what is replaced may be a placeholder", keys: `"addresses":[{"address":"set at run time"}]`, options: []option{capability("ips", `["10.6.0.6/16"]`)}, want: "10.6.0.6/16"},
	} {
		rows = append(rows, row{name: r.name, differs: r.differs, test: func(l *lab) {
			l.attach(fixed(r.keys, r.beside...), "web", r.options...).ips(r.want)
		}})
	}
	return append(rows, row{name: "CNI_ARGS needs no IgnoreUnknown for IP and GATEWAY", test: func(l *lab) {
		out := l.answer("ADD", l.pod("web"), ofStatic(``), cniArgs("IP=10.4.0.4/16;GATEWAY=10.4.0.1"))
		l.same(l.ipsOf(out), "10.4.0.4/16>10.4.0.1")
	}})
}

// staticEdits are rows about a configuration that was edited since ADD.
func staticEdits() (rows []row) {
	for _, c := range []struct{ name, keys, says, differs string }{
		{"an address was added to", twoAddresses, "fd00::3", refAbsent},
		{"an address was changed in", `"addresses":[{"address":"10.1.2.4/24","gateway":"10.1.2.1"}]`, "10.1.2.4", refAbsent},
		{"a prefix length was changed in", `"addresses":[{"address":"10.1.2.3/16","gateway":"10.1.2.1"}]`, "10.1.2.3/16", refAbsent},
		{"a gateway was changed in", `"addresses":[{"address":"10.1.2.3/24","gateway":"10.1.2.254"}]`, "10.1.2.3", ""},
	} {
		rows = append(rows, row{name: "CHECK notices that " + c.name + " the configuration", differs: c.differs, test: func(l *lab) {
			web := l.attach(fixed(oneAddress), "web")
			web.network = fixed(c.keys)
			l.refused(web.check(), c.says)
		}})
	}
	return rows
}

// staticErrors are rows about what is refused.
func staticErrors() (rows []row) {
	for _, r := range []struct {
		name, config, args string
		parts              []string
		differs            string
	}{
		{name: "no ipam", config: `{"type":"static"}`, parts: []string{"ipam"}},
		{name: "an address without prefix length", config: ofStatic(`"addresses":[{"address":"10.1.2.3"}]`), parts: []string{"10.1.2.3"}},
		{name: "an entry without address", config: ofStatic(`"addresses":[{"gateway":"10.1.2.1"}]`), parts: []string{"address"}},
		{name: "addresses that are no list", config: ofStatic(`"addresses":{}`), parts: []string{"addresses"}},
		{name: "a gateway that is no address", config: ofStatic(`"addresses":[{"address":"10.1.2.3/24","gateway":"10.1.2.1/24"}]`), parts: []string{"10.1.2.1/24"}},
		{name: "a route's dst that is no network", config: ofStatic(oneAddress + `,"routes":[{"dst":"everywhere"}]`), parts: []string{"everywhere"}},
		{name: "a dns of a wrong type", config: ofStatic(oneAddress + `,"dns":{"search":"b.example"}`), parts: []string{"dns.search"}},
		{name: "IP of CNI_ARGS without prefix length", config: ofStatic(``), args: "IP=10.4.0.4", parts: []string{"10.4.0.4"}},
		{name: "IP of CNI_ARGS that is invalid, also where it would be replaced", config: ofStatic(``, "runtimeConfig", `{"ips":["10.6.0.6/16"]}`), args: "IP=10.4.0.4", parts: []string{"10.4.0.4"}},
		{name: "GATEWAY of CNI_ARGS with prefix length", config: ofStatic(``), args: "GATEWAY=10.4.0.1/16", parts: []string{"10.4.0.1/16"}},
		{name: "other keys in CNI_ARGS without IgnoreUnknown", config: ofStatic(oneAddress), args: "COLOUR=red", parts: []string{"COLOUR"}},
		{name: "args.cni.ips without prefix length", config: ofStatic(``, "args", `{"cni":{"ips":["10.5.0.5"]}}`), parts: []string{"10.5.0.5"}},
		{name: "the capability ips without prefix length", config: ofStatic(``, "runtimeConfig", `{"ips":["10.6.0.6"]}`), parts: []string{"10.6.0.6"}},
		{name: "the capability ips that is no list", config: ofStatic(``, "runtimeConfig", `{"ips":"10.6.0.6/16"}`), parts: []string{"ips"}},
	} {
		rows = append(rows, row{name: "refused: " + r.name, differs: r.differs, test: func(l *lab) {
			l.refused(l.verb("ADD", l.pod("web"), r.config, cniArgs(r.args)), r.parts...)
		}})
	}
	return append(rows, row{name: "refused: a bridge's addresses without prefix length", test: func(l *lab) {
		l.refused(l.pod("web").add(fixed(`"addresses":[{"address":"10.1.2.3"}]`)), "10.1.2.3")
		l.refused(l.pod("db").add(fixed(``), capability("ips", `["10.6.0.6"]`)), "10.6.0.6")
	}})
}
