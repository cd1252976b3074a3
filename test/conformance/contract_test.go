package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/plugins/pkg/testutils"

	"github.com/cnibox/cnibox/test/netlab"
)

// What the reference does otherwise in many rows.
const (
	noVersion = "its error documents have no cniVersion"
	noDetails = "most of its errors have no details"
	lateGuard = "looks whether the namespace is its own only when the work is done"
)

var contractRows = group{name: "contract", rows: slices.Concat(
	versionRows(), formRows(), environmentRows(), argsRows(), inputRows(), errorRows(), verbRows, undoRows, externalRows, limitRows(), fileRows(), answerRows(), readOnlyRows(), runRows(), keptRows(), kindRows,
)}

// answered makes sure that a process ended as the specification wants a failure: exit code 1, and one document with this code and
// a message, nothing else, on standard output. Its text has all parts.
func (l *lab) answered(r netlab.PluginResult, code uint, parts ...string) {
	if r.ExitCode != 1 || r.Error == nil || r.Error.Msg == "" {
		l.Errorf("want exit code 1 and one error document, got %s", r)
		return
	}
	if r.Error.Code != code {
		l.Errorf("code %d, want %d: %s", r.Error.Code, code, r.Stdout)
	}
	l.shows(r.Error.Msg+"; "+r.Error.Details, parts...)
}

// quiet makes sure that a process succeeded and printed nothing.
func (l *lab) quiet(r netlab.PluginResult) {
	if r.ExitCode != 0 || r.Stdout != "" {
		l.Errorf("want success without output, got %s", r)
	}
}

// raw has the plugin read a configuration whose text matters, or no configuration at all.
func raw(stdin string) change {
	return func(call *netlab.PluginCall) { call.Config = stdin }
}

// written is raw for a plugin's configuration, which a chain has in its list.
func (l *lab) written(config string) change {
	if l.suite.chained {
		config = `{"cniVersion":"1.0.0","name":"lan","type":"chain","plugins":[` + config + `]}`
	}
	return raw(config)
}

// mistake is a call that must fail and change nothing.
type mistake struct {
	name    string
	verb    string // ADD if there is none
	config  string // lan if there is none
	change  change
	code    uint
	names   string // what the error has to say
	differs string
	choice  bool
}

func (r mistake) row() row {
	return row{name: r.name, differs: r.differs, choice: r.choice, test: func(l *lab) {
		verb, config, change := r.verb, r.config, r.change
		if verb == "" {
			verb = "ADD"
		}
		if config == "" {
			config = lan
		}
		if change == nil {
			change = func(*netlab.PluginCall) {}
		}
		c := l.pod("web")
		before := l.now(c)
		l.answered(l.process(verb, c, config, change), r.code, r.names)
		before.unchanged()
	}}
}

func mistakes(list ...mistake) (rows []row) {
	for _, r := range list {
		rows = append(rows, r.row())
	}
	return rows
}

// sorted sorts rows that a map has.
func sorted(rows []row) []row {
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	return rows
}

