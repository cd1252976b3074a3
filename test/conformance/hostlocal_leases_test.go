package conformance

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/cnibox/cnibox/test/netlab"
)

// leaseFiles is about the files on disk, which other programs read and write too.
var leaseFiles = []row{
	{name: "a lease's file, to the byte", test: func(l *lab) {
		c := l.attach(leased(dualRanges), "web", ifname("net0"))
		for _, address := range []string{"10.1.2.2", "fd00::2"} {
			l.same(l.read(leaseDir+address), c.ID+"\r\nnet0")
		}
	}},
	{name: "the names and modes of all files", test: func(l *lab) {
		l.attach(leased(dualRanges), "web")
		l.same(strings.Fields(l.run("stat -c %A:%n "+leaseDir+" "+strings.Join(l.files(leaseDir+"*"), " "))), []string{
			"drwxr-xr-x:" + leaseDir, "-rw-------:" + leaseDir + "10.1.2.2", "-rw-------:" + leaseDir + "fd00::2",
			"-rw-------:" + leaseDir + "last_reserved_ip.0", "-rw-------:" + leaseDir + "last_reserved_ip.1", "-rwxr-x---:" + leaseDir + "lock",
		})
		l.same(l.read(leaseDir+"last_reserved_ip.0")+" "+l.read(leaseDir+"last_reserved_ip.1")+" "+l.read(leaseDir+"lock"), "10.1.2.2 fd00::2 ")
	}},
	{name: "last_reserved_ip is the address and nothing else, also after a longer one", test: func(l *lab) {
		l.write(leaseDir+"last_reserved_ip.0", "10.1.2.254")
		l.attach(leased(plainRange), "web")
		l.last(0, "10.1.2.2")
	}},
	{name: "an IPv6 address has the file name that is shortest", test: func(l *lab) {
		l.attach(leased(`"subnet":"FD00:0:0:0:0:0:0:0/64"`), "web", capability("ips", `["FD00:0::00AB"]`))
		l.held("fd00::ab")
	}},
	{name: "dataDir is where the files are", test: func(l *lab) {
		c := l.attach(leased(plainRange+`,"dataDir":"/run/my/leases"`), "web")
		l.held()
		l.same(l.read("/run/my/leases/lan/10.1.2.2"), c.ID+"\r\neth0")
		l.must(c.check(), c.del())
		l.same(l.read("/run/my/leases/lan/10.1.2.2"), "")
		l.same(l.read("/run/my/leases/lan/last_reserved_ip.0"), "10.1.2.2")
	}},
	{name: "a container id that is too long for a lease is refused, or its lease is given back", test: func(l *lab) {
		c := l.pod("web")
		c.ID = strings.Repeat("a", 1019)
		if c.add(leased(plainRange)) == nil {
			l.must(c.del())
		}
		l.held()
	}},
	{name: "an empty dataDir is the usual one", test: func(l *lab) {
		l.attach(leased(plainRange+`,"dataDir":""`), "web")
		l.held("10.1.2.2")
	}},
	{name: "networks that share a dataDir have a directory each", test: func(l *lab) {
		l.attach(leased(plainRange), "one")
		c := l.attach(leased(plainRange).called("my.net_2"), "two")
		l.held("10.1.2.2")
		l.same(l.read("/var/lib/cni/networks/my.net_2/10.1.2.2"), c.ID+"\r\neth0")
	}},
	{name: "ADD and DEL wait while another program has the directory locked", test: func(l *lab) {
		c, other := l.pod("web"), l.pod("other")
		for _, step := range []func() error{func() error { return c.add(leased(plainRange)) }, c.del} {
			l.run("mkdir -p "+leaseDir, "rm -f /run/locked /run/interrupted")
			l.host.Background(l, exec.Command("flock", leaseDir+"lock", "sh", "-c", "touch /run/locked; "+untilInterrupted))
			l.eventually(func() string {
				if len(l.files("/run/locked")) == 0 {
					return "the directory can't be locked"
				}
				return ""
			})
			ended := make(chan error, 1)
			go func() { ended <- step() }()
			for range 3 { // each of which takes as long as the step without the lock
				l.must(other.add(leased(plainRange).called("other")), other.del())
			}
			if len(ended) > 0 {
				l.Error("it did not wait")
			}
			l.write("/run/interrupted", "")
			l.must(<-ended)
		}
	}},
	{name: "ADD says where it can't write", test: func(l *lab) {
		l.write("/run/plain", "a file")
		l.refused(l.pod("web").add(leased(plainRange+`,"dataDir":"/run/plain/leases"`)), "/run/plain")
	}},
}

