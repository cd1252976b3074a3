package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

var tuningRows = group{name: "tuning", rows: slices.Concat(
	tuningAttributes(), tuningSources(), tuningSysctls(), tuningAllowlist(), tuningResults(), tuningRefusals(),
	tuningBackups(), tuningDel(), tuningGC(), tuningCheck(), tuningStatus(),
	hostileRows([]hostileAct{
		{"another link of the segment has the MAC address from before", "link add link eth0 name up0 address 02:00:00:00:00:0a up type macvlan mode bridge\n"},
	}, func(l *lab) network {
		segment := l.on("macvlan", "mac", `"02:00:00:00:00:0a"`)
		return conf(append(segment.plugins, tuning(allAttributes))...)
	}),
)}

// Why the reference plugin fails rows.
const (
	noUndo         = "a failed ADD leaves what it has changed"
	fileLeaks      = "its DEL leaves the file of previous values when the interface is gone"
	macAsWritten   = "it writes the MAC address to the result as the configuration does, and its CHECK compares the texts"
	everyDot       = "it takes every dot in a name for a slash"
	overwrites     = "a second ADD overwrites the values that the first one recorded"
	anyInterface   = "its DEL changes whatever interface has the name by now"
	ignoresErrors  = "its DEL ignores all errors of the kernel"
	promiscOff     = "its CHECK wants promiscuous mode off when it is not configured"
	comparesBlanks = "its CHECK takes the tabs that the kernel shows between numbers for a difference"
)

// untuned is the interface of the rows, as it is before tuning.
const (
	untunedMAC = "02:00:00:00:00:01"
	untuned    = untunedMAC + " mtu 1500 txqlen 1000"
)

// tuning is the plugin's configuration with these keys.
func tuning(keys string) string {
	return `{"type":"tuning",` + keys + `}`
}

// fresh makes a container with an interface that some plugin has made.
func (l *lab) fresh(name string, options ...option) *container {
	c := l.pod(name)
	for _, o := range options {
		o(c.runtime)
	}
	c.addLink(untunedMAC)
	return c
}

func (c *container) addLink(mac string) {
	c.run("ip link add " + c.runtime.IfName + " address " + mac + " type veth peer name peer0")
}

// previous is the result of the plugin that made the interface.
func (c *container) previous() string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","interfaces":[{"name":%q,"mac":%q,"sandbox":%q}]}`, c.runtime.IfName, untunedMAC, c.Path())
}

// tune calls a verb of tuning as a runtime does: ADD with the result of the plugin that made the interface, others with that of
// tuning's ADD.
func (c *container) tune(verb, keys string, changes ...change) error {
	previous := c.printed
	if verb == "ADD" || previous == "" {
		previous = c.previous()
	}
	printed, err := c.lab.exec(verb, c, with(tuning(keys), "prevResult", previous), changes...)
	if verb == "ADD" {
		c.printed = printed
	}
	return err
}

// inOrder has "sysctl":"in order" of a configuration be an object with these keys and values, in this order: other JSON of a
// row gets its keys sorted.
func inOrder(keysAndValues ...string) change {
	var pairs []string
	for i := 0; i < len(keysAndValues); i += 2 {
		pairs = append(pairs, text(keysAndValues[i])+":"+text(keysAndValues[i+1]))
	}
	return func(call *netlab.PluginCall) {
		call.Config = strings.Replace(call.Config.(string), `"in order"`, "{"+strings.Join(pairs, ",")+"}", 1)
	}
}

// tuned is a container that tuning has been called for.
func (l *lab) tuned(keys string, changes ...change) *container {
	c := l.fresh("web")
	l.must(c.tune("ADD", keys, changes...))
	return c
}

// looks makes sure that the container's interface has these values.
func (c *container) looks(want string) {
	link := c.lab.link(&c.Namespace, c.runtime.IfName)
	queue := link["txqlen"]
	if queue == nil { // ip leaves 0 out
		queue = 0
	}
	got := fmt.Sprintf("%v mtu %v txqlen %v", link["address"], link["mtu"], queue)
	flags, _ := link["flags"].([]any)
	for _, flag := range []any{"PROMISC", "ALLMULTI"} {
		if slices.Contains(flags, flag) {
			got += strings.ToLower(fmt.Sprintf(" %s", flag))
		}
	}
	c.lab.same(got, want)
}

// backup is the file of the values before.
func (c *container) backup() string {
	return "/run/cni/tuning/" + c.ID + "_" + c.runtime.IfName + ".json"
}