// versionRows are about VERSION, and which versions the other verbs take.
func versionRows() (rows []row) {
	all := testutils.AllSpecVersions[:]
	for plugin, versions := range map[string][]string{
		"bridge": all, "ptp": all, "loopback": all, "host-local": all, "static": all, "dhcp": all, "tuning": all, "portmap": all, "firewall": all[4:],
	} {
		rows = append(rows, knowsVersions("VERSION of "+plugin, plugin, versions))
	}
	rows = append(sorted(rows),
		row{name: "VERSION does not look at its input", test: func(l *lab) {
			r := l.host.Exec(l, "bridge", netlab.PluginCall{Command: "VERSION", Config: `{"cniVersion":"7.0.0",`})
			l.shows(r.Stdout, `"supportedVersions"`)
		}},
		row{name: "started by hand, a plugin says what it is", test: func(l *lab) {
			for _, plugin := range []string{"bridge", "host-local", "portmap"} {
				r := l.host.Exec(l, plugin, netlab.PluginCall{})
				l.shows(r.Stderr, "CNI "+plugin+" plugin ", "0.3.1, 0.4.0, 1.0.0")
				l.quiet(r)
			}
		}},
		row{name: "a configuration without cniVersion is one of 0.1.0", test: func(l *lab) {
			for _, version := range []string{`""`, `null`} {
				c := l.pod("web" + version[1:2])
				printed := l.answer("ADD", c, with(lan, "cniVersion", version))
				l.shows(printed, `"cniVersion": "0.1.0"`, `"ip4"`, `"ip6"`)
			}
		}},
	)
	for _, version := range []string{"1.2.0", "0.3.9", "0.5.0", "1.0", "new"} {
		rows = append(rows, mistake{name: "cniVersion " + version + " is refused with code 1", config: with(lan, "cniVersion", text(version)), code: 1, names: version}.row())
	}
	firewall := `{"type":"firewall","cniVersion":"0.3.1"}`
	return append(rows, mistakes(
		mistake{name: "cniVersion 0.3.1 is refused by firewall with code 1", config: firewall, code: 1, names: "0.3.1"},
		mistake{name: "DEL with an unknown cniVersion is refused with code 1", verb: "DEL", config: with(lan, "cniVersion", `"7.0.0"`), code: 1, names: "7.0.0"},
		mistake{name: "CHECK before 0.4.0 is refused with code 1", verb: "CHECK", config: with(lan, "cniVersion", `"0.3.1"`), code: 1, names: "config version does not allow CHECK"},
		mistake{name: "STATUS before 1.1.0 is refused with code 1", verb: "STATUS", code: 1, names: "config version does not allow STATUS"},
		mistake{name: "GC before 1.1.0 is refused with code 1", verb: "GC", code: 1, names: "config version does not allow GC"},
	)...)
}

// settled is a bridge network whose result the configuration settles, with all that a result can say.
const settled = `{"type":"bridge","bridge":"lan0","ipam":{"type":"static",
	"addresses":[{"address":"10.44.0.9/24","gateway":"10.44.0.1"},{"address":"fd00:44::9/64","gateway":"fd00:44::1"}],
	"routes":[` + routes + `],"dns":` + dns + `}}`

const (
	routes = `{"dst":"10.99.0.0/16","gw":"10.44.0.7","mtu":1400,"advmss":1360,"priority":50,"table":100,"scope":0},{"dst":"fd99::/64","gw":"fd00:44::7"}`
	dns    = `{"nameservers":["10.44.0.53"],"domain":"lab","search":["a.lab","b.lab"],"options":["ndots:2"]}`
)

// form returns the result of settled in the form of a version, with these interfaces, the last of which has the addresses. Before
// 1.0.0 there is always a dns object.
func form(version, interfaces, dns string) string {
	if !testutils.SpecVersionHasMultipleIPs(version) {
		return fmt.Sprintf(`{"cniVersion":%q,"dns":%s,
			"ip4":{"ip":"10.44.0.9/24","gateway":"10.44.0.1","routes":[{"dst":"10.99.0.0/16","gw":"10.44.0.7"}]},
			"ip6":{"ip":"fd00:44::9/64","gateway":"fd00:44::1","routes":[{"dst":"fd99::/64","gw":"fd00:44::7"}]}}`, version, dns)
	}
	last := strings.Count(interfaces, "{") - 1
	v4, v6, names := "", "", `,"dns":`+dns
	switch {
	case testutils.SpecVersionHasIPVersion(version):
		v4, v6 = `,"version":"4"`, `,"version":"6"`
	case dns == "{}":
		names = ""
	}
	return fmt.Sprintf(`{"cniVersion":%q,"interfaces":[%s],"ips":[
		{"address":"10.44.0.9/24","gateway":"10.44.0.1","interface":%d%s},{"address":"fd00:44::9/64","gateway":"fd00:44::1","interface":%d%s}],
		"routes":[%s]%s}`, version, interfaces, last, v4, last, v6, routes, names)
}

// handedOn returns a result that a plugin gets from the one before it.
func handedOn(version string) string {
	interfaces := `{"name":"host0","mac":"02:aa:00:00:00:02"},{"name":"eth0","mac":"02:aa:00:00:00:01","sandbox":"/run/netns/web"}`
	if !testutils.SpecVersionHasIPVersion(version) {
		interfaces = strings.Replace(interfaces, `"sandbox"`, `"mtu":1400,"socketPath":"/run/x.sock","pciID":"0000:00:1f.6","sandbox"`, 1)
	}
	return form(version, interfaces, dns)
}

