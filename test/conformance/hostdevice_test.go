package conformance

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// device gives containers nic0 of the node, which is wired to another machine.
const device = `{"type":"host-device","device":"nic0"}`

var hostDeviceRows = group{name: "host-device", rows: slices.Concat(
	withNIC(slices.Concat(deviceResults, deviceLinks, deviceFailures(), deviceMoreDels, deviceLateDels, deviceNoNumbers, deviceChecks())),
	deviceSelectors(), deviceDPDK, deviceRefusals(), deviceDels(), deviceActs(), deviceRaces(), deviceBestEffort, deviceLater)}

// withNIC gives the nodes of rows nic0.
func withNIC(rows []row) []row {
	for i, r := range rows {
		rows[i].test = func(l *lab) {
			l.nic("nic0")
			r.test(l)
		}
	}
	return rows
}

// nic gives the node a device unless it has it, and returns the machine that it is wired to.
func (l *lab) nic(name string) *container {
	if l.far[name] != nil {
		return l.far[name]
	}
	far := l.pod("far-" + name)
	l.far[name] = far
	l.run("ip link add " + name + " type veth peer name wire0 netns " + far.Name())
	far.run("ip address add 10.45.0.1/24 dev wire0", "ip address add fd00:45::1/64 dev wire0 nodad", "ip link set wire0 up")
	return far
}

// deviceWith is the network of device with more keys.
func deviceWith(keys ...string) network { return conf(with(device, keys...)) }

// deviceLan is the network of device with addresses.
func deviceLan(keys ...string) network {
	return deviceWith(append([]string{"ipam", fixedIPs("10.45.0.2/24 10.45.0.1", "fd00:45::2/64")}, keys...)...)
}

// pool is an IPAM section with leases, unlike static's.
const pool = `{"type":"host-local","subnet":"10.45.0.0/24"}`

// warmPool has a lease of the network lan come and go.
func (l *lab) warmPool() { l.warm(conf(with(layer2, "ipam", pool))) }

// notHeld makes sure that nothing says that a container has a device of the node.
func (l *lab) notHeld() {
	if left := l.files("/run/cnibox/host-device/*"); len(left) > 0 {
		l.Errorf("left: %v", left)
	}
}

// linkShows makes sure that what it prints of a link has all parts.
func (l *lab) linkShows(name string, parts ...string) {
	l.shows(l.run("ip link show dev "+name), parts...)
}

var deviceResults = []row{
	noPrevious(func(*lab) string { return device }),
	{name: "the result, to the byte", test: func(l *lab) {
		mac := fmt.Sprint(l.link(&l.host.Namespace, "nic0")["address"])
		l.printed(l.attach(deviceLan(), "web").printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"`+mac+`","sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.45.0.2/24","gateway":"10.45.0.1","interface":0},{"address":"fd00:45::2/64","interface":0}]}`)
	}},
	{name: "the result without ipam, to the byte", test: func(l *lab) {
		l.printed(l.attach(deviceWith(), "web").printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}]}`)
	}},
	{name: "the result in 0.4.0 and 0.2.0, to the byte", test: func(l *lab) {
		c := l.attach(deviceLan().in("0.4.0"), "web")
		l.printed(c.printed, `{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"version":"4","interface":0,"address":"10.45.0.2/24","gateway":"10.45.0.1"},{"version":"6","interface":0,"address":"fd00:45::2/64"}],"dns":{}}`)
		l.must(c.del())
		l.printed(l.attach(deviceLan().in("0.2.0"), "old").printed,
			`{"cniVersion":"0.2.0","ip4":{"ip":"10.45.0.2/24","gateway":"10.45.0.1"},"ip6":{"ip":"fd00:45::2/64"},"dns":{}}`)
	}},
	{name: "the result in 1.1.0 has the mtu", differs: "it never fills in mtu", test: func(l *lab) {
		l.run("ip link set nic0 mtu 1400")
		c := l.attach(deviceWith().in("1.1.0"), "web")
		l.printed(c.printed, `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mac":"MAC","mtu":1400,"sandbox":"/run/netns/web"}]}`)
	}},
	{name: "dns is the network's own, whatever the IPAM plugin has", test: func(l *lab) {
		ipam := with(fixedIPs("10.45.0.2/24"), "dns", `{"nameservers":["10.45.0.53"]}`)
		c := l.attach(deviceWith("ipam", ipam), "web")
		l.same(text(c.result.DNS), `{}`)
		l.must(c.del())
		l.same(text(l.attach(deviceWith("ipam", ipam, "dns", `{"domain":"own"}`), "two").result.DNS), `{"domain":"own"}`)
	}},
	{name: "dns without ipam is left out of the result", test: func(l *lab) {
		l.same(text(l.attach(deviceWith("dns", `{"domain":"own"}`), "web").result.DNS), `{}`)
	}},
}

