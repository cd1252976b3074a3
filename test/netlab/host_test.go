package netlab

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ownMachine is in the environment of a test that runs again on a machine of its own: a directory.
const ownMachine = "NETLAB_OWN_MACHINE"

// runOnOwnMachine runs the calling test again, on a machine that nobody else changes: in namespaces that a script has prepared. It reports whether this is
// that run already.
func runOnOwnMachine(t *testing.T, script string) bool {
	t.Helper()
	if os.Getenv(ownMachine) != "" {
		return true
	}
	cmd := exec.Command("unshare", "--mount", "--net", "sh", "-ec", script+"\n"+`exec "$0" "$@"`, os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), ownMachine+"="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// TestOthersMounts: what somebody else has mounted below the directory of temporary files is not there, where it would end in the middle of a test.
func TestOthersMounts(t *testing.T) {
	if !runOnOwnMachine(t, `mount -t tmpfs others $`+ownMachine+`; mkdir $`+ownMachine+`/inner; mount -t tmpfs others $`+ownMachine+`/inner`) {
		return
	}
	for _, dir := range []string{os.Getenv(ownMachine), os.Getenv(ownMachine) + "/inner"} {
		if is, err := mountinfo.Mounted(dir); is || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is a mount: %v, error %v", dir, is, err)
		}
	}
}

// TestHostLeavesMachineAlone uses a host up and looks at the machine before and after: its links, its mounts, and the
// directories that a host has for itself.
func TestHostLeavesMachineAlone(t *testing.T) {
	if !runOnOwnMachine(t, "") {
		return
	}
	before := machineState(t)
	t.Run("host", func(t *testing.T) {
		h := NewHost(t)
		h.NewOutside(t)
		h.NewPod(t, "a")
		h.MustRun(t, "ip", "link", "add", "made0", "type", "bridge")
		h.MustRun(t, "mkdir", "-p", "/var/lib/cni/networks", "/etc/cni/net.d", "/opt/cni/bin", "/run/cni")
		h.MustRun(t, "mount", "-n", "-t", "tmpfs", "made", "/mnt")
		h.MustRun(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	})
	if after := machineState(t); after != before {
		t.Errorf("the machine has changed:\nbefore:\n%s\nafter:\n%s", before, after)
	}
}

func machineState(t *testing.T) string {
	t.Helper()
	var state strings.Builder
	out, err := capture(exec.Command("sh", "-c", "ip -o link; ip -o addr; ip route show table all; cat /proc/sys/net/ipv4/ip_forward"), RunOnMachine)
	if err != nil {
		t.Fatal(err)
	}
	state.WriteString(out)
	if _, err := machineMounts.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(&state, machineMounts); err != nil {
		t.Fatal(err)
	}
	for _, dir := range append([]string{"/run/netns", "/run/cni"}, privateDirs...) {
		entries, err := os.ReadDir(dir)
		fmt.Fprintln(&state, dir, entries, err)
	}
	return state.String()
}

// TestHostVanishes checks that neither open files nor threads are left of a host.
func TestHostVanishes(t *testing.T) {
	t.Run("host", func(t *testing.T) {
		h := NewHost(t)
		o := h.NewOutside(t)
		o.ServeTCP(t, ":80")
		h.NewPod(t, "kept").Do(func() {})
		h.NewPod(t, "deleted").Delete(t)
	})
	if open := namespaceFiles(t); len(open) > 0 {
		t.Errorf("open files of namespaces: %q", open)
	}
	// A thread ends a moment after its goroutine.
	Until(t, "threads to end that are in other namespaces", func() bool { return foreignThreads(t) == 0 })
}

// namespaceFiles lists the process's open namespaces except the machine's.
func namespaceFiles(t *testing.T) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	machine := fmt.Sprintf("/proc/self/fd/%d", machineNetns.Fd())
	var open []string
	for _, link := range links {
		target, err := os.Readlink(link)
		if err == nil && link != machine && (strings.HasPrefix(target, "net:[") || strings.HasPrefix(target, "mnt:[")) {
			open = append(open, target)
		}
	}
	return open
}

