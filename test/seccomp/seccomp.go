// Package seccomp has the kernel refuse system calls, as container runtimes and
// older kernels do, to see what a program makes of that.
package seccomp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Refuse has a filter (seccomp(2)) refuse a system call to the calling thread and
// those that it starts from now on. It can't be undone: the thread has to end.
func Refuse(call uint32, errno unix.Errno) error {
	return filter(
		load(numberAt), unless(call, 1), refusal(errno),
		allowance)
}

// RefuseRequest refuses one request of ioctl(2).
func RefuseRequest(request uint32, errno unix.Errno) error {
	return filter(
		load(numberAt), unless(unix.SYS_IOCTL, 3),
		load(requestAt), unless(request, 1), refusal(errno),
		allowance)
}

// Offsets in struct seccomp_data; of the request the lower half on little-endian
// machines.
const numberAt, requestAt = 0, 24

var allowance = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}

func refusal(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

func load(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_ABS | unix.BPF_W, K: at}
}

// unless skips instructions if something else was loaded.
func unless(value uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: value}
}

func filter(program ...unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return fmt.Errorf("set a seccomp filter: %w", errno)
	}
	return nil
}
