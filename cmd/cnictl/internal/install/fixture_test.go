package install

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// names are plugins to install, one that others write among them.
var names = []string{"bridge", "flannel", "host-local", "portmap"}

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

// onAllLinks runs a test with every way to link.
func onAllLinks(t *testing.T, test func(t *testing.T, link Link, dir string)) {
	for _, link := range Links {
		t.Run(string(link), func(t *testing.T) { test(t, link, t.TempDir()) })
	}
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
	r, err := Install(o)
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

// tree describes everything in a directory: names, kinds, targets, modes and contents.
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
	return sum(t, path)
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
