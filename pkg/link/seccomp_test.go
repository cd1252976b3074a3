package link

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// setFilter gives the calling thread a seccomp filter.
func setFilter(program []unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return errno
	}
	return nil
}

// forbidClone has a seccomp filter refuse clone(2) to the calling thread.
func forbidClone(errno unix.Errno) error {
	const allow, refuse = 0x7fff0000, 0x00050000 // SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_ABS | unix.BPF_W, K: 0}, // the system call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_CLONE},
		{Code: unix.BPF_RET | unix.BPF_K, K: refuse | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: allow},
	}
	return setFilter(program)
}
