package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

const (
	refKeeps   = "it keeps a lease until its DEL, which never comes after a crash"
	refSilent  = "it does not say it"
	refNoOwner = "it says only that the address is allocated"
)

// uptime returns for how many seconds the machine has been up.
func (l *lab) uptime() (seconds float64) {
	text, err := os.ReadFile("/proc/uptime")
	if err == nil {
		seconds, err = strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	}
	l.must(err)
	return seconds
}

// reboot has host-local see a machine that was started again after all leases were made that are there.
// Before Linux 6.3 only a fork enters a new time namespace, not exec.
func (l *lab) reboot() {
	start := int(l.uptime()) + 1
	netlab.Until(l, "the machine to be up for another second", func() bool { return l.uptime() >= float64(start) })
	l.write("/run/rebooted", fmt.Sprintf("#!/bin/sh\nexec unshare --time --fork --boottime -%d %s\n", start, filepath.Join(l.suite.dir, "host-local")))
	l.run("chmod +x /run/rebooted")
	l.write("/run/boot_id", "00000000-0000-4000-8000-000000000000\n")
	l.run("mount --bind /run/boot_id /proc/sys/kernel/random/boot_id")
	l.host.InstallPlugin(l, "host-local", "/run/rebooted")
}

// crashed attaches containers that are gone then, without DEL.
func (l *lab) crashed(n network, names ...string) (list []*container) {
	for _, name := range names {
		c := l.attach(n, name)
		c.Delete(l)
		list = append(list, c)
	}
	return list
}

// again returns a container with another one's id in a new namespace.
func (l *lab) again(c *container) *container {
	again := l.pod("again")
	again.ID, again.runtime.ContainerID = c.ID, c.ID
	return again
}