// recorded returns the values in that file as the reference plugin writes them, which does not say whose they are.
func (c *container) recorded() string {
	return regexp.MustCompile(`,\n "(network|containerID|ifname)": "[^"]*"`).ReplaceAllString(c.lab.read(c.backup()), "")
}

const (
	allAttributes = `"mac":"02:00:00:00:00:aa","promisc":true,"mtu":1400,"allmulti":true,"txQLen":77`
	allTuned      = "02:00:00:00:00:aa mtu 1400 txqlen 77 promisc allmulti"
	allRecorded   = "{\n \"mac\": \"" + untunedMAC + "\",\n \"promisc\": false,\n \"mtu\": 1500,\n \"allmulti\": false,\n \"txQLen\": 1000\n}"
)

func tuningAttributes() (rows []row) {
	for _, c := range []struct{ name, keys, want string }{
		{"mac", `"mac":"02:00:00:00:00:aa"`, "02:00:00:00:00:aa mtu 1500 txqlen 1000"},
		{"mac in capitals", `"mac":"02:00:00:00:00:AA"`, "02:00:00:00:00:aa mtu 1500 txqlen 1000"},
		{"mac with dashes", `"mac":"02-00-00-00-00-AA"`, "02:00:00:00:00:aa mtu 1500 txqlen 1000"},
		{"promisc", `"promisc":true`, untuned + " promisc"},
		{"mtu", `"mtu":1400`, untunedMAC + " mtu 1400 txqlen 1000"},
		{"allmulti", `"allmulti":true`, untuned + " allmulti"},
		{"txQLen", `"txQLen":77`, untunedMAC + " mtu 1500 txqlen 77"},
		{"txQLen 0", `"txQLen":0`, untunedMAC + " mtu 1500 txqlen 0"},
		{"all attributes together", allAttributes, allTuned},
	} {
		rows = append(rows, row{name: c.name + " is set", test: func(l *lab) { l.tuned(c.keys).looks(c.want) }})
	}
	return append(rows,
		row{name: "allmulti false switches it off", test: func(l *lab) {
			c := l.fresh("web")
			c.run("ip link set eth0 allmulticast on")
			l.must(c.tune("ADD", `"allmulti":false`))
			c.looks(untuned)
		}},
		row{name: "what is left out, empty, 0 or false stays as it is", test: func(l *lab) {
			c := l.fresh("web")
			c.run("ip link set eth0 promisc on mtu 1300")
			l.must(c.tune("ADD", `"mac":"","promisc":false,"mtu":0,"sysctl":{}`))
			c.looks(untunedMAC + " mtu 1300 txqlen 1000 promisc")
			l.same(l.read(c.backup()), "")
		}},
		row{name: "mac in the form with dots is set", test: func(l *lab) { l.tuned(`"mac":"02aa.0000.0001"`).looks("02:aa:00:00:00:01 mtu 1500 txqlen 1000") }},
	)
}