// leaseReading is about leases that others wrote: older releases, the reference plugin, people.
var leaseReading = []row{
	{name: "a lease in the old form, the container id alone, is given back by DEL", test: func(l *lab) {
		c := l.attach(leased(plainRange), "web")
		l.lease("10.1.2.2", c.ID, "")
		l.must(c.del())
		l.held()
	}},
	{name: "a lease in the old form may end with a newline", test: func(l *lab) {
		c := l.attach(leased(plainRange), "web")
		l.write(leaseDir+"10.1.2.2", c.ID+"\n")
		l.must(c.del())
		l.held()
	}},
	{name: "DEL of a container with a lease in each form gives back the new one", test: func(l *lab) {
		c := l.attach(leased(plainRange), "web")
		l.lease("10.1.2.9", c.ID, "")
		l.must(c.del())
		l.held("10.1.2.9")
	}},
	{name: "a container with a lease in the old form gets no other address", test: func(l *lab) {
		c := l.pod("web")
		l.lease("10.1.2.9", c.ID, "")
		_, err := l.exec("ADD", c, ofHostLocal(plainRange)) // by a bridge plugin, whose DEL would follow
		l.refused(err, "10.1.2.9")
		l.held("10.1.2.9")
	}},
	{name: "CHECK accepts a lease in the old form", test: func(l *lab) {
		c := l.attach(leased(plainRange), "web")
		l.lease("10.1.2.2", c.ID, "")
		l.must(c.check())
	}},
	{name: "white space around a lease does not matter", test: func(l *lab) {
		c := l.attach(leased(plainRange), "web")
		l.write(leaseDir+"10.1.2.2", " "+c.ID+"\r\neth0\n")
		l.must(c.check(), c.del())
		l.held()
	}},
	{name: "a lease with the newline of an editor in place of CRLF is given back", choice: true, differs: "it does not recognise such a lease", test: func(l *lab) {
		c := l.attach(leased(plainRange), "web")
		l.write(leaseDir+"10.1.2.2", c.ID+"\neth0\n")
		l.must(c.check(), c.del())
		l.held()
	}},
	{name: "leases that another program made are given back", test: func(l *lab) {
		c := l.attach(leased(dualRanges), "web")
		l.remove(leaseDir + "10.1.2.2")
		l.lease("10.1.2.77", c.ID, "eth0")
		l.lease("fd00::77", c.ID, "eth0")
		l.must(c.del())
		l.held()
	}},
	{name: "a lease that another program made between two calls counts", test: func(l *lab) {
		l.attach(leased(plainRange), "one")
		c := l.pod("two")
		l.lease("10.1.2.77", c.ID, "eth0")
		l.refused(c.add(leased(plainRange)), "10.1.2.77")
		l.lease("10.1.2.3", "someone", "eth0")
		l.attach(leased(plainRange), "three").ips("10.1.2.4/24>10.1.2.1")
	}},
	{name: "a lease that another program removed is free", test: func(l *lab) {
		n := leased(twoLeft)
		l.attach(n, "one")
		l.attach(n, "two")
		l.remove(leaseDir + "10.1.2.3")
		l.attach(n, "three").ips("10.1.2.3/24>10.1.2.1")
		l.refused(l.pod("four").add(n), "10.1.2.3")
	}},
	{name: "leases that were put back from a copy are what counts", test: func(l *lab) {
		n := leased(plainRange)
		one := l.attach(n, "one")
		l.run("cp -a " + leaseDir + " /run/copy")
		two := l.attach(n, "two")
		l.must(one.del())
		l.run("rm -r "+leaseDir, "cp -a /run/copy "+strings.TrimSuffix(leaseDir, "/"))
		l.must(two.del())
		l.held("10.1.2.2")
		l.must(one.del())
		l.held()
	}},
	{name: "the directory can be removed between two calls", test: func(l *lab) {
		n := leased(plainRange)
		c := l.attach(n, "one")
		l.remove("/var/lib/cni/networks")
		l.refused(c.check(), c.ID)
		l.must(c.del())
		l.attach(n, "two").ips("10.1.2.2/24>10.1.2.1")
	}},
	{name: "an empty lease file is a free address", differs: refTorn, test: func(l *lab) {
		l.write(leaseDir+"10.1.2.2", "")
		l.attach(leased(plainRange), "web").ips("10.1.2.2/24>10.1.2.1")
	}},
	{name: "a lease file of zeros is a free address", differs: refTorn, test: func(l *lab) {
		l.write(leaseDir+"10.1.2.2", strings.Repeat("\x00", 70))
		l.attach(leased(plainRange), "web").ips("10.1.2.2/24>10.1.2.1")
	}},
	{name: "an address with an empty lease file can be asked for", differs: refTorn, test: func(l *lab) {
		c := l.attach(leased(plainRange), "one")
		l.write(leaseDir+"10.1.2.77", "")
		l.attach(leased(plainRange), "two", capability("ips", `["10.1.2.77"]`)).ips("10.1.2.77/24>10.1.2.1")
		l.must(c.del())
		l.held("10.1.2.77")
	}},
	{name: "an address whose lease file was emptied can be asked for", differs: refTorn, test: func(l *lab) {
		l.attach(leased(plainRange), "one")
		l.write(leaseDir+"10.1.2.2", "")
		l.attach(leased(plainRange), "two", capability("ips", `["10.1.2.2"]`)).ips("10.1.2.2/24>10.1.2.1")
	}},
	{name: "files that are not named as addresses are left alone", test: func(l *lab) {
		c := l.attach(leased(plainRange), "web")
		names := []string{"10.1.2", "10.1.2.2.bak", "10.1.2.999", "::ffff:10.1.2.9", "FD00::3", "fe80::1%eth0", "notes"}
		for _, name := range names {
			l.write(leaseDir+name, "")
		}
		l.must(c.del(), l.gc(leased(plainRange)))
		l.attach(leased(plainRange), "two")
		l.held(slices.Sorted(slices.Values(append(names, "10.1.2.3")))...)
	}},
}

