package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Host is a node: a network namespace with its loopback link up and forwarding off, and a mount namespace with empty
// /run, /var/lib/cni, /var/log, /etc/cni and /opt/cni. Hosts know nothing of each other.
type Host struct {
	Namespace
	// path is the PATH of the plugins.
	path string
}

// NewHost makes a node that lasts until the test ends. Processes that are then still in it fail the test.
func NewHost(t testing.TB) *Host {
	t.Helper()
	return newHost(t, nil)
}

// NewGuestHost is NewHost in a Guest's own network namespace: there alone can be set what all namespaces of a kernel share. As that is other tests', too,
// the test must not be parallel.
func NewGuestHost(t testing.TB) *Host {
	t.Helper()
	Need(t, Guest)
	host := newHost(t, machineNetns)
	t.Cleanup(func() {
		host.MustRun(t, "sh", "-ec", "nft flush ruleset; for b in $(ls -d /sys/class/net/*/bridge | cut -d/ -f5); do ip link del $b; done")
	})
	return host
}

func newHost(t testing.TB, netns *os.File) *Host {
	t.Helper()
	if machineNetns == nil {
		t.Fatal("netlab.NewHost: TestMain of this package must call netlab.Main")
	}
	node, err := newNodeIn(netns, prepareHost)
	if err != nil {
		t.Fatal("netlab.NewHost: ", err)
	}
	t.Cleanup(func() {
		for _, stray := range node.close() {
			t.Errorf("still running at the end of the test: %s", stray)
		}
	})
	return &Host{Namespace: Namespace{name: "host", netns: node.hostNetns, node: node}, path: os.Getenv("PATH")}
}

// NetnsPath returns a path at which the Host's own network namespace can be opened, by its processes too, and by those alone if they are OwnProcesses.
func (h *Host) NetnsPath() string {
	if h.node.init != nil {
		return "/proc/1/ns/net"
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.node.hostNetns.Fd())
}

// UseIPTables makes the Host's plugins find one flavour of iptables, "nft" or "legacy", by the plain names of its programs. It is
// to be called before the plugins are.
func (h *Host) UseIPTables(t testing.TB, flavour string) {
	t.Helper()
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			program, err := exec.LookPath(family + "-" + flavour + verb)
			if err != nil {
				t.Fatalf("use iptables-%s: %v", flavour, err)
			}
			if err := os.Symlink(program, filepath.Join(dir, family+verb)); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.path = dir + string(filepath.ListSeparator) + os.Getenv("PATH")
}

// UseIPTablesInVain has them find, by the plain names and those of iptables-nft, programs that say what iptables-nft says under a kernel without
// nf_tables. It returns the directory of those.
func (h *Host) UseIPTablesInVain(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, name := range []string{"", "-save", "-restore", "-nft", "-nft-save", "-nft-restore"} {
			script := "#!/bin/sh\nname='" + family + name + " v1.8.11 (nf_tables)'\n[ \"$1\" != --version ] || { echo \"$name\"; exit; }\n" +
				"echo \"$name: Could not fetch rule set generation id: Invalid argument\" >&2; exit 4\n"
			if err := os.WriteFile(filepath.Join(dir, family+name), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.path = dir + string(filepath.ListSeparator) + os.Getenv("PATH")
	return dir
}

// FilterBridged has the packet filter see what crosses a bridge, as on a node of Kubernetes, or not. Without br_netfilter it never does.
func (h *Host) FilterBridged(t testing.TB, on bool) {
	t.Helper()
	if on {
		Need(t, BridgeNetfilter)
	}
	value := map[bool]string{true: "=1", false: "=0"}[on]
	err := h.Run(h.Command("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables"+value, "net.bridge.bridge-nf-call-ip6tables"+value))
	if err != nil && Has(t, BridgeNetfilter) {
		t.Fatal(err)
	}
}

// Path returns the PATH of the Host's plugins.
func (h *Host) Path() string { return h.path }

// prepareHost readies the namespaces of the calling thread.
func prepareHost() error {
	return errors.Join(privateFiles(), resetSysctls(), setLoopbackUp())
}

// resetSysctls sets to the kernel's defaults what a new network namespace copies from the machine's instead.
func resetSysctls() error {
	for _, key := range []string{
		"ipv4/ip_forward", // first: writing it resets other values
		"ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter",
		"ipv4/conf/all/route_localnet", "ipv4/conf/default/route_localnet",
		"ipv6/conf/all/forwarding", "ipv6/conf/all/disable_ipv6", "ipv6/conf/default/disable_ipv6",
	} {
		if err := os.WriteFile("/proc/sys/net/"+key, []byte("0"), 0); err != nil {
			return fmt.Errorf("reset a sysctl: %w", err)
		}
	}
	return nil
}

// privateDirs are the directories every Host has for itself, empty at first. /run is another.
var privateDirs = []string{"/var/lib/cni", "/var/log", "/etc/cni", "/opt/cni"}

// privateFiles gives the calling thread, which must be in a new mount namespace, the files of a fresh node: an empty
// /run and empty privateDirs, and a /sys that shows the thread's network namespace. All else is the machine's.
func privateFiles() error {
	// The first /run is a workbench and is hidden by the second.
	if err := mountTmpfs("/run"); err != nil {
		return err
	}
	for i, dir := range privateDirs {
		_, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			err = makeInOverlay(dir, fmt.Sprintf("/run/overlay%d", i))
		}
		if err != nil {
			return err
		}
		if err := mountTmpfs(dir); err != nil {
			return err
		}
	}
	if err := mountSysfs(); err != nil {
		return err
	}
	return errors.Join(mountTmpfs("/run"), os.Mkdir("/run/netns", 0o755))
}

// makeInOverlay makes a directory in an overlay over its parent, so that nothing is left on the machine. What is written
// there goes to the workbench.
func makeInOverlay(dir, bench string) error {
	upper, work, parent := bench+"/upper", bench+"/work", filepath.Dir(dir)
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	if err := mount("overlay", parent, "overlay", 0, "lowerdir="+parent+",upperdir="+upper+",workdir="+work); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o755)
}

// mountSysfs mounts the sysfs of the thread's network namespace on /sys; a sysfs shows the links of the namespace it was
// mounted in. The control groups, which live below /sys, move to the new one.
func mountSysfs() error {
	const cgroups, aside = "/sys/fs/cgroup", "/run/cgroup"
	mountNew := func() error {
		err := mount("sysfs", "/sys", "sysfs", 0, "")
		if errors.Is(err, unix.EBUSY) { // it is there: this is the namespace of a GuestHost
			return nil
		}
		return err
	}
	if _, err := os.Lstat(cgroups); err != nil {
		return mountNew()
	}
	return errors.Join(os.Mkdir(aside, 0o755),
		mount(cgroups, aside, "", unix.MS_BIND|unix.MS_REC, ""),
		mountNew(),
		mount(aside, cgroups, "", unix.MS_MOVE, ""))
}

func mountTmpfs(dir string) error {
	return mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755")
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s (%s): %w", source, target, options, err)
	}
	return nil
}
