package netlab

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/containernetworking/cni/libcni"
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
	id := sha256.Sum256([]byte(name))
	p := &Pod{
		Namespace: Namespace{name: name, node: h.node},
		ID:        hex.EncodeToString(id[:]),
	}
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
	if err := p.do(func() error { return setLinkUp("lo") }); err != nil {
		t.Fatal(err)
	}
}

// Delete takes the namespace and its path away, as a runtime does (some before they call DEL). The kernel destroys the
// namespace a little later.
func (p *Pod) Delete(t testing.TB) {
	t.Helper()
	p.DeleteKeepFile(t)
	if err := p.node.on(p.node.hostNetns, func() error { return os.Remove(p.Path()) }); err != nil {
		t.Fatal(err)
	}
}

// DeleteKeepFile takes the namespace away and leaves the plain file it was mounted on.
func (p *Pod) DeleteKeepFile(t testing.TB) {
	t.Helper()
	if err := p.unmount(); err != nil {
		t.Fatalf("delete pod %s: %v", p.name, err)
	}
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

// create makes the namespace and mounts it at the pod's path.
func (p *Pod) create() error {
	netns, err := newNetns()
	if err != nil {
		return err
	}
	err = p.node.on(netns, func() error { return bindThreadNetns(p.Path()) })
	if err != nil {
		return errors.Join(err, netns.Close())
	}
	p.netns = netns
	return nil
}

// bindThreadNetns mounts the calling thread's network namespace on a new file.
func bindThreadNetns(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return errors.Join(fmt.Errorf("mount a network namespace on %s: %w", path, err), os.Remove(path))
	}
	return nil
}

// unmount lets go of the namespace, so that the kernel destroys it unless something else holds it.
func (p *Pod) unmount() error {
	err := p.node.on(p.node.hostNetns, func() error {
		if err := unix.Unmount(p.Path(), unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", p.Path(), err)
		}
		return nil
	})
	return errors.Join(err, p.netns.Close())
}

// drop removes whatever the test has left of the pod.
func (p *Pod) drop() error {
	_ = p.netns.Close() // closed already when the test has deleted the pod
	return p.node.on(p.node.hostNetns, func() error {
		_ = unix.Unmount(p.Path(), unix.MNT_DETACH) // a plain file when DeleteKeepFile has been called
		if err := os.Remove(p.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
