package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/test/netlab"
)

var chainRows = group{name: "chain", rows: asWritten(chainList())}

// asWritten has the rows' lists be sent as they are: they name the type chain themselves.
func asWritten(rows []row) []row {
	for i, r := range rows {
		rows[i].test = func(l *lab) {
			flat := *l.suite
			flat.chained = false
			l.suite = &flat
			r.test(l)
		}
	}
	return rows
}

// chainOf returns the configuration of a chain.
func chainOf(plugins ...string) string {
	return `{"type":"chain","plugins":[` + strings.Join(plugins, ",") + `]}`
}

// Plugins of others, which scripts makes. They write down that they were called, and keep what they read in /run/NAME.VERB.
const (
	one   = `{"type":"one"}`
	two   = `{"type":"two"}`
	three = `{"type":"three"}`
)

func (l *lab) scripts() {
	l.script("one", `name=${0##*/}
		echo "$name $CNI_COMMAND" >>/run/calls
		cat >/run/$name.$CNI_COMMAND
		if test -e /run/$name.$CNI_COMMAND.fails; then
			echo '{"cniVersion":"1.0.0","code":105,"msg":"'$name' is closed","details":"ask at the desk"}'; exit 1
		fi
		test "$CNI_COMMAND" != ADD || echo '{"cniVersion":"1.0.0","interfaces":[{"name":"made-by-'$name'"}]}'`)
	l.host.Do(func() {
		for _, name := range []string{"two", "three"} {
			l.must(os.Link(netlab.PluginDir+"/one", netlab.PluginDir+"/"+name))
		}
	})
}

// failing has verbs of the scripts fail from now on, each written as on a command line.
func (l *lab) failing(calls ...string) {
	for _, call := range calls {
		l.write("/run/"+strings.Replace(call, " ", ".", 1)+".fails", "")
	}
}

// config returns a chain's configuration of a version that has the verb.
func (l *lab) config(verb, config string) string {
	if verb != "GC" && verb != "STATUS" {
		return config
	}
	return with(config, "cniVersion", `"1.1.0"`, "cni.dev/valid-attachments", "[]")
}

// called makes sure that a verb of a chain calls these, a line for each, and returns its error.
func (l *lab) called(verb string, c *container, config, calls string) error {
	_, err := l.exec(verb, c, l.config(verb, config))
	l.same(l.calls(), calls)
	return err
}

