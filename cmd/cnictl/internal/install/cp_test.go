package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// copiers are the cp commands that installers' images have.
var copiers = [][]string{
	{"cp", "-f"},
	{"busybox", "cp", "-f"},
}

// TestOthersCannotOverwriteCnibox does what kube-flannel's installer does.
func TestOthersCannotOverwriteCnibox(t *testing.T) {
	onAllLinks(t, func(t *testing.T, link Link, dir string) {
		for _, cp := range copiers {
			overwrite(t, cp, link, dir, "flannel")
		}
	})
}

// TestCopiesAreOverwrittenAlone is the way out for other names that installers write.
func TestCopiesAreOverwrittenAlone(t *testing.T) {
	dir := t.TempDir()
	for _, name := range names {
		overwrite(t, copiers[0], Copy, dir, name)
	}
}

func overwrite(t *testing.T, cp []string, link Link, dir, name string) {
	t.Helper()
	if _, err := exec.LookPath(cp[0]); err != nil {
		t.Skip(err)
	}
	cnibox, newer := release(t, ""), release(t, "new")
	mustInstall(t, Options{Dir: dir, From: cnibox, Link: link})
	other := filepath.Join(t.TempDir(), "other")
	writeForeign(t, other, "another program called "+name)

	target := filepath.Join(dir, name)
	command := exec.Command(cp[0], append(cp[1:], other, target)...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s: the other installer must not fail", command.Args, err, out)
	}
	if sum(t, target) != sum(t, other) {
		t.Errorf("%v did not install its %s", cp, name)
	}
	for _, kept := range append([]string{Binary}, names...) {
		if kept != name && sum(t, filepath.Join(dir, kept)) != sum(t, cnibox) {
			t.Errorf("%v over %s has overwritten %s", cp, name, kept)
		}
	}

	if name == "flannel" {
		r := mustInstall(t, Options{Dir: dir, From: newer, Link: link})
		assertNames(t, "left to the other installer", r.Left, name)
	}
	removed := mustUninstall(t, dir)
	assertNames(t, "left", removed.Left, name)
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	assertTree(t, dir, "")
}

func sizeOf(bytes int64) string { return strconv.FormatInt(bytes, 10) }