func tuningSources() (rows []row) {
	const all = `"mac":"02:00:00:00:00:0a","runtimeConfig":{"mac":"02:00:00:00:00:0c"},"args":{"cni":{"mac":"02:00:00:00:00:0d"}}`
	cniArgs := env("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=web;MAC=02:00:00:00:00:0b")
	for _, c := range []struct{ name, keys, mac string }{
		{"MAC in CNI_ARGS overrides mac", `"mac":"02:00:00:00:00:0a"`, "02:00:00:00:00:0b"},
		{"runtimeConfig.mac overrides MAC in CNI_ARGS", `"mac":"02:00:00:00:00:0a","runtimeConfig":{"mac":"02:00:00:00:00:0c"}`, "02:00:00:00:00:0c"},
		{"args.cni.mac overrides runtimeConfig.mac", all, "02:00:00:00:00:0d"},
	} {
		rows = append(rows, row{name: c.name, test: func(l *lab) {
			l.tuned(c.keys, cniArgs).looks(c.mac + " mtu 1500 txqlen 1000")
		}})
	}
	return append(rows,
		row{name: "MAC in CNI_ARGS is set", test: func(l *lab) {
			l.tuned(`"mtu":1400`, env("CNI_ARGS=MAC=02:00:00:00:00:0b")).looks("02:00:00:00:00:0b mtu 1400 txqlen 1000")
		}},
		row{name: "an argument in CNI_ARGS that is not known is refused without IgnoreUnknown", test: func(l *lab) {
			l.refused(l.fresh("web").tune("ADD", `"mtu":1400`, env("CNI_ARGS=K8S_POD_NAME=web")), "K8S_POD_NAME")
		}},
		row{name: "the capability mac is set", test: func(l *lab) {
			bridge := with(lan, "capabilities", "{}")
			c := l.attach(conf(bridge, tuning(`"capabilities":{"mac":true}`)), "web", capability("mac", `"02:00:00:00:00:0c"`))
			c.has("address", "02:00:00:00:00:0c")
			l.must(c.check())
		}},
		row{name: "args.cni sets all attributes", test: func(l *lab) {
			l.tuned(`"mtu":1300,"allmulti":false,"txQLen":5,"args":{"cni":{` + allAttributes + `}}`).looks(allTuned)
		}},
		row{name: "args.cni: promisc false and mtu 0 override the configuration", test: func(l *lab) {
			l.tuned(`"promisc":true,"mtu":1400,"args":{"cni":{"promisc":false,"mtu":0}}`).looks(untuned)
		}},
		row{name: "args.cni.sysctl is added to sysctl, key by key", test: func(l *lab) {
			c := l.tuned(`"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1","net.ipv4.conf.IFNAME.arp_ignore":"1"},
				"args":{"cni":{"sysctl":{"net.ipv4.conf.IFNAME.arp_ignore":"2","net.ipv4.conf.IFNAME.arp_announce":"2"}}}`)
			for key, want := range map[string]string{"arp_filter": "1", "arp_ignore": "2", "arp_announce": "2"} {
				l.same(key+" "+c.sysctl("ipv4/conf/eth0/"+key), key+" "+want)
			}
		}},
		row{name: "args.cni.sysctl needs no sysctl in the configuration", differs: "it crashes", test: func(l *lab) {
			l.same(l.tuned(`"args":{"cni":{"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}}}`).sysctl("ipv4/conf/eth0/arp_filter"), "1")
		}},
	)
}

func tuningSysctls() (rows []row) {
	for _, c := range []struct{ name, key, ifname, differs string }{
		{"with dots", "net.ipv4.conf.eth0.arp_filter", "eth0", ""},
		{"with slashes", "net/ipv4/conf/eth0/arp_filter", "eth0", ""},
		{"with IFNAME for the interface", "net.ipv4.conf.IFNAME.arp_filter", "net1", ""},
		{"with slashes and IFNAME", "net/ipv4/conf/IFNAME/arp_filter", "net1", ""},
		{"with IFNAME for an interface that has a dot in its name", "net.ipv4.conf.IFNAME.arp_filter", "eth0.5", ""},
		{"with slashes, and a dot in a name", "net/ipv4/conf/eth0.5/arp_filter", "eth0.5", everyDot},
		{"with dots, and a slash for the dot in a name", "net.ipv4.conf.eth0/5.arp_filter", "eth0.5", everyDot},
	} {
		rows = append(rows, row{name: "a sysctl " + c.name, differs: c.differs, test: func(l *lab) {
			web := l.fresh("web", ifname(c.ifname))
			l.must(web.tune("ADD", fmt.Sprintf(`"sysctl":{%q:"1"}`, c.key)))
			l.same(web.sysctl("ipv4/conf/"+c.ifname+"/arp_filter"), "1")
		}})
	}
	return append(rows,
		row{name: "a sysctl of several numbers", test: func(l *lab) {
			l.same(l.tuned(`"sysctl":{"net.ipv4.ip_local_port_range":"20000 60999"}`).sysctl("ipv4/ip_local_port_range"), "20000\t60999")
		}},
		row{name: "sysctls are set in the order of the configuration", differs: "it sets sysctls in random order", test: func(l *lab) {
			// A sysctl of all interfaces overwrites that of each.
			all := []string{"net.ipv4.conf.all.forwarding", "net.ipv6.conf.all.forwarding", "net.ipv6.conf.all.disable_ipv6"}
			one := []string{"net.ipv4.conf.IFNAME.forwarding", "net.ipv6.conf.IFNAME.forwarding", "net.ipv6.conf.IFNAME.disable_ipv6"}
			filler := []string{"net.ipv4.conf.IFNAME.arp_filter", "net.ipv4.conf.IFNAME.arp_ignore"}
			for i, keys := range [][]string{slices.Concat(all, filler, one), slices.Concat(one, filler, all), slices.Concat(all, one), slices.Concat(one, all)} {
				c := l.fresh(fmt.Sprint("web", i))
				var sysctls []string
				for _, key := range keys {
					value := "1"
					if slices.Contains(one, key) {
						value = "0"
					}
					sysctls = append(sysctls, key, value)
				}
				l.must(c.tune("ADD", `"sysctl":"in order"`, inOrder(sysctls...)))
				last := keys[len(keys)-1]
				for _, path := range []string{"ipv4/conf/eth0/forwarding", "ipv6/conf/eth0/forwarding", "ipv6/conf/eth0/disable_ipv6"} {
					want := map[bool]string{true: "0", false: "1"}[slices.Contains(one, last)]
					if got := c.sysctl(path); got != want {
						l.Errorf("%s is %s, want %s after %q", path, got, want, keys)
					}
				}
			}
		}},
		row{name: "sysctls are set before the attributes", test: func(l *lab) {
			// An MTU below 1280 takes IPv6 from the interface, and its sysctls.
			l.tuned(`"mtu":1000,"sysctl":{"net.ipv6.conf.IFNAME.accept_ra":"0"}`).looks(untunedMAC + " mtu 1000 txqlen 1000")
		}},
		row{name: "sysctls are those of the container, not of the node", test: func(l *lab) {
			before := l.now()
			c := l.tuned(`"sysctl":{"net.ipv4.conf.all.forwarding":"1","net.ipv4.conf.default.arp_ignore":"1"}`)
			l.same(c.sysctl("ipv4/conf/all/forwarding"), "1")
			l.lacks(before.changed(), "sysctl")
		}},
	)
}