// releases are rows about DEL.
func releases() (rows []row) {
	rows = []row{
		{name: "DEL gives back the addresses of all sets", test: func(l *lab) {
			c := l.attach(leased(`"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00::/64"}],[{"subnet":"10.1.3.0/24"}]]`), "web")
			l.held("10.1.2.2", "10.1.3.2", "fd00::2")
			l.must(c.del())
			l.held()
		}},
		{name: "DEL of one interface keeps the addresses of the container's others", test: func(l *lab) {
			c := l.attach(leasedByGateway(dualRanges), "web")
			other := c.attach(leasedByGateway(dualRanges), "eth1")
			l.must(c.del())
			l.held("10.1.2.3", "fd00::3")
			l.must(other.check(), other.del())
			l.held()
		}},
		{name: "DEL of one interface that has no lease keeps those of the others", test: func(l *lab) {
			c := l.attach(leased(plainRange), "web")
			l.must(l.verb("DEL", c, ofHostLocal(plainRange), of(c.ID, "eth1")))
			l.held("10.1.2.2")
		}},
		{name: "DEL keeps the addresses of other containers and networks", test: func(l *lab) {
			c := l.attach(leased(plainRange), "one")
			l.attach(leased(plainRange), "two")
			other := c.withIfname("eth1")
			other.network = leased(plainRange).called("wan")
			l.lease("../wan/10.1.2.2", c.ID, "eth0")
			l.must(c.del())
			l.held("10.1.2.3")
			l.same(l.read("/var/lib/cni/networks/wan/10.1.2.2"), c.ID+"\r\neth0")
		}},
		{name: "DEL does not take an address that is another container's by now", test: func(l *lab) {
			n := leasedByGateway(plainRange)
			c := l.attach(n, "one")
			l.remove(leaseDir + "10.1.2.2")
			two := l.attach(n, "two", capability("ips", `["10.1.2.2"]`))
			l.must(c.del())
			l.held("10.1.2.2")
			l.must(two.check())
		}},
		{name: "DEL does not take an address whose file was edited to name another container", test: func(l *lab) {
			c := l.attach(leased(plainRange), "one")
			l.lease("10.1.2.2", "someone", "eth0")
			l.must(c.del())
			l.held("10.1.2.2")
			l.same(l.read(leaseDir+"10.1.2.2"), "someone\r\neth0")
		}},
		{name: "DEL twice, without result and namespace, succeeds", test: func(l *lab) {
			c := l.attach(leased(dualRanges), "web")
			l.must(c.delBare())
			l.held()
			l.must(c.delBare(), c.del())
		}},
		{name: "DEL of what was never attached succeeds", test: func(l *lab) {
			l.attach(leased(plainRange), "one")
			c := l.never(leased(plainRange), "two")
			l.must(c.del())
			l.held("10.1.2.2")
		}},
		{name: "DEL before any ADD succeeds", test: func(l *lab) { l.must(l.verb("DEL", l.pod("web"), ofHostLocal(plainRange))) }},
		{name: "DEL before any ADD makes no files", choice: true, differs: "its DEL makes the directory", test: func(l *lab) {
			l.must(l.verb("DEL", l.pod("web"), ofHostLocal(plainRange)))
			l.same(len(l.files("/var/lib/cni/networks")), 0)
		}},
		{name: "DEL without the capability ipRanges gives back the addresses", differs: refInvalidDel, test: func(l *lab) {
			c := l.attach(leased(``), "web", capability("ipRanges", `[[{"subnet":"10.1.2.0/24"}]]`))
			l.held("10.1.2.2")
			l.must(c.delBare())
			l.held()
		}},
		{name: "DEL with the namespace gone gives back the addresses", test: func(l *lab) {
			c := l.attach(leased(dualRanges), "web")
			c.Delete(l)
			l.must(c.del())
			l.held()
		}},
		{name: "DEL after an ADD that failed in a later plugin gives back the addresses", test: func(l *lab) {
			n := leased(dualRanges)
			n.plugins = append(n.plugins, `{"type":"tuning","sysctl":{"net.ipv4.conf.none0.forwarding":"1"}}`)
			c := l.pod("web")
			l.refused(c.add(n), "none0")
			l.must(c.del())
			l.held()
		}},
	}
	for _, r := range []struct{ name, keys, differs string }{
		{"of other ranges", `"ranges":[[{"subnet":"10.77.0.0/16"}]]`, ""},
		{"of one set less", plainRange, ""},
		{"with a resolvConf that is gone", dualRanges + `,"resolvConf":"/run/none"`, ""},
		{"without ranges", ``, refInvalidDel},
		{"with an invalid subnet", `"ranges":[[{"subnet":"10.1.2.3/32"}]]`, refInvalidDel},
		{"with ranges that overlap", `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.0.0/16"}]]`, refInvalidDel},
		{"with text in place of ranges", `"ranges":"gone"`, refInvalidDel},
		{"with routes that are no list", plainRange + `,"routes":7`, refInvalidDel},
	} {
		rows = append(rows, row{name: "DEL with a configuration " + r.name + " gives back the addresses", differs: r.differs, test: func(l *lab) {
			c := l.attach(leased(dualRanges), "web")
			c.network = leased(r.keys)
			l.must(c.del())
			l.held()
		}})
	}
	return append(rows, row{name: "DEL with invalid keys, CNI_ARGS and runtimeConfig gives back the addresses", differs: refInvalidDel, test: func(l *lab) {
		c := l.pod("web")
		l.must(l.verb("ADD", c, ofHostLocal(plainRange)))
		l.must(l.verb("DEL", c, ofHostLocal(`"routes":7,"resolvConf":7`, "runtimeConfig", `{"ips":["seven"],"ipRanges":7}`, "args", `[]`), cniArgs("nonsense")))
		l.held()
	}})
}

