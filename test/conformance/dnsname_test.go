package conformance

import (
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

var dnsnameRows = group{name: "dnsname", rows: slices.Concat(dnsnameResults, dnsnameNames, dnsnameRefusals, dnsnameEnds, dnsnameChecks)}

// dnsname is the plugin as podman's networks have it.
const dnsname = `{"type":"dnsname","domainName":"dns.podman","capabilities":{"aliases":true}}`

// podman are the arguments that podman gives a container of a name.
func podman(name string) option { return args("IgnoreUnknown=1", "K8S_POD_NAME="+name) }

// resolvConf gives the node a file of DNS servers.
func (l *lab) resolvConf(path, content string) {
	if path != "/etc/resolv.conf" {
		l.write(path, content)
		return
	}
	l.write("/run/resolv.conf", content)
	l.run("mount --bind /run/resolv.conf /etc/resolv.conf")
}

// dns makes sure of the DNS that a result has.
func (c *container) dns(want string) {
	c.lab.same(text(c.result.DNS), want)
}

// names returns what is written down of names, a line for each attachment.
func (l *lab) names() string {
	var lines []string
	for _, file := range l.files("/run/cnibox/names/*") {
		lines = append(lines, strings.TrimSpace(l.read(file)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

var dnsnameResults = []row{
	{name: "the DNS servers are the gateway's addresses, then the network's, then the node's", test: func(l *lab) {
		l.resolvConf("/etc/resolv.conf", "search here.example\nnameserver 192.0.2.53\nnameserver 127.0.0.1\nnameserver 2001:db8::53\nnameserver fe80::53%lo\n")
		n := conf(with(lan, "dns", `{"nameservers":["192.0.2.54","10.44.0.1"],"search":["lan.example"],"domain":"lan.example","options":["ndots:2"]}`), dnsname)
		l.attach(n, "web").dns(`{"nameservers":["10.44.0.1","fd00:44::1","192.0.2.54","192.0.2.53","2001:db8::53"],"domain":"lan.example","search":["lan.example","dns.podman"],"options":["ndots:2"]}`)
	}},
	{name: "with nodeServers false the node's servers are left out, and the network's are not", test: func(l *lab) {
		l.resolvConf("/etc/resolv.conf", "nameserver 192.0.2.53\n")
		n := conf(with(lan, "dns", `{"nameservers":["192.0.2.54"]}`), with(dnsname, "nodeServers", "false"))
		l.attach(n, "web").dns(`{"nameservers":["10.44.0.1","fd00:44::1","192.0.2.54"],"search":["dns.podman"]}`)
	}},
	{name: "a node that asks a program of its own has the servers of systemd-resolved", test: func(l *lab) {
		l.resolvConf("/etc/resolv.conf", "nameserver 127.0.0.53\n")
		l.attach(conf(lan, dnsname), "web").dns(`{"nameservers":["10.44.0.1","fd00:44::1"],"search":["dns.podman"]}`)
		l.resolvConf("/run/systemd/resolve/resolv.conf", "nameserver 192.0.2.53\n")
		l.attach(conf(lan, dnsname), "db").dns(`{"nameservers":["10.44.0.1","fd00:44::1","192.0.2.53"],"search":["dns.podman"]}`)
	}},
	{name: "without domainName the search list stays as it is, and with it has it once", test: func(l *lab) {
		l.resolvConf("/etc/resolv.conf", "")
		search := with(lan, "dns", `{"search":["dns.podman"]}`)
		l.attach(conf(search, dnsname), "web").dns(`{"nameservers":["10.44.0.1","fd00:44::1"],"search":["dns.podman"]}`)
		l.attach(conf(lan, `{"type":"dnsname"}`), "db").dns(`{"nameservers":["10.44.0.1","fd00:44::1"]}`)
	}},
	{name: "behind ptp the servers are the gateways", test: func(l *lab) {
		l.resolvConf("/etc/resolv.conf", "")
		n := conf(`{"type":"ptp","ipam":{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24"}],[{"subnet":"fd00:44::/64"}]]}}`, dnsname)
		l.attach(n, "web").dns(`{"nameservers":["10.44.0.1","fd00:44::1"],"search":["dns.podman"]}`)
	}},
	{name: "behind a bridge with a VLAN the servers are the gateways", needs: &netlab.VLAN, test: func(l *lab) {
		l.resolvConf("/etc/resolv.conf", "")
		l.attach(conf(with(lan, "vlan", "7"), dnsname), "web").dns(`{"nameservers":["10.44.0.1","fd00:44::1"],"search":["dns.podman"]}`)
	}},
	{name: "the result is otherwise that of the plugin before", test: func(l *lab) {
		l.resolvConf("/etc/resolv.conf", "")
		c := l.pod("web")
		before := l.answer("ADD", c, with(lan, "capabilities", "{}"))
		after := l.answer("ADD", c, with(dnsname, "capabilities", "{}", "prevResult", before))
		l.shows(after, "dns.podman")
		l.same(with(after, "dns", "null"), with(before, "dns", "null"))
	}},
}

var dnsnameNames = []row{
	{name: "a container has the name that podman gives it, and the aliases of the network, in lower case and once each", test: func(l *lab) {
		web := l.attach(conf(lan, dnsname), "web", podman("Web_1"), capability("aliases", `{"lan":["www","WEB_1","shop.example","www."],"other":["not"]}`))
		l.shows(l.names(), `"names":["web_1","www","shop.example"],"domain":"dns.podman","addresses":["`+web.v4+`","`+web.v6+`"]`,
			`"network":"lan","containerID":"`+web.ID+`","ifname":"eth0"`)
		l.lacks(l.names(), `"not"`)
	}},
	{name: "a pod of Kubernetes is also known with its namespace", test: func(l *lab) {
		l.attach(conf(lan, dnsname), "web", args("IgnoreUnknown=1", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=web", "K8S_POD_INFRA_CONTAINER_ID=1", "K8S_POD_UID=2"))
		l.shows(l.names(), `"names":["web","web.shop"]`)
	}},
	{name: "a container without a name, or with one that DNS can't have, has the first 12 digits of its id", test: func(l *lab) {
		web := l.attach(conf(lan, dnsname), "web", capability("aliases", `{"lan":["www"]}`))
		l.shows(l.names(), `"names":["`+web.ID[:12]+`","www"]`)
		l.must(web.del())
		for _, name := range []string{"a..b", strings.Repeat("x", 64), "müller"} {
			db := l.attach(conf(lan, dnsname), "db"+text(len(name)), podman(name))
			l.shows(l.names(), `"names":["`+db.ID[:12]+`"]`)
			l.must(db.del())
		}
	}},
	{name: "arguments that are for other plugins are no error", test: func(l *lab) {
		l.attach(conf(lan, dnsname), "web", args("IP=10.44.0.77", "IgnoreUnknown=1"))
		c := l.pod("db")
		before := l.answer("ADD", c, with(lan, "capabilities", "{}"))
		l.must(l.verb("ADD", c, with(dnsname, "prevResult", before), env("CNI_ARGS=IP=10.44.0.77")))
	}},
	{name: "a container on two networks has a name on each", test: func(l *lab) {
		web := l.attach(conf(lan, dnsname), "web", podman("web"))
		back := with(lan, "bridge", `"back0"`, "ipam", `{"type":"host-local","ranges":[[{"subnet":"10.48.0.0/24"}],[{"subnet":"fd00:48::/64"}]]}`)
		second := web.another()
		l.must(second.add(conf(back, dnsname).called("back"), ifname("net1"), podman("web")))
		l.shows(l.names(), `"network":"lan"`, `"addresses":["10.44.0.2","fd00:44::2"],"gateways":["10.44.0.1","fd00:44::1"]`,
			`"network":"back"`, `"addresses":["10.48.0.2","fd00:48::2"],"gateways":["10.48.0.1","fd00:48::1"]`)
		l.must(second.del())
		l.lacks(l.names(), `"network":"back"`)
		l.shows(l.names(), `"network":"lan"`)
	}},
	{name: "a network with IPv6 alone has names", test: func(l *lab) {
		l.resolvConf("/etc/resolv.conf", "")
		n := conf(with(lan, "ipam", `{"type":"host-local","ranges":[[{"subnet":"fd00:44::/64"}]]}`), dnsname)
		l.attach(n, "web", podman("web")).dns(`{"nameservers":["fd00:44::1"],"search":["dns.podman"]}`)
		l.shows(l.names(), `"names":["web"]`, `"addresses":["fd00:44::2"]`)
	}},
}

var dnsnameRefusals = []row{
	{name: "an alias that DNS can't have is refused, and named", test: func(l *lab) {
		for _, alias := range []string{"a b", "", ".", "a..b", strings.Repeat("x", 64), "müller", strings.Repeat("x.", 125) + "abc"} {
			c := l.pod("web" + text(len(alias)))
			before := l.answer("ADD", c, with(lan, "capabilities", "{}"))
			is := l.now()
			err := l.verb("ADD", c, with(dnsname, "prevResult", before, "runtimeConfig", `{"aliases":{"lan":[`+text(alias)+`]}}`))
			l.code(err, 7, "alias", text(alias))
			is.unchanged()
		}
	}},
	{name: "a domainName that DNS can't have is refused", test: func(l *lab) {
		for _, domain := range []string{`"a b"`, `"a..b"`, `".a"`, `7`, `"` + strings.Repeat("x", 64) + `"`} {
			l.code(l.pod("web"+text(len(domain))).add(conf(lan, with(dnsname, "domainName", domain))), 7, "domainName")
		}
	}},
	{name: "an ADD that is not chained is refused", test: func(l *lab) {
		l.code(l.verb("ADD", l.pod("web"), with(dnsname, "capabilities", "{}")), 7)
		l.same(l.names(), "")
	}},
	{name: "an interface without an address is refused, and one whose gateway is not the host", test: func(l *lab) {
		l.refused(l.pod("web").add(conf(with(lan, "ipam", "{}", "isDefaultGateway", "false", "ipMasq", "false"), dnsname)), "address")
		elsewhere := with(lan, "isDefaultGateway", "false", "ipMasq", "false")
		l.code(l.pod("db").add(conf(elsewhere, dnsname)), 7, "no address at which containers", "isGateway")
		l.same(l.names(), "")
	}},
	{name: "an ADD that can't write down the names is refused, and leaves nothing", test: func(l *lab) {
		c := l.pod("web")
		before := l.answer("ADD", c, with(lan, "capabilities", "{}"))
		l.write("/run/cnibox/names", "a file")
		is := l.now()
		l.code(l.verb("ADD", c, with(dnsname, "capabilities", "{}", "prevResult", before)), 5, "/run/cnibox")
		is.unchanged()
	}},
}

var dnsnameEnds = []row{
	{name: "DEL forgets the names, by the attachment's key alone, and is a success again", test: func(l *lab) {
		n := conf(lan, dnsname)
		l.warm(n)
		before := l.now()
		web := l.attach(n, "web", podman("web"))
		web.Delete(l)
		l.forget()
		l.must(web.delBare(), web.delBare(), l.never(n, "db").delBare())
		before.unchanged()
	}},
	{name: "DEL works with a configuration that ADD would refuse", test: func(l *lab) {
		web := l.attach(conf(lan, dnsname), "web", podman("web"))
		web.network = conf(lan, with(dnsname, "domainName", `"a..b"`))
		l.must(web.delBare())
		l.same(l.names(), "")
	}},
	{name: "GC forgets the names of attachments that are not valid, and leaves those of other networks", test: func(l *lab) {
		n := conf(lan, dnsname)
		web, db := l.attach(n, "web", podman("web")), l.attach(n, "db", podman("db"))
		back := with(lan, "bridge", `"back0"`, "ipam", `{"type":"host-local","ranges":[[{"subnet":"10.48.0.0/24"}]]}`)
		l.attach(conf(back, dnsname).called("back"), "far", podman("far"))
		l.must(l.gc(n, web, db))
		l.shows(l.names(), `["web"]`, `["db"]`, `["far"]`)
		l.must(l.gc(n, web))
		l.shows(l.names(), `["web"]`, `["far"]`)
		l.lacks(l.names(), `["db"]`)
	}},
}

var dnsnameChecks = []row{
	{name: "CHECK passes while the names are written down, and fails if they are gone or others", test: func(l *lab) {
		web := l.attach(conf(lan, dnsname), "web", podman("web"), capability("aliases", `{"lan":["www"]}`))
		l.must(web.check())
		file := l.files("/run/cnibox/names/*")[0]
		was := l.read(file)
		for _, now := range []string{"", strings.Replace(was, "www", "w3", 1), strings.Replace(was, "10.44.0.2", "10.44.0.3", 1), was[:20]} {
			l.write(file, now)
			l.refused(web.check(), "written down")
		}
		l.remove(file)
		l.refused(web.check(), "written down")
		l.write(file, was)
		l.must(web.check())
	}},
	{name: "STATUS has code 50 while nobody answers for names", test: func(l *lab) {
		l.code(l.verb("STATUS", nil, with(dnsname, "cniVersion", `"1.1.0"`, "capabilities", "{}")), 50, "cnictl agent --dns")
	}},
}