// sysfs is a tree of the node's that shows devices which the machine does not have: net names links, driver drivers.
func (l *lab) sysfs() {
	const pci = "/sys/bus/pci/"
	l.host.Do(func() {
		for _, dir := range []string{"/sys/bus", "/sys/devices/platform"} {
			l.must(unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
		}
		for _, dir := range []string{pci + "drivers/fast", pci + "drivers/vfio-pci", pci + "drivers/virtio-pci",
			pci + "devices/0000:99:00.0/net/nic0", pci + "devices/0000:99:00.1/virtio3/net/nic1", pci + "devices/0000:99:00.2", pci + "devices/0000:99:00.3/net/nic3",
			"/sys/bus/auxiliary/devices/mlx5_core.sf.4/net/nic0", "/sys/devices/platform/card/net/nic0"} {
			l.must(os.MkdirAll(dir, 0o755))
		}
		for number, driver := range []string{"fast", "virtio-pci", "vfio-pci"} {
			l.must(os.Symlink("../../drivers/"+driver, fmt.Sprintf("%sdevices/0000:99:00.%d/driver", pci, number)))
		}
	})
}

func deviceSelectors() (rows []row) {
	const macOf = "02:45:00:00:00:ab"
	deviceID := func(id string) option { return capability("deviceID", text(id)) }
	const assigned = `{"type":"host-device","capabilities":{"deviceID":true}}`
	for _, c := range []struct {
		name, config, gets string
		options            []option
	}{
		{"device", device, "nic0", nil},
		{"hwaddr", `{"type":"host-device","hwaddr":"02:45:00:00:00:ab"}`, "nic0", nil},
		{"hwaddr in capitals", `{"type":"host-device","hwaddr":"02:45:00:00:00:AB"}`, "nic0", nil},
		{"kernelpath", `{"type":"host-device","kernelpath":"/sys/devices/platform/card"}`, "nic0", nil},
		{"pciBusID", `{"type":"host-device","pciBusID":"0000:99:00.0"}`, "nic0", nil},
		{"pciBusID of a virtio device", `{"type":"host-device","pciBusID":"0000:99:00.1"}`, "nic1", nil},
		{"deviceID of a PCI device", assigned, "nic0", []option{deviceID("0000:99:00.0")}},
		{"deviceID of a PCI device, before pciBusID", with(assigned, "pciBusID", `"0000:99:00.1"`), "nic0", []option{deviceID("0000:99:00.0")}},
		{"deviceID of an auxiliary device", assigned, "nic0", []option{deviceID("mlx5_core.sf.4")}},
		{"deviceID of an auxiliary device, before pciBusID", with(assigned, "pciBusID", `"0000:99:00.1"`), "nic0", []option{deviceID("mlx5_core.sf.4")}},
		{"device, before deviceID", with(assigned, "device", `"nic1"`), "nic1", []option{deviceID("0000:99:00.0")}},
		{"device, before hwaddr, kernelpath and pciBusID",
			with(device, "device", `"nic1"`, "hwaddr", `"02:45:00:00:00:ab"`, "kernelpath", `"/sys/devices/platform/card"`, "pciBusID", `"0000:99:00.0"`), "nic1", nil},
		{"hwaddr, before kernelpath and pciBusID", `{"type":"host-device","hwaddr":"02:45:00:00:00:ab","pciBusID":"0000:99:00.1"}`, "nic0", nil},
		{"kernelpath, before pciBusID", `{"type":"host-device","kernelpath":"/sys/devices/platform/card","pciBusID":"0000:99:00.1"}`, "nic0", nil},
	} {
		rows = append(rows, row{name: "the device is found by " + c.name + ", and comes back", test: func(l *lab) {
			l.nic("nic0")
			l.nic("nic1")
			l.run("ip link set nic0 address " + macOf)
			l.sysfs()
			before := l.now()
			web := l.attach(conf(c.config), "web", c.options...)
			l.linkIn(web, "eth0", "alias "+c.gets)
			l.gone(&l.host.Namespace, c.gets)
			l.must(web.del())
			before.unchanged()
		}})
	}
	return append(rows, row{name: "the result in 1.1.0 has the PCI address", differs: "it never fills in mtu and pciID", test: func(l *lab) {
		l.nic("nic0")
		l.sysfs()
		c := l.attach(conf(`{"type":"host-device","pciBusID":"0000:99:00.0"}`).in("1.1.0"), "web")
		l.printed(c.printed, `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mac":"MAC","mtu":1500,"sandbox":"/run/netns/web","pciID":"0000:99:00.0"}]}`)
	}})
}

// linkIn makes sure that what ip prints of a container's link has all parts.
func (l *lab) linkIn(c *container, name string, parts ...string) {
	l.shows(c.run("ip link show dev "+name), parts...)
}

var deviceLinks = []row{
	{name: "packets reach what the device is wired to, at once", test: func(l *lab) {
		l.attach(deviceLan(), "web").pings("10.45.0.1", "fd00:45::1")
	}},
	{name: "packets come from who has the addresses that the IPAM plugin gave", test: func(l *lab) {
		far := l.nic("nic0")
		l.serve(&far.Namespace, 80)
		c := l.attach(deviceLan(), "web")
		l.answers(tcp(&c.Namespace, "10.45.0.1", 80), far.Name()+" saw 10.45.0.2")
	}},
	{name: "the device is up in the container, with its MTU and its MAC address, and its name on the host is its alias", test: func(l *lab) {
		l.run("ip link set nic0 mtu 1400 address 02:45:00:00:00:09")
		c := l.attach(deviceWith(), "web", ifname("net1"))
		l.linkIn(c, "net1", "alias nic0", "mtu 1400", "02:45:00:00:00:09", ",UP")
		l.gone(&l.host.Namespace, "nic0")
	}},
	{name: "an interface may be called as the device", test: func(l *lab) {
		c := l.attach(deviceWith(), "web", ifname("nic0"))
		l.linkIn(c, "nic0", "alias nic0", ",UP")
		l.must(c.del())
		l.linkShows("nic0")
	}},
	{name: "another link of the device's name in the container does not matter", test: func(l *lab) {
		c := l.pod("web")
		c.run("ip link add nic0 type bridge")
		l.must(c.add(deviceWith()))
		l.linkIn(c, "eth0", "alias nic0")
		l.must(c.del())
		l.linkShows("nic0")
		l.shows(c.run("ip -d link show dev nic0"), "bridge")
	}},
	{name: "a link of the host that has the interface's name does not matter", test: func(l *lab) {
		l.run("ip link add eth0 type bridge")
		l.must(l.attach(deviceWith(), "web").del())
		l.linkShows("nic0")
		l.linkShows("eth0")
	}},
	{name: "an IPv6 address can be used when ADD returns", differs: "it waits for that if the address has a gateway only", test: func(l *lab) {
		c := l.attach(deviceLan(), "web")
		l.same(l.probed(&c.Namespace, "eth0"), "")
	}},
	{name: "a device without a carrier is attached, with addresses that can't be probed", test: func(l *lab) {
		far := l.nic("nic0")
		far.run("ip link set wire0 down")
		c := l.attach(deviceLan("ipam", with(fixedIPs("fd00:45::2/64 fd00:45::1"), "routes", `[{"dst":"::/0"}]`)), "web")
		far.run("ip link set wire0 up", "ip address add fd00:45::1/64 dev wire0 nodad")
		c.pings("fd00:45::1")
	}},
	{name: "routes have mtu, advmss, priority, table and scope", differs: "it does not set mtu and advmss of a route", test: func(l *lab) {
		c := l.attach(deviceLan("ipam", with(fixedIPs("10.45.0.2/24 10.45.0.1"), "routes",
			`[{"dst":"10.50.0.0/16","mtu":1300,"advmss":1200,"priority":50,"table":300},{"dst":"10.51.0.0/16","scope":253}]`)), "web")
		l.shows(c.routes("10.50.0.0/16"), "via 10.45.0.1", "table 300", "metric 50", "mtu 1300 advmss 1200")
		l.shows(c.routes("10.51.0.0/16"), "scope link")
		l.must(c.check())
	}},
	{name: "two containers have two devices", test: func(l *lab) {
		l.nic("nic1")
		a, b := l.attach(deviceWith(), "a"), l.attach(deviceWith("device", `"nic1"`).called("lan1"), "b")
		l.must(a.del())
		l.linkIn(b, "eth0", "alias nic1")
		l.must(b.del())
		l.linkShows("nic0")
		l.linkShows("nic1")
	}},
	{name: "a container has two devices", test: func(l *lab) {
		l.nic("nic1")
		before := l.now()
		a := l.attach(deviceWith(), "web")
		b := a.attach(deviceWith("device", `"nic1"`).called("lan1"), "net1")
		l.must(a.del())
		l.linkIn(b, "net1", "alias nic1")
		l.must(b.del())
		before.unchanged()
	}},
}

var deviceDPDK = []row{
	{name: "a device whose driver leaves it to a program is not moved, and has the IPAM plugin's addresses", test: func(l *lab) {
		l.warmPool()
		l.sysfs()
		before := l.now()
		c := l.attach(conf(`{"type":"host-device","pciBusID":"0000:99:00.2","ipam":`+pool+`}`), "web")
		l.printed(c.printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/web"}],
			"ips":[{"address":"`+c.v4+`/24","gateway":"10.45.0.1","interface":0}]}`)
		l.gone(&c.Namespace, "eth0")
		l.must(c.check())
		if !l.suite.reference { // which fails: the link is not in the container
			l.must(c.del(), c.del())
			before.unchanged()
		}
	}},
	{name: "a device whose driver leaves it to a program needs no ipam", test: func(l *lab) {
		l.sysfs()
		c := l.attach(conf(`{"type":"host-device","pciBusID":"0000:99:00.2"}`), "web")
		l.printed(c.printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/web"}]}`)
		l.must(c.check())
	}},
	{name: "DEL of a device whose driver leaves it to a program is no error", test: func(l *lab) {
		l.sysfs()
		l.must(l.attach(conf(`{"type":"host-device","pciBusID":"0000:99:00.2"}`), "web").del())
	}},
	{name: "DPDKMode leaves a device where it is", test: func(l *lab) {
		l.nic("nic0")
		c := l.attach(deviceWith("DPDKMode", "true"), "web")
		l.linkShows("nic0")
		l.lacks(c.printed, "mac")
	}},
	{name: "a device whose driver leaves it to a program has its PCI address in a result of 1.1.0", differs: "it never fills in pciID", test: func(l *lab) {
		l.sysfs()
		c := l.attach(conf(`{"type":"host-device","pciBusID":"0000:99:00.2"}`).in("1.1.0"), "web")
		l.printed(c.printed, `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/web","pciID":"0000:99:00.2"}]}`)
	}},
}