// formRows are about results, printed and read.
func formRows() (rows []row) {
	for _, version := range testutils.AllSpecVersions {
		interfaces, noMTU := `{"name":"lan0","mac":"MAC"},{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}`, ""
		if version == "1.1.0" {
			interfaces, noMTU = strings.ReplaceAll(interfaces, `"mac":"MAC"`, `"mac":"MAC","mtu":1500`), "it leaves out the mtu that interfaces have since 1.1.0"
		}
		rows = append(rows,
			row{name: "the result in the form of " + version + ", with and without DNS", differs: noMTU, test: func(l *lab) {
				c := l.attach(conf(settled).in(version), "web")
				l.printed(c.printed, form(version, interfaces, dns))
				l.must(c.del(), c.add(conf(strings.Replace(settled, dns, "{}", 1)).in(version)))
				l.printed(c.printed, form(version, interfaces, "{}"))
			}},
			row{name: "a result of " + version + " is read, and handed on as it is", test: func(l *lab) {
				c, list := l.pod("web"), []string{`{"type":"tuning","sysctl":{"net.core.somaxconn":"256"}}`, `{"type":"portmap"}`, `{"type":"loopback"}`}
				if testutils.SpecVersionHasCHECK(version) {
					list = append(list, `{"type":"firewall"}`)
				}
				for _, plugin := range list {
					printed := l.answer("ADD", c, with(plugin, "cniVersion", text(version), "prevResult", handedOn(version)))
					l.printed(printed, handedOn(version))
				}
			}},
			row{name: "ADD, CHECK and DEL in " + version + " leave nothing", test: func(l *lab) {
				n := conf(lan, `{"type":"tuning","sysctl":{"net.core.somaxconn":"256"}}`, `{"type":"portmap","capabilities":{"portMappings":true}}`).in(version)
				before := l.warmed(n, ports("8080:80/tcp"))
				c := l.attach(n, "web", ports("8080:80/tcp"))
				if testutils.SpecVersionHasCHECK(version) {
					l.must(c.check())
				}
				l.must(c.del())
				c.Delete(l)
				before.unchanged()
			}})
	}
	const layer2 = `{"type":"bridge","bridge":"lan0"}`
	return append(rows,
		row{name: "the result is what libcni's types print, byte for byte", test: func(l *lab) {
			for _, version := range testutils.AllSpecVersions {
				c := l.pod("v" + version)
				printed := l.answer("ADD", c, with(settled, "cniVersion", text(version)))
				result, err := create.Create(version, []byte(printed))
				l.must(err)
				var want bytes.Buffer
				l.must(result.PrintTo(&want))
				l.same(printed, want.String())
				l.must(failure(l.process("DEL", c, with(settled, "cniVersion", text(version)))))
			}
		}},
		row{name: "a network without addresses has a result from 0.3.0 on", test: func(l *lab) {
			for _, version := range testutils.AllSpecVersions[2:] {
				c := l.attach(conf(layer2).in(version), "v"+version)
				l.same(len(c.result.Interfaces), 3)
				l.same(len(c.result.IPs), 0)
			}
		}},
		row{name: "a network without addresses has a result before 0.3.0 too", differs: "finds, when all is done, that it can't print the result", test: func(l *lab) {
			for _, version := range testutils.AllSpecVersions[:2] {
				c := l.pod("v" + version)
				printed := l.answer("ADD", c, with(layer2, "cniVersion", text(version)))
				l.printed(printed, fmt.Sprintf(`{"cniVersion":%q,"dns":{}}`, version))
			}
		}},
		row{name: "a previous result without cniVersion has that of the configuration", test: func(l *lab) {
			for _, version := range testutils.AllSpecVersions {
				bare := object(handedOn(version))
				delete(bare, "cniVersion")
				printed := l.answer("ADD", l.pod("v"+version), with(`{"type":"portmap"}`, "cniVersion", text(version), "prevResult", text(bare)))
				l.printed(printed, handedOn(version))
			}
		}},
		row{name: "a previous result of an older version is read too", differs: "takes no previous result in the form of another version", test: func(l *lab) {
			for _, version := range []string{"0.2.0", "0.4.0"} {
				printed := l.answer("ADD", l.pod("v"+version), with(`{"type":"portmap"}`, "prevResult", handedOn(version)))
				l.shows(printed, `"cniVersion": "1.0.0"`, "10.44.0.9/24", "fd00:44::9/64", "ndots:2")
			}
		}},
		row{name: "a previous result that can't be read is refused", test: func(l *lab) {
			for _, result := range []string{`[]`, `{"cniVersion":"7.0.0"}`, `{"ips":[{"address":"10.44.0.300/24"}]}`} {
				l.refused(l.verb("ADD", l.pod("web"+fmt.Sprint(len(result))), with(`{"type":"portmap"}`, "prevResult", result)))
			}
		}},
		row{name: "DEL does without a previous result that it can't read", differs: "its portmap and firewall want to read prevResult in DEL", test: func(l *lab) {
			n := conf(lan, `{"type":"portmap","capabilities":{"portMappings":true}}`, `{"type":"firewall"}`)
			before := l.warmed(n, ports("8080:80/tcp"))
			c := l.attach(n, "web", ports("8080:80/tcp"))
			l.must(l.each("DEL", c, n, func(call *netlab.PluginCall) {
				call.Config = with(call.Config.(string), "prevResult", `{"cniVersion":"7.0.0","ips":[{"address":"what"}]}`)
			}))
			l.forget()
			c.Delete(l)
			before.unchanged()
		}},
	)
}

