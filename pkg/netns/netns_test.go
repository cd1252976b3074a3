package netns_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/netns/netnstest"
)

// current is the namespace of the calling thread.
func current(t *testing.T) netns.ID {
	t.Helper()
	ns, err := netns.Own()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	return ns.ID()
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "netns")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path string
		gone       bool
	}{
		{"empty", "", true},
		{"missing", filepath.Join(dir, "none"), true},
		{"below a file", plain + "/x", true},
		{"a process that ended", "/proc/4194303/ns/net", true},
		{"plain file", plain, true},
		{"directory", dir, true},
		{"fifo", fifo, true},
		{"file of procfs", "/proc/self/status", true},
		{"device", "/dev/null", true},
		{"mount namespace", "/proc/self/ns/mnt", true},
		{"loop of links", loop, false},
		{"zero byte", "/run/netns/a\x00b", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := descriptors(t)
			ns, err := netns.Open(tt.path)
			if err == nil {
				ns.Close()
				t.Fatalf("Open(%q) succeeded", tt.path)
			}
			if errors.Is(err, netns.ErrNotExist) != tt.gone {
				t.Errorf("Open(%q): %v; ErrNotExist = %v, want %v", tt.path, err, !tt.gone, tt.gone)
			}
			if !strings.Contains(err.Error(), tt.path) {
				t.Errorf("the error does not name the path: %v", err)
			}
			if after := descriptors(t); after != before {
				t.Errorf("%d open files before, %d after", before, after)
			}
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestOpenBySymlink(t *testing.T) {
	ns := netnstest.New(t)
	link := filepath.Join(t.TempDir(), "netns")
	if err := os.Symlink(netnstest.Path(ns), link); err != nil {
		t.Fatal(err)
	}
	again, err := netns.Open(link)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.ID() != ns.ID() || again.Path() != link {
		t.Errorf("opened %v by %s, want %v by %s", again.ID(), again.Path(), ns.ID(), link)
	}
}

func TestIsOwn(t *testing.T) {
	own, err := netns.Own()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	other := netnstest.New(t)
	for _, tt := range []struct {
		ns   *netns.NS
		want bool
	}{{own, true}, {other, false}} {
		if got, err := tt.ns.IsOwn(); got != tt.want || err != nil {
			t.Errorf("IsOwn = %v, %v; want %v", got, err, tt.want)
		}
	}
	err = other.Run(func() error {
		if got, err := other.IsOwn(); !got || err != nil {
			t.Errorf("inside: IsOwn = %v, %v; want true", got, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRunEntersAndComesBack(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	home := current(t)
	failure := errors.New("the function's own")
	err := a.Run(func() error {
		if got := current(t); got != a.ID() {
			t.Errorf("in %v, want %v", got, a.ID())
		}
		err := b.Run(func() error {
			if got := current(t); got != b.ID() {
				t.Errorf("nested: in %v, want %v", got, b.ID())
			}
			return nil
		})
		if got := current(t); got != a.ID() {
			t.Errorf("after the nested run: in %v, want %v", got, a.ID())
		}
		return errors.Join(failure, err)
	})
	if !errors.Is(err, failure) {
		t.Errorf("error %v", err)
	}
	if got := current(t); got != home {
		t.Errorf("came back to %v, want %v", got, home)
	}
}

// Threads that were inside are used again: all of them have to be home.
// wantNoStrays looks whether all threads of the process are where this one is.
func wantNoStrays(t *testing.T) {
	t.Helper()
	home := current(t)
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(tasks) == 0 {
		t.Fatal(tasks, err)
	}
	for _, path := range tasks {
		ns, err := netns.Open(path)
		if errors.Is(err, netns.ErrNotExist) {
			continue // ended meanwhile
		}
		if err != nil {
			t.Fatal(err)
		}
		if ns.ID() != home {
			t.Errorf("thread %s is in %v, want %v", path, ns.ID(), home)
		}
		ns.Close()
	}
}

func TestRunLeavesNoThreadBehind(t *testing.T) {
	spaces := []*netns.NS{netnstest.New(t), netnstest.New(t)}
	before := descriptors(t)
	var all sync.WaitGroup
	for i := range 64 {
		ns := spaces[i%len(spaces)]
		all.Go(func() {
			err := ns.Run(func() error {
				runtime.Gosched()
				if got := current(t); got != ns.ID() {
					return fmt.Errorf("in %v, want %v", got, ns.ID())
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	wantNoStrays(t)
	if after := descriptors(t); after > before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}

func TestRunPassesOnAPanic(t *testing.T) {
	ns := netnstest.New(t)
	home := current(t)
	func() {
		defer func() {
			if p := recover(); p != "a bug" {
				t.Errorf("panic %v, want the function's own", p)
			}
		}()
		_ = ns.Run(func() error { panic("a bug") })
	}()
	if got := current(t); got != home {
		t.Errorf("came back to %v, want %v", got, home)
	}
	if err := ns.Run(func() error { return nil }); err != nil {
		t.Errorf("a run after the panic: %v", err)
	}
}

func TestSocketsStayInside(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	for _, ns := range []*netns.NS{a, b} {
		// The same port in both: they are different ones.
		var l net.Listener
		err := ns.Run(func() error {
			if err := loUp(); err != nil {
				return err
			}
			var err error
			l, err = net.Listen("tcp4", "127.0.0.1:80")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				c.Close()
			}
		}()
		err = ns.Run(func() error {
			c, err := net.Dial("tcp4", l.Addr().String())
			if err != nil {
				return err
			}
			return c.Close()
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func loUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

func TestRunInAClosedNamespace(t *testing.T) {
	ns, err := netns.Own()
	if err != nil {
		t.Fatal(err)
	}
	ns.Close()
	ns.Close() // must not close a file that has the number by now
	called := false
	if err := ns.Run(func() error { called = true; return nil }); err == nil || called {
		t.Errorf("error %v, called %v", err, called)
	}
}