// leaseHarms are rows about leases that are not as ADD made them: C stands for the container's id in what CHECK says.
func leaseHarms() (rows []row) {
	const v4, v6 = leaseDir + "10.1.2.2", leaseDir + "fd00::2"
	for _, c := range []struct{ name, ranges, harm, says, differs string }{
		{"the lease is gone", plainRange, "rm " + v4, "C", ""},
		{"one of two leases is gone", dualRanges, "rm " + v6, "fd00::2 C", refAnyLease},
		{"the lease is another container's", plainRange, "cp /run/someone " + v4, "C", ""},
		{"the lease is another address", plainRange, "mv " + v4 + " " + leaseDir + "10.1.2.3", "10.1.2.2 C", refAnyLease},
		{"the lease file is empty", plainRange, "truncate -s 0 " + v4, "C", ""},
	} {
		rows = append(rows, row{name: "CHECK notices that " + c.name, differs: c.differs, test: func(l *lab) {
			web := l.attach(leased(c.ranges), "web")
			l.write("/run/someone", "someone\r\neth0")
			l.run(c.harm)
			l.refused(web.check(), strings.Fields(strings.ReplaceAll(c.says, "C", web.ID))...)
		}})
	}
	return rows
}

// leaseChecks is about CHECK.
var leaseChecks = []row{
	{name: "CHECK succeeds after ADD, and changes nothing", test: func(l *lab) {
		n := leasedByGateway(dualRanges)
		one, two := l.attach(n, "one"), l.attach(n, "two")
		l.now().unchangedBy(one.check(), two.check())
	}},
	{name: "CHECK does not take another interface's lease for this one's", test: func(l *lab) {
		c := l.attach(leasedByGateway(plainRange), "web")
		other := c.attach(leasedByGateway(plainRange), "eth1")
		l.remove(leaseDir + "10.1.2.2")
		l.must(other.check())
		l.refused(c.check(), c.ID)
	}},
	{name: "CHECK without a result looks for any lease", test: func(l *lab) {
		c, config := l.pod("web"), ofHostLocal(plainRange)
		l.refused(l.verb("CHECK", c, config), c.ID)
		l.lease("10.1.2.7", c.ID, "eth0")
		l.must(l.verb("CHECK", c, config))
	}},
	{name: "CHECK leaves the addresses of other IPAM plugins and interfaces alone", test: func(l *lab) {
		c := l.pod("web")
		l.lease("10.1.2.7", c.ID, "eth0")
		l.must(l.verb("CHECK", c, ofHostLocal(plainRange, "prevResult", `{"cniVersion":"1.0.0",
			"interfaces":[{"name":"eth0","sandbox":"/run/netns/web"},{"name":"eth1","sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.1.2.7/24","interface":0},{"address":"192.0.2.7/24","interface":0},{"address":"10.1.2.8/24","interface":1}]}`)))
	}},
	{name: "CHECK refuses an invalid configuration", test: func(l *lab) {
		c := l.attach(leased(plainRange), "web")
		c.network = leased(`"subnet":"10.1.2.3/24"`)
		l.refused(c.check(), "10.1.2.0")
	}},
}