// environmentRows are about the variables that a runtime sets.
func environmentRows() []row {
	none := func(call *netlab.PluginCall) { call.ContainerID, call.Netns, call.IfName, call.Path = "", "", "", "" }
	set := func(name, value string) change { return env(name + "=" + value) }
	status := with(lan, "cniVersion", `"1.1.0"`)
	rows := mistakes(
		mistake{name: "ADD without any variable is refused with code 4, and all are named", change: none, code: 4, names: "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"},
		mistake{name: "CHECK without any variable is refused with code 4, and all are named", verb: "CHECK", change: none, code: 4, names: "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"},
		mistake{name: "DEL without any variable is refused with code 4, and all but CNI_NETNS are named", verb: "DEL", change: none, code: 4, names: "CNI_CONTAINERID,CNI_IFNAME,CNI_PATH"},
		mistake{name: "STATUS without CNI_PATH is refused with code 4", verb: "STATUS", config: status, change: none, code: 4, names: "CNI_PATH"},
		mistake{name: "GC without CNI_PATH is refused with code 4", verb: "GC", config: status, change: none, code: 4, names: "CNI_PATH"},
		mistake{name: "ADD with an empty CNI_NETNS is refused with code 4", change: set("CNI_NETNS", ""), code: 4, names: "CNI_NETNS"},
		mistake{name: "an unknown CNI_COMMAND is refused with code 4", verb: "GET", change: set("CNI_COMMAND", "UPDATE"), code: 4, names: "UPDATE"},
		mistake{name: "a CNI_COMMAND in small letters is refused with code 4", change: set("CNI_COMMAND", "add"), code: 4, names: "add"},
	)
	for _, id := range []string{"../etc", ".x", "-x", "a b", "é", "a\nb"} {
		rows = append(rows, mistake{name: fmt.Sprintf("container id %q is refused with code 4", id), change: set("CNI_CONTAINERID", id), code: 4}.row())
	}
	for _, name := range []string{"sixteen-letters0", ".", "..", "a/b", "eth0:1", "eth 0", "eth\u2003"} {
		rows = append(rows, mistake{name: fmt.Sprintf("interface name %q is refused with code 4", name), change: set("CNI_IFNAME", name), code: 4}.row())
	}
	host := func(l *lab) change { return set("CNI_NETNS", l.host.NetnsPath()) }
	return append(rows,
		mistake{name: "an interface name that is no UTF-8 is refused with code 4", change: set("CNI_IFNAME", "eth\xff"), code: 4,
			differs: "makes it, and prints a result with another name"}.row(),
		mistake{name: `interface name "eth%d" is refused with code 4`, change: set("CNI_IFNAME", "eth%d"), code: 4, names: "eth%d",
			differs: "makes eth0, since the kernel takes the name for a pattern, and fails to find it"}.row(),
		row{name: "names of 15 letters are interface names", test: func(l *lab) {
			c := l.attach(conf(lan), "web", ifname("fifteen-letters"))
			l.same(l.addresses(&c.Namespace, "fifteen-letters"), []string{"10.44.0.2/24", "fd00:44::2/64"})
		}},
		row{name: "container ids of 200 letters, with dots and dashes, are attached and detached", test: func(l *lab) {
			n := conf(lan, `{"type":"portmap","capabilities":{"portMappings":true}}`)
			before := l.warmed(n, ports("8080:80/tcp"))
			c := l.pod("web")
			c.runtime.ContainerID = "A.b-c_" + strings.Repeat("d", 194)
			l.must(c.add(n, ports("8080:80/tcp")), c.del())
			c.Delete(l)
			before.unchanged()
		}},
		row{name: "ADD and CHECK without a namespace at CNI_NETNS have code 8", differs: always999, test: func(l *lab) {
			c := l.pod("web")
			l.write("/run/plain", "")
			before := l.now(c)
			for _, path := range []string{"/run/netns/none", "/run/plain", "/run"} {
				l.answered(l.process("ADD", c, lan, set("CNI_NETNS", path)), 8, path)
				l.answered(l.process("CHECK", c, lan, set("CNI_NETNS", path)), 8, path)
				l.answered(l.process("ADD", c, lan, set("CNI_NETNS", path), set("CNI_NETNS_OVERRIDE", "1")), 8, path)
			}
			before.unchanged()
		}},
		row{name: "ADD of the plugin's own namespace is refused with code 8 before anything is done", differs: lateGuard, test: func(l *lab) {
			c := l.pod("web")
			for _, plugin := range []string{lan, `{"type":"tuning","prevResult":` + handedOn("1.0.0") + `,"sysctl":{"net.ipv4.ip_forward":"1"}}`} {
				before := l.now()
				l.answered(l.process("ADD", c, plugin, host(l)), 8, l.host.NetnsPath())
				before.unchanged()
			}
		}},
		row{name: "DEL of the plugin's own namespace changes nothing in it", differs: lateGuard, test: func(l *lab) {
			c := l.pod("web")
			before := l.now()
			l.process("DEL", c, `{"type":"loopback"}`, host(l))
			before.unchanged()
		}},
		row{name: "CNI_NETNS_OVERRIDE=1 or true allows the plugin's own namespace", test: func(l *lab) {
			c := l.pod("web")
			for _, value := range []string{"1", "true", "TRUE", "True"} {
				l.run("ip link set lo down")
				l.must(l.verb("ADD", c, `{"type":"loopback"}`, host(l), set("CNI_NETNS_OVERRIDE", value)))
				l.shows(l.run("ip link show lo"), "LOOPBACK,UP")
				l.must(l.verb("DEL", c, `{"type":"loopback"}`, host(l), set("CNI_NETNS_OVERRIDE", value)))
				l.lacks(l.run("ip link show lo"), "LOOPBACK,UP")
			}
		}},
		row{name: "CNI_NETNS_OVERRIDE of 0 or yes does not", differs: lateGuard, test: func(l *lab) {
			c := l.pod("web")
			for _, value := range []string{"0", "yes"} {
				l.answered(l.process("ADD", c, `{"type":"loopback"}`, host(l), set("CNI_NETNS_OVERRIDE", value)), 8)
			}
		}},
	)
}

