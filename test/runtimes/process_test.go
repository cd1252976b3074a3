package runtimes

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// processes returns the command lines of the process namespace's processes by their id. Only what these tests and the
// runtimes started can be there.
func processes(t *testing.T) map[int]string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	running := map[int]string{}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		// Empty for one that has ended and is not buried yet.
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && len(line) > 0 {
			running[pid] = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return running
}

// awaitEnd waits until all processes have ended that were not there before: containers, and the shims and monitors that
// runtimes leave to end by themselves.
func awaitEnd(t *testing.T, before map[int]string) {
	t.Helper()
	netlab.Eventually(t, func() error {
		for pid, line := range processes(t) {
			if _, known := before[pid]; !known {
				return fmt.Errorf("still running: %s", line)
			}
		}
		return nil
	})
}

// killOthers ends all processes that were not there before.
func killOthers(t *testing.T, before map[int]string) {
	t.Helper()
	for pid := range processes(t) {
		if _, known := before[pid]; !known {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended with another
		}
	}
	awaitEnd(t, before)
}