func chainList() []row {
	rows := []row{
		{name: "the result is that of the plugins as entries of their own", test: func(l *lab) {
			plugins := []string{settled, `{"type":"tuning","mtu":1400}`, `{"type":"portmap"}`}
			c := l.attach(conf(plugins...), "web")
			flat := c.printed
			l.must(c.del(), c.add(conf(chainOf(plugins...))))
			l.printed(c.printed, anyMAC.ReplaceAllString(anyVeth.ReplaceAllString(flat, "vethX"), "MAC"))
		}},
		{name: "what entries of their own made is checked and removed by a chain, and the other way round", test: func(l *lab) {
			portmap := `{"type":"portmap","capabilities":{"portMappings":true}}`
			flat, chain := conf(lan, portmap), conf(with(chainOf(lan, portmap), "capabilities", `{"portMappings":true,"mac":true,"ips":true}`))
			before := l.warmed(flat, ports("8080:80/tcp"))
			for i, n := range []struct{ made, removed network }{{flat, chain}, {chain, flat}} {
				c := l.attach(n.made, fmt.Sprint("web", i), ports("8080:80/tcp"))
				c.network = n.removed
				l.must(c.check(), c.del())
				c.Delete(l)
			}
			before.unchanged()
		}},
		{name: "bridge, portmap, firewall, tuning and bandwidth in one entry do what they do as entries of their own", needs: &netlab.Shaping, test: func(l *lab) {
			chain := chainOf(lan, `{"type":"portmap","capabilities":{"portMappings":true}}`, `{"type":"firewall"}`, `{"type":"tuning","mtu":1400}`,
				`{"type":"bandwidth","capabilities":{"bandwidth":true}}`)
			n := conf(with(chain, "capabilities", `{"portMappings":true,"bandwidth":true,"mac":true,"ips":true}`))
			asked := []option{ports("8080:80/tcp"), capability("bandwidth", `{`+bothWays+`}`)}
			before := l.warmed(n, asked...)
			c := l.attach(n, "web", asked...)
			l.serve(&c.Namespace, 80)
			l.answers(local(l, 8080), "web")
			c.has("mtu", 1400)
			c.limits("rate 10Mbit burst 64Kb lat 25ms", "rate 20Mbit burst 128Kb lat 25ms")
			l.must(c.check())
			c.Delete(l)
			l.must(c.del())
			before.unchanged()
		}},
		{name: "capabilities that the chain does not declare are refused before anything is called", test: func(l *lab) {
			l.scripts()
			list := chainOf(one, `{"type":"portmap","capabilities":{"portMappings":true}}`)
			for _, config := range []string{list, with(list, "capabilities", `{"portMappings":false,"mac":true}`)} {
				for _, verb := range []string{"ADD", "CHECK", "STATUS"} {
					l.code(l.called(verb, l.pod(verb+fmt.Sprint(len(config))), config, ""), 7, "portMappings", "portmap")
				}
			}
			l.must(l.called("DEL", l.pod("web"), list, "one DEL\n"))
		}},
		{name: "a chain within a chain is refused before anything is called", test: func(l *lab) {
			l.scripts()
			for _, verb := range []string{"ADD", "CHECK", "STATUS"} {
				l.refused(l.called(verb, l.pod(verb), chainOf(one, chainOf(two)), ""), "plugins[1].type")
			}
			l.refused(l.called("DEL", l.pod("web"), chainOf(one, chainOf(two)), "one DEL\n"), "plugins[1].type")
		}},
		{name: "a chain without plugins is refused, in DEL too", test: func(l *lab) {
			for _, list := range []string{`{"type":"chain"}`, `{"type":"chain","plugins":[]}`, `{"type":"chain","plugins":null}`} {
				for _, verb := range []string{"ADD", "DEL", "CHECK", "STATUS", "GC"} {
					l.refused(l.verb(verb, l.pod(verb+fmt.Sprint(len(list))), l.config(verb, list)), "plugins")
				}
			}
		}},
		{name: "ADD that fails calls DEL of what was called, the last one first", test: func(l *lab) {
			l.scripts()
			l.failing("three ADD")
			err := l.called("ADD", l.pod("web"), chainOf(one, two, three), "one ADD\ntwo ADD\nthree ADD\nthree DEL\ntwo DEL\none DEL\n")
			l.refused(err, "chain", "three is closed")
			var e *types.Error
			if !errors.As(err, &e) || e.Code != 105 || e.Details != "ask at the desk" {
				l.Errorf("want code and details of the plugin's error, got %#v", err)
			}
		}},
		{name: "ADD of which the first plugin fails calls DEL of that one", test: func(l *lab) {
			l.scripts()
			l.failing("one ADD")
			l.refused(l.called("ADD", l.pod("web"), chainOf(one, two, three), "one ADD\none DEL\n"), "one is closed")
		}},
		{name: "DEL after a failed ADD gets the result so far", test: func(l *lab) {
			l.scripts()
			l.failing("three ADD")
			l.refused(l.verb("ADD", l.pod("web"), chainOf(one, two, three)))
			for _, name := range []string{"one", "two", "three"} {
				prev, _ := object(l.read("/run/" + name + ".DEL"))["prevResult"].(map[string]any)
				l.printed(text(prev), `{"cniVersion":"1.0.0","interfaces":[{"name":"made-by-two"}]}`)
			}
		}},
		{name: "ADD that fails leaves nothing of cnibox's own plugins", test: func(l *lab) {
			portmap := `{"type":"portmap","capabilities":{"portMappings":true}}`
			l.warm(conf(lan, portmap), ports("8080:80/tcp"))
			l.attach(conf(lan, portmap), "holder", ports("8080:80/tcp"))
			n := conf(with(chainOf(lan, `{"type":"tuning","sysctl":{"net.core.somaxconn":"256"}}`, portmap), "capabilities", `{"portMappings":true,"mac":true,"ips":true}`))
			c := l.pod("web")
			l.now(c).refused(c.add(n, ports("8080:80/tcp")), "portmap", "8080")
		}},
		{name: "a DEL that fails after a failed ADD is told, and the others are called", test: func(l *lab) {
			l.scripts()
			l.failing("three ADD", "two DEL")
			err := l.called("ADD", l.pod("web"), chainOf(one, two, three), "one ADD\ntwo ADD\nthree ADD\nthree DEL\ntwo DEL\none DEL\n")
			l.refused(err, "three is closed", "two is closed")
		}},
		{name: "a plugin's answer that is no result is an error, and all is undone", test: func(l *lab) {
			l.scripts()
			l.script("two", `echo "two $CNI_COMMAND" >>/run/calls`)
			l.refused(l.called("ADD", l.pod("web"), chainOf(one, two, three), "one ADD\ntwo ADD\ntwo DEL\none DEL\n"), "two")
		}},
		{name: "SIGTERM during ADD: the plugins after it are not called, and all is undone", test: func(l *lab) {
			l.scripts()
			l.script("one", notesTERM+`echo "one $CNI_COMMAND" >>/run/calls
				test "$CNI_COMMAND" != ADD || { `+untilInterrupted+`; echo '{"cniVersion":"1.0.0"}'; }`)
			r := l.interrupt("ADD", l.pod("web"), chainOf(loop, one, two), syscall.SIGTERM)
			l.refused(failure(r))
			l.same(l.calls(), "one ADD\none DEL\n")
		}},
		{name: "SIGTERM during DEL: all plugins are called", test: func(l *lab) {
			l.scripts()
			l.script("three", `trap "" TERM; echo "three $CNI_COMMAND" >>/run/calls; `+untilInterrupted)
			l.quiet(l.interrupt("DEL", l.pod("web"), chainOf(one, two, three), syscall.SIGTERM))
			l.same(l.calls(), "three DEL\ntwo DEL\none DEL\n")
		}},
		{name: "a second ADD of the same attachment is refused and harms nothing", test: func(l *lab) {
			n := conf(with(chainOf(lan, `{"type":"portmap","capabilities":{"portMappings":true}}`), "capabilities", `{"portMappings":true,"mac":true,"ips":true}`))
			c := l.attach(n, "web", ports("8080:80/tcp"))
			l.now(c).refused(c.add(n, ports("8080:80/tcp")), "bridge")
		}},
		{name: "a second ADD of the same attachment, with loopback in the chain, leaves lo up", test: func(l *lab) {
			n := conf(chainOf(loop, bare))
			c := l.attach(n, "web")
			before := l.now(c)
			l.refused(c.add(n), "bridge")
			before.unchanged()
		}},
		{name: "CHECK ends at the first plugin that fails", test: func(l *lab) {
			l.scripts()
			l.failing("two CHECK", "three CHECK")
			l.refused(l.called("CHECK", l.pod("web"), chainOf(one, two, three), "one CHECK\ntwo CHECK\n"), "two is closed")
		}},
		{name: "a GC without a list calls nobody", test: func(l *lab) {
			l.scripts()
			l.must(failure(l.process("GC", nil, with(chainOf(one, two), "cniVersion", `"1.1.0"`))))
			l.same(l.calls(), "")
		}},
		{name: "other plugins may be older than STATUS and GC", test: func(l *lab) {
			l.script("old", `echo '{"code":4,"msg":"unknown CNI_COMMAND: '$CNI_COMMAND'"}'; exit 1`)
			for _, verb := range []string{"STATUS", "GC"} {
				l.quiet(l.process(verb, nil, l.config(verb, chainOf(`{"type":"old"}`))))
			}
		}},
		{name: "a plugin that is too new for the network's version is refused before anything is called", test: func(l *lab) {
			l.scripts()
			list := with(chainOf(one, `{"type":"firewall"}`), "cniVersion", `"0.3.1"`)
			l.refused(l.called("ADD", l.pod("web"), list, ""), "firewall", "0.3.1")
			l.refused(l.called("DEL", l.pod("web2"), list, "one DEL\n"), "firewall")
		}},
		{name: "an error begins with chain and the plugin's name", test: func(l *lab) {
			l.scripts()
			l.failing("two ADD", "two CHECK", "two DEL", "two STATUS", "two GC")
			for _, verb := range []string{"ADD", "CHECK", "DEL", "STATUS", "GC"} {
				r := l.process(verb, l.pod(verb), l.config(verb, chainOf(one, two)))
				l.answered(r, 105, "two is closed")
				if r.Error != nil && !strings.HasPrefix(r.Error.Msg, "chain: two: ") {
					l.Errorf("%s: %s", verb, r.Error.Msg)
				}
			}
		}},
	}
	for verb, calls := range map[string]string{
		"ADD": "one ADD\ntwo ADD\nthree ADD\n", "CHECK": "one CHECK\ntwo CHECK\nthree CHECK\n", "DEL": "three DEL\ntwo DEL\none DEL\n",
		"STATUS": "one STATUS\ntwo STATUS\nthree STATUS\n", "GC": "one GC\ntwo GC\nthree GC\n",
	} {
		rows = append(rows, row{name: verb + " calls the plugins in its order", test: func(l *lab) {
			l.scripts()
			l.must(l.called(verb, l.pod("web"), chainOf(one, two, three), calls))
		}})
		switch verb {
		case "DEL", "STATUS", "GC":
			rows = append(rows, row{name: verb + " calls all plugins, and tells of all that failed", test: func(l *lab) {
				l.scripts()
				l.failing("three "+verb, "one "+verb)
				err := l.called(verb, l.pod("web"), chainOf(one, two, three), calls)
				l.refused(err, "one is closed", "three is closed")
				var e *types.Error
				if !errors.As(err, &e) || e.Code != 105 {
					l.Errorf("want code 105, got %v", err)
				}
			}})
		}
		lost, missing := "", chainOf(one, `{"type":"nowhere"}`, three)
		switch verb {
		case "DEL", "GC":
			lost = strings.Replace(calls, "two "+verb+"\n", "", 1)
			rows = append(rows, row{name: verb + " with a plugin that is not installed calls the others, and fails", test: func(l *lab) {
				l.scripts()
				l.refused(l.called(verb, l.pod("web"), missing, lost), "nowhere")
			}})
		default:
			rows = append(rows, row{name: verb + " with a plugin that is not installed is refused before anything is called", test: func(l *lab) {
				l.scripts()
				for _, list := range []string{missing, chainOf(one, `{}`), chainOf(one, `{"type":"../bin/two"}`), chainOf(one, `7`)} {
					err := l.called(verb, l.pod("web"+fmt.Sprint(len(list))), list, lost)
					l.refused(err)
					l.code(err, 7)
				}
			}})
		}
		rows = append(rows, asLibcni(verb))
	}
	return sorted(rows)
}

