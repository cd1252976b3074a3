package conformance

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

var namesRows = group{name: "names", rows: namesList()}

// The ways in which a plugin can be there under another name.
const (
	byLink = "symbolic link"
	byHard = "hard link"
	byCopy = "copy"
)

var ways = []string{byLink, byHard, byCopy}

// rename has plugins be there under names that begin with a prefix, and under their own no more.
func (l *lab) rename(way, prefix string, plugins ...string) {
	for _, name := range plugins {
		own, other := filepath.Join(netlab.PluginDir, name), filepath.Join(netlab.PluginDir, prefix+name)
		program := strings.TrimSpace(l.run("readlink -f " + own))
		switch way {
		case byLink:
			l.run("ln -s " + program + " " + other)
		case byHard:
			// A hard link can't leave its file system: the names that are one file there are one here.
			file := filepath.Join(filepath.Dir(netlab.PluginDir), filepath.Base(program))
			l.run("cp -n "+program+" "+file, "ln "+file+" "+other)
		case byCopy:
			l.run("cp " + program + " " + other)
		}
		l.remove(own)
	}
}

// renamed returns configurations with a prefix before the types of plugins, and of IPAM plugins.
func renamed(prefix string, configs ...string) (list []string) {
	for _, config := range configs {
		o := object(config)
		o["type"] = prefix + o["type"].(string)
		if ipam, ok := o["ipam"].(map[string]any); ok {
			ipam["type"] = prefix + ipam["type"].(string)
		}
		list = append(list, text(o))
	}
	return list
}

func namesList() (rows []row) {
	four := []string{lan, `{"type":"firewall"}`, `{"type":"tuning","mtu":1400}`, `{"type":"portmap","capabilities":{"portMappings":true}}`}
	other := conf(append(renamed("buildkit-cni-", four[:2]...), renamed("cnv-", four[2:]...)...)...)
	rename := func(l *lab, way string) {
		l.rename(way, "buildkit-cni-", "bridge", "host-local", "firewall")
		l.rename(way, "cnv-", "tuning", "portmap")
	}
	for _, way := range ways {
		under := "under names such as buildkit-cni-bridge and cnv-tuning, by " + way + ", "
		rows = append(rows,
			row{name: under + "VERSION and what a person reads are as under the own names", test: func(l *lab) {
				names := []string{"loopback", "ptp", "macvlan", "host-device", "static", "dhcp", "bandwidth", "sbr"}
				answers := func(prefix string) (list []string) {
					for _, name := range names {
						version, about := l.host.Exec(l, prefix+name, netlab.PluginCall{Command: "VERSION"}), l.host.Exec(l, prefix+name, netlab.PluginCall{})
						list = append(list, version.String(), about.String())
						l.shows(about.Stderr, "CNI "+name+" plugin ")
					}
					return list
				}
				own := answers("")
				l.rename(way, "cnv-", names...)
				l.same(answers("cnv-"), own)
			}},
			row{name: under + "four plugins and IPAM make, check and remove what they do under their own", test: func(l *lab) {
				outside := &l.outside().Namespace
				c := l.attach(conf(four...), "web", ports("8080:80/tcp"), capability("ips", `["10.44.0.9/24","fd00:44::9/64"]`))
				own := c.printed
				l.must(c.del())
				rename(l, way)
				before := l.now(c)
				l.must(l.status(other), c.add(other))
				l.printed(c.printed, anyMAC.ReplaceAllString(anyVeth.ReplaceAllString(own, "vethX"), "MAC"))
				l.held("10.44.0.9", "fd00:44::9")
				l.serve(&c.Namespace, 80)
				l.answers(tcp(outside, netlab.HostIPv4, 8080), "web")
				l.must(c.check(), c.del())
				before.unchanged()
			}},
			row{name: under + "GC removes what is not valid, and nothing else", differs: noGC, test: func(l *lab) {
				outside := &l.outside().Namespace
				rename(l, way)
				valid := l.attach(other, "valid", ports("8081:80/tcp"))
				l.serve(&valid.Namespace, 80)
				before := l.now()
				l.attach(other, "gone", ports("8080:80/tcp")).Delete(l)
				l.must(l.gc(other, valid))
				before.unchanged()
				l.answers(tcp(outside, netlab.HostIPv4, 8081), "valid")
				l.must(valid.check())
			}},
		)
	}
	return slices.Concat(rows, moreNames, dhcpNames(), flannelNames(), chainNames())
}