// foreignThreads counts the threads of the process that are not in the sandbox.
func foreignThreads(t *testing.T) int {
	t.Helper()
	count := 0
	for _, kind := range []string{"net", "mnt"} {
		home, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		links, err := filepath.Glob("/proc/self/task/*/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil && target != home {
				count++
			}
		}
	}
	return count
}

func TestHostIsFresh(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	want := []string{"address lo: 127.0.0.1/8 label lo scope host", "address lo: ::1/128 scope host"}
	if got := h.Snapshot(t).Lines("address "); !slices.Equal(got, want) {
		t.Errorf("addresses are %q, want %q", got, want)
	}
	for _, dir := range append([]string{"/run/netns"}, privateDirs...) {
		if got := h.MustRun(t, "ls", "-A", dir); got != "" {
			t.Errorf("%s has %q", dir, got)
		}
	}
	if got := h.MustRun(t, "ls", "/sys/class/net"); got != "lo\n" {
		t.Errorf("/sys/class/net has %q", got)
	}
	if got := h.MustRun(t, "cat", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"); got != "0\n0\n" {
		t.Errorf("forwarding is %q", got)
	}
	if got, err := os.Readlink(h.NetnsPath()); err != nil || "net:"+got[4:] != h.MustRun(t, "readlink", "-n", "/proc/self/ns/net") {
		t.Errorf("NetnsPath leads to %q, %v", got, err)
	}
}

// TestHostsAreIsolated makes hosts side by side that would collide anywhere else.
func TestHostsAreIsolated(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			h := NewHost(t)
			outside := h.NewOutside(t)
			pod := h.NewPod(t, "same")
			h.MustRun(t, "ip", "link", "add", "same0", "type", "bridge")
			h.MustRun(t, "sh", "-c", fmt.Sprintf("test ! -e /run/mine && echo %d > /run/mine", i))
			pod.SetLoopbackUp(t)
			pod.ServeTCP(t, ":80")
			outside.ServeTCP(t, ":80")
			if reply, err := h.DialTCP(OutsideIPv4+":80", Patience); reply != "outside saw "+HostIPv4 {
				t.Errorf("reply %q, %v", reply, err)
			}
			if reply, err := pod.DialTCP("127.0.0.1:80", Patience); reply != "same saw 127.0.0.1" {
				t.Errorf("reply %q, %v", reply, err)
			}
		})
	}
}

func TestDoIsInNamespace(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	pod := h.NewPod(t, "web")
	h.MustRun(t, "ip", "link", "add", "hostlink", "type", "bridge")
	pod.MustRun(t, "ip", "link", "add", "podlink", "type", "bridge")

	visible := func(name string) bool { _, err := netlink.LinkByName(name); return err == nil }
	check := func(where string, hostlink, podlink bool) {
		t.Helper()
		if visible("hostlink") != hostlink || visible("podlink") != podlink {
			t.Errorf("%s: hostlink seen %v, podlink seen %v", where, visible("hostlink"), visible("podlink"))
		}
		if _, err := os.Stat(pod.Path()); (err == nil) != (hostlink || podlink) {
			t.Errorf("%s: stat of the pod's path: %v", where, err)
		}
		if _, err := os.Stat("host_test.go"); err != nil {
			t.Errorf("%s: not in the working directory: %v", where, err)
		}
	}
	h.Do(func() {
		check("host", true, false)
		pod.Do(func() {
			check("pod in host", false, true)
			h.Do(func() { check("host in pod in host", true, false) })
			check("pod again", false, true)
		})
		check("host again", true, false)
	})
	check("outside of Do", false, false)
}

func TestDoReportsPanic(t *testing.T) {
	t.Parallel()
	pod := NewHost(t).NewPod(t, "web")
	defer func() {
		got := fmt.Sprint(recover())
		for _, want := range []string{"in web: boom", "TestDoReportsPanic"} {
			if !strings.Contains(got, want) {
				t.Errorf("panic does not tell %q: %s", want, got)
			}
		}
	}()
	pod.Do(func() { panic("boom") })
	t.Error("Do returned after a panic")
}

