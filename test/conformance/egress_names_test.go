package conformance

import (
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// resolverPort is where the agent answers containers that have names on their lists.
const resolverPort = 305

// egressNames are rows for names on lists, as far as the plugin alone goes: what they lead to is opened by the agent.
func egressNames() []row {
	named := egress("allow", `["api.example.com:80","*.example.org"]`, "deny", `["no.example.org"]`)
	ask := func(c *container, servers ...string) []path { return both(&c.Namespace, 53, servers...) }
	return slices.Concat(
		listed("questions for names go to the agent, whichever server they are for, and nothing is open", func(l *lab, main string) {
			l.wideOutside()
			l.serve(&l.host.Namespace, resolverPort)
			web := l.attach(conf(main, named), "web")
			l.pass(ask(web, "10.44.0.1", "fd00:44::1", netlab.OutsideIPv4, netlab.OutsideIPv6, netlab.HostIPv4, "203.0.113.9")...)
			l.silent(everywhere(&web.Namespace)...)
			l.must(web.check(), web.del())
		}),
		listed("internal: questions go to the agent, and nothing else to the node", func(l *lab, main string) {
			l.wideOutside()
			l.serve(&l.host.Namespace, resolverPort)
			web := l.attach(conf(main, egress("internal", "true")), "web")
			l.pass(ask(web, "10.44.0.1", netlab.OutsideIPv4)...)
			l.silent(everywhere(&web.Namespace)...)
			l.must(web.check(), web.del())
		}),
		listed("without names on its list a container asks the server that it wants to", func(l *lab, main string) {
			l.serve(l.wideOutside(), 53)
			l.serve(&l.host.Namespace, resolverPort)
			web := l.attach(conf(main, egress("allow", `["`+netlab.OutsideIPv4+`:53"]`)), "web")
			l.pass(ask(web, netlab.OutsideIPv4)...)
			l.silent(ask(web, "10.44.0.1", netlab.OutsideIPv6)...)
		}),
		[]row{
			{name: "names: CHECK sees what the agent reads, and a repair writes it", test: func(l *lab) {
				web := l.attach(conf(lan, named), "web")
				l.clear("/run/cnibox/names")
				l.refused(web.check(), "cnictl repair")
				l.must(web.del())
			}},
			{name: "names: what they have opened stays while another container has the list", test: func(l *lab) {
				l.wideOutside()
				web, db := l.attach(conf(lan, named), "web"), l.attach(conf(lan, named), "db")
				l.silent(tcp(&db.Namespace, netlab.OutsideIPv4, 80))
				for _, word := range strings.Fields(l.run("nft list sets inet")) {
					if strings.HasPrefix(word, "names") && strings.Contains(word, "_4_") {
						l.run("nft add element inet cnibox-egress " + word + " { " + netlab.OutsideIPv4 + ` timeout 1h comment "api.example.com" }`)
					}
				}
				l.pass(tcp(&web.Namespace, netlab.OutsideIPv4, 80), tcp(&db.Namespace, netlab.OutsideIPv4, 80))
				l.must(web.check(), web.del(), db.check())
				l.pass(tcp(&db.Namespace, netlab.OutsideIPv4, 80))
				l.must(db.del())
			}},
			{name: "names: the same lists in other words and another order are the same", test: func(l *lab) {
				web := l.attach(conf(lan, named), "web")
				web.network = conf(lan, egress("allow", `["*.Example.org.","api.example.com:80-80","api.example.com:80"]`, "deny", `["no.example.org."]`))
				l.must(web.check())
				web.network = conf(lan, egress("allow", `["*.example.org"]`))
				l.refused(web.check(), "start the container again")
			}},
			{name: "names: STATUS says that no agent answers", test: func(l *lab) {
				l.code(l.status(conf(lan, named)), 50, "cnictl agent --dns")
			}},
			{name: "names without a gateway are refused: there is nobody to ask", test: func(l *lab) {
				w := l.attach(conf(with(layer2, "ipam", `{"type":"static","addresses":[{"address":"10.44.0.5/24"}]}`)), "web")
				_, err := l.exec("ADD", w, with(named, "prevResult", w.printed))
				l.code(err, 7, "gateway")
			}},
		})
}
