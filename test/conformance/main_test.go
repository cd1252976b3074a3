package conformance

import (
	"cmp"
	"slices"
	"strings"
)

// removesAny is why the reference fails rows about a DEL that comes late.
const removesAny = "its DEL removes the interface of whatever namespace the path is"

// mainPlugin is a plugin that makes interfaces, with what the rows have to know of it that several such plugins share.
type mainPlugin struct {
	kind string
	// masquerades says that ipMasq has two backends, with which rows are tried.
	masquerades bool
	// reached are addresses that all its containers reach, the gateway of IPv4 first.
	reached []string
	// differs says why the reference's plugin fails rows, by their names.
	differs map[string]string
}

// network is a dual-stack network of the plugin, with more keys, each followed by its value in JSON.
func (p mainPlugin) network(l *lab, keys ...string) network {
	switch p.kind {
	case "bridge":
		return l.lan(keys...)
	case "ptp":
		return l.ptp(keys...)
	case "tap":
		return conf(with(tapLan, keys...))
	case "dummy":
		return conf(with(service, keys...))
	}
	return l.on(p.kind, keys...)
}

// row completes a row that plugins share.
func (p mainPlugin) row(r row) row {
	r.differs = cmp.Or(p.differs[r.name], r.differs)
	r.backends = r.backends && p.masquerades
	return r
}

// shared returns those of some cases that the plugin has, each of which names the plugins that don't.
func shared[T interface{ exceptions() string }](p mainPlugin, cases []T) (list []T) {
	for _, c := range cases {
		if !slices.Contains(strings.Fields(c.exceptions()), p.kind) {
			list = append(list, c)
		}
	}
	return list
}

// here returns a text about 10.44.0.0/24 and fd00:44::/64 with the addresses of the container's own network.
func (c *container) here(text string) string {
	if len(c.network.plugins) == 0 {
		return text // it is attached to none
	}
	subnet := "46"
	switch object(c.network.plugins[0])["type"] {
	case "bridge", "ptp":
		return text
	case "dummy":
		subnet = "45"
	}
	return strings.NewReplacer("10.44.", "10."+subnet+".", "fd00:44:", "fd00:"+subnet+":").Replace(text)
}

// edited has the container's network have other keys by now than its ADD was given.
func edited(keys ...string) func(*lab, *container) {
	return func(_ *lab, c *container) { c.network.plugins = []string{with(c.network.plugins[0], keys...)} }
}

// results are rows about what the result has of the IPAM plugin's dns, and of a plugin before.
func (p mainPlugin) results() []row {
	const ipam = `{"type":"static","addresses":[{"address":"10.44.0.2/24","gateway":"10.44.0.1"}],"dns":{"nameservers":["10.44.0.53"],"search":["lab"]}}`
	return []row{
		{name: "dns is the IPAM plugin's", test: func(l *lab) {
			l.same(text(l.attach(p.network(l, "ipam", ipam), "web").result.DNS), `{"nameservers":["10.44.0.53"],"search":["lab"]}`)
		}},
		{name: "an empty list in the network's own dns drops the IPAM plugin's, null or an empty domain does not", test: func(l *lab) {
			for own, want := range map[string]string{`{"nameservers":[]}`: "", `{"options":[],"domain":""}`: "", `{"search":null,"domain":""}`: "10.44.0.53", `{}`: "10.44.0.53"} {
				c := l.attach(p.network(l, "dns", own, "ipam", ipam), "web")
				l.same(strings.Join(c.result.DNS.Nameservers, " "), want)
				l.must(c.del())
				c.Delete(l)
			}
		}},
		{name: "the network's own dns comes before the IPAM plugin's", test: func(l *lab) {
			own := `{"domain":"own","options":["ndots:5"]}`
			l.same(text(l.attach(p.network(l, "dns", own, "ipam", ipam), "web").result.DNS), own)
		}},
		noPrevious(func(l *lab) string { return p.network(l).plugins[0] }),
	}
}