// leaseCollections is about GC.
var leaseCollections = []row{
	{name: "GC gives back the addresses of what is not valid", differs: noGC, test: func(l *lab) {
		n := leasedByGateway(dualRanges)
		keep := l.attach(n, "keep")
		l.attach(n, "stale")
		l.must(l.gc(n, keep))
		l.held("10.1.2.2", "fd00::2")
		l.must(keep.check())
	}},
	{name: "GC gives back the address of a valid container's stale interface", differs: noGC, test: func(l *lab) {
		n := leased(plainRange)
		stale := l.attach(n, "web")
		keep := stale.attach(n, "eth1")
		l.must(l.gc(n, keep))
		l.held("10.1.2.3")
	}},
	{name: "GC with nothing valid gives back all addresses", differs: noGC, test: func(l *lab) {
		n := leased(plainRange)
		l.attach(n, "one")
		l.attach(n, "two")
		l.must(l.gc(n))
		l.held()
		l.last(0, "10.1.2.3")
	}},
	{name: "GC of one network keeps the addresses of others", test: func(l *lab) {
		l.attach(leased(plainRange), "one")
		l.attach(leased(plainRange).called("lan-2"), "two")
		l.must(l.gc(leased(plainRange).called("la")), l.gc(leased(plainRange).called("lan-2")))
		l.held("10.1.2.2")
	}},
	{name: "GC without a list changes nothing", test: func(l *lab) {
		l.attach(leased(plainRange), "web")
		l.write(leaseDir+"10.1.2.9", "")
		l.must(l.each("GC", nil, leased(plainRange).in("1.1.0")))
		l.held("10.1.2.2", "10.1.2.9")
	}},
	{name: "GC gives back leases in the old form of containers that have nothing valid, and empty ones", differs: noGC, test: func(l *lab) {
		n := leased(plainRange)
		keep := l.attach(n, "keep")
		l.lease("10.1.2.6", keep.ID, "")
		l.lease("10.1.2.7", "stale", "")
		l.write(leaseDir+"10.1.2.8", "")
		l.must(l.gc(n, keep))
		l.held("10.1.2.2", "10.1.2.6")
	}},
	{name: "GC looks in dataDir, whatever else is configured", differs: noGC, test: func(l *lab) {
		const dir = `,"dataDir":"/run/leases"`
		l.attach(leased(plainRange+dir), "web")
		l.attach(leased(plainRange), "db")
		l.must(l.gc(leased(`"ranges":"gone"` + dir)))
		l.same(l.files("/run/leases/lan/1*"), []string(nil))
		l.held("10.1.2.2")
	}},
	{name: "GC before any ADD succeeds", test: func(l *lab) { l.must(l.gc(leased(plainRange))) }},
}