// deviceRefusals is what ADD refuses before it does anything.
func deviceRefusals() (rows []row) {
	for _, c := range []struct {
		name, config, says, differs string
		prepare                     func(l *lab, web *container)
		options                     []option
	}{
		{name: "no device named", config: `{"type":"host-device"}`, says: "device"},
		{name: "a device that is not there", config: with(device, "device", `"nic9"`)},
		{name: "a device that is not there, by its name", config: with(device, "device", `"nic9"`), says: "nic9", differs: "its error does not name it"},
		{name: "a hwaddr that no device has", config: `{"type":"host-device","hwaddr":"02:45:00:00:00:99"}`},
		{name: "a hwaddr that is none", config: `{"type":"host-device","hwaddr":"02:45"}`, says: "02:45"},
		{name: "a kernelpath elsewhere", config: `{"type":"host-device","kernelpath":"/proc/net"}`, says: "/proc/net"},
		{name: "a kernelpath that leads elsewhere", config: `{"type":"host-device","kernelpath":"/sys/devices/../class/net"}`},
		{name: "a kernelpath that is not there", config: `{"type":"host-device","kernelpath":"/sys/devices/none"}`, says: "/sys/devices/none"},
		{name: "a pciBusID that is not there", config: `{"type":"host-device","pciBusID":"0000:98:00.0"}`, says: "0000:98:00.0"},
		{name: "a PCI device without a driver", config: `{"type":"host-device","pciBusID":"0000:99:00.3"}`, says: "0000:99:00.3"},
		{name: "a deviceID that is not there", config: `{"type":"host-device","capabilities":{"deviceID":true}}`, says: "mlx5_core.sf.9",
			options: []option{capability("deviceID", `"mlx5_core.sf.9"`)}},
		{name: "a deviceID that leads elsewhere", config: `{"type":"host-device","capabilities":{"deviceID":true}}`,
			options: []option{capability("deviceID", `"../drivers"`)}},
		{name: "a device that is no string", config: with(device, "device", "7"), says: "device"},
		{name: "lo", config: with(device, "device", `"lo"`), says: "lo"},
		{name: "an IPAM plugin that is not there", config: with(device, "ipam", `{"type":"frobnicate"}`), says: "frobnicate", differs: deviceStays},
		{name: "an interface name that is taken", config: device, says: "eth0", prepare: func(_ *lab, web *container) { web.run("ip link add eth0 type bridge") }},
		{name: "an interface name that is taken, with ipam", config: with(device, "ipam", pool), says: "eth0",
			prepare: func(_ *lab, web *container) { web.run("ip link add eth0 type bridge") }},
	} {
		rows = append(rows, row{name: c.name + " is refused, and changes nothing", differs: c.differs, test: func(l *lab) {
			l.nic("nic0")
			l.run("ip link set nic0 up alias uplink")
			l.warmPool()
			l.sysfs()
			web := l.pod("web")
			if c.prepare != nil {
				c.prepare(l, web)
			}
			before := l.now(web)
			l.refused(web.add(conf(c.config), c.options...), c.says)
			l.restored(before)
		}})
	}
	return rows
}

