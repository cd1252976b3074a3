package netlab

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Pod is a network namespace on a Host as a runtime makes it for a container: empty, its loopback link down, bind-mounted
// below /run/netns.
type Pod struct {
	Namespace
	// ID is the container id, of the length that container runtimes use: 64 hexadecimal digits.
	ID string
}

// NewPod makes a pod. Names are unique on a Host.
func (h *Host) NewPod(t testing.TB, name string) *Pod {
	t.Helper()
	p := &Pod{Namespace: Namespace{name: name, node: h.node}, ID: fmt.Sprintf("%x", sha256.Sum256([]byte(name)))}
	if err := p.create(); err != nil {
		t.Fatalf("make pod %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := p.drop(); err != nil {
			t.Errorf("clean up pod %s: %v", name, err)
		}
	})
	return p
}

// Path returns the path of the network namespace, valid in the Host's mount namespace.
func (p *Pod) Path() string { return "/run/netns/" + p.name }

// RuntimeConf returns what a runtime passes to libcni for the pod's eth0, with the given capability arguments
// (portMappings, ips, mac, …). The caller may change it.
func (p *Pod) RuntimeConf(caps map[string]any) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: p.ID, NetNS: p.Path(), IfName: "eth0", CapabilityArgs: caps}
}

// SetLoopbackUp does what the loopback plugin does. Without it a pod can't even reach its own addresses.
func (p *Pod) SetLoopbackUp(t testing.TB) {
	t.Helper()
	p.MustRun(t, "ip", "link", "set", "lo", "up")
}

// Delete takes the namespace and its path away, as a runtime does (some before they call DEL), and waits until the kernel
// has destroyed the namespace. Servers of the test end with it. It does not wait if processes of the test keep it.
func (p *Pod) Delete(t testing.TB) {
	t.Helper()
	p.BeginDelete(t)()
}

// BeginDelete is Delete without the wait, which is what it returns.
func (p *Pod) BeginDelete(t testing.TB) (wait func()) {
	t.Helper()
	wait = p.letGo(t)
	if err := p.onHost(func() error { return os.Remove(p.Path()) }); err != nil {
		t.Fatal(err)
	}
	return wait
}

// DeleteKeepFile is Delete, but leaves the plain file that the namespace was mounted on.
func (p *Pod) DeleteKeepFile(t testing.TB) {
	t.Helper()
	p.letGo(t)()
}

// Replace puts a new, empty network namespace at the pod's path, as when a runtime uses a path again. The Pod is the new
// namespace from then on.
func (p *Pod) Replace(t testing.TB) {
	t.Helper()
	p.Delete(t)
	if err := p.create(); err != nil {
		t.Fatalf("replace pod %s: %v", p.name, err)
	}
}

func (p *Pod) onHost(job func() error) error { return p.node.on(p.node.hostNetns, job) }

// create makes the namespace and mounts it at the pod's path.
func (p *Pod) create() error {
	netns, err := newNetns()
	if err != nil {
		return err
	}
	err = p.node.on(netns, func() error {
		file, err := os.OpenFile(p.Path(), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
		if err != nil {
			return err
		}
		file.Close()
		return bindFile(netns, p.Path())
	})
	if err != nil {
		return errors.Join(err, netns.Close())
	}
	p.netns = netns
	return nil
}

// bindFile mounts an open file at a path. It needs no /proc.
func bindFile(file *os.File, path string) error {
	tree, err := unix.OpenTree(int(file.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount on %s: %w", path, err)
	}
	return nil
}

// letGo lets go of the namespace, so that the kernel destroys it unless something else holds it, and returns what waits
// until it has. Then the host ends of its veth pairs are gone.
func (p *Pod) letGo(t testing.TB) (wait func()) {
	t.Helper()
	netns := p.netns
	p.node.endServers(netns)
	var ends []int
	err := p.onHost(func() (err error) {
		if ends, err = hostEnds(netns); err != nil {
			return err
		}
		return unix.Unmount(p.Path(), unix.MNT_DETACH)
	})
	if err := errors.Join(err, netns.Close()); err != nil {
		t.Fatalf("delete pod %s: %v", p.name, err)
	}
	return func() {
		t.Helper()
		if _, kept := p.node.kept.Load(netns); kept {
			return
		}
		gone := func(index int) bool {
			err := p.onHost(func() error { _, err := netlink.LinkByIndex(index); return err })
			return errors.As(err, &netlink.LinkNotFoundError{})
		}
		Until(t, "the end of the namespace of pod "+p.name+", which something still holds", func() bool {
			ends = slices.DeleteFunc(ends, gone)
			return len(ends) == 0
		})
	}
}

// hostEnds returns the indexes of the calling thread's links whose other end is in the namespace.
func hostEnds(netns *os.File) (indexes []int, err error) {
	id, err := netlink.GetNetNsIdByFd(int(netns.Fd()))
	if err != nil || id < 0 { // there is no link to the namespace
		return nil, err
	}
	links, err := netlink.LinkList()
	for errors.Is(err, netlink.ErrDumpInterrupted) {
		links, err = netlink.LinkList()
	}
	for _, link := range links {
		if a := link.Attrs(); a.NetNsID == id {
			indexes = append(indexes, a.Index)
		}
	}
	return indexes, err
}

// drop removes whatever the test has left of the pod.
func (p *Pod) drop() error {
	_ = p.netns.Close() // closed already when the test has deleted the pod
	return p.onHost(func() error {
		_ = unix.Unmount(p.Path(), unix.MNT_DETACH) // a plain file when DeleteKeepFile has been called
		if err := os.Remove(p.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