// argsRows are about CNI_ARGS.
func argsRows() (rows []row) {
	const layer2 = `{"type":"bridge","bridge":"lan0"}`
	const mac = "02:aa:00:00:00:07"
	send := func(args string) change { return func(call *netlab.PluginCall) { call.Args = args } }
	for _, ok := range []struct{ name, args, differs string }{
		{"CNI_ARGS may have the plugin's own keys", "MAC=" + mac, ""},
		{"CNI_ARGS with IgnoreUnknown=1 may have any keys", "K8S_POD_NAME=web;IgnoreUnknown=1;MAC=" + mac, ""},
		{"CNI_ARGS with IgnoreUnknown=TRUE may have any keys", "IgnoreUnknown=TRUE;K8S_POD_NAME=;MAC=" + mac, ""},
		{"CNI_ARGS may end with a semicolon", "MAC=" + mac + ";", "takes no empty pair"},
		{"values in CNI_ARGS may have an equals sign", "IgnoreUnknown=1;LABEL=a=b;MAC=" + mac, "takes no value with an equals sign"},
	} {
		rows = append(rows, row{name: ok.name, differs: ok.differs, test: func(l *lab) {
			c := l.pod("web")
			l.must(l.verb("ADD", c, layer2, send(ok.args)))
			c.has("address", mac)
		}})
	}
	for _, bad := range []struct{ name, args, names string }{
		{"an unknown key in CNI_ARGS is refused", "MAC=" + mac + ";COLOUR=red", "COLOUR"},
		{"an unknown key in CNI_ARGS with IgnoreUnknown=0 is refused", "IgnoreUnknown=0;COLOUR=red", "COLOUR"},
		{"keys in CNI_ARGS have capitals", "mac=" + mac, "mac"},
		{"a word without a value in CNI_ARGS is refused", "IgnoreUnknown=1;COLOUR", "COLOUR"},
		{"IgnoreUnknown in CNI_ARGS is yes or no", "IgnoreUnknown=perhaps", ""},
	} {
		rows = append(rows, row{name: bad.name, test: func(l *lab) {
			l.warm(conf(layer2))
			c := l.pod("web")
			l.now(c).refused(l.verb("ADD", c, layer2, send(bad.args)), bad.names)
		}})
	}
	return append(rows, row{name: "what is wrong in CNI_ARGS has code 4", differs: always999, test: func(l *lab) {
		l.code(l.verb("ADD", l.pod("web"), layer2, send("COLOUR=red")), 4)
	}})
}

