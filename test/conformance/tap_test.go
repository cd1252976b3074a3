package conformance

import (
	"bytes"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// tap is a tap without addresses, tapLan one that is a gateway for who holds it.
const (
	tap    = `{"type":"tap","capabilities":{"mac":true}}`
	tapLan = `{"type":"tap","capabilities":{"mac":true},"ipam":{"type":"host-local","ranges":[[{"subnet":"10.46.0.0/24"}],[{"subnet":"fd00:46::/64"}]]}}`
)

var tapMain = mainPlugin{kind: "tap", differs: map[string]string{
	"an mtu below 68 is refused, and changes nothing":                                noTapRollback,
	"an mtu above 65535 is refused, and changes nothing":                             noTapRollback,
	"an IPAM plugin that is not there is refused, and changes nothing":               noTapRollback,
	"after an ADD that fails all is as before: a gateway out of reach":               noTapRollback,
	"after an ADD that fails all is as before: no free address":                      noTapRollback,
	"after an ADD that fails all is as before: an IPAM plugin that gives no address": noTapRollback,
	"after an ADD that fails all is as before: a container that has the interface":   takesTheName,
	"a second ADD is refused, and changes nothing":                                   "it leaves one more tap, under another name",
	"CHECK fails when the container's interface has another MAC address":             "it does not look",
}}

var tapRows = group{name: "tap", rows: slices.Concat(tapResults, tapLinks(), tapPackets, tapRefusals(), tapFailures(), tapDels(), tapChecks(), tapLater,
	hostileRows(nil, func(*lab) network { return conf(tapLan) }))}

// hold opens a container's tap as a virtual machine does, until the row ends.
func (c *container) hold(name string, flags uint16) (fd int, err error) {
	c.Do(func() {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		c.lab.Cleanup(func() { unix.Close(fd) })
		var request *unix.Ifreq
		if request, err = unix.NewIfreq(name); err == nil {
			request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | flags)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
	})
	return fd, err
}

// asks has who holds a tap ask for the MAC address of an IPv4 address, as from another one, and returns the answer, nil if none comes.
func (l *lab) asks(fd int, from, to string) net.HardwareAddr {
	own := []byte{2, 0x46, 0, 0, 0, 2}
	broadcast := bytes.Repeat([]byte{0xff}, 6)
	request := slices.Concat(broadcast, own, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 1}, own, addr(from).AsSlice(), make([]byte, 6), addr(to).AsSlice())
	var answer net.HardwareAddr
	l.eventually(func() string {
		if _, err := unix.Write(fd, request); err != nil {
			l.Fatal(err)
		}
		frame := make([]byte, 2000)
		for n, err := unix.Read(fd, frame); err == nil; n, err = unix.Read(fd, frame) {
			if isReply := n >= 42 && bytes.Equal(frame[12:14], []byte{8, 6}) && frame[21] == 2; isReply {
				answer = frame[22:28]
				return ""
			}
		}
		return "nobody answers for " + to
	})
	return answer
}

