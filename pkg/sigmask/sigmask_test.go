package sigmask

import (
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// blocked returns what procfs says of the thread's mask (proc_pid_status(5)).
func blocked(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	return string(regexp.MustCompile(`SigBlk:\s*([0-9a-f]+)`).FindSubmatch(status)[1])
}

func TestBlock(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := blocked(t)
	var old Set
	Block(&old)
	inside := blocked(t)
	Restore(&old)
	// Signal n is bit n-1; SIGKILL is 9 and SIGSTOP 19.
	if want := "fffffffffffbfeff"; !strings.HasSuffix(inside, want) {
		t.Errorf("blocked: %s, want %s", inside, want)
	}
	if after := blocked(t); after != before {
		t.Errorf("blocked before: %s, after: %s", before, after)
	}
}
