package conformance

import "strings"

// refusal is a configuration, or a state of the node or the container, with which ADD fails.
type refusal struct {
	name, says, differs, except string
	keys                        []string
	prepare                     func(l *lab, web *container)
	options                     []option
}

func (r refusal) exceptions() string { return r.except }

// refusals are what ADD refuses before it does anything.
var refusals = []refusal{
	{name: "an mtu below 68", except: "macvlan ipvlan vlan", keys: []string{"mtu", "67"}},
	{name: "an mtu above 65535", except: "macvlan ipvlan vlan", keys: []string{"mtu", "65536"}},
	{name: "an mtu that is no number", says: "mtu", keys: []string{"mtu", `"1400"`}},
	{name: "an IPAM plugin that is not there", says: "frobnicate", keys: []string{"ipam", `{"type":"frobnicate"}`}},
	{name: "a backend of masquerading that nobody has", except: "macvlan ipvlan vlan tap", says: "frobnicate", keys: []string{"ipMasqBackend", `"frobnicate"`}},
}

func (p mainPlugin) refusals(own []refusal) (rows []row) {
	for _, c := range append(shared(p, refusals), own...) {
		rows = append(rows, p.row(row{name: c.name + " is refused, and changes nothing", differs: c.differs, test: func(l *lab) {
			l.warm(p.network(l))
			web := l.pod("web")
			if c.prepare != nil {
				c.prepare(l, web)
			}
			l.now(web).refused(web.add(p.network(l, c.keys...), c.options...), c.says)
		}}))
	}
	return rows
}

// failures are what ADD finds out on its way.
var failures = []refusal{
	{name: "a gateway out of reach", says: "172.31.0.1",
		keys: []string{"ipam", `{"type":"host-local","subnet":"10.44.0.0/24","routes":[{"dst":"10.60.0.0/16","gw":"172.31.0.1"}]}`}},
	{name: "a container that has the interface", says: "eth0", prepare: inside("ip link add eth0 type bridge")},
	{name: "no free address", keys: []string{"ipam", `{"type":"host-local","ranges":[[{"subnet":"10.44.0.0/24","rangeStart":"10.44.0.5","rangeEnd":"10.44.0.5"}]]}`},
		prepare: func(l *lab, _ *container) { l.takeAddress("10.44.0.5") }},
	{name: "an IPAM plugin that gives no address", keys: []string{"ipam", `{"type":"static"}`}},
}

func (p mainPlugin) failures(own []refusal) (rows []row) {
	for _, c := range append(shared(p, failures), own...) {
		rows = append(rows, p.row(row{name: "after an ADD that fails all is as before: " + c.name, differs: c.differs, test: func(l *lab) {
			l.warm(p.network(l))
			web := l.pod("web")
			if c.prepare != nil {
				c.prepare(l, web)
			}
			l.undoes(web, p.network(l, c.keys...), c.says)
		}}))
	}
	return append(rows, p.row(row{name: "a second ADD is refused, and changes nothing", test: func(l *lab) {
		says := "eth0"
		if p.kind == "ptp" && l.suite.reference {
			says = "" // its error does not name the interface
		}
		l.refuses(l.attach(p.network(l), "web"), p.network(l), says)
	}}))
}

// takeAddress has somebody hold an address of the network lan.
func (l *lab) takeAddress(address string) {
	l.write("/var/lib/cni/networks/lan/"+address, strings.Repeat("0", 64)+"\r\neth0")
}
