// Package netnstest makes network namespaces for tests of single packages.
// They need no mounts and are gone when the test ends. (Whole nodes, with files
// and processes of their own, are test/netlab's.)
package netnstest

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
)

// The main goroutine keeps the main thread to itself: a thread that New used has
// to end, which the main thread can't.
func init() { runtime.LockOSThread() }

// New makes a namespace that lasts until the test ends. It needs root.
func New(t testing.TB) *netns.NS {
	t.Helper()
	type outcome struct {
		ns  *netns.NS
		err error
	}
	made := make(chan outcome)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- outcome{err: fmt.Errorf("unshare a network namespace (these tests must be run as root): %w", err)}
			return
		}
		ns, err := netns.Own()
		made <- outcome{ns, err}
	}()
	out := <-made
	if out.err != nil {
		t.Fatal(out.err)
	}
	t.Cleanup(out.ns.Close)
	return out.ns
}

// Path is a path at which this process can open the namespace.
func Path(ns *netns.NS) string { return fmt.Sprintf("/proc/self/fd/%d", ns.FD()) }

// At calls f with what is at path, nil if that is no namespace. (A call of a plugin
// gets its container's like this.)
func At(path string, f func(*netns.NS)) {
	ns, err := netns.Open(path)
	if err != nil {
		f(nil)
		return
	}
	defer ns.Close()
	f(ns)
}
