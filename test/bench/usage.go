package bench

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of processes that outlive the plugin that started them, so that what they
// use can be told.
func adoptOrphans(b testing.TB) {
	b.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		b.Fatal("become the parent of orphans: ", err)
	}
}

// reapOrphans waits for all children to end. No other child may be waited for at the same time.
func reapOrphans() error {
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for orphans: %w", err)
		}
	}
}

// cost is what something took. The CPU is that of processes.
type cost struct{ wall, cpu time.Duration }

// childrenCPU returns the user and system time of all children that have been waited for, and of theirs.
func childrenCPU() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &used); err != nil {
		panic(fmt.Sprint("get the CPU time of children: ", err)) // can't be: it has no reason to fail
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
