// Package netns opens network namespaces by path, compares them, and runs
// functions inside them.
package netns

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrNotExist says that no network namespace is at a path: there is nothing,
// or a plain file where a namespace was mounted before.
var ErrNotExist = errors.New("no network namespace there")

// self is the calling thread's own namespace: that of the process as long as
// it is asked outside of Run.
const self = "/proc/thread-self/ns/net"

// NS is an open network namespace.
type NS struct {
	fd   int
	path string
	id   ID
}

// ID tells namespaces apart: the device and inode of nsfs (namespaces(7)).
type ID struct {
	Dev, Ino uint64
}

// Open opens the namespace at path. The error is ErrNotExist when there is
// none to be had: the path is missing or leads to something else.
func Open(path string) (*NS, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("%w: %s: %w", ErrNotExist, path, err)
	case err != nil:
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	ns := &NS{fd: fd, path: path}
	if err := ns.identify(); err != nil {
		ns.Close()
		return nil, err
	}
	return ns, nil
}

// Own opens the namespace of the calling process.
func Own() (*NS, error) { return Open(self) }

// identify reads the namespace's ID and makes sure that it is a network
// namespace and not, say, the empty file a namespace was mounted on.
func (ns *NS) identify() error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(ns.fd, &fs); err != nil {
		return fmt.Errorf("network namespace %s: fstatfs: %w", ns.path, err)
	}
	if fs.Type != unix.NSFS_MAGIC {
		return fmt.Errorf("%w: %s is a file of another kind", ErrNotExist, ns.path)
	}
	if kind, err := unix.IoctlRetInt(ns.fd, unix.NS_GET_NSTYPE); err == nil && kind != unix.CLONE_NEWNET {
		return fmt.Errorf("%w: %s is a namespace of another kind", ErrNotExist, ns.path)
	}
	var st unix.Stat_t
	if err := unix.Fstat(ns.fd, &st); err != nil {
		return fmt.Errorf("network namespace %s: fstat: %w", ns.path, err)
	}
	ns.id = ID{Dev: uint64(st.Dev), Ino: st.Ino}
	return nil
}

// ID returns what tells this namespace from others.
func (ns *NS) ID() ID { return ns.id }

// FD returns the open file, for netlink attributes that take one.
func (ns *NS) FD() int { return ns.fd }

// Path returns the path the namespace was opened by.
func (ns *NS) Path() string { return ns.path }

// Close closes the file. The namespace lives on for whoever else holds it. The
// NS can't be entered any more, even when the file's number is used again.
func (ns *NS) Close() {
	_ = unix.Close(ns.fd)
	ns.fd = -1
}

// IsOwn tells whether the namespace is that of the calling process.
func (ns *NS) IsOwn() (bool, error) {
	var st unix.Stat_t
	if err := unix.Stat(self, &st); err != nil {
		return false, fmt.Errorf("stat %s: %w", self, err)
	}
	return ns.id == ID{Dev: uint64(st.Dev), Ino: st.Ino}, nil
}

// Run calls f inside the namespace, on a thread of its own. A socket made in f
// stays in the namespace and can be used outside. Goroutines started by f are
// not inside. A thread that can't come back is ended with its goroutine.
func (ns *NS) Run(f func() error) error {
	type outcome struct {
		err      error
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		var out outcome
		defer func() {
			if p := recover(); p != nil {
				out.panicked = trace(p, ns.path)
			}
			done <- out
		}()
		out.err = ns.run(f)
	}()
	out := <-done
	if out.panicked != nil {
		panic(out.panicked)
	}
	return out.err
}

// trace adds to a panic where it was, which is lost when it is raised again in
// another goroutine.
func trace(p any, path string) string {
	stack := make([]byte, 4<<10)
	stack = stack[:runtime.Stack(stack, false)]
	return fmt.Sprintf("%v, in network namespace %s:\n%s", p, path, stack)
}

func (ns *NS) run(f func() error) (err error) {
	runtime.LockOSThread()
	own, err := unix.Open(self, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer unix.Close(own)
	if err := unix.Setns(ns.fd, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", ns.path, err)
	}
	defer func() {
		// A goroutine that ends while locked takes its thread with it.
		if unix.Setns(own, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}
