// Package sigmask keeps signals from the calling thread for a moment in which
// nothing may happen to it.
//
// That is what a function needs that makes raw system calls after which the thread
// is not as Go's runtime knows it: cloned, or in another namespace. If the function
// is marked nosplit and calls nothing else, the runtime can't stop the goroutine
// and go on with another one on the thread, but for one way: by a signal that
// arrives exactly at a call instruction, where even such functions are taken for
// safe (runtime.isAsyncSafePoint). Package syscall blocks signals too where it forks.
package sigmask

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Set is the kernel's sigset_t.
type Set [size]byte

// Block keeps all signals but SIGKILL and SIGSTOP from the thread, and stores those
// that were blocked before.
//
//go:norace
//go:nosplit
func Block(before *Set) {
	var all Set
	for i := range all {
		all[i] = 0xff
	}
	set(&all, before)
}

// Restore blocks those of before and no others. What came meanwhile arrives now.
//
//go:norace
//go:nosplit
func Restore(before *Set) { set(before, nil) }

//go:norace
//go:nosplit
func set(now, before *Set) {
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(now)), uintptr(unsafe.Pointer(before)), size, 0, 0)
}