// staleLeases is about leases of attachments that are gone without DEL.
var staleLeases = []row{
	{name: "after a reboot, a full range takes back what crashed containers had", needs: &netlab.TimeNamespace, differs: refKeeps, test: func(l *lab) {
		n := leased(twoLeft)
		l.crashed(n, "one", "two")
		l.reboot()
		l.attach(n, "three").ips("10.1.2.2/24>10.1.2.1")
		l.held("10.1.2.2")
	}},
	{name: "after a reboot, a full range takes back what libcni does not know", needs: &netlab.TimeNamespace, differs: refKeeps, test: func(l *lab) {
		n := leased(twoLeft)
		one := l.attach(n, "one")
		l.lease("10.1.2.3", "unknown", "eth0")
		l.reboot()
		l.attach(n, "two").ips("10.1.2.3/24>10.1.2.1")
		l.must(one.del())
	}},
	{name: "after a reboot, an address that is asked for is taken back from a crashed container", needs: &netlab.TimeNamespace, differs: refKeeps, test: func(l *lab) {
		n := leased(plainRange)
		l.crashed(n, "one")
		l.reboot()
		l.attach(n, "two", capability("ips", `["10.1.2.2"]`)).ips("10.1.2.2/24>10.1.2.1")
	}},
	{name: "after a reboot, nothing is taken back while addresses are free", needs: &netlab.TimeNamespace, test: func(l *lab) {
		n := leased(twoLeft)
		l.crashed(n, "one")
		l.reboot()
		l.attach(n, "two").ips("10.1.2.3/24>10.1.2.1")
		l.held("10.1.2.2", "10.1.2.3")
	}},
	{name: "after a reboot, a container whose namespace is there keeps its address", needs: &netlab.TimeNamespace, test: func(l *lab) {
		n := leased(twoLeft)
		l.attach(n, "one")
		l.attach(n, "two")
		l.reboot()
		l.refused(l.pod("three").add(n), "10.1.2.2")
		l.refused(l.pod("four").add(n, capability("ips", `["10.1.2.3"]`)), "10.1.2.3")
		l.held("10.1.2.2", "10.1.2.3")
	}},
	{name: "after a reboot, nothing is taken back where libcni keeps no results", needs: &netlab.TimeNamespace, test: func(l *lab) {
		n := leased(twoLeft)
		l.crashed(n, "one", "two")
		l.forget()
		l.clear("/var/lib/cni/cnibox")
		l.reboot()
		l.refused(l.pod("three").add(n), "10.1.2.2")
	}},
	{name: "after a reboot, a lease in the old form stays", needs: &netlab.TimeNamespace, test: func(l *lab) {
		n := leased(twoLeft)
		l.attach(n, "one")
		l.lease("10.1.2.3", "reserved", "")
		l.reboot()
		l.refused(l.pod("two").add(n), "10.1.2.2")
	}},
	{name: "a late DEL of a container keeps its address for who has it since the reboot", needs: &netlab.TimeNamespace, differs: refKeeps, test: func(l *lab) {
		n := leased(twoLeft)
		crashed := l.crashed(n, "one", "two")
		l.reboot()
		l.attach(n, "three").ips("10.1.2.2/24>10.1.2.1")
		for _, c := range crashed {
			l.must(c.del())
		}
		l.held("10.1.2.2")
	}},
	{name: "without a reboot nothing is taken back at once: it may be an ADD under way", test: func(l *lab) {
		n := leased(twoLeft)
		l.crashed(n, "one")
		l.lease("10.1.2.3", "new", "eth0")
		l.refused(l.pod("two").add(n), "10.1.2.2")
		l.held("10.1.2.2", "10.1.2.3")
	}},
	{name: "the error about a full range says how many addresses it has, how many are stale, and what frees them", differs: refSilent, test: func(l *lab) {
		n := leased(twoLeft)
		l.crashed(n, "one")
		l.attach(n, "two")
		l.refused(l.pod("three").add(n), "10.1.2.2-10.1.2.3", "2 addresses", "1 of them", "cnictl gc lan")
	}},
	{name: "the error about a second ADD says since when the first one's address is held, and that its container is there", differs: refNoOwner, test: func(l *lab) {
		c := l.attach(leased(plainRange), "web")
		l.refused(l.verb("ADD", c, ofHostLocal(plainRange)), c.Path()+" is there", "10.1.2.2", c.ID, "eth0", time.Now().UTC().Format("since 2006-01-"))
	}},
	{name: "a container that is started again in a new namespace gets an address, though no DEL came for the first", differs: refKeeps, test: func(l *lab) {
		n := leased(dualRanges)
		c := l.attach(n, "web")
		c.Delete(l)
		l.must(l.again(c).add(n))
		l.held("10.1.2.3", "fd00::3")
	}},
	{name: "a container that is started again in a new namespace at the same path gets an address, though no DEL came for the first", differs: refKeeps, test: func(l *lab) {
		n := leased(dualRanges)
		c := l.attach(n, "web")
		c.Replace(l)
		l.must(c.add(n))
		l.held("10.1.2.3", "fd00::3")
	}},
	{name: "a container that is started again gets the address it asks for, which it had", differs: refKeeps, test: func(l *lab) {
		n := leased(plainRange)
		c := l.attach(n, "web")
		c.Delete(l)
		l.must(l.again(c).add(n, capability("ips", `["10.1.2.2"]`)))
		l.held("10.1.2.2")
	}},
	{name: "an ADD for another namespace is refused while the first one is there, and changes nothing", test: func(l *lab) {
		n := leased(plainRange)
		c := l.attach(n, "web")
		l.refused(l.verb("ADD", l.again(c), ofHostLocal(plainRange)), "10.1.2.2", c.ID)
		l.held("10.1.2.2")
		l.must(c.check())
	}},
	{name: "an ADD is refused while the first one's veth is there, though nothing is at its namespace's path", test: func(l *lab) {
		n := leased(plainRange)
		c := l.attach(n, "web")
		l.run("umount " + c.Path())
		l.refused(l.verb("ADD", l.again(c), ofHostLocal(plainRange)), "10.1.2.2", c.ID)
		l.held("10.1.2.2")
	}},
	{name: "an ADD is refused when nothing is known of the first one", test: func(l *lab) {
		n := leased(plainRange)
		c := l.attach(n, "web")
		c.Delete(l)
		again := l.again(c)
		l.clear("/var/lib/cni/cnibox")
		for _, unknown := range []string{"touch -d yesterday %s", "truncate -s 20 %s", "truncate -s 0 %s", "rm %s"} {
			l.run(fmt.Sprintf(unknown, netlab.CacheDir+"/results/lan-"+c.ID+"-eth0"))
			l.refused(l.verb("ADD", again, ofHostLocal(plainRange)), "10.1.2.2", c.ID)
		}
		l.held("10.1.2.2")
	}},
	{name: "the error about an address that is taken says since when, and whether that container is there", differs: refNoOwner, test: func(l *lab) {
		c := l.attach(leased(plainRange), "one")
		wanted := capability("ips", `["10.1.2.2"]`)
		l.refused(l.pod("two").add(leased(plainRange), wanted), c.ID, "since", c.Path()+" is there")
		c.Delete(l)
		l.refused(l.pod("three").add(leased(plainRange), wanted), c.ID, "since", "is gone")
	}},
	{name: "DEL says what it can't give back, and the next one gives it back", differs: "its DEL succeeds, and the address stays taken", test: func(l *lab) {
		l.run("mkdir /run/leases", "mount -t tmpfs tmpfs /run/leases")
		c := l.attach(leased(dualRanges+`,"dataDir":"/run/leases"`), "web")
		l.run("mount -o remount,bind,ro /run/leases")
		l.refused(c.del(), "/run/leases/lan")
		l.run("mount -o remount,bind,rw /run/leases")
		l.must(c.del())
		l.same(l.files("/run/leases/lan/[1f]*"), []string(nil))
	}},
	{name: "a full disk leaves no lease behind, and DEL gives back addresses", test: func(l *lab) {
		n := leased(plainRange + `,"dataDir":"/run/small"`)
		l.run("mkdir /run/small", "mount -t tmpfs -o size=1m,nr_inodes=200 tmpfs /run/small")
		one := l.attach(n, "one")
		l.write("/run/fill", "dd if=/dev/zero of=/run/small/full bs=4k 2>/dev/null || true")
		l.run("sh /run/fill")
		l.refused(l.pod("two").add(n), "/run/small")
		l.same(l.files("/run/small/lan/1*"), []string{"/run/small/lan/10.1.2.2"})
		l.must(one.del())
		l.same(l.files("/run/small/lan/1*"), []string(nil))
		l.remove("/run/small/full")
		l.attach(n, "three")
		l.same(len(l.files("/run/small/lan/1*")), 1)
	}},
}