var tapResults = []row{
	noPrevious(func(*lab) string { return tap }),
	{name: "the result, to the byte", test: func(l *lab) {
		l.printed(l.attach(conf(tapLan), "web").printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.46.0.2/24","gateway":"10.46.0.1","interface":0},{"address":"fd00:46::2/64","gateway":"fd00:46::1","interface":0}]}`)
	}},
	{name: "the result without ipam, to the byte", test: func(l *lab) {
		l.printed(l.attach(conf(tap), "web").printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}]}`)
	}},
	{name: "the result in 0.4.0, to the byte", test: func(l *lab) {
		l.printed(l.attach(conf(tap).in("0.4.0"), "web").printed, `{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],"dns":{}}`)
	}},
	{name: "the result in 1.1.0 has the mtu", differs: "it never fills in mtu", test: func(l *lab) {
		l.printed(l.attach(conf(with(tap, "mtu", "1400")).in("1.1.0"), "web").printed,
			`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mac":"MAC","mtu":1400,"sandbox":"/run/netns/web"}]}`)
	}},
	{name: "the result names the link as it is", test: func(l *lab) {
		c := l.attach(conf(tapLan), "web", ifname("net1"))
		l.has(&c.Namespace, "net1", "address", c.result.Interfaces[0].Mac)
	}},
	{name: "dns is the network's own, whatever the IPAM plugin has", test: func(l *lab) {
		ipam := with(fixedIPs("10.46.0.2/24"), "dns", `{"nameservers":["10.46.0.53"]}`)
		l.same(text(l.attach(conf(with(tap, "ipam", ipam)), "web").result.DNS), `{}`)
		l.same(text(l.attach(conf(with(tap, "ipam", ipam, "dns", `{"domain":"own"}`)), "two").result.DNS), `{"domain":"own"}`)
	}},
	{name: "dns without ipam is in the result", test: func(l *lab) {
		l.same(text(l.attach(conf(with(tap, "dns", `{"domain":"own"}`)), "web").result.DNS), `{"domain":"own"}`)
	}},
}

func tapLinks() (rows []row) {
	const program = "it makes no tap without the program ip, or without owner and group"
	const own = "02:46:00:00:00:01"
	for _, c := range []struct {
		name, config, differs string
		needs                 *netlab.Feature
		options               []option
		has                   []any
		shows                 string
	}{
		{name: "the link is a tap that stays, and is up", config: tap, has: []any{"type", "tap", "persist", true, "multi_queue", false}},
		{name: "multiQueue makes a tap with several queues", config: with(tap, "multiQueue", "true"), has: []any{"multi_queue", true}},
		{name: "mtu is the tap's", config: with(tap, "mtu", "1400"), has: []any{"mtu", 1400}},
		{name: "mtu 0 is the kernel's default", config: with(tap, "mtu", "0"), has: []any{"mtu", 1500}},
		{name: "mac is the tap's", config: with(tap, "mac", text(own)), has: []any{"address", own}},
		{name: "MAC of CNI_ARGS comes before mac", config: with(tap, "mac", `"02:46:00:00:00:07"`), options: []option{args("MAC=" + own)}, has: []any{"address", own}},
		{name: "the capability mac comes before MAC of CNI_ARGS and mac", config: with(tap, "mac", `"02:46:00:00:00:07"`),
			options: []option{args("MAC=02:46:00:00:00:08"), capability("mac", text(own))}, has: []any{"address", own}},
		{name: "owner and group are the tap's", needs: &netlab.Users, config: with(tap, "owner", "1234", "group", "2345"), shows: "persist on user 1234 group 2345"},
		{name: "owner is the tap's", needs: &netlab.Users, config: with(tap, "owner", "1234"), shows: "persist on user 1234 addrgenmode"},
		{name: "group is the tap's", needs: &netlab.Users, config: with(tap, "group", "2345"), shows: "persist on group 2345"},
		{name: "owner 0 is root", config: with(tap, "owner", "0"), shows: "persist on user root"},
		{name: "owner and group may be null", config: with(tap, "owner", "null", "group", "null"), shows: "persist on addrgenmode"},
		{name: "mtu and mac hold together with owner and group", differs: "it leaves out mtu and mac then", needs: &netlab.Users,
			config: with(tap, "owner", "1234", "group", "2345", "mtu", "1400", "mac", text(own), "multiQueue", "true"),
			has:    []any{"mtu", 1400, "address", own, "multi_queue", true, "user", "1234"}},
	} {
		rows = append(rows, row{name: c.name, differs: c.differs, needs: c.needs, test: func(l *lab) {
			web := l.attach(conf(c.config), "web", c.options...)
			web.has(c.has...)
			l.shows(strings.Join(strings.Fields(web.run("ip -d link show dev eth0")), " "), ",UP", c.shows)
			l.must(web.check())
		}})
	}
	return append(rows,
		row{name: "no program is needed", differs: program, test: func(l *lab) {
			c := l.pod("web")
			l.must(l.verb("ADD", c, with(tap, "capabilities", "{}"), env("PATH=/nonexistent")))
			c.has("type", "tap")
		}},
		row{name: "the tap is the only new link of the container", test: func(l *lab) {
			c := l.attach(conf(tap), "web")
			l.same(len(l.decode(c.run("ip -j link show"))), 2)
		}},
		row{name: "bridge makes the tap a port of a bridge of the container", test: func(l *lab) {
			c := l.pod("web")
			c.run("ip link add br0 up type bridge")
			l.must(c.add(conf(with(tap, "bridge", `"br0"`))))
			c.has("master", "br0")
			l.must(c.check())
		}},
		row{name: "a container has two taps", test: func(l *lab) {
			c := l.attach(conf(tap), "web")
			net1 := c.attach(conf(tap).called("lan1"), "net1")
			l.must(c.del())
			l.has(&c.Namespace, "net1", "type", "tap")
			l.must(net1.check())
		}},
		row{name: "IgnoreUnknown lets other arguments of CNI_ARGS pass", test: func(l *lab) {
			l.attach(conf(tap), "web", args("IgnoreUnknown=1", "COLOUR=green"))
		}},
	)
}

