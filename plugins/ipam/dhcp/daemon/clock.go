package daemon

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/state"
)

// uptime is how long ago the machine was started, the time it slept included: nobody sets that clock, as people do the time of day.
func uptime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // every kernel that Go runs on has it
	return time.Duration(t.Nano())
}

// bootID identifies the machine's boot, which uptime counts from. It is "" if the kernel does not tell.
func bootID() string {
	text, _ := state.Read("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}