const arpFilter = `"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}`

func tuningAllowlist() (rows []row) {
	const key = "net.ipv4.conf.IFNAME.arp_filter"
	for _, c := range []struct {
		name, list string
		allows     bool
	}{
		{"allows what a line matches", "^net\\.core\n\n  ^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]+$  \n", true},
		{"line may match any part of the name", "arp_fil\n", true},
		{"line in the form of the name's dots matches", key, true},
		{"refuses what no line matches", "^net.ipv6\n^net.core\n", false},
		{"compares names as they are written", "^net.ipv4.conf.eth0.arp_filter$\n", false},
		{"that is empty refuses all sysctls", "", false},
		{"of blank lines refuses all sysctls", "\n  \n", false},
		{"knows groups, classes and repetition", `^net(\.|/)ipv[46]\.(conf|neigh)\.[A-Z]+\.\w{3}_?f\D*r$` + "\n", true},
		{"has no comments: # is a character", "#" + key + "\n", false},
		{"knows (?i)", "(?i)^NET.IPV4\n", true},
		{"knows [[:alpha:]]", "^[[:alpha:]]+\\.ipv4\n", true},
		{"knows \\b", `\bconf\b` + "\n", true},
	} {
		rows = append(rows, row{name: "an allowlist " + c.name, test: func(l *lab) {
			l.write("/etc/cni/tuning/allowlist.conf", c.list)
			web := l.fresh("web")
			err, want := web.tune("ADD", arpFilter), "1"
			if c.allows {
				l.must(err)
			} else {
				l.refused(err, key)
				want = "0"
			}
			l.same(web.sysctl("ipv4/conf/eth0/arp_filter"), want)
		}})
	}
	return append(rows,
		row{name: "without an allowlist all sysctls of net are allowed", test: func(l *lab) {
			l.write("/etc/cni/tuning/other.conf", "^net.core")
			l.same(l.tuned(arpFilter).sysctl("ipv4/conf/eth0/arp_filter"), "1")
		}},
		row{name: "an allowlist holds for args.cni.sysctl", test: func(l *lab) {
			l.write("/etc/cni/tuning/allowlist.conf", "arp_filter")
			c := l.fresh("web")
			l.now(c).refused(c.tune("ADD", arpFilter+`,"args":{"cni":{"sysctl":{"net.ipv4.ip_forward":"1"}}}`), "net.ipv4.ip_forward")
		}},
		row{name: "an allowlist says nothing about attributes", test: func(l *lab) {
			l.write("/etc/cni/tuning/allowlist.conf", "")
			l.tuned(allAttributes).looks(allTuned)
		}},
		row{name: "an allowlist with a line that is no pattern allows nothing", test: func(l *lab) {
			l.write("/etc/cni/tuning/allowlist.conf", "net(\n")
			c := l.fresh("web")
			l.refused(c.tune("ADD", arpFilter), "net(")
			l.same(c.sysctl("ipv4/conf/eth0/arp_filter"), "0")
		}},
		row{name: "CHECK and DEL don't ask the allowlist", test: func(l *lab) {
			c := l.tuned(arpFilter + `,"mtu":1400`)
			l.write("/etc/cni/tuning/allowlist.conf", "^net.core")
			l.must(c.tune("CHECK", arpFilter+`,"mtu":1400`), c.tune("DEL", arpFilter+`,"mtu":1400`))
			c.looks(untuned)
		}},
	)
}