var tapPackets = []row{
	{name: "who holds the tap reaches the container", test: func(l *lab) {
		c := l.attach(conf(tapLan), "web")
		fd, err := c.hold("eth0", 0)
		l.must(err)
		l.same(l.asks(fd, "10.46.0.9", c.v4).String(), c.result.Interfaces[0].Mac)
	}},
	{name: "who holds one of several queues reaches the container", test: func(l *lab) {
		c := l.attach(conf(with(tapLan, "multiQueue", "true")), "web")
		_, err := c.hold("eth0", unix.IFF_MULTI_QUEUE)
		l.must(err)
		fd, err := c.hold("eth0", unix.IFF_MULTI_QUEUE)
		l.must(err)
		l.same(l.asks(fd, "10.46.0.9", c.v4).String(), c.result.Interfaces[0].Mac)
	}},
	{name: "who holds the tap reaches others in its bridge", test: func(l *lab) {
		c := l.pod("web")
		c.run("ip link add br0 address 02:46:00:00:00:0b up type bridge", "ip address add 10.46.0.1/24 dev br0")
		l.must(c.add(conf(with(tap, "bridge", `"br0"`))))
		fd, err := c.hold("eth0", 0)
		l.must(err)
		l.same(l.asks(fd, "10.46.0.9", "10.46.0.1").String(), "02:46:00:00:00:0b")
	}},
	{name: "an IPv6 address can be used when ADD returns", differs: "it is probed until somebody holds the tap", test: func(l *lab) {
		c := l.attach(conf(tapLan), "web")
		l.same(l.probed(&c.Namespace, "eth0"), "")
	}},
	{name: "enabledad does not keep ADD from succeeding while nobody holds the tap", test: func(l *lab) {
		l.attach(conf(with(tapLan, "enabledad", "true")), "web")
	}},
	{name: "routes have mtu, advmss, priority and table, though nobody holds the tap", differs: "it does not set mtu and advmss of a route", test: func(l *lab) {
		c := l.attach(conf(with(tap, "ipam", with(fixedIPs("10.46.0.2/24 10.46.0.1", "fd00:46::2/64 fd00:46::1"), "routes",
			`[{"dst":"10.50.0.0/16","mtu":1300,"advmss":1200,"priority":50,"table":300},{"dst":"::/0"}]`))), "web")
		l.shows(c.routes("10.50.0.0/16"), "via 10.46.0.1", "table 300", "metric 50", "mtu 1300 advmss 1200")
		l.shows(c.routes("default")+c.run("ip -6 route show default"), "via fd00:46::1")
		l.must(c.check())
	}},
}