// hostLocalStatus is about STATUS.
var hostLocalStatus = []row{
	{name: "STATUS succeeds when a lease can be made, and changes nothing", test: func(l *lab) {
		before := l.now()
		l.must(l.status(leased(dualRanges)))
		before.unchanged()
		l.attach(leased(dualRanges), "web")
		before = l.now()
		l.must(l.status(leased(dualRanges)))
		before.unchanged()
	}},
	{name: "STATUS succeeds when a range is full, as addresses come back", choice: true, test: func(l *lab) {
		n := leased(`"subnet":"10.1.2.0/30"`)
		l.attach(n, "web")
		l.must(l.status(n))
	}},
	{name: "STATUS fails when dataDir is below a plain file", differs: noStatus, test: func(l *lab) {
		l.write("/run/plain", "a file")
		l.refused(l.status(leased(plainRange+`,"dataDir":"/run/plain/leases"`)), "/run/plain")
	}},
	{name: "STATUS fails when dataDir can't be written", differs: noStatus, test: func(l *lab) {
		l.run("mkdir /run/leases", "mount -t tmpfs -o ro tmpfs /run/leases")
		l.refused(l.status(leased(plainRange+`,"dataDir":"/run/leases"`)), "/run/leases")
	}},
	{name: "STATUS fails when the disk is full", differs: noStatus, test: func(l *lab) {
		l.run("mkdir /run/leases", "mount -t tmpfs -o size=64k tmpfs /run/leases")
		l.write("/run/leases/much", strings.Repeat("x", 64<<10))
		l.refused(l.status(leased(plainRange+`,"dataDir":"/run/leases"`)), "/run/leases", "full")
	}},
	{name: "STATUS has code 50 when no lease can be made", differs: noStatus, test: func(l *lab) {
		l.write("/run/plain", "a file")
		l.code(l.verb("STATUS", nil, ofHostLocal(plainRange+`,"dataDir":"/run/plain/leases"`, "cniVersion", `"1.1.0"`)), 50)
	}},
	{name: "STATUS succeeds when the ranges come with each ADD", test: func(l *lab) { l.must(l.status(leased(``))) }},
	{name: "STATUS fails without ranges", differs: noStatus, test: func(l *lab) {
		n := leased(``)
		n.plugins[0] = with(n.plugins[0], "capabilities", `{}`)
		l.refused(l.status(n), "ranges")
	}},
	{name: "STATUS fails with an invalid range", differs: noStatus, test: func(l *lab) { l.refused(l.status(leased(`"subnet":"10.1.2.3/24"`)), "10.1.2.0") }},
	{name: "STATUS fails when the resolvConf is not there", differs: noStatus, test: func(l *lab) {
		l.refused(l.status(leased(plainRange+`,"resolvConf":"/run/none"`)), "/run/none")
	}},
}

