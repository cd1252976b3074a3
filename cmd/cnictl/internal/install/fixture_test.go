package install

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// names are plugins to install, one that others write among them.
var names = []string{"bridge", "flannel", "host-local", "portmap"}

// filesystem is one kind of filesystem to install on.
type filesystem struct {
	name      string
	immutable bool // files on it can be made immutable
	mount     func(t *testing.T, dir string)
}

var filesystems = []filesystem{
	{"tmpfs", true, func(t *testing.T, dir string) { mount(t, "tmpfs", dir) }},
	{"ramfs", false, func(t *testing.T, dir string) { mount(t, "ramfs", dir) }},
	{"ext4", true, mountExt4},
}

// provide mounts the filesystem and returns a directory on it.
func (f filesystem) provide(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	f.mount(t, dir)
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if canProtect(t, bin) != f.immutable {
		// tmpfs knows the flag since Linux 6.6.
		t.Skipf("immutable files on %s: want %v, and this kernel has it otherwise", f.name, f.immutable)
	}
	return bin
}

func canProtect(t *testing.T, dir string) bool {
	t.Helper()
	d, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	s, err := d.newStage()
	if err != nil {
		t.Fatal(err)
	}
	defer s.remove()
	return s.probeProtection() == nil
}

func mount(t *testing.T, kind, dir string, options ...string) {
	t.Helper()
	if err := unix.Mount(kind, dir, kind, 0, strings.Join(options, ",")); err != nil {
		t.Fatalf("mount %s on %s: %v", kind, dir, err)
	}
	t.Cleanup(func() { unmount(t, dir) })
}

func unmount(t *testing.T, dir string) {
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Errorf("unmount %s: %v", dir, err)
	}
}

// mountExt4 mounts a new ext4, which is what most nodes have or, like xfs and
// btrfs, behaves the same.
func mountExt4(t *testing.T, dir string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 256<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Skipf("no ext4 can be made here: %v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("no loop device can be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() { unmount(t, dir) })
}

// onAll runs a test on every kind of filesystem.
func onAll(t *testing.T, test func(t *testing.T, f filesystem, dir string)) {
	for _, f := range filesystems {
		t.Run(f.name, func(t *testing.T) { test(t, f, f.provide(t)) })
	}
}

// onAllLinks runs a test with every way to link on every kind of filesystem.
func onAllLinks(t *testing.T, test func(t *testing.T, f filesystem, link Link, dir string)) {
	onAll(t, func(t *testing.T, f filesystem, dir string) {
		for _, link := range Links {
			t.Run(string(link), func(t *testing.T) {
				sub := filepath.Join(dir, string(link))
				if err := os.Mkdir(sub, 0o755); err != nil {
					t.Fatal(err)
				}
				test(t, f, link, sub)
			})
		}
	})
}

// release returns a cnibox; a different version of it for each text.
func release(t *testing.T, text string) string {
	t.Helper()
	content, err := os.ReadFile(netlab.Cnibox(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), Binary)
	// What follows an ELF file's sections is nobody's business.
	if err := os.WriteFile(path, append(content, text...), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustInstall(t *testing.T, o Options) *Report {
	t.Helper()
	if o.Names == nil {
		o.Names = names
	}
	if o.Link == "" {
		o.Link = Symbolic
	}
	r, err := Install(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustUninstall(t *testing.T, dir string) *Removal {
	t.Helper()
	r, err := Uninstall(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tree describes everything in a directory: names, kinds, targets, modes,
// contents and immutable flags.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		lines = append(lines, name+" "+info.Mode().String()+" "+contentOf(t, path, info))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func contentOf(t *testing.T, path string, info fs.FileInfo) string {
	t.Helper()
	switch {
	case info.IsDir():
		return ""
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		return "-> " + target
	}
	return sum(t, path) + fmt.Sprintf(" immutable=%v", isProtected(path))
}

func sum(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(content))[:16]
}

func writeForeign(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func assertNames(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func assertTree(t *testing.T, dir, want string) {
	t.Helper()
	if got := tree(t, dir); got != want {
		t.Errorf("%s is not as before:\n%s\nwant:\n%s", dir, got, want)
	}
}
