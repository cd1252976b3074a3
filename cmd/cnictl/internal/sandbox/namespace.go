// Package sandbox makes what a container is when it is nothing but a process in a network namespace of its own.
package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	ownnetns "github.com/cnibox/cnibox/pkg/netns"
)

// Dir is where ip(8) and others look for namespaces by name.
const Dir = "/run/netns"

// New makes a network namespace as "ip netns add" does, with lo up and nothing else in it, and returns its path.
func New(name string) (path string, err error) {
	path = filepath.Join(Dir, name)
	err = onOwnThread(func() error {
		if err := share(); err != nil {
			return fmt.Errorf("make %s a directory of namespaces (needs root): %w", Dir, err)
		}
		ns, err := netns.NewNamed(name)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("namespace %s exists already; choose another --id, or remove it with: ip netns del %s", path, name)
		}
		if err != nil {
			return fmt.Errorf("make namespace %s (needs root): %w", path, err)
		}
		defer ns.Close()
		if err := setLoopbackUp(); err != nil {
			return errors.Join(fmt.Errorf("set lo up in namespace %s: %w", path, err), Remove(name))
		}
		return nil
	})
	return path, err
}

// share makes Dir a mount that is shared, as ip(8) does with its first namespace: it would put its own over what is mounted below Dir, and that could
// not be removed any more. For the same reason it is left as it is where there are namespaces already.
func share() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	if there, err := os.ReadDir(Dir); err != nil || len(there) > 0 {
		return err
	}
	shared := func() error { return unix.Mount("", Dir, "", unix.MS_SHARED|unix.MS_REC, "") }
	err := shared()
	if errors.Is(err, unix.EINVAL) { // it is no mount
		if err = unix.Mount(Dir, Dir, "", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = shared()
		}
	}
	return err
}

// Unnamed makes a network namespace that goes with this process, however that ends. Until it is closed others find it at the path.
func Unnamed() (ns netns.NsHandle, path string, err error) {
	err = onOwnThread(func() error {
		if ns, err = netns.New(); err != nil {
			return fmt.Errorf("make a network namespace (needs root): %w", err)
		}
		path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns)
		if err := setLoopbackUp(); err != nil {
			return errors.Join(fmt.Errorf("set lo up in a namespace: %w", err), ns.Close())
		}
		return nil
	})
	return ns, path, err
}

func setLoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Inside runs a function in the namespace at a path. Goroutines that it starts are outside; sockets that it makes stay inside.
func Inside(path string, f func() error) error {
	ns, err := ownnetns.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return onOwnThread(func() error {
		if err := netns.Set(netns.NsHandle(ns.Fd())); err != nil {
			return fmt.Errorf("enter namespace %s: %w", path, err)
		}
		return f()
	})
}

// Remove takes a namespace's name away. The namespace itself lasts as long as there is a process in it.
func Remove(name string) error {
	if err := netns.DeleteNamed(name); err != nil {
		return fmt.Errorf("remove namespace %s: %w", filepath.Join(Dir, name), err)
	}
	return nil
}

// onOwnThread runs a function on a thread that may change its namespaces: it is never unlocked and so ends with the goroutine.
func onOwnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}
