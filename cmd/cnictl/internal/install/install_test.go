package install

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestInstallAndUninstall(t *testing.T) {
	onAllLinks(t, func(t *testing.T, link Link, dir string) {
		cnibox := release(t, "")
		writeForeign(t, filepath.Join(dir, "calico"), "not ours")
		before := tree(t, dir)

		r := mustInstall(t, Options{Dir: dir, From: cnibox, Link: link})
		assertNames(t, "installed", r.Names, names...)
		for _, name := range names {
			kind := link
			if name == "flannel" {
				kind = Copy
			}
			assertLinked(t, dir, name, kind)
			if sum(t, filepath.Join(dir, name)) != sum(t, cnibox) {
				t.Errorf("%s does not lead to cnibox", name)
			}
		}

		removed := mustUninstall(t, dir)
		assertNames(t, "removed", removed.Removed, append(names[:len(names):len(names)], Binary)...)
		assertTree(t, dir, before)
	})
}

func copyOf(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = writeFile(to, content, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func assertLinked(t *testing.T, dir, name string, kind Link) {
	t.Helper()
	info, err := os.Lstat(filepath.Join(dir, name))
	if err != nil {
		t.Error(err)
		return
	}
	binary, err := os.Lstat(filepath.Join(dir, Binary))
	if err != nil {
		t.Fatal(err)
	}
	target, _ := os.Readlink(filepath.Join(dir, name))
	got := Copy
	switch {
	case target == Binary:
		got = Symbolic
	case os.SameFile(info, binary):
		got = Hard
	}
	if got != kind {
		t.Errorf("%s is linked by %s, want %s", name, got, kind)
	}
	if got != Symbolic && info.Mode() != 0o755 {
		t.Errorf("%s has mode %v", name, info.Mode())
	}
}

func TestInstallAgainChangesNothing(t *testing.T) {
	onAllLinks(t, func(t *testing.T, link Link, dir string) {
		o := Options{Dir: dir, From: release(t, ""), Link: link}
		mustInstall(t, o)
		before, err := os.Stat(filepath.Join(dir, Binary))
		if err != nil {
			t.Fatal(err)
		}
		if r := mustInstall(t, o); !r.Unchanged {
			t.Error("something was installed again")
		}
		after, err := os.Stat(filepath.Join(dir, Binary))
		if err != nil {
			t.Fatal(err)
		}
		if !os.SameFile(before, after) {
			t.Error("cnibox was replaced by itself")
		}
		mustUninstall(t, dir)
	})
}

func TestUpgradeFromAnyLinkToAny(t *testing.T) {
	dir := t.TempDir()
	for _, from := range Links {
		for _, to := range Links {
			mustInstall(t, Options{Dir: dir, From: release(t, "old"), Link: from})
			newer := release(t, "new")
			r := mustInstall(t, Options{Dir: dir, From: newer, Link: to, Names: []string{"tuning"}})
			assertNames(t, "installed", r.Names, "bridge", "flannel", "host-local", "portmap", "tuning")
			for _, name := range r.Names {
				if sum(t, filepath.Join(dir, name)) != sum(t, newer) {
					t.Errorf("%s to %s: %s is still the old one", from, to, name)
				}
			}
			assertLinked(t, dir, "bridge", to)
			mustUninstall(t, dir)
			assertTree(t, dir, "")
		}
	}
}

// TestChangeOfLinksAlone changes how names lead to the same cnibox.
func TestChangeOfLinksAlone(t *testing.T) {
	dir, cnibox := t.TempDir(), release(t, "")
	mustInstall(t, Options{Dir: dir, From: cnibox})
	for _, link := range []Link{Hard, Copy, Hard, Symbolic, Copy, Symbolic} {
		if r := mustInstall(t, Options{Dir: dir, From: cnibox, Link: link}); r.Unchanged {
			t.Errorf("to %s: nothing was changed", link)
		}
		assertLinked(t, dir, "bridge", link)
	}
}

// TestRemovedByHand is what people do who know no uninstall.
func TestRemovedByHand(t *testing.T) {
	onAllLinks(t, func(t *testing.T, link Link, dir string) {
		mustInstall(t, Options{Dir: dir, From: release(t, ""), Link: link})
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
}

// Links to cnibox that somebody made by hand are known, without a manifest.
func TestHandMadeLinksAreOurs(t *testing.T) {
	dir := t.TempDir()
	cnibox := release(t, "old")
	for _, err := range []error{
		os.Link(cnibox, filepath.Join(dir, Binary)),
		os.Symlink(Binary, filepath.Join(dir, "bridge")),
		os.Symlink(filepath.Join(dir, Binary), filepath.Join(dir, "portmap")),
		os.Link(filepath.Join(dir, Binary), filepath.Join(dir, "host-local")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	copyOf(t, cnibox, filepath.Join(dir, "flannel"))
	r := mustInstall(t, Options{Dir: dir, From: release(t, "new"), Link: Hard})
	assertNames(t, "replaced", r.Replaced)
	mustUninstall(t, dir)
	assertTree(t, dir, "")
}

func TestForeignFilesAreRefused(t *testing.T) {
	tests := []struct {
		name string
		make func(path string) error
		want string
	}{
		{"script", func(p string) error { return os.WriteFile(p, []byte("#!/bin/sh\n"), 0o755) }, "bridge (a file of unknown origin)"},
		{"other Go program", func(p string) error { return exec.Command("cp", os.Args[0], p).Run() }, "install.test"},
		{"link elsewhere", func(p string) error { return os.Symlink("/usr/lib/cni/bridge", p) }, "a symbolic link to /usr/lib/cni/bridge"},
		{"directory", func(p string) error { return os.Mkdir(p, 0o755) }, "not a file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := test.make(filepath.Join(dir, "bridge")); err != nil {
				t.Fatal(err)
			}
			before := tree(t, dir)
			_, err := Install(Options{Dir: dir, From: release(t, ""), Names: names, Link: Symbolic})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
			assertTree(t, dir, before)
		})
	}
}

func TestRefusalNamesTheWayOut(t *testing.T) {
	dir := t.TempDir()
	writeForeign(t, filepath.Join(dir, "portmap"), "foreign")
	_, err := Install(Options{Dir: dir, From: release(t, ""), Names: names, Link: Symbolic})
	for _, want := range []string{"portmap", "--force", "--only bridge,flannel,host-local "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %q", err, want)
		}
	}
}

func TestForceKeepsAndUninstallRestores(t *testing.T) {
	onAllLinks(t, func(t *testing.T, link Link, dir string) {
		writeForeign(t, filepath.Join(dir, "bridge"), "reference bridge")
		if err := os.Chmod(filepath.Join(dir, "bridge"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("elsewhere/portmap", filepath.Join(dir, "portmap")); err != nil {
			t.Fatal(err)
		}
		writeForeign(t, filepath.Join(dir, Binary), "another cnibox")
		before := tree(t, dir)

		r := mustInstall(t, Options{Dir: dir, From: release(t, ""), Link: link, Force: true})
		assertNames(t, "replaced", r.Replaced, Binary, "bridge", "portmap")
		// An upgrade needs no force and forgets nothing.
		r = mustInstall(t, Options{Dir: dir, From: release(t, "new"), Link: link})
		assertNames(t, "replaced by the upgrade", r.Replaced)

		removed := mustUninstall(t, dir)
		assertNames(t, "restored", removed.Restored, "bridge", "portmap", Binary)
		assertTree(t, dir, before)
	})
}

func TestUninstallLeavesWhatOthersPutThere(t *testing.T) {
	dir := t.TempDir()
	writeForeign(t, filepath.Join(dir, "bridge"), "reference bridge")
	mustInstall(t, Options{Dir: dir, From: release(t, ""), Link: Hard, Force: true})
	for _, name := range []string{"bridge", "portmap"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		writeForeign(t, filepath.Join(dir, name), "newer")
	}
	r := mustUninstall(t, dir)
	assertNames(t, "left", r.Left, "bridge", "portmap")
	assertNames(t, "kept", r.Kept, "bridge")
	if got := sum(t, filepath.Join(dir, replacedDir, "bridge")); got == "" {
		t.Error("what install had replaced is lost")
	}
	if _, err := Uninstall(dir); err == nil || !strings.Contains(err.Error(), "installed nothing") {
		t.Errorf("a second uninstall: %v", err)
	}
}

// TestStoppedInTheMiddle has a name that can't be replaced, which shows itself only in the middle of the renaming: it is a mount
// point. What was done by then is no harm.
func TestStoppedInTheMiddle(t *testing.T) {
	for _, busy := range []string{"host-local", Binary} {
		t.Run(busy, func(t *testing.T) {
			onAllLinks(t, func(t *testing.T, link Link, dir string) { stopInTheMiddle(t, link, dir, busy) })
		})
	}
}

func stopInTheMiddle(t *testing.T, link Link, dir, busy string) {
	writeForeign(t, filepath.Join(dir, "bridge"), "foreign")
	before := tree(t, dir)
	older := release(t, "old")
	mustInstall(t, Options{Dir: dir, From: older, Link: link, Names: []string{"flannel", "host-local", "portmap"}})
	path := filepath.Join(dir, busy)
	if link == Symbolic && busy != Binary { // one can't be mounted on
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		copyOf(t, older, path)
	}
	if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: dir, From: release(t, "new"), Link: link, Force: true}
	o.Names = names
	if _, err := Install(o); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), busy) {
		t.Errorf("got error %v, want EBUSY for %s", err, busy)
	}
	for _, name := range []string{"flannel", "host-local", "portmap"} {
		if got := sum(t, filepath.Join(dir, name)); got != sum(t, older) && got != sum(t, o.From) {
			t.Errorf("%s is neither the old nor the new one", name)
		}
	}
	unmount(t, path)
	mustInstall(t, o)
	for _, name := range names {
		if sum(t, filepath.Join(dir, name)) != sum(t, o.From) {
			t.Errorf("repeated: %s is not the new one", name)
		}
	}
	mustUninstall(t, dir)
	assertTree(t, dir, before)
}

func TestFullDiskChangesNothing(t *testing.T) {
	dir := t.TempDir()
	old := release(t, "old")
	info, err := os.Stat(old)
	if err != nil {
		t.Fatal(err)
	}
	mount(t, "tmpfs", dir, "size="+sizeOf(info.Size()*5/2))
	mustInstall(t, Options{Dir: dir, From: old})
	before := tree(t, dir)
	_, err = Install(Options{Dir: dir, From: release(t, "new"), Names: names, Link: Symbolic})
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got error %v, want ENOSPC", err)
	}
	assertTree(t, dir, before)
}

func TestOnlyOneInstallerAtATime(t *testing.T) {
	dir := t.TempDir()
	d, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if file, err := os.Stat(d.join(lockFile)); err != nil || file.Mode() != 0o600 {
		t.Fatalf("others than root can lock it: %v, %v", file, err)
	}
	_, err = Install(Options{Dir: dir, From: release(t, ""), Names: names, Link: Symbolic})
	if err == nil || !strings.Contains(err.Error(), "another cnictl") {
		t.Errorf("got error %v", err)
	}
	d.close()
	others, err := os.Open(dir)
	if err == nil {
		defer others.Close()
		err = unix.Flock(int(others.Fd()), unix.LOCK_EX) // which any user can do
	}
	if err != nil {
		t.Fatal(err)
	}
	mustInstall(t, Options{Dir: dir, From: release(t, ""), Names: names, Link: Symbolic})
	if _, err := os.Stat(d.join(lockFile)); err == nil {
		t.Error("the lock's file stays")
	}
}

func TestLeftoversOfAKilledInstallGo(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, stagingPrefix+"123")
	if err := os.Mkdir(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	writeForeign(t, filepath.Join(stale, Binary), "")
	mustInstall(t, Options{Dir: dir, From: release(t, "")})
	mustUninstall(t, dir)
	assertTree(t, dir, "")
}

func TestSourceMustBeCnibox(t *testing.T) {
	script := filepath.Join(t.TempDir(), Binary)
	writeForeign(t, script, "#!/bin/sh\n")
	for _, from := range []string{script, "/nonexistent/cnibox", t.TempDir()} {
		dir := t.TempDir()
		_, err := Install(Options{Dir: dir, From: from, Names: names, Link: Symbolic})
		if err == nil || !strings.Contains(err.Error(), "--from") {
			t.Errorf("%s: got error %v", from, err)
		}
		assertTree(t, dir, "")
	}
}

// The manifest is a file that anybody may have written to.
func TestNamesNeverLeaveTheDirectory(t *testing.T) {
	for _, name := range []string{"../evil", "/evil", ".", "..", "", ".hidden", Binary} {
		dir := t.TempDir()
		text, err := json.Marshal(manifest{[]string{name}})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, manifestFile), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Uninstall(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("uninstall %q: %v", name, err)
		}
		_, err = Install(Options{Dir: dir, From: release(t, ""), Names: []string{name}, Link: Symbolic})
		if err == nil {
			t.Errorf("%q was installed", name)
		}
	}
}

