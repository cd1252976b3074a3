package netns

import (
	"bytes"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/sigmask"
)

// Passage makes single system calls inside a namespace.
//
// Unlike Run it needs no thread for itself: the calling thread enters, makes its
// calls and is back before Go's runtime can do anything else with it. (Run has to
// lock its thread, for which the runtime starts another one the first time. Without
// that a tuning ADD takes 0.1 ms less of 2. Medians of 200 interleaved rounds, Linux
// 6.18, 2 CPUs.)
//
// It may be used by any goroutine whose thread is in the namespace that it was made
// in.
type Passage struct {
	ns   *NS
	home int
	// oneWay is whether a thread that enters can't come back: see runAside.
	oneWay bool
}

// Passage makes a passage to the namespace, to be closed.
func (ns *NS) Passage() (*Passage, error) {
	home, err := ns.openHome()
	if err != nil {
		return nil, err
	}
	return &Passage{ns: ns, home: home, oneWay: !canEnter(home)}, nil
}

// Close closes the passage. What was opened through it stays open.
func (p *Passage) Close() { _ = unix.Close(p.home) }

// Socket makes a socket (socket(2)). It stays in the namespace.
func (p *Passage) Socket(domain, typ, protocol int) (fd int, err error) {
	if p.oneWay {
		err = p.ns.runAside(func() (err error) {
			fd, err = unix.Socket(domain, typ, protocol)
			return err
		})
		return fd, err
	}
	r, o := socketInside(p.home, p.ns.fd, domain, typ, protocol)
	return int(r), p.explain(o)
}

// Run is that of the namespace, for what takes more than one call.
func (p *Passage) Run(f func() error) error { return p.ns.Run(f) }

// Read reads the beginning of a file of procfs, whose path is relative to dir
// (openat(2)). It returns how much there was, or that as much as b holds.
func (p *Passage) Read(dir int, path string, b []byte) (n int, err error) {
	return p.transfer(unix.SYS_READ, unix.O_RDONLY, dir, path, b)
}

// Write writes to a file of procfs, in one go. It returns how much the kernel took.
func (p *Passage) Write(dir int, path string, b []byte) (n int, err error) {
	return p.transfer(unix.SYS_WRITE, unix.O_WRONLY, dir, path, b)
}

func (p *Passage) transfer(how, flags, dir int, path string, b []byte) (n int, err error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return 0, err
	}
	if p.oneWay {
		own := bytes.Clone(b) // the caller's stays on its stack, for the other way
		err = p.ns.runAside(func() error {
			r, errno := transferHere(how, flags, dir, unsafe.Pointer(name), unsafe.Pointer(unsafe.SliceData(own)), len(own))
			n = int(r)
			return orNil(errno)
		})
		copy(b, own)
		return n, err
	}
	r, o := transferInside(p.home, p.ns.fd, how, flags, dir, unsafe.Pointer(name), unsafe.Pointer(unsafe.SliceData(b)), len(b))
	runtime.KeepAlive(name)
	runtime.KeepAlive(b)
	return int(r), p.explain(o)
}

// outcome is what went wrong inside: nothing, the way in, or the call itself.
type outcome struct{ entry, call unix.Errno }

func (p *Passage) explain(o outcome) error {
	if o.entry != 0 {
		return p.ns.noEntry(o.entry)
	}
	return orNil(o.call)
}

// orNil is for the error of a raw system call, which is 0 if there was none.
func orNil(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// The functions below are all that runs between going in and coming back. Nothing
// there may allocate, grow the stack or be pre-empted, and no signal may be handled,
// or the goroutine might go on on another thread and leave its own where it is. Hence
// nosplit and raw system calls only, and sigmask.

//go:noinline
//go:norace
//go:nosplit
func socketInside(home, there, domain, typ, protocol int) (fd uintptr, o outcome) {
	var signals sigmask.Set
	if o.entry = enter(there, &signals); o.entry != 0 {
		return 0, o
	}
	fd, _, o.call = unix.RawSyscall(unix.SYS_SOCKET, uintptr(domain), uintptr(typ), uintptr(protocol))
	leave(home, &signals)
	return fd, o
}

//go:noinline
//go:norace
//go:nosplit
func transferInside(home, there, how, flags, dir int, path, b unsafe.Pointer, size int) (n uintptr, o outcome) {
	var signals sigmask.Set
	if o.entry = enter(there, &signals); o.entry != 0 {
		return 0, o
	}
	n, o.call = transferHere(how, flags, dir, path, b, size)
	leave(home, &signals)
	return n, o
}

// transferHere opens, reads or writes, and closes: some sysctls are those of the
// namespace that the thread is in when it writes, not when it opens the file (those
// of SCTP and MPTCP before Linux 6.13).
//
//go:norace
//go:nosplit
func transferHere(how, flags, dir int, path, b unsafe.Pointer, size int) (n uintptr, errno unix.Errno) {
	fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(path), uintptr(flags|unix.O_CLOEXEC), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	n, _, errno = unix.RawSyscall(uintptr(how), fd, uintptr(b), uintptr(size))
	unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	return n, errno
}

//go:norace
//go:nosplit
func enter(there int, signals *sigmask.Set) unix.Errno {
	sigmask.Block(signals)
	errno := setns(there)
	if errno != 0 {
		sigmask.Restore(signals)
	}
	return errno
}

// leave goes back to the namespace home. The kernel let the thread in there when the
// passage was made, so that it fails only for want of memory, and not for long. A
// thread must not be left in the wrong namespace.
//
//go:norace
//go:nosplit
func leave(home int, signals *sigmask.Set) {
	for setns(home) != 0 {
	}
	sigmask.Restore(signals)
}

//go:norace
//go:nosplit
func setns(fd int) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_SETNS, uintptr(fd), unix.CLONE_NEWNET, 0)
	return errno
}