// deviceStays is why the reference fails several rows.
const deviceStays = "its failed ADD leaves the device in the container"

// restored makes sure that the node is as it was, but for what the reference does not restore: those have rows of their own.
func (l *lab) restored(before *state) {
	if l.suite.reference && l.link(&l.host.Namespace, "nic0") != nil {
		l.run("ip link set nic0 up alias uplink")
	}
	before.unchanged()
	l.notHeld()
}

func deviceFailures() (rows []row) {
	one := `{"type":"host-local","ranges":[[{"subnet":"10.45.0.0/24","rangeStart":"10.45.0.5","rangeEnd":"10.45.0.5"}]]}`
	for _, c := range []struct {
		name, ipam, says string
		prepare          func(l *lab)
	}{
		{name: "a gateway out of reach", says: "172.31.0.1", ipam: with(pool, "routes", `[{"dst":"10.60.0.0/16","gw":"172.31.0.1"}]`)},
		{name: "an IPAM plugin that gives no address", ipam: `{"type":"static"}`},
		{name: "no free address", ipam: one, prepare: func(l *lab) { l.attach(conf(with(layer2, "ipam", one)), "first") }},
		{name: "an address that the machine on the wire has", ipam: fixedIPs("fd00:45::1/64 fd00:45::9"), says: "fd00:45::1"},
	} {
		rows = append(rows, row{name: "after an ADD that fails all is as before: " + c.name, differs: deviceStays, test: func(l *lab) {
			l.run("ip link set nic0 up alias uplink", "ip address add 10.45.7.7/24 brd + dev nic0", "ip address add fd00:4577::7/64 dev nic0 nodad")
			l.warmPool()
			if c.prepare != nil {
				c.prepare(l)
			}
			web := l.pod("web")
			l.now().refused(web.add(deviceWith("ipam", c.ipam)), c.says)
			l.notHeld()
			l.same(strings.Contains(web.run("ip -o link"), "eth0"), false)
		}})
	}
	return append(rows,
		row{name: "a second ADD is refused, and changes nothing", test: func(l *lab) {
			c := l.attach(deviceWith(), "web")
			l.refuses(c, deviceWith())
			l.must(c.del())
			l.linkShows("nic0")
		}},
		row{name: "a file that can't be read among those of the devices does not matter", test: func(l *lab) {
			l.run("mkdir -p /run/cnibox/host-device/own")
			l.must(l.attach(deviceWith(), "web").del())
			l.run("rmdir /run/cnibox/host-device/own")
			l.linkShows("nic0")
			l.notHeld()
		}},
		row{name: "a device that another container has is refused, with that container's name", differs: "its error does not tell", test: func(l *lab) {
			first := l.attach(deviceWith(), "first")
			l.now(first).refused(l.pod("web").add(deviceWith()), "nic0", "lan/"+first.ID[:20])
		}},
		row{name: "of two containers that want a device at the same time one gets it", test: func(l *lab) {
			before := l.now()
			pods, errs := []*container{l.pod("a"), l.pod("b")}, make(chan error, 2)
			for _, c := range pods {
				go func() { errs <- c.add(deviceWith()) }()
			}
			one, other := <-errs, <-errs
			l.same(one == nil, other != nil)
			for _, c := range pods {
				if c.result == nil {
					if l.suite.reference {
						continue // its DEL fails, as the interface is not there
					}
					l.must(c.del())
				}
			}
			for _, c := range pods {
				if c.result != nil {
					l.linkIn(c, "eth0", "alias nic0")
					l.must(c.del())
				}
			}
			before.unchanged()
			l.notHeld()
		}},
	)
}

