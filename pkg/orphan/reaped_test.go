package orphan

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReaped has a runtime call plugins in pid namespaces of all sorts. Where
// orphans are reaped all calls but the first know it, and leave orphans of their
// own. Where they are not, none does, and the first one's is the only zombie.
func TestReaped(t *testing.T) {
	tests := []struct {
		name      string
		ancestors []string
		known     int
		zombies   int
		says      string
	}{
		{"the first process waits for all", []string{"first", "reaps", "runtime"}, calls - 1, 0, "was reaped"},
		{"the first process ignores its children", []string{"first", "ignores", "runtime"}, calls - 1, 0, "was reaped"},
		{"the first process never reaps", []string{"first", "waits", "runtime"}, 0, 1, "has not been reaped"},
		{"a subreaper waits for all", []string{"first", "waits", "subreaper", "reaps", "runtime"}, calls - 1, 0, "was reaped"},
		{"a subreaper never reaps", []string{"first", "reaps", "subreaper", "waits", "runtime"}, 0, 1, "has not been reaped"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := inNamespace(t, append(tt.ancestors, t.TempDir())...)
			want := fmt.Sprintf("known %d, zombies %d, ", tt.known, tt.zombies)
			if !strings.HasPrefix(got, want) || !strings.Contains(got, tt.says) {
				t.Errorf("%swant %s…%s", got, want, tt.says)
			}
		})
	}
}

// Where /proc is another pid namespace's, it shows other processes than ours.
func TestForeignProc(t *testing.T) {
	got := inNamespace(t, "foreign", "reaps", "runtime", t.TempDir())
	if !strings.HasPrefix(got, "known 0, ") || !strings.Contains(got, "/proc does not show") {
		t.Error(got)
	}
}

// inNamespace runs this binary as the first process of a pid namespace.
func inNamespace(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestRecord is about the file that a plugin finds. The parent here is the Go
// tool or a shell, which the test needs to know nothing of.
func TestRecord(t *testing.T) {
	parent, grandparent, err := find(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s-%d", parent, grandparent)
	me, _, err := find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	before := process{me.pid, me.start - 1} // had our number
	tests := []struct {
		record string
		known  bool
		says   string
		kept   bool
	}{
		{me.String(), false, "has not been reaped", true},
		{before.String(), true, "was reaped", true},
		{"", false, "unreadable", false},
		{"4711", false, "unreadable", false},
		{"x-1", false, "unreadable", false},
	}
	for _, tt := range tests {
		t.Run(tt.record, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(tt.record), 0o600); err != nil {
				t.Fatal(err)
			}
			known, how := Reaped(dir)
			if known != tt.known || !strings.Contains(how, tt.says) {
				t.Errorf("Reaped = %v, %s; want %v, …%s", known, how, tt.known, tt.says)
			}
			if _, err := os.Stat(path); (err == nil) != tt.kept {
				t.Errorf("the record: %v, want it kept: %v", err, tt.kept)
			}
		})
	}
}

func TestNoRecordCanBeMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if how := try(path, filepath.Join(path, "1-1-1")); !strings.Contains(how, "no record can be made") {
		t.Errorf("try: %s", how)
	}
	if known, how := Reaped(path); known || !strings.Contains(how, "no record") {
		t.Errorf("Reaped = %v, %s", known, how)
	}
}

// Records of processes that are gone go when another one is made.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	me, parent, err := find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	mine := fmt.Sprintf("%s-%d", me, parent)
	for _, name := range []string{mine, fmt.Sprintf("%d-1-1", me.pid), "no record"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	prune(dir)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != mine {
		t.Errorf("left: %v, %v; want %s only", entries, err, mine)
	}
}
