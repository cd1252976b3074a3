// Package orphan leaves the slow end of a system call to a process that
// outlives this one, and tells whether such a process is reaped when it ends.
//
// An orphan is a child of this process without a program of its own. It makes a
// handful of system calls and ends. When this process has ended before, its
// parent is whoever adopts orphans here: the nearest ancestor that asked for it
// (PR_SET_CHILD_SUBREAPER), or the first process of the pid namespace. If that
// one never waits for processes it did not start, each orphan stays in the
// process table for ever, a zombie. Reaped finds out.
package orphan

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/sigmask"
)

// Write has an orphan write data to the file fd, in one write(2), and returns at
// once. The orphan has that file open and nothing else: no lock, and not the pipes
// whose end a runtime waits for. No signal but SIGKILL ends it. What became of the
// write only the other end of the file can tell. Nobody may change data any more;
// fd may be closed.
//
// It is for a process that ends soon. In one that lives on, Write occupies a thread
// of those that GOMAXPROCS allows until the orphan has ended, and a collection of
// garbage waits for that.
//
// Where no process can be made, that thread writes, and this process does not end
// before it is done. An error says that nothing will be written.
func Write(fd int, data []byte) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("keep a file open: %w", err)
	}
	if runtime.GOMAXPROCS(0) == 1 { // the sleeping thread would be the one that may run
		runtime.GOMAXPROCS(2)
	}
	go write(own, data)
	return nil
}

func write(fd int, data []byte) {
	if errno := writer(fd, data).run(); errno != 0 {
		_, _ = unix.Write(fd, data)
	}
	_ = unix.Close(fd)
}

// writer is an orphan that writes.
func writer(fd int, data []byte) *orphan {
	o := newOrphan()
	o.data = data
	o.closeAllBut(uintptr(fd))
	o.does(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)))
	return o
}

// orphan is a process to be, and the system calls it consists of.
//
// It shares this process's memory, as a child does between vfork(2) and execve(2),
// and borrows the stack of a thread that the kernel has sleep until the orphan has
// ended, or this process has. So there is nothing to copy, and the end of this
// process leaves the memory to the orphan: of a DEL of bridge with host-local that
// takes 3.9 ms with a copy (clone without CLONE_VM) it saves 0.4. (Medians of 200 in
// turns, Linux 6.18, 2 CPUs.)
type orphan struct {
	alive uint32 // the orphan's number, from before it runs until it has ended: the kernel writes it
	calls []call
	data  []byte // what calls point to
}

type call struct{ number, a, b, c, d, e uintptr }

// newOrphan returns an orphan that does nothing yet. It is not inlined, so that the
// orphan and its data are on the heap: what is on a stack may move, and the kernel is
// told where this is.
//
//go:noinline
func newOrphan() *orphan {
	const flags = unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_CHILD_SETTID | unix.CLONE_CHILD_CLEARTID | uintptr(unix.SIGCHLD)
	o := &orphan{}
	alive := uintptr(unsafe.Pointer(&o.alive))
	clone := call{unix.SYS_CLONE, flags, 0, 0, alive, alive} // the last two trade places on some machines: clone(2)
	if runtime.GOARCH == "s390x" {
		clone.a, clone.b = clone.b, clone.a
	}
	o.calls = []call{clone}
	return o
}

func (o *orphan) does(number, a, b, c uintptr) {
	o.calls = append(o.calls, call{number: number, a: a, b: b, c: c})
}

// closeAllBut has it close all files but one. Before Linux 5.9, or where a seccomp
// filter forbids close_range(2), those are the ones that a plugin can have.
func (o *orphan) closeAllBut(fd uintptr) {
	const last, plenty = uintptr(^uint32(0)), 1024
	if unix.CloseRange(1, 0, 0) == unix.EINVAL { // it is there, and finds 1 behind 0
		if fd > 0 {
			o.does(unix.SYS_CLOSE_RANGE, 0, fd-1, 0)
		}
		o.does(unix.SYS_CLOSE_RANGE, fd+1, last, 0)
		return
	}
	for other := range uintptr(plenty) {
		if other != fd {
			o.does(unix.SYS_CLOSE, other, 0, 0)
		}
	}
}

// run makes the process and returns when it has ended and was waited for, or the
// error of clone(2). This process may end meanwhile.
func (o *orphan) run() unix.Errno {
	o.does(unix.SYS_EXIT_GROUP, 0, 0, 0)
	pid, errno := clone(o)
	runtime.KeepAlive(o)
	if errno == 0 {
		_, _ = unix.Wait4(int(pid), nil, 0, nil)
	}
	return errno
}

// clone returns the orphan's number when it has ended. The thread must not do
// anything else meanwhile that Go's runtime knows of, and the orphan is none of its
// threads: hence raw system calls only, as in package syscall where it forks, and all
// signals blocked.
//
//go:noinline
//go:norace
//go:nosplit
func clone(o *orphan) (pid uintptr, errno unix.Errno) {
	var before sigmask.Set
	sigmask.Block(&before)
	pid, errno = play(o)
	sigmask.Restore(&before)
	return pid, errno
}

// play is what both processes run, the orphan from where clone(2) returns to its
// last call, and this one before and behind that.
//
// On a stack that two use in turn, the second finds what the first wrote last. That
// does no harm here because there is one call instruction: whichever call was the
// orphan's last, it left the return addresses that this thread left with its own,
// and all that is read after a call is where it was. Nothing else may be called.
//
//go:noinline
//go:norace
//go:nosplit
func play(o *orphan) (pid uintptr, errno unix.Errno) {
	calls := o.calls
	for i := range calls {
		c := &calls[i]
		pid, _, errno = unix.RawSyscall6(c.number, c.a, c.b, c.c, c.d, c.e, 0)
		if o.alive == 0 { // so this is not the orphan
			break
		}
	}
	return pid, errno
}