// needsInterface is why the reference fails rows about a DEL that comes again.
const needsInterface = "its DEL fails when the interface is not in the container"

// deviceDels attach a container, have DEL find it in some state, and compare with what was there before.
func deviceDels() (rows []row) {
	del := func(_ *lab, c *container) error { return c.del() }
	for _, c := range []struct {
		name, differs string
		gone          bool // with the namespace, as the device is a virtual one
		state         func(l *lab, c *container)
		del           func(l *lab, c *container) error
	}{
		{name: "DEL gives the device back"},
		{name: "DEL twice is no error", differs: needsInterface, del: func(_ *lab, c *container) error { c.lab.must(c.del()); return c.del() }},
		{name: "DEL twice, the second time without a result, is no error", differs: needsInterface,
			del: func(l *lab, c *container) error { l.must(c.del()); l.forget(); return c.del() }},
		{name: "DEL twice, the second time with the namespace gone, is no error", differs: "its DEL fails when the namespace is gone",
			del: func(l *lab, c *container) error { l.must(c.del()); c.Delete(l); return c.del() }},
		{name: "DEL with the namespace gone and no result gives back the address", differs: "its DEL fails then, and releases no address", gone: true,
			state: func(l *lab, c *container) { c.Delete(l); l.forget() }},
		{name: "DEL with a file left at the namespace's path gives back the address", differs: "its DEL fails then, and releases no address", gone: true,
			state: func(l *lab, c *container) { c.DeleteKeepFile(l) }},
		{name: "DEL with another namespace at the path gives back the address", differs: needsInterface, gone: true,
			state: func(l *lab, c *container) { c.Replace(l) }},
		{name: "DEL with the interface gone gives back the address", differs: needsInterface, gone: true,
			state: func(_ *lab, c *container) { c.run("ip link del eth0") }},
		{name: "DEL with a configuration that names another device gives the device back",
			state: func(l *lab, c *container) { c.network = deviceWith("device", `"nic9"`, "ipam", pool) }},
		{name: "DEL with a configuration that names no device gives the device back", differs: "it reads all keys for DEL",
			state: func(l *lab, c *container) { c.network = conf(`{"type":"host-device","ipam":` + pool + `}`) }},
		{name: "DEL with a PCI device gone from the configuration gives the device back", differs: "it reads the driver for DEL",
			state: func(l *lab, c *container) { c.network = deviceWith("pciBusID", `"0000:98:00.0"`, "ipam", pool) }},
	} {
		if c.del == nil {
			c.del = del
		}
		rows = append(rows, row{name: c.name, differs: c.differs, test: func(l *lab) {
			l.warmPool()
			before := l.now()
			l.nic("nic0")
			l.run("ip link set nic0 up alias uplink")
			if !c.gone {
				before = l.now()
			}
			web := l.attach(deviceWith("ipam", pool), "web")
			if c.state != nil {
				c.state(l, web)
			}
			l.must(c.del(l, web))
			l.restored(before)
		}})
	}
	return rows
}

// deviceMoreDels is what else there is to a DEL.
var deviceMoreDels = []row{
	{name: "DEL leaves a device down that was down", test: func(l *lab) {
		l.must(l.attach(deviceWith(), "web").del())
		l.lacks(l.run("ip link show dev nic0"), ",UP", "alias")
	}},
	{name: "DEL gives back a device whose name another link of the host has by now, under another one", choice: true,
		differs: "its DEL fails then", test: func(l *lab) {
			far := l.nic("nic0")
			c := l.attach(deviceLan(), "web")
			mac := fmt.Sprint(l.link(&c.Namespace, "eth0")["address"])
			l.run("ip link add nic0 type bridge")
			l.must(c.del())
			l.shows(l.run("ip -d link show dev nic0"), "bridge")
			var back string
			for _, link := range l.decode(l.run("ip -j link show")) {
				if link["address"] == mac {
					back = fmt.Sprint(link["ifname"])
				}
			}
			l.linkShows(back, "alias nic0")
			l.run("ip address add 10.45.0.77/24 dev "+back, "ip link set "+back+" up")
			l.pings(&far.Namespace, "10.45.0.77")
			l.notHeld()
		}},
	{name: "DEL gives back a device whose name and alias are no UTF-8", differs: "it keeps no alias", test: func(l *lab) {
		name, alias := strings.Repeat("\xff", 6), strings.Repeat("\xff", 100)
		l.run("ip link set nic0 address 02:45:00:00:00:ab alias "+alias, "ip link set nic0 name "+name)
		l.must(l.attach(conf(`{"type":"host-device","hwaddr":"02:45:00:00:00:ab"}`), "web").del())
		l.linkShows(name, "alias "+alias)
		l.notHeld()
	}},
	{name: "DEL of a container that was never attached changes nothing", differs: needsInterface, test: func(l *lab) {
		never := l.attach(conf(layer2), "never")
		never.network = deviceWith("ipam", pool)
		before := l.now(never)
		l.must(l.each("DEL", never, never.network), never.delBare())
		before.unchangedBut("file /var/lib/cni/cnibox/") // what was noted of the network of the same name
	}},
	{name: "under another network's name CHECK fails, and DEL leaves the device to the network that has it",
		differs: "it takes whatever has the interface's name", test: func(l *lab) {
			web := l.attach(deviceWith(), "web")
			before := l.now(web)
			own := web.network
			web.network = own.called("another")
			if web.check() == nil {
				l.Error("CHECK succeeds")
			}
			l.must(web.del())
			before.unchanged()
			web.network = own
			l.must(web.check())
		}},
	{name: "DEL after an ADD that was refused leaves the device to the container that has it", differs: needsInterface, test: func(l *lab) {
		first := l.attach(deviceWith(), "first")
		web := l.pod("web")
		l.refused(web.add(deviceWith()))
		l.now(first).unchangedBy(web.del())
		l.must(first.check())
	}},
	{name: "DEL gives back a device that the kernel has put back under the name of the container, with the namespace gone",
		differs: "its DEL fails then", test: func(l *lab) {
			l.run("ip link set nic0 up alias uplink")
			before := l.now()
			c := l.attach(deviceWith(), "web")
			c.run("ip link set eth0 netns " + l.host.NetnsPath())
			c.Delete(l)
			l.must(c.del())
			before.unchanged()
			l.notHeld()
		}},
	{name: "DEL gives back a device that came back under a name of the container's, though another link has its own by now", choice: true,
		differs: "its DEL fails then", test: func(l *lab) {
			c := l.attach(deviceWith(), "web")
			c.run("ip link set eth0 alias x", "ip link set eth0 netns "+l.host.NetnsPath()+" name docker0")
			c.Delete(l)
			l.run("ip link add nic0 type bridge")
			l.must(c.del())
			l.gone(&l.host.Namespace, "docker0")
			l.shows(l.run("ip -d link show dev nic0"), "bridge")
			l.shows(l.run("ip link show"), "alias nic0")
			l.notHeld()
		}},
	{name: "DEL gives back a device that the reference plugin moved", test: func(l *lab) {
		before := l.now()
		c := l.attach(deviceWith(), "web")
		l.clear("/run/cnibox")
		l.must(c.del())
		before.unchanged()
	}},
}