// anyName is why the reference takes every name.
const anyName = "it is a program for each plugin, which runs under any name"

var moreNames = []row{
	{name: "what was made under a plugin's own name is checked and removed under another, and the other way round", test: func(l *lab) {
		portmap := `{"type":"portmap","capabilities":{"portMappings":true}}`
		own, other := conf(lan, portmap), conf(renamed("x-", lan, portmap)...)
		l.run("ln -s bridge /opt/cni/bin/x-bridge", "ln -s host-local /opt/cni/bin/x-host-local", "ln -s portmap /opt/cni/bin/x-portmap")
		before := l.warmed(own, ports("8080:80/tcp"))
		for i, n := range []struct{ made, removed network }{{own, other}, {other, own}} {
			c := l.attach(n.made, fmt.Sprint("web", i), ports("8080:80/tcp"))
			c.network = n.removed
			l.must(c.check(), c.del())
			c.Delete(l)
		}
		before.unchanged()
	}},
	{name: "an error under another name is the plugin's, with its code", differs: noDetails, test: func(l *lab) {
		l.rename(byLink, "x-", "bridge", "host-local")
		c := l.pod("web")
		before := l.now(c)
		l.code(c.add(conf(renamed("x-", with(bare, "vlan", "5000"))...)), 7)
		before.unchanged()
	}},
	{name: "an IPAM plugin that is not there is named as it was called", differs: leavesParts, test: func(l *lab) {
		c := l.pod("web")
		l.now(c).refused(c.add(conf(with(bare, "ipam", `{"type":"x-host-local","subnet":"10.44.0.0/24"}`))), "x-host-local")
	}},
	{name: "STATUS asks an IPAM plugin under another name", differs: noStatus, test: func(l *lab) {
		l.rename(byLink, "x-", "bridge", "dhcp")
		l.code(l.status(conf(renamed("x-", bridged)...)), 50)
	}},
	{name: "a name that ends in no plugin's is refused with code 4, and the error says which there are", differs: anyName, test: func(l *lab) {
		for _, name := range []string{"foobridge", "x-device", "bridge-x", "x-bridge2", "X-BRIDGE"} {
			l.run("ln -s bridge /opt/cni/bin/" + name)
			c := l.pod(name)
			before := l.now(c)
			for _, verb := range []string{"ADD", "DEL", "CHECK", "VERSION"} {
				call := c.Call(verb, with(bare, "name", `"lan"`, "cniVersion", `"1.0.0"`))
				l.answered(l.host.Exec(l, name, call), 4, name, "bridge", "host-local", "portmap")
			}
			before.unchanged()
		}
	}},
	{name: "a plugin that makes interfaces is no IPAM plugin under another name", differs: "it calls itself until that fails", test: func(l *lab) {
		for _, way := range ways {
			prefix := strings.Fields(way)[0] + "-"
			l.rename(way, prefix, "bridge")
			c := l.pod(prefix + "web")
			before := l.now(c)
			err := c.add(conf(with(layer2, "type", text(prefix+"bridge"), "ipam", `{"type":"`+prefix+`bridge"}`)))
			l.refused(err, "ipam", prefix+"bridge")
			before.unchanged()
			l.run("ln -s " + prefix + "bridge /opt/cni/bin/bridge")
		}
	}},
}

