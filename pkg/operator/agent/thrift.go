package agent

import (
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// thrift has looks at everything that no event led to take a hundredth of one processor at most: on a node with thousands of attachments one
// takes many seconds of it. Whoever wants them more often than by default gets them.
type thrift struct {
	mu     sync.Mutex
	before time.Duration // the processor time that was used when a look began
	until  time.Time     // the next one may begin
}

// begin notes that a look begins. Until it ends there is no other.
func (t *thrift) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before, t.until = processorTime(), time.Now().Add(24*time.Hour)
}

// end notes that the look is over, and gives the memory back that it has needed: the next one is far.
func (t *thrift) end(every time.Duration) {
	const share = 100
	debug.FreeOSMemory()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = time.Now()
	if every >= DefaultEvery {
		t.until = t.until.Add(share * (processorTime() - t.before))
	}
}

// next returns when the next look may begin.
func (t *thrift) next() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until
}

// processorTime returns how much of the processors this process has used.
func processorTime() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used) // has no reason to fail
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