var deviceLateDels = []row{
	{name: "a second DEL takes no link from the container, whatever that says of it",
		differs: "it moves what has an alias", test: func(l *lab) {
			c := l.attach(deviceWith(), "web")
			mac := c.result.Interfaces[0].Mac
			l.must(l.each("DEL", c, c.network))
			before := l.now()
			c.run("ip link add eth0 address " + mac + " type veth peer name p0")
			for _, alias := range []string{"nic0", "evil0"} {
				c.run("ip link set eth0 alias " + alias)
				l.must(c.del())
			}
			before.unchanged()
		}},
	{name: "a late DEL leaves the same device to the container that has it, and the namespace's path, by now",
		differs: "its DEL takes the device from whatever namespace the path is", test: func(l *lab) {
			old := l.attach(deviceWith("ipam", pool), "web")
			old.run("ip link set eth0 netns " + l.host.NetnsPath() + " name nic0")
			newer := old.succeeded(deviceWith("ipam", pool))
			l.must(old.del(), newer.check())
			l.forget()
			l.must(old.del(), old.delBare())
			l.linkIn(newer, "eth0", "alias nic0")
			l.must(newer.del())
			l.linkShows("nic0")
			l.notHeld()
		}},
	{name: "a second DEL leaves a link that passes for a device which another container has by now",
		differs: "its DEL takes the device from whatever namespace the path is", test: func(l *lab) {
			first := l.attach(deviceWith(), "first")
			mac := first.result.Interfaces[0].Mac
			l.must(l.each("DEL", first, first.network))
			newer := l.attach(deviceWith(), "newer")
			first.run("ip link add eth0 address "+mac+" type veth peer name p0 netns "+l.pod("sub").Path(), "ip link set eth0 alias nic0")
			l.now(newer).unchangedBy(first.del())
			l.must(newer.del())
			l.linkShows("nic0")
		}},
	{name: "a new device that has the name of one which a container has changes nothing for that",
		differs: "its DEL fails when the name is taken", test: func(l *lab) {
			first := l.attach(deviceWith(), "first")
			l.run("ip link add nic0 type veth peer name other0")
			newer := l.attach(deviceWith(), "newer")
			first.run("ip link set eth0 alias x")
			l.must(newer.del(), first.del())
			l.linkShows("nic0", "other0")
			l.same(strings.Contains(l.run("ip link show"), "alias nic0"), true)
			l.notHeld()
		}},
	{name: "a late DEL leaves the device to the container that has it, and the namespace's path, by now",
		differs: "its DEL takes the device from whatever namespace the path is", test: func(l *lab) {
			old := l.attach(deviceWith(), "web")
			old.Replace(l)
			l.nicWired("nic0")
			newer := old.newer("newer")
			l.must(newer.add(deviceWith()), old.del())
			l.linkIn(newer, "eth0", "alias nic0")
			l.must(newer.check(), newer.del())
			l.linkShows("nic0")
		}},
	{name: "a late DEL leaves a link of another kind that has the namespace's path and the interface's name by now", test: func(l *lab) {
		old := l.attach(deviceWith(), "web")
		newer := old.succeeded(conf(lan).called("other"))
		_ = old.del()
		newer.pings("10.44.0.1")
	}},
	{name: "a late DEL leaves a new link of the host that has the device's name", differs: "its DEL fails when the interface is not in the container", test: func(l *lab) {
		old := l.attach(deviceWith(), "web")
		old.Delete(l)
		l.nicWired("nic0")
		l.run("ip link set nic0 mtu 1300")
		before := l.now()
		l.must(old.del())
		before.unchangedBut("file /var/lib/cni/cnibox/") // what ADD has noted of the namespace goes
		l.notHeld()
	}},
}