func dhcpNames() (rows []row) {
	for _, way := range ways {
		rows = append(rows, row{name: "dhcp and its daemon under another name, by " + way + ", release an address while they have the interface",
			differs: "its bridge deletes the link first", test: func(l *lab) {
				if !l.suite.has("dhcp") {
					l.foreign("there is no plugin dhcp")
				}
				s := l.outside().ServeDNSMasq(l, single)
				l.bridgeUplink()
				l.rename(way, "x-", "bridge", "dhcp")
				l.host.Background(l, l.host.Command(netlab.PluginDir+"/x-dhcp", "daemon"))
				l.eventually(func() string { return wantCount("sockets", len(l.files(netlab.DHCPSocket)), 1) })
				c := l.attach(conf(renamed("x-", bridged)...), "web")
				l.same(c.v4, "192.0.2.50")
				l.must(c.check(), c.del())
				l.eventually(func() string { return wantCount("releases", s.Released(), 1) })
			}})
	}
	return rows
}

func flannelNames() (rows []row) {
	for _, way := range ways {
		rows = append(rows, row{name: "flannel, its delegate and its IPAM plugin under other names, by " + way + ", do what they do under their own", test: func(l *lab) {
			if !l.suite.has("flannel") {
				l.foreign("there is no plugin flannel")
			}
			l.write(subnetFile, inBoth)
			l.rename(way, "x-", "flannel", "bridge", "host-local")
			n := conf(`{"type":"x-flannel","ipam":{"type":"x-host-local"},"delegate":{"type":"x-bridge","bridge":"pods0"}}`)
			l.warm(n)
			l.must(l.status(n))
			before := l.now()
			c := l.attach(n, "web")
			l.same(l.addresses(&l.host.Namespace, "pods0"), []string{"10.244.3.1/24", "fd00:244:0:3::1/64"})
			l.serve(&c.Namespace, 80)
			l.answers(tcp(&l.host.Namespace, c.v4, 80), "web")
			l.must(c.check())
			l.refused(c.add(n), "eth0")
			l.must(c.check(), c.del())
			c.Delete(l)
			l.attach(n, "gone").Delete(l)
			l.must(l.gc(n))
			before.unchanged()
			for _, delegate := range []string{"x-flannel", "x-host-local", "x-tuning"} {
				l.code(l.pod(delegate).add(conf(with(n.plugins[0], "delegate", `{"type":"`+delegate+`"}`))), 7, "type", delegate)
			}
		}})
	}
	return rows
}

func chainNames() (rows []row) {
	for _, way := range ways {
		rows = append(rows,
			row{name: "a chain under another name, by " + way + ", is no part of a chain", test: func(l *lab) {
				l.chains()
				l.scripts()
				l.rename(way, "x-", "chain")
				list := strings.Replace(chainOf(one, strings.Replace(chainOf(two), "chain", "x-chain", 1)), "chain", "x-chain", 1)
				for _, verb := range []string{"ADD", "CHECK", "STATUS"} {
					l.refused(l.called(verb, l.pod(verb), list, ""), "plugins[1].type")
				}
				l.refused(l.called("DEL", l.pod("web"), list, "one DEL\n"), "plugins[1].type")
			}},
			row{name: "a second ADD of a chain under another name, by " + way + ", is refused and harms nothing", test: func(l *lab) {
				l.chains()
				l.rename(way, "x-", "chain", "loopback", "bridge", "host-local")
				list := strings.Replace(chainOf(renamed("x-", loop, bare)...), "chain", "x-chain", 1)
				c := l.attach(conf(list), "web")
				l.now(c).refused(c.add(conf(list)), "x-bridge")
			}},
		)
	}
	return rows
}

// chains ends a row where there is no plugin chain.
func (l *lab) chains() {
	if !l.suite.has("chain") {
		l.foreign("there is no plugin chain")
	}
	flat := *l.suite
	flat.chained = false // the lists name it themselves
	l.suite = &flat
}