// together calls f for 0 … n-1 at the same time.
func together(n int, f func(i int)) {
	var wait sync.WaitGroup
	for i := range n {
		wait.Add(1)
		go func() {
			defer wait.Done()
			f(i)
		}()
	}
	wait.Wait()
}

// leaseCrowds is about many processes at once.
var leaseCrowds = []row{
	{name: "20 ADDs at once get 20 addresses, and 20 DELs at once give them back", test: func(l *lab) {
		l.complete(ofHostLocal(plainRange)) // where it can't be called by itself, this ends the row
		c, given := l.pod("web"), make([]string, 20)
		call := func(verb string, i int) {
			out, err := l.exec(verb, c, ofHostLocal(plainRange), of(fmt.Sprint("pod", i), "eth0"))
			if err != nil {
				l.Error(err)
				return
			}
			if verb == "ADD" {
				given[i] = l.ipsOf(out)
			}
		}
		together(len(given), func(i int) { call("ADD", i) })
		slices.Sort(given)
		l.same(len(slices.Compact(given)), 20)
		l.same(len(l.files(leaseDir+"10.*")), 20)
		together(len(given), func(i int) { call("DEL", i) })
		l.held()
	}},
	{name: "8 containers attached at once have 8 addresses", test: func(l *lab) {
		pods, given := make([]*container, 8), make([]string, 8)
		for i := range pods {
			pods[i] = l.pod(fmt.Sprint("pod", i))
		}
		together(len(pods), func(i int) {
			if err := pods[i].add(leased(plainRange)); err != nil {
				l.Error(err)
			}
			given[i] = pods[i].v4
		})
		slices.Sort(given)
		l.same(len(slices.Compact(given)), 8)
		together(len(pods), func(i int) {
			if err := pods[i].del(); err != nil {
				l.Error(err)
			}
		})
		l.held()
	}},
}

// namespacesOf are rows about CNI_NETNS, which an IPAM plugin does not use.
func namespacesOf(config string) []row {
	netns := func(path string) change { return func(call *netlab.PluginCall) { call.Netns = path } }
	elsewhere := func(verb, path string) func(l *lab) {
		return func(l *lab) {
			c := l.pod("web")
			if verb != "ADD" {
				out := l.answer("ADD", c, config)
				l.must(l.verb(verb, c, with(config, "prevResult", out), netns(path)))
				return
			}
			l.must(l.verb("ADD", c, config, netns(path)))
		}
	}
	return []row{
		{name: "ADD when CNI_NETNS is not there", test: elsewhere("ADD", "/run/netns/none")},
		{name: "ADD when CNI_NETNS is /dev/null", test: elsewhere("ADD", "/dev/null")},
		{name: "CHECK when CNI_NETNS is not there", test: elsewhere("CHECK", "/run/netns/none")},
		{name: "CHECK when CNI_NETNS is /dev/null", test: elsewhere("CHECK", "/dev/null")},
		{name: "DEL when CNI_NETNS is not there", test: elsewhere("DEL", "/run/netns/none")},
		{name: "DEL when CNI_NETNS is /dev/null", test: elsewhere("DEL", "/dev/null")},
		{name: "DEL when CNI_NETNS is empty", test: elsewhere("DEL", "")},
	}
}