// tapRefusals is what ADD refuses before it does anything.
func tapRefusals() []row {
	selinux := []string{"selinuxContext", `"system_u:system_r:container_t:s0"`}
	return tapMain.refusals([]refusal{
		{name: "a mac that is none", keys: []string{"mac", `"02:46"`}, says: "02:46", differs: noTapRollback},
		{name: "a multicast mac", keys: []string{"mac", `"03:00:00:00:00:01"`}, differs: noTapRollback},
		{name: "a MAC of CNI_ARGS that is none", options: []option{args("IgnoreUnknown=1", "MAC=02:46")}, says: "02:46", differs: noTapRollback},
		{name: "an argument of CNI_ARGS that nobody knows", options: []option{args("COLOUR=green")}, says: "COLOUR"},
		{name: "an owner below 0", keys: []string{"owner", "-1"}, says: "owner"},
		{name: "an owner above 4294967295", keys: []string{"owner", "4294967296"}, says: "owner"},
		{name: "the owner 4294967295, which is nobody", keys: []string{"owner", "4294967295"}, says: "owner", differs: "it makes a tap without an owner"},
		{name: "a group that is a name", keys: []string{"group", `"kvm"`}, says: "group"},
		{name: "a multiQueue that is no boolean", keys: []string{"multiQueue", "4"}, says: "multiQueue"},
		{name: "a selinuxContext without SELinux", keys: selinux, prepare: noSELinux},
		{name: "a selinuxContext without SELinux, which the error says", keys: selinux, prepare: noSELinux,
			says: "selinuxContext", differs: "its error does not tell"},
		{name: "a bridge that is not there", keys: []string{"bridge", `"br9"`}, says: "br9", differs: noTapRollback},
		{name: "a bridge of the node", keys: []string{"bridge", `"host0"`}, says: "host0", differs: noTapRollback,
			prepare: func(l *lab, _ *container) { l.run("ip link add host0 type bridge") }},
		{name: "a bridge that is none", keys: []string{"bridge", `"wire0"`}, says: "wire0", differs: noTapRollback,
			prepare: func(_ *lab, web *container) { web.run("ip link add wire0 type veth peer name wire1") }},
	})
}

// noSELinux ends a row where the kernel has it.
func noSELinux(l *lab, _ *container) {
	if len(l.files("/sys/fs/selinux/enforce")) > 0 {
		l.foreign("this kernel has SELinux")
	}
}

// Why the reference fails several rows.
const (
	noTapRollback = "its failed ADD leaves the tap"
	takesTheName  = "it takes what has the name, and leaves the tap under another one"
)

// tapFailures is what ADD finds out on its way.
func tapFailures() []row {
	return tapMain.failures([]refusal{
		{name: "a container that has a tap of the interface's name", says: "eth0", differs: takesTheName,
			prepare: func(_ *lab, web *container) { web.run("ip tuntap add mode tap name eth0") }},
	})
}

// tapDels are states of an attachment that DEL finds.
func tapDels() []row {
	return append(tapMain.dels([]stateOfDel{
		{name: "DEL of a tap that is held leaves nothing", state: func(l *lab, c *container) { _, err := c.hold("eth0", 0); l.must(err) }},
		{name: "DEL with the bridge gone leaves nothing", state: edited("bridge", `"br9"`)},
		{name: "DEL with a configuration that ADD refuses leaves nothing", differs: "it reads all keys for DEL", state: edited("mtu", `"big"`, "owner", "-1")},
		{name: "DEL with arguments that ADD refuses leaves nothing", differs: "it reads CNI_ARGS for DEL",
			state: func(_ *lab, c *container) { args("COLOUR=green")(c.runtime) }},
		{name: "DEL without the namespace's path leaves no lease", state: inside("ip link del eth0"), bare: true},
	}), tapMain.strangers()...)
}

