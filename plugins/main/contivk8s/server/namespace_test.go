package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

func openFile(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func inodeOf(t testing.TB, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// What is no network namespace of a container is refused, by path and as a file, and leaves nothing open.
func TestNamespacesThatAreRefused(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close what is forgotten
	b := newBench(t)
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	b.write(file, "")
	b.must(unix.Mkfifo(fifo, 0o600))
	const mine = "/proc/self/ns/net"
	good := newNetns(t)
	tests := []struct {
		name, path, passed, header string
	}{
		{name: "a file", path: file},
		{name: "a pipe that nobody writes to", path: fifo},
		{name: "a directory", path: dir},
		{name: "nothing", path: "/none"},
		{name: "no path", path: ""},
		{name: "no absolute path", path: "run/netns/web"},
		{name: "a path of 5,000 bytes", path: "/" + strings.Repeat("x/", 2500)},
		{name: "a mount namespace", path: "/proc/self/ns/mnt"},
		{name: "the agent's own", path: mine},
		{name: "a file, passed", path: good, passed: file},
		{name: "a mount namespace, passed", path: good, passed: "/proc/self/ns/mnt"},
		{name: "the agent's own, passed", path: good, passed: mine},
		{name: "another one than at its path", path: newNetns(t), passed: good},
		{name: "another one than at the path in the header", path: "/proc/1/ns/net", passed: good, header: newNetns(t)},
	}
	before := 0
	for round := range 1000/len(tests) + 1 {
		for _, tt := range tests {
			var passed *os.File
			if tt.passed != "" {
				f, err := os.Open(tt.passed)
				b.must(err)
				passed = f
			}
			a := read(t, b.connect(contiv.AddPath, of("c1", tt.path), passed, tt.header))
			if passed != nil {
				b.must(passed.Close())
			}
			if a.code != 500 || a.Result != 8 || a.ErrMsg != "Error moving to netns" || !strings.HasPrefix(a.ErrInfo, "Err: ") {
				t.Fatalf("%s: %d %s", tt.name, a.code, a.body)
			}
		}
		if round == 0 {
			netlab.Until(t, "all is closed", func() bool { before = descriptors(t); return b.locked() == 0 })
		}
	}
	if got := b.said(); got != "" {
		t.Errorf("plugins were called: %.80s", got)
	}
	netlab.Until(t, "all descriptors are closed", func() bool { return descriptors(t) <= before })
	b.expect(b.call(contiv.AddPath, of("c1", good)), 200, 0)
}

// A namespace that is swapped while plugins are at work is an error, and the container is detached from the one that it was attached to.
func TestNamespaceThatIsSwapped(t *testing.T) {
	b := newBench(t)
	path := newNetns(t)
	old := inodeOf(t, path)
	var detached uint64
	b.do = func(_ context.Context, verb, _, netns string) (string, error) {
		if verb == "ADD" {
			mountNew(t, path)
		} else {
			detached = inodeOf(t, netns)
		}
		return "", nil
	}
	b.expect(b.call(contiv.AddPath, of("c1", path)), 500, 8, "another network namespace is at CNI_NETNS "+path)
	if detached != old {
		t.Errorf("detached from the namespace %d, not %d", detached, old)
	}
	if _, text := b.result("c1"); text != "" {
		t.Errorf("libcni keeps %s", text)
	}
}

// contiv's own shim names the namespace of its own process. Its path must not be kept: a mount of the namespace is, or it is refused.
func TestNamespaceOfTheClient(t *testing.T) {
	b := newBench(t)
	path := newNetns(t)
	for _, task := range []string{fmt.Sprint(os.Getpid()), fmt.Sprint(unix.Gettid())} {
		own := "/proc/" + task + "/ns/net"
		b.expect(read(t, b.connect(contiv.AddPath, of("c1", own), openFile(t, path), "")), 500, 8, "names its own process")
	}
	hide(t, "/run")
	b.must(os.Mkdir("/run/netns", 0o755))
	for _, name := range []string{"a", "b"} {
		b.write("/run/netns/"+name, "")
	}
	b.must(unix.Mount(path, "/run/netns/b", "", unix.MS_BIND, ""))
	own := fmt.Sprintf("/proc/%d/ns/net", os.Getpid())
	b.expect(read(t, b.connect(contiv.AddPath, of("c1", own), openFile(t, path), "")), 200, 0)
	if kept, text := b.result("c1"); kept != "/run/netns/b" {
		t.Errorf("libcni keeps %s", text)
	}
}