// nicWired is nic once more, as the first has gone with a namespace.
func (l *lab) nicWired(name string) {
	l.eventually(func() string {
		if l.link(&l.host.Namespace, name) != nil {
			return name + " is there"
		}
		return ""
	})
	l.run("ip link add " + name + " type veth peer name far-" + name)
}

// deviceOnMaster gives containers m0, a macvlan of the node.
var deviceOnMaster = deviceWith("device", `"m0"`, "ipam", pool)

var deviceBestEffort = []row{
	{name: "DEL of a container that never had the device leaves its lo alone, and a veth pair, whatever their names and aliases are",
		differs: "it moves what has an alias", test: func(l *lab) {
			web := l.never(deviceWith(), "web")
			web.run("ip link set lo down", "ip link set lo name eth0", "ip link set eth0 alias nic0")
			l.must(l.each("DEL", web, web.network))
			web.run("ip link set eth0 name lo", "ip link add eth0 type veth peer name other", "ip link set eth0 alias nic0")
			mac := l.link(&web.Namespace, "eth0")["address"]
			reported := fmt.Sprintf(`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"%s","sandbox":"/run/netns/web"}]}`, mac)
			l.must(l.verb("DEL", web, with(device, "prevResult", reported)))
			web.run("ip link show eth0")
		}},
	{name: "a device comes back with the link mode, queue, group and limits of GSO and GRO that it had", differs: "it restores none of it", test: func(l *lab) {
		l.nic("nic0")
		l.run("ip link set nic0 txqueuelen 700 group 7 gso_max_size 40000 gso_max_segs 30")
		before := l.run("ip -d link show nic0")
		c := l.attach(deviceWith(), "web")
		c.run("ip link set eth0 mode dormant txqueuelen 5 group 0 gso_max_size 2000 gso_max_segs 2", "ip link set eth0 gro_max_size 3000")
		l.must(c.del())
		index := regexp.MustCompile(`^\d+: `)
		l.same(index.ReplaceAllString(l.run("ip -d link show nic0"), ""), index.ReplaceAllString(before, ""))
	}},
	{name: "a device comes back with the offloads that it had", differs: "it leaves them as the container switched them", test: func(l *lab) {
		l.nic("nic0")
		l.run("ethtool -K nic0 tso off gro on")
		before := l.run("ethtool -k nic0")
		c := l.attach(deviceWith(), "web")
		c.run("ethtool -K eth0 tx off tso on gro off")
		l.must(c.del())
		l.same(l.run("ethtool -k nic0"), before)
	}},
	{name: "DEL and GC give a device back that can't have its MAC address and MTU again, and say so", differs: "it restores none of it",
		test: func(l *lab) {
			l.warmPool()
			for _, detach := range []func(c *container) string{
				func(c *container) string { return l.process("DEL", c, c.network.plugins[0]).Stderr },
				func(c *container) string {
					r := l.process("GC", nil, with(c.network.plugins[0], "cniVersion", `"1.1.0"`, "cni.dev/valid-attachments", "[]"))
					l.same(r.ExitCode, 0)
					return r.Stderr
				},
			} {
				l.run("ip link add nic0 type veth peer name wire0", "ip link add m0 link nic0 address 02:45:00:00:00:10 type macvlan mode bridge")
				l.run("ip link set m0 alias uplink up")
				c := l.attach(deviceOnMaster, "web"+fmt.Sprint(len(l.files("/run/netns/*"))))
				c.run("ip link set eth0 address 02:45:00:00:00:11")
				l.run("ip link add m1 link nic0 address 02:45:00:00:00:10 type macvlan mode bridge", "ip link set nic0 up mtu 1400")
				l.run("ip link set m1 up")
				l.shows(detach(c), "m0", "MAC address", "MTU")
				l.linkShows("m0", "02:45:00:00:00:11", "mtu 1400", "alias uplink", ",UP")
				l.same(len(l.files("/var/lib/cni/networks/lan/1*")), 0)
				l.notHeld()
				l.run("ip link del nic0")
			}
		}},
	{name: "DEL gives a device back that can't be set up again, and says so", differs: "it leaves it down", needs: &netlab.VLAN, test: func(l *lab) {
		l.warmPool()
		l.run("ip link add nic0 type veth peer name wire0", "ip link set nic0 up", "ip link add m0 link nic0 type vlan id 5")
		l.run("ip link set m0 alias uplink up")
		c := l.attach(deviceOnMaster, "web")
		l.run("ip link set nic0 down")
		l.shows(l.process("DEL", c, c.network.plugins[0]).Stderr, "m0", "up")
		l.linkShows("m0", "alias uplink")
		l.same(len(l.files("/var/lib/cni/networks/lan/1*")), 0)
		l.notHeld()
	}},
}

// rewriteNotes replaces what is noted of devices that containers have.
func (l *lab) rewriteNotes(rewrite func(note string) string) {
	for _, path := range l.files("/run/cnibox/host-device/*") {
		l.write(path, rewrite(l.read(path)))
	}
}

