package netlink

import "sync/atomic"

// receiveSize holds the largest message the kernel builds at a time
// (NLMSG_GOODSIZE is at most 8 KiB, a dump fills up to 32 KiB).
const receiveSize = 32 << 10

// buffer is what a socket reads into.
type buffer struct {
	taken atomic.Bool
	bytes [receiveSize]byte
}

// buffers serve the sockets of a process one after the other. A plugin has two
// or three open at a time; whoever comes when all are taken gets a new one. Of
// memory that the program was born with only the pages that are written to cost
// anything, here mostly one, while 32 KiB of the heap cost 13 us for each
// socket, and 100 where the process has just been cloned (package orphan): the
// allocator's own pages are copied then. (perf record, Linux 6.18, 2 CPUs.)
var buffers [4]buffer

// takeBuffer returns a buffer that nobody else has.
func takeBuffer() *buffer {
	for i := range buffers {
		if buffers[i].taken.CompareAndSwap(false, true) {
			return &buffers[i]
		}
	}
	return &buffer{}
}

// release gives the buffer back, if there is one.
func (b *buffer) release() {
	if b != nil {
		b.taken.Store(false)
	}
}