func tuningResults() []row {
	tuned := func(c *container, version, keys string) string {
		previous := `{"cniVersion":` + text(version) + `,"interfaces":[{"name":"eth0","mac":"0a:00:00:00:00:01"},
			{"name":"eth0","mac":"` + untunedMAC + `","sandbox":"/run/netns/web"}],"ips":[{"address":"10.1.0.2/24","interface":1}],
			"routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.1"}],"dns":{"nameservers":["10.1.0.1"]}}`
		printed, err := c.lab.exec("ADD", c, with(tuning(keys), "cniVersion", text(version), "prevResult", previous))
		c.lab.must(err)
		return printed
	}
	want := func(version, values string) string {
		return `{"cniVersion":` + text(version) + `,"interfaces":[{"name":"eth0","mac":"0a:00:00:00:00:01"},
			{"name":"eth0",` + values + `,"sandbox":"/run/netns/web"}],"ips":[{"address":"10.1.0.2/24","interface":1}],
			"routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.1"}],"dns":{"nameservers":["10.1.0.1"]}}`
	}
	return []row{
		{name: "the result is the one before", test: func(l *lab) {
			l.printed(tuned(l.fresh("web"), "1.0.0", arpFilter+`,"promisc":true,"txQLen":77`), want("1.0.0", `"mac":"`+untunedMAC+`"`))
		}},
		{name: "the result has the MAC address", differs: "it writes the MAC address to links of the node too that have the container's interface name", test: func(l *lab) {
			l.printed(tuned(l.fresh("web"), "1.0.0", `"mac":"02:00:00:00:00:aa"`), want("1.0.0", `"mac":"02:00:00:00:00:aa"`))
		}},
		{name: "the result behind bridge has the MAC address", test: func(l *lab) {
			c := l.attach(conf(lan, tuning(`"mac":"02:00:00:00:00:aa"`)), "web")
			l.printed(c.printed, `{"cniVersion":"1.0.0",
				"interfaces":[{"name":"lan0","mac":"MAC"},{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"02:00:00:00:00:aa","sandbox":"/run/netns/web"}],
				"ips":[{"address":"10.44.0.2/24","gateway":"10.44.0.1","interface":2},{"address":"fd00:44::2/64","gateway":"fd00:44::1","interface":2}],
				"routes":[{"dst":"0.0.0.0/0","gw":"10.44.0.1"},{"dst":"::/0","gw":"fd00:44::1"}]}`)
		}},
		{name: "the result has the MAC address in lower case, with colons", differs: macAsWritten, test: func(l *lab) {
			l.shows(l.tuned(`"mac":"02-00-00-00-00-AA"`).printed, `"02:00:00:00:00:aa"`)
		}},
		{name: "the result has the MTU", differs: "it does not write the MTU to the result", test: func(l *lab) {
			l.printed(tuned(l.fresh("web"), "1.1.0", `"mtu":1400`), want("1.1.0", `"mac":"`+untunedMAC+`","mtu":1400`))
		}},
	}
}

