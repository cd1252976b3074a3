package netlab

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestSandboxProcesses: a package's tests see no process of the machine, where process 1 would be another one.
func TestSandboxProcesses(t *testing.T) {
	first, err := os.ReadFile("/proc/1/cmdline")
	if err != nil || string(first) != "sleep\x00infinity\x00" {
		t.Errorf("process 1 is %q, %v", first, err)
	}
}

// TestOwnProcesses: a node's processes see their own alone, whether libcni, a thread or the node has started them, and are known to the test.
func TestOwnProcesses(t *testing.T) {
	h, other := NewHost(t), NewHost(t)
	h.OwnProcesses(t)
	other.Background(t, other.Command("sleep", "86401"))
	sleeper := h.Command("sleep", "86402")
	h.Background(t, sleeper)
	const all = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
	seen := []string{h.MustRun(t, "sh", "-c", all)}
	h.Do(func() {
		out, err := output("sh", "-c", all)
		if err != nil {
			t.Error(err)
		}
		seen = append(seen, out)
	})
	for _, s := range seen {
		if strings.Contains(s, "86401") || !strings.Contains(s, "sleep 86402") || strings.Contains(s, os.Args[0]) {
			t.Errorf("it sees %s", s)
		}
	}
	if got := h.MustRun(t, "cat", fmt.Sprintf("/proc/%d/cmdline", h.PID(t, sleeper))); got != "sleep\x0086402\x00" {
		t.Errorf("process %d is %q", h.PID(t, sleeper), got)
	}
	if h.MustRun(t, "readlink", "-n", h.NetnsPath()) != h.MustRun(t, "readlink", "-n", "/proc/self/ns/net") {
		t.Errorf("%s is not the node's namespace", h.NetnsPath())
	}
	if diff := h.Snapshot(t).Diff(h.Snapshot(t)); diff != "" || !strings.Contains(strings.Join(mounts(t, h), "\n"), "mount /proc: proc") {
		t.Errorf("a snapshot sees no mounts: %s", diff)
	}
}

func mounts(t *testing.T, h *Host) (lines []string) {
	t.Helper()
	if err := h.do(func() (err error) { lines, err = mountLines(); return err }); err != nil {
		t.Fatal(err)
	}
	return lines
}
