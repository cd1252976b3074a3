package sysctl_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/sysctl"
	"github.com/cnibox/cnibox/test/netlab"
	"github.com/cnibox/cnibox/test/seccomp"
)

// onEachNode calls test with a pod of a node with few links, and with one of a
// node with many.
func onEachNode(t *testing.T, test func(*testing.T, *netlab.Pod)) {
	t.Run("few links", func(t *testing.T) {
		test(t, netlab.NewHost(t).NewPod(t, "pod"))
	})
	t.Run("many links", func(t *testing.T) {
		host := netlab.NewHost(t)
		host.Crowd(t)
		test(t, host.NewPod(t, "pod"))
	})
}

// forbidWrites makes /proc/sys read-only, as it is in containers.
func forbidWrites(t *testing.T) {
	t.Helper()
	for _, flags := range []uintptr{unix.MS_BIND, unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY} {
		if err := unix.Mount("/proc/sys", "/proc/sys", "", flags, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// hide makes /proc/sys an empty directory: what can be read then is read
// elsewhere.
func hide(t *testing.T) {
	t.Helper()
	if err := unix.Mount("none", "/proc/sys", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
}

// forbid refuses a system call to the calling thread.
func forbid(t *testing.T, call uint32, errno unix.Errno) {
	t.Helper()
	if err := seccomp.Refuse(call, errno); err != nil {
		t.Fatal(err)
	}
}

func TestTreeOfItsOwn(t *testing.T) {
	host := netlab.NewHost(t)
	pod := host.NewPod(t, "pod")
	host.Crowd(t)
	const key = "net/ipv4/conf/lo/arp_filter"
	host.Do(func() {
		before := descriptors(t)
		tree := sysctl.Open()
		hide(t)
		want(t, "host", tree.Get, key, "0")
		pod.Do(func() {
			if err := tree.Set(key, "1"); err != nil {
				t.Error("the pod's, by the tree that was opened outside: ", err)
			}
			want(t, "pod", tree.Get, key, "1")
		})
		want(t, "host", tree.Get, key, "0")
		if err := unix.Unmount("/proc/sys", 0); err != nil {
			t.Fatal(err)
		}
		tree.Close()
		pod.Do(func() { want(t, "pod, by /proc/sys", sysctl.Get, key, "1") })
		if after := descriptors(t); after != before {
			t.Errorf("%d open files before, %d after", before, after)
		}
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestTreeOfFewLinks(t *testing.T) {
	netlab.NewHost(t).Do(func() {
		tree := sysctl.Open()
		defer tree.Close()
		hide(t)
		if got, err := tree.Get("net/ipv4/ip_forward"); !errors.Is(err, unix.ENOENT) {
			t.Errorf("got %q, %v without /proc/sys; want none", got, err)
		}
	})
}

// What forbids a procfs of one's own leaves /proc/sys as it is.
func TestTreeRefused(t *testing.T) {
	tests := []struct {
		name   string
		refuse func(*testing.T)
	}{
		{"no fsopen", func(t *testing.T) { forbid(t, unix.SYS_FSOPEN, unix.ENOSYS) }},
		{"seccomp", func(t *testing.T) { forbid(t, unix.SYS_FSOPEN, unix.EPERM) }},
		{"no configuration", func(t *testing.T) { forbid(t, unix.SYS_FSCONFIG, unix.EPERM) }},
		{"no mount", func(t *testing.T) { forbid(t, unix.SYS_FSMOUNT, unix.EPERM) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host := netlab.NewHost(t)
			host.Crowd(t)
			pod := host.NewPod(t, "pod")
			pod.Do(func() {
				before := descriptors(t)
				tt.refuse(t)
				if err := sysctl.Set("net/ipv4/ip_forward", "1"); err != nil {
					t.Error(err)
				}
				want(t, "pod", sysctl.Get, "net/ipv4/ip_forward", "1")
				if after := descriptors(t); after != before {
					t.Errorf("%d open files before, %d after", before, after)
				}
			})
		})
	}
}

// A /proc/sys that is read-only is so on purpose.
func TestTreeRespectsReadOnly(t *testing.T) {
	host := netlab.NewHost(t)
	host.Crowd(t)
	host.Do(func() {
		forbidWrites(t)
		err := sysctl.Set("net/ipv4/ip_forward", "1")
		if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), `set sysctl net/ipv4/ip_forward to "1"`) {
			t.Errorf("error %v", err)
		}
		want(t, "host", sysctl.Get, "net/ipv4/conf/lo/arp_filter", "0")
	})
}

// What is read and set from outside is the pod's.
func TestTreeIn(t *testing.T) {
	for name, crowded := range map[string]bool{"few links": false, "many links": true} {
		t.Run(name, func(t *testing.T) {
			host := netlab.NewHost(t)
			if crowded {
				host.Crowd(t)
			}
			pod := host.NewPod(t, "pod")
			host.Do(func() { testTreeIn(t, pod.Path()) })
		})
	}
}

func testTreeIn(t *testing.T, pod string) {
	var ports []string
	for port := 10000; port < 20000; port += 10 {
		ports = append(ports, strconv.Itoa(port))
	}
	before := descriptors(t)
	ns, err := netns.Open(pod)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := sysctl.OpenIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"net/ipv4/conf/lo/arp_filter":      "1",
		"net/ipv4/ip_local_reserved_ports": strings.Join(ports, ","), // longer than the kernel takes at once
	} {
		if err := tree.Set(key, value); err != nil {
			t.Error(err)
		}
		want(t, "pod", tree.Get, key, value)
		if got, err := sysctl.Get(key); got == value || err != nil {
			t.Errorf("the host's %s is %q, %v", key, got, err)
		}
	}
	if err := tree.Set("net/ipv4/conf/lo/arp_filter", "1 2"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("two numbers for one: %v", err)
	}
	if err := tree.Set("net/ipv4/none", "1"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("none: %v", err)
	}
	tree.Close()
	ns.Close()
	if after := descriptors(t); after != before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}