func tuningRefusals() (rows []row) {
	const unmarked = "" // the reference refuses it before it changes anything
	for _, c := range []struct{ name, keys, names, differs string }{
		{"a sysctl outside of net", `"sysctl":{"kernel.hostname":"x"}`, "hostname", unmarked},
		{"a sysctl that leads out of net", `"sysctl":{"net/../kernel/hostname":"x"}`, "hostname", unmarked},
		{"a sysctl that is a number", `"sysctl":{"net.ipv4.ip_forward":1}`, "sysctl", unmarked},
		{"a sysctl that is there twice, in different forms", `"sysctl":{"net.ipv4.ip_forward":"1","net/ipv4/ip_forward":"0"}`, "net/ipv4/ip_forward",
			"it compares names as they are written"},
		{"a sysctl that there is not", `"sysctl":{"net.ipv4.conf.IFNAME.nonsense":"1"}`, "nonsense", unmarked},
		{"a value that the sysctl does not take", `"sysctl":{"net.ipv4.ip_forward":"yes"}`, "ip_forward", unmarked},
		{"a mac that is none", arpFilter + `,"mac":"zz"`, "zz", noUndo},
		{"a runtimeConfig.mac that is none", arpFilter + `,"runtimeConfig":{"mac":"02:00"}`, "02:00", noUndo},
		{"an args.cni.mac that is none", arpFilter + `,"args":{"cni":{"mac":"02:00"}}`, "02:00", noUndo},
		{"a mac of a group", arpFilter + `,"mac":"03:00:00:00:00:01"`, "", noUndo},
		{"a mac of zeros", arpFilter + `,"mac":"00:00:00:00:00:00"`, "", noUndo},
		{"an mtu that the interface does not take", arpFilter + `,"mac":"02:00:00:00:00:02","promisc":true,"mtu":65536`, "", noUndo},
		{"an mtu below 0", arpFilter + `,"mtu":-1`, "", noUndo},
		{"a txQLen below 0", arpFilter + `,"txQLen":-1`, "", "it sets a txQLen of -1, which is a queue of 4294967295 packets"},
		{"an mtu that is a text", arpFilter + `,"mtu":"1400"`, "mtu", unmarked},
		{"a promisc that is a text", arpFilter + `,"promisc":"yes"`, "promisc", unmarked},
		{"a dataDir that can't be made", arpFilter + `,"mtu":1400,"dataDir":"/proc/nowhere"`, "/proc/nowhere", noUndo},
	} {
		rows = append(rows, row{name: c.name + " is refused, and nothing changes", differs: c.differs, test: func(l *lab) {
			web := l.fresh("web")
			before := l.now(web)
			l.refused(web.tune("ADD", c.keys), c.names)
			l.same(before.changed(), "")
			web.looks(untuned)
			l.same(web.sysctl("ipv4/conf/eth0/arp_filter"), "0")
		}})
	}
	return append(rows,
		row{name: "a sysctl that is there twice is refused, and nothing changes", test: func(l *lab) {
			c := l.fresh("web")
			before := l.now(c)
			l.refused(c.tune("ADD", `"sysctl":"in order"`, inOrder("net.ipv4.ip_forward", "1", "net.ipv4.ip_forward", "1")), "sysctl")
			l.same(before.changed(), "")
		}},
		row{name: "a sysctl is not set where /proc/sys is read-only", test: func(l *lab) {
			c := l.fresh("web")
			l.forbidSysctls()
			l.refused(c.tune("ADD", arpFilter), "read-only")
			l.same(c.sysctl("ipv4/conf/eth0/arp_filter"), "0")
		}},
		row{name: "a sysctl that fails has the others set back", differs: noUndo, test: func(l *lab) {
			for i := range 6 { // in any order that a plugin may take
				c := l.fresh(fmt.Sprint("web", i))
				before := l.now(c)
				l.refused(c.tune("ADD", `"mtu":1400,"sysctl":{"net.ipv4.conf.IFNAME.forwarding":"1","net.ipv4.conf.IFNAME.rp_filter":"2",
					"net.ipv4.conf.IFNAME.nonsense":"1","net.ipv4.conf.IFNAME.arp_ignore":"1"}`), "nonsense")
				l.same(before.changed(), "")
			}
		}},
		row{name: "a failed ADD after one that succeeded leaves what that one set", differs: noUndo, test: func(l *lab) {
			c := l.tuned(allAttributes)
			before := l.now(c)
			l.refused(c.tune("ADD", arpFilter+`,"mac":"02:00:00:00:00:bb","mtu":65536,"txQLen":5`))
			c.looks(allTuned)
			l.same(before.changed(), "")
		}},
		row{name: "tuning that stands first in its list is refused", test: func(l *lab) {
			c := l.fresh("web")
			l.now(c).refused(l.verb("ADD", c, tuning(arpFilter+`,"mtu":1400`)), "prevResult")
		}},
		row{name: "an interface that there is not is refused", test: func(l *lab) {
			c := l.pod("web")
			l.now(c).refused(c.tune("ADD", `"mtu":1400`), "eth0")
		}},
		row{name: "an MTU too large for the interface is named in the error", differs: "its error has the kernel's words alone", test: func(l *lab) {
			l.refused(l.fresh("web").tune("ADD", `"mtu":65536`), "mtu", "65536")
		}},
	)
}