// TestDoReportsFailNow uses Goexit, which is how FailNow and SkipNow stop a test.
func TestDoReportsFailNow(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	returned := make(chan bool)
	go func() {
		after := false
		defer func() { returned <- after }()
		h.Do(func() { h.Do(runtime.Goexit) })
		after = true
	}()
	if <-returned {
		t.Error("Do returned after the end of its goroutine")
	}
	h.Do(func() {}) // the host still works
}

func TestPodDeleted(t *testing.T) {
	t.Parallel()
	isNetns := func(h *Host, path string) (is bool) {
		h.Do(func() { is = isNamespace(path) })
		return is
	}
	exists := func(h *Host, path string) (is bool) {
		h.Do(func() { _, err := os.Lstat(path); is = err == nil })
		return is
	}
	tests := []struct {
		name          string
		delete        func(*testing.T, *Pod)
		exists, netns bool
	}{
		{"not", func(*testing.T, *Pod) {}, true, true},
		{"deleted", func(t *testing.T, p *Pod) { p.Delete(t) }, false, false},
		{"file kept", func(t *testing.T, p *Pod) { p.DeleteKeepFile(t) }, true, false},
		{"replaced", func(t *testing.T, p *Pod) { p.Replace(t) }, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := NewHost(t)
			var path string
			t.Run("pod", func(t *testing.T) {
				pod := h.NewPod(t, "web")
				path = pod.Path()
				pod.MustRun(t, "ip", "link", "add", "old", "type", "bridge")
				tt.delete(t, pod)
				if got := exists(h, path); got != tt.exists {
					t.Errorf("path exists: %v, want %v", got, tt.exists)
				}
				if got := isNetns(h, path); got != tt.netns {
					t.Errorf("path is a namespace: %v, want %v", got, tt.netns)
				}
				if tt.name == "replaced" && len(pod.Snapshot(t).Lines("link old")) > 0 {
					t.Error("the new namespace has the link of the old one")
				}
			})
			if exists(h, path) {
				t.Error("path is still there after the end of the pod's test")
			}
		})
	}
}

// TestStrayProcess checks that a process somebody left behind on a host is found and ended.
func TestStrayProcess(t *testing.T) {
	node, err := newNode(prepareHost)
	if err != nil {
		t.Fatal(err)
	}
	// The shell goes, its child stays.
	cmd := exec.Command("sh", "-c", "sleep infinity >/dev/null 2>&1 & echo $!")
	h := &Host{Namespace: Namespace{name: "host", netns: node.hostNetns, node: node}}
	pid, err := h.Output(cmd)
	if err != nil {
		t.Fatal(err)
	}
	node.patience = 0
	if got := node.close(); !slices.Equal(got, []string{"sleep infinity"}) {
		t.Errorf("strays are %q", got)
	}
	Until(t, "the process to end", func() bool { return !running(strings.TrimSpace(pid)) })
}

// running reports whether a process exists and is more than a zombie, which waits for its parent.
func running(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestBackgroundEndsWithTest(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	var cmd *exec.Cmd
	t.Run("server", func(t *testing.T) {
		cmd = h.Command("sleep", "infinity")
		h.Background(t, cmd)
		if err := cmd.Process.Signal(unix.Signal(0)); err != nil {
			t.Error("not running: ", err)
		}
	})
	if cmd.ProcessState == nil {
		t.Error("nobody has waited for the process")
	}
}

func TestOutputTellsWhy(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	_, err := h.Output(h.Command("sh", "-c", "echo reason >&2; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "exit status 3: reason") {
		t.Errorf("error is %v", err)
	}
}

func BenchmarkNewHost(b *testing.B) {
	for b.Loop() {
		node, err := newNode(prepareHost)
		if err != nil {
			b.Fatal(err)
		}
		node.close()
	}
}

func BenchmarkDo(b *testing.B) {
	h := NewHost(b)
	for b.Loop() {
		h.Do(func() {})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	h := NewHost(b)
	h.NewOutside(b)
	h.MustRun(b, "nft", "add table inet t")
	for b.Loop() {
		h.Snapshot(b)
	}
}