// inputRows are about the configuration on standard input.
func inputRows() []row {
	deep := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"lan","type":"bridge","bridge":"lan0","x":%s%s}`, strings.Repeat("[", 400), strings.Repeat("]", 400))
	long := func(l *lab) change {
		return l.written(`{"cniVersion":"1.0.0","name":"lan",` + strings.Repeat(" ", 17<<20) + `"type":"bridge","bridge":"lan0"}`)
	}
	rows := mistakes(
		mistake{name: "no input is refused with code 6", change: raw(""), code: 6},
		mistake{name: "input that is no JSON is refused with code 6", change: raw(`{"cniVersion":"1.0.0","name" "lan"}`), code: 6},
		mistake{name: "DEL without a configuration that can be read is refused with code 6", verb: "DEL", change: raw(`{"cniVersion":"1.0.0","na`), code: 6},
		mistake{name: "a list in place of an object is refused with code 6", change: raw(`[]`), code: 6},
		mistake{name: "two documents are refused with code 6", change: raw(`{"cniVersion":"1.0.0","name":"lan","type":"bridge"}{}`), code: 6},
		mistake{name: "a cniVersion that is no string is refused with code 6", config: with(lan, "cniVersion", `1`), code: 6, names: "cniVersion"},
		mistake{name: "a name that is no string is refused with code 6", config: with(lan, "name", `{}`), code: 6, names: "name"},
		mistake{name: "a network without name is refused with code 7", config: with(lan, "name", `null`), code: 7, names: "name"},
		mistake{name: "a network with an empty name is refused with code 7", config: with(lan, "name", `""`), code: 7, names: "name"},
		mistake{name: "DEL of a network without name is refused with code 7", verb: "DEL", config: with(lan, "name", `""`), code: 7, names: "name"},
		mistake{name: "lists and objects 400 deep are refused", change: raw(deep), code: 6, choice: true, differs: "has no such limit"},
	)
	for _, name := range []string{"../x", ".x", "a b", "a/b", "é"} {
		rows = append(rows, mistake{name: fmt.Sprintf("network name %q is refused with code 7", name), config: with(lan, "name", text(name)), code: 7, names: "name"}.row())
	}
	return append(rows,
		row{name: "more than 16 MiB of configuration are refused with code 5", choice: true, differs: "has no such limit", test: func(l *lab) {
			c := l.pod("web")
			before := l.now(c)
			l.answered(l.process("ADD", c, lan, long(l)), 5)
			before.unchanged()
		}},
		row{name: "keys are known in capitals and small letters", test: func(l *lab) {
			c := l.pod("web")
			printed, err := l.exec("ADD", c, lan, l.written(`{"CNIVERSION":"1.0.0","Name":"lan","TYPE":"bridge","BRIDGE":"lan0","isgateway":true,"Mtu":1400,
				"IPAM":{"Type":"host-local","RANGES":[[{"SUBNET":"10.44.0.0/24","RangeStart":"10.44.0.50"}]],"Routes":[{"DST":"10.99.0.0/16"}]}}`))
			l.must(err)
			l.same(l.result(printed).IPs[0].Address.String(), "10.44.0.50/24")
			l.same(l.addresses(&l.host.Namespace, "lan0"), []string{"10.44.0.1/24"})
			c.has("mtu", 1400)
			l.shows(c.run("ip route"), "10.99.0.0/16 via 10.44.0.1")
		}},
		row{name: "of two equal keys the last one counts", test: func(l *lab) {
			c := l.pod("web")
			l.must(l.verb("ADD", c, lan, l.written(`{"cniVersion":"1.0.0","name":"lan","type":"bridge","bridge":"wrong0","bridge":"lan0","MTU":1300,"Mtu":1400}`)))
			c.has("mtu", 1400)
			l.lacks(l.run("ip link"), "wrong0")
		}},
		row{name: "of keys that differ in capitals the one in small letters counts, wherever it stands", differs: "takes the last one if no other setting has its name",
			test: func(l *lab) {
				c := l.pod("web")
				l.must(l.verb("ADD", c, lan, l.written(`{"cniVersion":"1.0.0","name":"lan","type":"bridge","MTU":1300,"mtu":1400,"Mtu":1500,"bridge":"lan0"}`)))
				c.has("mtu", 1400)
			}},
		row{name: "null is as good as no value", test: func(l *lab) {
			c := l.pod("web")
			l.must(l.verb("ADD", c, with(lan, "mtu", "null", "hairpinMode", "null", "dns", "null", "args", "null", "prevResult", "null")))
			c.has("mtu", 1500)
		}},
		row{name: "unknown keys are ignored", test: func(l *lab) {
			l.attach(conf(with(strings.ReplaceAll(lan, `"subnet"`, `"colour":{"red":[1,2.5e3,null]},"subnet"`), "colour", `["red"]`)), "web")
		}},
		row{name: "a value of a wrong type is refused, and its key named", test: func(l *lab) {
			c := l.pod("web")
			before := l.now(c)
			for key, value := range map[string]string{"mtu": `"big"`, "isGateway": `"yes"`, "bridge": `5`, "ipam": `[]`} {
				l.refused(l.verb("ADD", c, with(lan, key, value)), key)
			}
			before.unchanged()
		}},
		row{name: "the place of a wrong value is named whole", differs: "names no more than the last key", test: func(l *lab) {
			l.refused(l.verb("ADD", l.pod("web"), strings.Replace(lan, `"fd00:44::/64"`, `5`, 1)), "ipam.ranges[1][0].subnet", "5")
		}},
		row{name: "a value of a wrong type has code 7", differs: always999, test: func(l *lab) {
			l.code(l.verb("ADD", l.pod("web"), with(lan, "mtu", `"big"`)), 7)
		}},
	)
}

