package conformance

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// forbidRun makes the node's /run, in which plugins have left nothing, read-only until the row ends: as of rootless plugins, and of a
// container with a read-only root.
func (l *lab) forbidRun() {
	l.run("rm -rf /run/cnibox", "mount -o remount,bind,ro /run")
	l.Cleanup(func() { l.run("mount -o remount,bind,rw /run") })
}

// fillRun leaves no space in the node's /run.
func (l *lab) fillRun() {
	l.host.Do(func() {
		l.must(unix.Mount("", "/run", "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "size=4M"))
		if err := os.WriteFile("/run/filler", make([]byte, 5<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			l.Fatalf("/run is not full: %v", err)
		}
	})
	l.Cleanup(func() { l.clear("/run/filler") })
}

// runRows are about a node whose /run can't be written to.
func runRows() []row {
	serves := func(l *lab) {
		n := published(l)
		n.plugins = append(n.plugins, l.firewall())
		l.warm(n, ports("8080:80/tcp"))
		web, second := l.pod("web"), l.pod("second")
		l.forbidRun()
		before := l.now()
		l.must(web.add(n, ports("8080:80/tcp")), second.add(n, ports("8081:80/tcp")), web.check(), web.del(), second.check(), second.del())
		l.same(l.files("/run/cnibox/*"), []string(nil))
		before.unchanged()
	}
	return []row{
		{name: "where /run can't be written to a container has masquerading, ports and a firewall, and DEL takes all back", backends: true, test: serves},
		{name: "where /run can't be written to GC takes all back", backends: true, differs: noGC, test: func(l *lab) {
			n := published(l)
			l.warm(n, ports("8080:80/tcp"))
			l.must(l.gc(n))
			web := l.pod("web")
			l.forbidRun()
			l.now().unchangedBy(web.add(n, ports("8080:80/tcp")), l.gc(n))
		}},
		{name: "where /run can't be written to host-device gives the device back", test: func(l *lab) {
			l.nic("nic0")
			web := l.pod("web")
			l.forbidRun()
			l.must(web.add(deviceWith()), web.check(), web.del())
			l.linkShows("nic0", "nic0")
		}},
		{name: "on a full /run DEL takes all back", backends: true, test: func(l *lab) {
			n := published(l)
			n.plugins = append(n.plugins, l.firewall())
			before := l.warmed(n, ports("8080:80/tcp"))
			web, second := l.attach(n, "web", ports("8080:80/tcp")), l.attach(n, "second", ports("8081:80/tcp"))
			l.fillRun()
			l.must(web.del(), second.check(), second.del())
			l.remove("/run/filler")
			before.unchanged()
		}},
		{name: "where /run can't be written to locks and notes are in $XDG_RUNTIME_DIR, if that is the user's alone", differs: "it has neither", test: func(l *lab) {
			l.nic("nic0")
			web, guest := l.pod("web"), l.pod("guest")
			l.run("install -d -m 0700 /var/log/user", "install -d -m 0777 /var/log/all")
			l.forbidRun()
			config, user := with(device, "ipam", pool), env("XDG_RUNTIME_DIR=/var/log/user")
			l.must(l.verb("ADD", web, lan, user), l.verb("ADD", guest, config, user))
			l.same(l.files("/var/log/user/cnibox/nftables.lock"), []string{"/var/log/user/cnibox/nftables.lock"})
			l.same(len(l.files("/var/log/user/cnibox/host-device/*")), 1)
			l.must(l.verb("DEL", guest, config, user))
			l.same(len(l.files("/var/log/user/cnibox/host-device/*")), 0)
			l.must(l.verb("DEL", web, lan, env("XDG_RUNTIME_DIR=/var/log/all")))
			l.same(l.files("/var/log/all/*"), []string(nil))
		}},
	}
}