// strangers are rows about a DEL that must not touch what others have.
func (p mainPlugin) strangers() []row {
	late := func(l *lab, del func(old *container) error) {
		old := l.attach(p.network(l), "web")
		newer := old.succeeded(p.network(l))
		l.must(del(old))
		newer.pings(p.reached...)
		l.must(newer.check())
	}
	return []row{
		{name: "DEL leaves nothing in the container", test: func(l *lab) {
			n, web := p.network(l), l.pod("web")
			before := web.Snapshot(l)
			l.must(web.add(n), web.del())
			l.same(before.Diff(web.Snapshot(l), "sysctl"), "")
		}},
		{name: "DEL of a container that was never attached changes nothing", backends: p.masquerades, test: func(l *lab) {
			l.attach(p.network(l), "other")
			never := l.never(p.network(l), "never")
			l.now(never).unchangedBy(never.del(), never.delBare())
		}},
		{name: "DEL on a node where nothing was ever attached changes nothing", backends: p.masquerades, test: func(l *lab) {
			never := l.never(p.network(l), "never")
			l.now(never).unchangedBy(never.del())
			l.noLegacyTables()
		}},
		{name: "DEL leaves nothing though the container's lo has the interface's name and MAC address", differs: "its DEL fails, or keeps the address", test: func(l *lab) {
			before := l.warmed(p.network(l))
			for _, del := range []func(*container) error{(*container).del, func(c *container) error {
				_, err := l.exec("DEL", c, with(c.network.plugins[0], "capabilities", "{}"))
				return err
			}} {
				c := l.attach(p.network(l), "web")
				mac := l.link(&c.Namespace, "eth0")["address"].(string)
				c.run("ip link del eth0", "ip link set lo down name eth0 address "+mac)
				l.must(del(c))
				c.Delete(l)
			}
			before.unchanged()
		}},
		{name: "a late DEL leaves the container that has the namespace's path by now", differs: removesAny, test: func(l *lab) { late(l, (*container).del) }},
		{name: "a late DEL leaves the container that has the namespace's path, address and MAC address by now", differs: removesAny, test: func(l *lab) {
			n := p.network(l)
			old := l.attach(n, "web")
			gateway := ""
			if len(p.reached) > 0 {
				gateway = " " + p.reached[0]
			}
			n.plugins[0] = with(n.plugins[0], "ipam", fixedIPs(old.v4+"/24"+gateway))
			newer := old.succeeded(n)
			l.must(old.del(), newer.check())
		}},
		{name: "a late DEL without a result leaves the container that has the namespace's path by now", differs: removesAny, test: func(l *lab) {
			late(l, func(old *container) error {
				_, err := l.exec("DEL", old, with(old.network.plugins[0], "capabilities", "{}"))
				return err
			})
		}},
	}
}

// macCase is a MAC address that is asked for in several ways at once, and the one that counts.
type macCase struct {
	name                  string
	args, config, runtime bool
	want                  string
}

// The MAC addresses that MAC of CNI_ARGS, the configuration and the capability mac ask for.
const macOfArgs, macOfConfig, macOfRuntime = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"

// macs are rows about them; config is the key of the configuration, and its value.
func (p mainPlugin) macs(config []string, cases []macCase) (rows []row) {
	for _, c := range cases {
		rows = append(rows, row{name: c.name, test: func(l *lab) {
			n, options := p.network(l), []option{}
			if c.args {
				options = append(options, args("IgnoreUnknown=1", "MAC="+macOfArgs))
			}
			if c.config {
				n = p.network(l, config...)
			}
			if c.runtime {
				options = append(options, capability("mac", text(macOfRuntime)))
			}
			web := l.attach(n, "web", options...)
			web.has("address", c.want)
			own := web.result.Interfaces
			l.same(own[len(own)-1].Mac, c.want)
			web.pings(p.reached...)
			l.must(web.check())
		}})
	}
	return rows
}