// errorRows are about the documents of errors.
func errorRows() []row {
	const pool = `{"type":"bridge","bridge":"lan0","ipam":{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/30"}]]}}`
	each := func(l *lab, f func(netlab.PluginResult)) {
		c := l.attach(conf(pool), "first")
		free := l.pod("web")
		for _, r := range []netlab.PluginResult{
			l.process("ADD", free, lan, env("CNI_IFNAME=")),
			l.process("ADD", free, lan, env("CNI_NETNS=/run/netns/none")),
			l.process("ADD", free, lan, raw("{")),
			l.process("ADD", free, with(lan, "name", `"a/b"`)),
			l.process("ADD", free, with(lan, "mtu", `"big"`)),
			l.process("ADD", free, pool),
			l.process("ADD", free, with(lan, "ipam", `{"type":"nowhere"}`)),
			l.process("ADD", free, `{"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":80,"protocol":"tcp"}]}}`),
			l.process("ADD", free, `{"type":"tuning","prevResult":`+handedOn("1.0.0")+`,"sysctl":{"net.no.such":"1"}}`),
			l.process("CHECK", c, with(lan, "cniVersion", `"0.3.1"`)),
			l.process("CHECK", c, pool),
		} {
			if r.Error == nil {
				l.Errorf("no error document: %s", r)
				continue
			}
			f(r)
		}
	}
	return []row{
		{name: "an error document names the CNI version", differs: noVersion, test: func(l *lab) {
			each(l, func(r netlab.PluginResult) {
				if r.Error.CNIVersion == "" {
					l.Errorf("no cniVersion: %s", r.Stdout)
				}
			})
			l.refused(l.verb("ADD", l.pod("old"), with(lan, "cniVersion", `"0.4.0"`, "mtu", `"big"`)))
			l.same(l.process("ADD", l.pod("older"), with(lan, "cniVersion", `"0.3.1"`, "mtu", `"big"`)).Error.CNIVersion, "0.3.1")
			l.same(l.process("ADD", l.pod("newer"), with(lan, "cniVersion", `"7.0.0"`)).Error.CNIVersion, "1.1.0")
		}},
		{name: "each error has details, which say what can be done", differs: noDetails, test: func(l *lab) {
			each(l, func(r netlab.PluginResult) {
				if r.Error.Details == "" {
					l.Errorf("no details: %s", r.Stdout)
				}
			})
		}},
		{name: "no address left has code 11", differs: always999, test: func(l *lab) {
			l.attach(conf(pool), "first")
			c := l.pod("web")
			before := l.now(c)
			l.answered(l.process("ADD", c, pool), 11, "10.44.0")
			before.unchanged()
		}},
		{name: "what the kernel refuses has code 999", test: func(l *lab) {
			c := l.pod("web")
			c.run("ip link add eth0 type bridge")
			l.answered(l.process("ADD", c, lan), 999, "eth0")
		}},
		{name: "an IPAM plugin that gives no address has code 7", differs: always999, test: func(l *lab) {
			l.answered(l.process("ADD", l.pod("web"), with(lan, "ipam", `{"type":"static"}`)), 7, "no address")
		}},
		{name: "a gateway out of reach has code 7", differs: always999, test: func(l *lab) {
			const ipam = `{"type":"static","addresses":[{"address":"10.44.0.2/24"}],"routes":[{"dst":"10.9.0.0/16","gw":"10.99.0.1"}]}`
			l.answered(l.process("ADD", l.pod("web"), with(lan, "ipam", ipam)), 7, "gateway")
		}},
		{name: "an IPAM plugin that is not installed has code 7", differs: always999, test: func(l *lab) {
			c := l.pod("web")
			before := l.now(c)
			l.answered(l.process("ADD", c, with(lan, "ipam", `{"type":"nowhere"}`)), 7, "nowhere", netlab.PluginDir)
			before.unchanged()
		}},
	}
}