func tapChecks() []row {
	rows := tapMain.harmed([]event{
		{name: "the container's interface is of another kind", says: "eth0", happens: inside("ip link del eth0", "ip link add eth0 up type veth peer name p0",
			"ip address add 10.44.0.2/24 dev eth0")},
		{name: "the container's interface is a tun", happens: inside("ip link del eth0", "ip tuntap add mode tun name eth0", "ip link set eth0 up")},
	})
	for _, c := range []struct{ is, harm string }{
		{"in another bridge", "ip link set eth0 master br1"},
		{"out of its bridge", "ip link set eth0 nomaster"},
	} {
		rows = append(rows, row{name: "CHECK fails when the container's interface is " + c.is, differs: "it does not look", test: func(l *lab) {
			web := l.pod("web")
			web.run("ip link add br0 up type bridge", "ip link add br1 up type bridge")
			l.must(web.add(conf(with(tapLan, "bridge", `"br0"`))), web.check())
			web.run(c.harm)
			l.refused(web.check(), "br0")
		}})
	}
	return append(rows,
		row{name: "CHECK finds nothing wrong with a tap without ipam", test: func(l *lab) { l.must(l.attach(conf(tap), "web").check()) }},
		row{name: "CHECK finds nothing wrong with a tap that is held", test: func(l *lab) {
			c := l.attach(conf(tapLan), "web")
			_, err := c.hold("eth0", 0)
			l.must(err)
			l.must(c.check())
		}},
		row{name: "CHECK finds a tun in place of the tap though the result has no MAC address", differs: "it does not look", test: func(l *lab) {
			c := l.attach(conf(tap), "web")
			config := with(tap, "capabilities", "{}", "prevResult", `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/web"}]}`)
			l.must(l.verb("CHECK", c, config))
			c.run("ip link del eth0", "ip tuntap add mode tun name eth0", "ip link set eth0 up")
			l.refused(l.verb("CHECK", c, config), "tun")
		}},
		row{name: "CHECK needs the result of ADD", test: func(l *lab) {
			c := l.attach(conf(tap), "web")
			l.refused(l.verb("CHECK", c, with(tap, "capabilities", "{}")), "prevResult")
		}},
	)
}

var tapLater = append(aboutPlugin("tap", `{"type":"tap"}`), []row{
	{name: "STATUS is fine", test: func(l *lab) { l.must(l.status(conf(tapLan))) }},
	{name: "STATUS finds /dev/net/tun missing, with code 50", differs: noStatus, test: func(l *lab) {
		l.run("mount -t tmpfs tmpfs /dev/net")
		l.code(l.status(conf(tap)), 50, "/dev/net/tun")
	}},
	{name: "ADD without /dev/net/tun is refused, and says so", differs: "its error does not tell", test: func(l *lab) {
		l.run("mount -t tmpfs tmpfs /dev/net")
		l.warm(conf(with(layer2, "ipam", pool)))
		web := l.pod("web")
		l.refuses(web, conf(with(tap, "ipam", pool)), "/dev/net/tun")
	}},
	{name: "STATUS finds an owner that no user can be", differs: noStatus, test: func(l *lab) {
		for _, owner := range []string{"-1", "4294967295"} {
			l.refused(l.status(conf(with(tap, "owner", owner))), owner)
		}
	}},
	{name: "STATUS asks the IPAM plugin", differs: noStatus, test: func(l *lab) { l.refused(l.status(conf(with(tap, "ipam", `{"type":"host-local"}`)))) }},
	{name: "GC gives back the addresses of attachments that are not valid", differs: noGC, test: func(l *lab) {
		l.warm(conf(tapLan))
		keep := l.attach(conf(tapLan), "keep")
		before := l.now(keep)
		l.attach(conf(tapLan), "lost").Delete(l)
		l.must(l.gc(conf(tapLan), keep))
		before.unchanged()
		l.must(keep.check())
	}},
}...)
