package conformance

import (
	"slices"

	"github.com/containernetworking/plugins/pkg/ns"
)

// stateOfDel is how DEL finds an attachment.
type stateOfDel struct {
	name, differs, except string
	keys                  []string // of ADD's configuration
	backends              bool
	state                 func(l *lab, c *container)
	bare                  bool // with as little as a runtime may send
}

func (s stateOfDel) exceptions() string { return s.except }

var statesOfDel = []stateOfDel{
	{name: "DEL leaves nothing", backends: true},
	{name: "DEL with the namespace gone leaves nothing", backends: true, state: func(l *lab, c *container) { c.Delete(l) }},
	{name: "DEL with the namespace gone and no result leaves nothing", backends: true, state: func(l *lab, c *container) { c.Delete(l); l.forget() }},
	{name: "DEL with a file left at the namespace's path leaves nothing", differs: "its DEL fails then", state: func(l *lab, c *container) { c.DeleteKeepFile(l) }},
	{name: "DEL without the namespace's path and without a result leaves nothing", except: "macvlan ipvlan vlan tap dummy", backends: true, bare: true},
	{name: "DEL without a result leaves nothing", except: "dummy", backends: true, state: func(l *lab, _ *container) { l.forget() }},
	{name: "DEL with the interface gone leaves nothing", backends: true, state: inside("ip link del eth0")},
	{name: "DEL with the interface renamed leaves nothing", except: "tap dummy", differs: "it looks for the interface by its name",
		state: inside("ip link set eth0 down", "ip link set eth0 name net7")},
	{name: "DEL with another namespace at the path leaves nothing", except: "dummy", state: func(l *lab, c *container) { c.Replace(l) }},
	{name: "DEL without ipMasq, which ADD had, leaves nothing", except: "macvlan ipvlan vlan tap dummy",
		differs: "its DEL removes masquerading if it is still configured", backends: true, state: edited("ipMasq", "false")},
	{name: "DEL with another ipMasqBackend leaves nothing", except: "macvlan ipvlan vlan tap dummy", backends: true, state: func(l *lab, c *container) {
		other := map[string]string{"": "iptables", "iptables": "nftables"}[l.backend]
		edited("ipMasqBackend", text(other))(l, c)
	}},
	{name: "DEL with a value of the wrong kind that only ADD needs leaves nothing", except: "macvlan ipvlan vlan tap dummy",
		differs: "it reads all keys for DEL", state: edited("mtu", `"1400"`)},
	{name: "DEL twice is no error", backends: true, state: func(l *lab, c *container) { l.must(c.del()) }},
	{name: "DEL twice, the second time with the namespace gone, is no error", except: "dummy", state: func(l *lab, c *container) { l.must(c.del()); c.Delete(l) }},
}

// dels attach a container, have DEL find it in the states that plugins share and in the plugin's own, and compare with what was there before.
func (p mainPlugin) dels(own []stateOfDel) (rows []row) {
	for _, s := range append(shared(p, statesOfDel), own...) {
		rows = append(rows, p.row(row{name: s.name, differs: s.differs, backends: s.backends, test: func(l *lab) {
			before := l.warmed(p.network(l, apart(s.keys, "bridge")...))
			web := l.attach(p.network(l, s.keys...), "web")
			if s.state != nil {
				s.state(l, web)
			}
			if s.bare {
				l.must(web.delBare())
			} else {
				l.must(web.del())
			}
			before.unchanged()
			if l.isNetns(web.Path()) && !s.bare {
				l.same(len(l.linksOf(&web.Namespace)), 1)
			}
		}}))
	}
	return rows
}

// isNetns reports whether there is a namespace at a path.
func (l *lab) isNetns(path string) (is bool) {
	l.host.Do(func() { is = ns.IsNSorErr(path) == nil })
	return is
}

// gcs are rows about GC; keys are more of the networks' configuration.
func (p mainPlugin) gcs(keys ...string) []row {
	return []row{
		{name: "GC removes attachments whose namespaces are gone", differs: noGC, backends: true, test: func(l *lab) {
			n := p.network(l, keys...)
			keep := l.attach(n, "keep")
			l.warm(n)
			before := l.now(keep)
			l.attach(n, "lost").Delete(l)
			l.must(l.gc(n, keep))
			before.unchanged()
			l.must(keep.check())
		}},
		{name: "GC removes attachments that are not valid, though their namespaces are there", differs: noGC, backends: true, test: func(l *lab) {
			n := p.network(l)
			l.warm(n)
			keep := l.attach(n, "keep")
			before := l.now(keep)
			lost := l.attach(n, "lost")
			l.must(l.gc(n, keep))
			before.unchanged()
			l.lacks(lost.run("ip link"), "eth0")
		}},
		{name: "GC leaves a network whose name begins alike", backends: true, test: func(l *lab) {
			c := l.attach(p.network(l).called("lan2"), "web")
			l.now(c).unchangedBy(l.gc(p.network(l)))
			l.must(c.check())
		}},
		{name: "GC leaves all that is valid", backends: true, test: func(l *lab) {
			n := p.network(l, keys...)
			a, b := l.attach(n, "a"), l.attach(n, "b")
			l.now(a, b).unchangedBy(l.gc(n, a, b))
		}},
		{name: "GC without a list removes nothing", test: func(l *lab) {
			c := l.attach(p.network(l), "web")
			l.now(c).unchangedBy(l.verb("GC", nil, with(c.network.plugins[0], "capabilities", "{}", "cniVersion", `"1.1.0"`)))
		}},
		{name: "GC on a node where nothing was ever attached changes nothing", backends: true, test: func(l *lab) {
			l.now().unchangedBy(l.gc(p.network(l, keys...)))
		}},
	}
}

// apart returns keys and values without those of one key.
func apart(keys []string, key string) []string {
	if i := slices.Index(keys, key); i >= 0 {
		return slices.Delete(slices.Clone(keys), i, i+2)
	}
	return keys
}
