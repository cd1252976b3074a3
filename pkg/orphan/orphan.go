// Package orphan leaves the slow end of a system call to a process that
// outlives this one, and tells whether such a process is reaped when it ends.
//
// An orphan is a copy of this process, made by clone(2) without a program of
// its own. It makes a handful of system calls and ends; it never comes back to
// Go code, whose other threads it does not have. Its parent is then whoever
// adopts orphans here: the nearest ancestor that asked for it
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

// Write has an orphan write data to the file fd, in one write(2). The orphan
// has fd open and nothing else: no lock, and not the pipes whose end a runtime
// waits for. No signal but SIGKILL ends it. What became of the write only the
// other end of fd can tell.
//
// The process returned stays a child of this one as long as this one lives, and
// a zombie when it ends before. A process that lives on has to wait for it.
//
// It takes 0.12 ms; to start a static program that does nothing takes os/exec
// 0.31. (Medians of 25 in a small process, Linux 6.18, 2 CPUs.) What this process
// writes to afterwards the kernel copies page by page, in 0.1 ms for the rest of
// a DEL. Two ways to have less copied were tried or looked at:
//   - A child in the same memory (CLONE_VM), as os/exec makes one, needs a stack
//     of its own or the parent's asleep (CLONE_VFORK). Either way one of them
//     returns from the system call to where the other has written, unless the
//     call is made in assembly, which there would have to be for each
//     architecture.
//   - To leave the heap out but for the stack (MADV_DONTFORK) saves 0.1 ms at
//     best, less than whole DELs differ by (medians of 200), and a clone by
//     another thread at the same moment would have no stack.
func Write(fd int, data []byte) (pid int, err error) {
	child, errno := start(uint32(fd), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)))
	runtime.KeepAlive(data)
	if errno != 0 {
		return 0, fmt.Errorf("clone a process: %w", errno)
	}
	return int(child), nil
}

// none is no file: an orphan that has nothing open and nothing to do.
const none = ^uint32(0)

// start clones the process, and is all that runs in the clone. The clone has
// one thread, a copy of this one in the middle of Go's runtime, which must not
// notice: nothing may allocate, grow the stack or be pre-empted, and no signal
// may be handled. Hence raw system calls only, as in package syscall where it
// forks, and all signals blocked around the clone.
//
//go:noinline
//go:norace
//go:nosplit
func start(fd uint32, data, size uintptr) (pid uintptr, errno unix.Errno) {
	var before sigmask.Set
	sigmask.Block(&before)
	flags, stack := uintptr(unix.SIGCHLD), uintptr(0) // no stack: a copy of this one
	if runtime.GOARCH == "s390x" {
		flags, stack = stack, flags
	}
	pid, _, errno = unix.RawSyscall6(unix.SYS_CLONE, flags, stack, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		closeOthers(fd)
		if size > 0 {
			unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), data, size)
		}
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	sigmask.Restore(&before)
	return pid, errno
}

// closeOthers closes all files but one. Before Linux 5.9, or where a seccomp
// filter forbids close_range(2), it closes those that a plugin can have.
//
//go:norace
//go:nosplit
func closeOthers(fd uint32) {
	const plenty = 1024
	var below unix.Errno
	if fd > 0 {
		_, _, below = unix.RawSyscall(unix.SYS_CLOSE_RANGE, 0, uintptr(fd-1), 0)
	}
	_, _, above := unix.RawSyscall(unix.SYS_CLOSE_RANGE, uintptr(fd+1), uintptr(^uint32(0)), 0)
	if below == 0 && above == 0 {
		return
	}
	for i := uint32(0); i < plenty; i++ {
		if i != fd {
			unix.RawSyscall(unix.SYS_CLOSE, uintptr(i), 0, 0)
		}
	}
}
