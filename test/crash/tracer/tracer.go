//go:build amd64

// Package tracer kills or suspends programs at their system calls.
package tracer

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// Killed is the exit code of a tracer that has killed the command.
const Killed = 137

// Run runs a command, and kills it with all that it has started before its n-th system call that changes something is carried out. It
// returns its own exit code: Killed or, if there are fewer, the command's.
func Run(n int, program string, args ...string) int {
	return trace(&point{n: n}, program, args)
}

// Suspend runs a command, and returns its exit code. Before the first system call that changes something and whose description has a text it makes a
// file, and goes on when somebody has removed that.
func Suspend(text, file, program string, args ...string) int {
	return trace(&point{n: 1, text: text, file: file}, program, args)
}

// point is where something is done to a command: at the n-th call whose description has the text.
type point struct {
	n          int
	text, file string
}

func (p *point) isReached(what string) bool {
	if what == "" || !strings.Contains(what, p.text) {
		return false
	}
	p.n--
	return p.n == 0
}

// wait makes the file, and waits until it is gone.
func (p *point) wait() {
	err := os.WriteFile(p.file, nil, 0o600)
	for ; err == nil; netlab.Pause(10 * time.Millisecond) {
		_, err = os.Stat(p.file)
	}
}

func trace(at *point, program string, args []string) int {
	runtime.LockOSThread() // ptrace(2): all requests must come from the thread that started the command
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	err := cmd.Start()
	if err == nil {
		_, err = unix.Wait4(cmd.Process.Pid, nil, 0, nil)
	}
	if err == nil {
		err = unix.PtraceSetOptions(cmd.Process.Pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL|
			unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACEFORK|unix.PTRACE_O_TRACEVFORK)
	}
	if err == nil {
		err = unix.PtraceSyscall(cmd.Process.Pid, 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "trace:", err)
		return 1
	}
	code := 1
	seen := map[int]bool{cmd.Process.Pid: true}
	for {
		var status unix.WaitStatus
		thread, err := unix.Wait4(-1, &status, unix.WALL, nil)
		if err != nil { // no process is left
			return code
		}
		seen[thread] = true
		signal := 0
		switch stop := status.StopSignal(); {
		case !status.Stopped():
			if thread == cmd.Process.Pid {
				code = status.ExitStatus()
			}
			continue
		case stop == unix.SIGTRAP|0x80: // at a system call
			what := change(thread)
			switch {
			case !at.isReached(what):
			case at.file != "":
				at.wait()
			default:
				fmt.Fprintln(os.Stderr, "killed before", what)
				killAll(seen)
				return Killed
			}
		case stop != unix.SIGSTOP && stop != unix.SIGTRAP:
			signal = int(stop)
		}
		_ = unix.PtraceSyscall(thread, signal) // it may be gone
	}
}

// killAll kills what is traced, and returns when it is gone: until then it has its locks.
func killAll(threads map[int]bool) {
	for thread := range threads {
		_ = unix.Kill(thread, unix.SIGKILL) // it may be gone
	}
	for {
		var status unix.WaitStatus
		thread, err := unix.Wait4(-1, &status, unix.WALL, nil)
		if err != nil { // no process is left
			return
		}
		if status.Stopped() { // it was just made
			_ = unix.Kill(thread, unix.SIGKILL)
		}
	}
}

// change describes the system call that a thread is about to make, and returns "" if that changes nothing outside the process, or if the
// thread comes back from one.
func change(thread int) string {
	// Where user_regs_struct has them (sys/user.h). User-mode-linux has no request for all at once.
	register := func(index uintptr) uint64 {
		var b [8]byte
		_, _ = unix.PtracePeekUser(thread, index*8, b[:])
		return binary.LittleEndian.Uint64(b[:])
	}
	if int64(register(10)) != -int64(unix.ENOSYS) { // the result, which is this one before there is any
		return ""
	}
	// They are read when they are needed, as most calls are of no interest.
	first := func() uint64 { return register(14) }
	second := func() uint64 { return register(13) }
	third := func() uint64 { return register(12) }
	switch number := register(15); number {
	case unix.SYS_SENDTO:
		return message(memory(thread, second(), 8))
	case unix.SYS_SENDMSG: // struct msghdr has its vector at 16
		vector := pointer(memory(thread, second()+16, 8))
		return message(memory(thread, pointer(memory(thread, vector, 8)), 8))
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		if file := opened(thread, first()); strings.HasPrefix(file, "/") && !strings.HasPrefix(file, "/dev/") && int(first()) > 2 {
			return "write " + file
		} else if strings.HasPrefix(file, "socket:") {
			return fmt.Sprintf("send %q", memory(thread, second(), 512))
		}
	case unix.SYS_OPENAT:
		if file := text(thread, second()); third()&(unix.O_CREAT|unix.O_TRUNC) != 0 && !strings.HasPrefix(file, "/dev/") {
			return "open " + file
		}
	case unix.SYS_FTRUNCATE:
		return "ftruncate " + opened(thread, first())
	case unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_LINK:
		return fmt.Sprintf("system call %d of %s", number, text(thread, first()))
	case unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
		return fmt.Sprintf("system call %d of %s", number, text(thread, second()))
	case unix.SYS_SETSOCKOPT:
		const replace, addCounters = 64, 65 // IPT_SO_SET_REPLACE, IPT_SO_SET_ADD_COUNTERS
		if (second() == unix.SOL_IP || second() == unix.SOL_IPV6) && (third() == replace || third() == addCounters) {
			return "setsockopt of iptables"
		}
	case unix.SYS_IOCTL:
		if second()>>8&0xff == 'T' && second()&0x40000000 != 0 {
			return fmt.Sprintf("ioctl %#x of a tap", second())
		}
	}
	return ""
}

// message describes a netlink message that changes something.
func message(header []byte) string {
	if len(header) < 8 {
		return ""
	}
	const conntrackDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
	kind := binary.LittleEndian.Uint16(header[4:])
	isGet := kind&3 == 2 // rtnetlink(7): new, delete, get, set
	if kind == conntrackDelete || kind >= unix.RTM_NEWLINK && kind < 1<<8 && !isGet {
		return fmt.Sprintf("netlink message of type %d", kind)
	}
	return ""
}

func memory(thread int, address uint64, length int) []byte {
	b := make([]byte, length)
	n, _ := unix.PtracePeekData(thread, uintptr(address), b)
	return b[:max(n, 0)]
}

func pointer(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func text(thread int, address uint64) string {
	s, _, _ := strings.Cut(string(memory(thread, address, 256)), "\x00")
	return s
}

func opened(thread int, fd uint64) string {
	file, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", thread, fd))
	return file
}
