// Package sandbox makes what a container is when it is nothing but a process
// in a network namespace of its own.
package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	plugins "github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
)

// Dir is where ip(8) and others look for namespaces by name.
const Dir = "/run/netns"

// Namespace is a network namespace mounted on a file in Dir.
type Namespace struct {
	path    string
	madeDir bool
}

// New makes a namespace with the loopback link up and nothing else in it.
func New(name string) (*Namespace, error) {
	ns := &Namespace{path: filepath.Join(Dir, name)}
	err := os.Mkdir(Dir, 0o755)
	ns.madeDir = err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the directory for namespaces: %w", err)
	}
	if err := ns.mount(); err != nil {
		ns.removeDir()
		return nil, err
	}
	if err := ns.setLoopbackUp(); err != nil {
		return nil, errors.Join(err, ns.Remove())
	}
	return ns, nil
}

// Path returns where the namespace is mounted.
func (ns *Namespace) Path() string { return ns.path }

// Remove takes the namespace's path away. The namespace itself lasts as long
// as there is a process in it.
func (ns *Namespace) Remove() error {
	if err := unix.Unmount(ns.path, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount namespace %s: %w", ns.path, err)
	}
	if err := os.Remove(ns.path); err != nil {
		return fmt.Errorf("remove namespace: %w", err)
	}
	ns.removeDir()
	return nil
}

// removeDir removes Dir if it was made for this namespace and nobody else uses
// it.
func (ns *Namespace) removeDir() {
	if ns.madeDir {
		_ = os.Remove(Dir)
	}
}

func (ns *Namespace) mount() error {
	file, err := os.OpenFile(ns.path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("namespace %s exists already; choose another --id, or remove it with: ip netns del %s", ns.path, filepath.Base(ns.path))
	}
	if err != nil {
		return fmt.Errorf("make a file to mount the namespace on: %w", err)
	}
	file.Close()
	if err := mountNew(ns.path); err != nil {
		return errors.Join(fmt.Errorf("make namespace %s (needs root): %w", ns.path, err), os.Remove(ns.path))
	}
	return nil
}

// mountNew makes a network namespace and mounts it on a file.
func mountNew(path string) error {
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and nobody else
		// gets to run in the new namespace.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("unshare: %w", err)
			return
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			done <- fmt.Errorf("mount: %w", err)
			return
		}
		done <- nil
	}()
	return <-done
}

func (ns *Namespace) setLoopbackUp() error {
	opened, err := netns.Open(ns.path)
	if err != nil {
		return err
	}
	defer opened.Close()
	return opened.Do(func(plugins.NetNS) error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo in namespace %s: %w", ns.path, err)
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("set lo up in namespace %s: %w", ns.path, err)
		}
		return nil
	})
}