// asLibcni is the row that a verb of a chain calls programs of others as libcni does.
func asLibcni(verb string) row {
	bridge := strings.Replace(settled, dns, "{}", 1)
	if verb == "CHECK" {
		bridge = loop // which does not mind what others have made of its result
	}
	list := []string{
		`{"type":"one","capabilities":{"mac":true,"ips":true},"deep":{"list":[1,2.5,null,"\u00e9\n"]},"name":"own"}`,
		bridge,
		`{"type":"two","capabilities":{"portMappings":true},"runtimeConfig":{"mac":"replaced"}}`,
		`{"type":"three","runtimeConfig":{"mac":"kept"},"ipam":{}}`,
	}
	declared := `{"mac":true,"ips":true,"portMappings":true}`
	return row{name: verb + " calls programs of others with what libcni sends them", test: func(l *lab) {
		for _, name := range []string{"one", "two", "three"} {
			l.script(name, `{
				echo "${0##*/} $CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS $CNI_PATH"
				tr -d '\n'
				echo
			} >>/run/calls
			test "$CNI_COMMAND" != ADD || echo '{"cniVersion":"1.1.0","interfaces":[{"name":"'${0##*/}'","mtu":1400}],"ips":[{"address":"192.0.2.9/24","interface":0}],"dns":{"domain":"lab"}}'`)
		}
		c := l.pod("web")
		valid := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: c.ID, IfName: "eth0"}}}
		use := map[string]func(context.Context, *libcni.CNIConfig, *libcni.NetworkConfigList) error{
			"CHECK": func(ctx context.Context, cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
				return cni.CheckNetworkList(ctx, list, c.runtime)
			},
			"STATUS": func(ctx context.Context, cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
				return cni.GetStatusNetworkList(ctx, list)
			},
			"GC": func(ctx context.Context, cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
				return cni.GCNetworkList(ctx, list, valid)
			},
		}
		calls := func(n network) (lines []string) {
			c.runtime = c.RuntimeConf(nil)
			l.must(c.add(n.in("1.1.0"), capability("mac", `"02:aa:00:00:00:01"`), capability("unasked", "true"), ports("8080:80/tcp"), args("IgnoreUnknown=1", "K8S_POD_NAME=web")))
			seen := map[string]string{"ADD": l.calls()}
			if use[verb] != nil {
				l.must(c.call(use[verb]))
				seen[verb] = l.calls()
			}
			l.must(c.del())
			seen["DEL"] = l.calls()
			for line := range strings.Lines(seen[verb]) {
				lines = append(lines, tidy(anyMAC.ReplaceAllString(anyVeth.ReplaceAllString(line, "vethX"), "MAC")))
			}
			return lines
		}
		want := calls(conf(list...))
		l.same(len(want), 6)
		l.same(calls(conf(with(chainOf(list...), "capabilities", declared))), want)
		l.same(calls(conf(list[0], with(chainOf(list[1:3]...), "capabilities", declared), list[3])), want)
	}}
}