var deviceNoNumbers = []row{
	{name: "a device whose number is not known comes back by its alias or its MAC address",
		differs: "it keeps neither its alias nor that it was up", test: func(l *lab) {
			l.run("ip link set nic0 up alias uplink")
			before := l.now()
			for i, change := range []string{"alias x", "name net7", "address 02:45:00:00:00:66", "alias x name net7"} {
				web := l.attach(deviceWith(), fmt.Sprint("web", i))
				l.rewriteNotes(func(note string) string { return with(note, "number", "0") })
				web.run("ip link set eth0 down", "ip link set eth0 "+change)
				l.must(web.del())
				before.unchanged()
				l.notHeld()
			}
		}},
	{name: "a device whose number is not known stays while no link of the container has its alias or MAC address, or several do",
		differs: "it keeps neither its alias nor that it was up", test: func(l *lab) {
			l.run("ip link set nic0 up alias uplink")
			host := l.now()
			web := l.attach(deviceWith(), "web")
			l.rewriteNotes(func(note string) string { return with(note, "number", "0") })
			web.run("ip link set eth0 down")
			for change, back := range map[string]string{
				"link set eth0 alias x address 02:45:00:00:00:66":                                            "link set eth0 alias nic0",
				"link set eth0 name net7\nlink add eth0 type veth peer name other\nlink set eth0 alias nic0": "link del eth0\nlink set net7 name eth0",
			} {
				web.Feed(l, change+"\n", "ip", "-batch", "-")
				before := l.now(web)
				l.refused(web.del(), "nic0")
				l.refused(l.gc(deviceWith()), "nic0")
				before.unchanged()
				web.Feed(l, back+"\n", "ip", "-batch", "-")
			}
			l.must(web.del())
			host.unchanged()
			l.notHeld()
		}},
}

func deviceChecks() []row {
	attach := func(l *lab, _ ...string) *container {
		return l.attach(deviceLan("ipam", with(fixedIPs("10.45.0.2/24 10.45.0.1", "fd00:45::2/64"), "routes", `[{"dst":"10.50.0.0/16"}]`)), "web")
	}
	rows := checks("CHECK finds ", attach, (*container).check, []event{
		{name: "the interface gone", says: "eth0", happens: inside("ip link del eth0")},
		{name: "the interface renamed", says: "eth0", happens: inside("ip link set eth0 down", "ip link set eth0 name net7")},
		{name: "another MAC address", happens: inside("ip link set eth0 address 02:45:00:00:00:66")},
		{name: "the interface down", happens: inside("ip link set eth0 down")},
		{name: "the address gone", says: "10.45.0.2", happens: inside("ip address del 10.45.0.2/24 dev eth0")},
		{name: "the IPv6 address gone", says: "fd00:45::2", happens: inside("ip address del fd00:45::2/64 dev eth0")},
		{name: "a route gone", says: "10.50.0.0", happens: inside("ip route del 10.50.0.0/16")},
	})
	return append(rows,
		row{name: "CHECK finds nothing wrong with routes that moved to another table", differs: "it looks at the main table only", test: func(l *lab) {
			c := l.attach(deviceLan("ipam", with(fixedIPs("10.45.0.2/24 10.45.0.1"), "routes", `[{"dst":"10.50.0.0/16"}]`)), "web")
			c.run("ip route del 10.50.0.0/16", "ip route add 10.50.0.0/16 via 10.45.0.1 table 300")
			l.must(c.check())
		}},
		row{name: "CHECK needs the result of ADD", test: func(l *lab) {
			c := l.attach(deviceWith(), "web")
			l.refused(l.verb("CHECK", c, device), "prevResult")
		}},
	)
}

var deviceLater = append(aboutPlugin("host-device", `{"type":"host-device","device":"lo"}`), []row{
	{name: "STATUS finds the device missing, with code 50", differs: noStatus, test: func(l *lab) {
		l.code(l.status(deviceWith()), 50, "nic0")
		l.nic("nic0")
		l.must(l.status(deviceWith()))
	}},
	{name: "STATUS is fine while a container has the device", test: func(l *lab) {
		l.nic("nic0")
		l.attach(deviceWith(), "web")
		l.must(l.status(deviceWith()))
	}},
	{name: "STATUS is fine with a device that the runtime assigns", test: func(l *lab) {
		l.must(l.status(conf(`{"type":"host-device","capabilities":{"deviceID":true}}`)))
	}},
	{name: "STATUS finds that no device is named", differs: noStatus, test: func(l *lab) { l.refused(l.status(conf(`{"type":"host-device"}`)), "device") }},
	{name: "STATUS asks the IPAM plugin", differs: noStatus, test: func(l *lab) {
		l.nic("nic0")
		l.refused(l.status(deviceWith("ipam", `{"type":"host-local"}`)))
	}},
	{name: "GC gives back devices and addresses of attachments that are not valid", differs: noGC, test: func(l *lab) {
		l.nic("nic0")
		l.nic("nic1")
		l.run("ip link set nic0 up alias uplink")
		l.warmPool()
		keep := l.attach(deviceWith("ipam", pool, "device", `"nic1"`), "keep")
		before := l.now(keep)
		l.attach(deviceWith("ipam", pool), "lost")
		l.must(l.gc(deviceWith("ipam", pool), keep))
		before.unchanged()
		l.must(keep.check(), l.gc(deviceWith("ipam", pool)))
		l.linkShows("nic1")
		l.notHeld()
	}},
	{name: "GC leaves the devices of another network", test: func(l *lab) {
		l.nic("nic0")
		c := l.attach(deviceWith().called("lan2"), "web")
		before := l.now(c)
		l.must(l.gc(deviceWith()))
		before.unchanged()
	}},
	{name: "a container that has ended gives the device to the next", test: func(l *lab) {
		far := l.nic("nic0")
		for _, name := range []string{"a", "b", "c"} {
			c := l.attach(deviceLan(), name)
			l.pings(&far.Namespace, "10.45.0.2") // which may still know the MAC address of the one before
			l.must(c.del())
		}
	}},
}...)