func TestDirectoryThroughALink(t *testing.T) {
	real := t.TempDir()
	alias := filepath.Join(t.TempDir(), "alias")
	if err := os.Symlink(real, alias); err != nil {
		t.Fatal(err)
	}
	mustInstall(t, Options{Dir: alias, From: release(t, "")})
	if err := os.Remove(filepath.Join(real, "bridge")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(alias, Binary), filepath.Join(real, "bridge")); err != nil {
		t.Fatal(err)
	}
	r := mustInstall(t, Options{Dir: alias, From: release(t, "new")})
	assertNames(t, "replaced", r.Replaced)
	mustUninstall(t, alias)
	assertTree(t, real, "")
}

// TestEtcdIsItsOwnProgram: the plugin etcd comes from the binary beside cnibox, if there is one.
func TestEtcdIsItsOwnProgram(t *testing.T) {
	onAllLinks(t, func(t *testing.T, link Link, dir string) {
		cnibox := release(t, "")
		withEtcd := append([]string{Etcd}, names...)
		if _, err := Install(Options{Dir: dir, From: cnibox, Names: withEtcd, Link: link}); err == nil || !strings.Contains(err.Error(), EtcdBinary) {
			t.Fatalf("without %s: error %v", EtcdBinary, err)
		}
		assertTree(t, dir, "")
		content, err := os.ReadFile(filepath.Join(filepath.Dir(netlab.Cnibox(t)), EtcdBinary))
		if err != nil {
			t.Fatal(err)
		}
		beside := filepath.Join(filepath.Dir(cnibox), EtcdBinary)
		writeForeign(t, beside, string(content))
		mustInstall(t, Options{Dir: dir, From: cnibox, Names: withEtcd, Link: link})
		for name, from := range map[string]string{Etcd: beside, EtcdBinary: beside, "bridge": cnibox} {
			if sum(t, filepath.Join(dir, name)) != sum(t, from) {
				t.Errorf("%s is not %s", name, from)
			}
		}
		if r := mustInstall(t, Options{Dir: dir, From: cnibox, Names: withEtcd, Link: link}); !r.Unchanged {
			t.Error("the second time it is not unchanged")
		}
		mustInstall(t, Options{Dir: dir, From: release(t, "new"), Link: link}) // one that has no binary of etcd
		if sum(t, filepath.Join(dir, Etcd)) != sum(t, beside) {
			t.Error("an installation without it has not left it as it was")
		}
		mustUninstall(t, dir)
		assertTree(t, dir, "")
	})
}