// verbRows are about what verbs print, and about GC's list.
var verbRows = []row{
	{name: "only ADD prints something", test: func(l *lab) {
		c := l.pod("web")
		printed := l.answer("ADD", c, lan)
		for _, plugin := range []string{`{"type":"tuning"}`, `{"type":"portmap"}`, `{"type":"firewall"}`, lan} {
			config, latest := with(plugin, "prevResult", printed), with(plugin, "cniVersion", `"1.1.0"`)
			if plugin != lan {
				l.must(failure(l.process("ADD", c, config)))
			}
			l.quiet(l.process("CHECK", c, config))
			l.quiet(l.process("STATUS", nil, latest))
			l.quiet(l.process("GC", nil, with(latest, "cni.dev/valid-attachments", `[{"containerID":`+text(c.ID)+`,"ifname":"eth0"}]`)))
			l.quiet(l.process("DEL", c, config))
		}
	}},
	{name: "GC without a list of valid attachments removes nothing", test: func(l *lab) {
		n := conf(lan, `{"type":"portmap","capabilities":{"portMappings":true}}`, `{"type":"firewall"}`).in("1.1.0")
		c := l.attach(n, "web", ports("8080:80/tcp"))
		l.now(c).unchangedBy(l.each("GC", nil, n))
		l.must(c.check())
	}},
	{name: "GC knows its list by the name that older runtimes give it", test: func(l *lab) {
		n := conf(lan).in("1.1.0")
		c := l.attach(n, "web")
		before := l.now(c)
		l.must(l.each("GC", nil, n, func(call *netlab.PluginCall) {
			call.Config = with(call.Config.(string), "cni.dev/attachments", `[{"containerID":`+text(c.ID)+`,"ifname":"eth0"}]`)
		}))
		before.unchanged()
	}},
	{name: "GC with a list that it can't read is refused and removes nothing", differs: noGC, test: func(l *lab) {
		n := conf(lan).in("1.1.0")
		c := l.attach(n, "web")
		before := l.now(c)
		for _, list := range []string{`{}`, `[7]`, `[{"containerID":7,"ifname":"eth0"}]`, `[{"containerID":"web"}]`, `"all"`} {
			l.refused(l.each("GC", nil, n, func(call *netlab.PluginCall) {
				call.Config = with(call.Config.(string), "cni.dev/valid-attachments", list)
			}))
		}
		before.unchanged()
	}},
}
