package orphan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Records is where it is noted how orphans fare.
const Records = "/run/cnibox/orphans"

// Reaped tells whether orphans of this process are known to be reaped, and how
// that is known, for people. What is known is what was seen: no name of a
// program and no signal mask says it (a Go program catches SIGCHLD and reaps
// nothing), and the kernel does not tell who adopts orphans.
//
// The first process to ask under a parent, which here is a container runtime,
// leaves an orphan that ends at once, and notes it in dir. Those that come
// later look whether it is gone. All children of one parent have the same
// ancestors, and so the same process adopts their orphans: what became of one
// becomes of all. Where they are not reaped that costs one zombie in the life of
// a runtime; a few if its first calls come at the same moment.
//
// Not known is no error. A parent that was just started may well live for one
// call only, as podman does, and is not worth an orphan. To ask takes 0.1 ms
// (measured as for Write).
func Reaped(dir string) (known bool, how string) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return false, "/proc does not show this pid namespace"
	}
	parent, grandparent, err := find(os.Getppid())
	if err != nil {
		return false, fmt.Sprintf("the parent process can't be looked at: %v", err)
	}
	// A parent that has lost its own has other ancestors, so that counts too.
	path := filepath.Join(dir, fmt.Sprintf("%s-%d", parent, grandparent))
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && parent.age() < young:
		return false, fmt.Sprintf("the parent process %d was just started", parent.pid)
	case errors.Is(err, os.ErrNotExist):
		return false, try(dir, path)
	case err != nil:
		return false, fmt.Sprintf("no record can be read: %v", err)
	}
	orphan, err := parse(string(text))
	if err != nil { // whoever tried was killed before it wrote; the next one tries again
		_ = os.Remove(path)
		return false, fmt.Sprintf("the record %s is unreadable: %v", path, err)
	}
	if orphan.exists() {
		return false, fmt.Sprintf("an earlier orphan, process %d, has not been reaped", orphan.pid)
	}
	return true, fmt.Sprintf("an earlier orphan, process %d, was reaped", orphan.pid)
}

// young is the age at which a parent counts as one that stays.
const young = 2 * time.Second

// try leaves an orphan behind and notes which process it is. Of several
// processes that try at once, the one that makes the file goes on.
func try(dir, path string) (how string) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Sprintf("no record can be made: %v", err)
	}
	prune(dir)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Sprintf("no record can be made: %v", err)
	}
	defer file.Close()
	pid, errno := start(none, 0, 0)
	if errno != 0 {
		return fmt.Sprintf("no process can be cloned: %v", errno)
	}
	orphan, _, err := find(int(pid))
	if err != nil {
		return fmt.Sprintf("an orphan was not seen: %v", err)
	}
	if _, err := file.WriteString(orphan.String()); err != nil {
		return fmt.Sprintf("the record can't be written: %v", err)
	}
	return fmt.Sprintf("process %d is left to see whether it is reaped", pid)
}

// prune removes the records made under processes that are no more.
func prune(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if p, err := parse(e.Name()); err != nil || !p.exists() {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// process is a process, told from others that had or will have its number by
// when it started, in clock ticks since the machine did.
type process struct {
	pid   int
	start uint64
}

// find returns the process with a number, which may be a zombie, and its
// parent's number.
func find(pid int) (p process, parent int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, 0, err
	}
	// The second field, the program's name, may hold anything; behind its
	// parenthesis come the state, the parent, and the start as the 20th (proc(5)).
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return p, 0, fmt.Errorf("/proc/%d/stat is %q", pid, text)
	}
	parent, badParent := strconv.Atoi(fields[1])
	start, badStart := strconv.ParseUint(fields[19], 10, 64)
	return process{pid, start}, parent, errors.Join(badParent, badStart)
}

// age is how long ago the process was started.
func (p process) age() time.Duration {
	const tick = time.Second / 100 // USER_HZ, everywhere where Go runs
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano()) - time.Duration(p.start)*tick
}

// exists tells whether the process is there still, if only as a zombie. When in
// doubt it is.
func (p process) exists() bool {
	now, _, err := find(p.pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false
	}
	return err != nil || now == p
}

func (p process) String() string { return fmt.Sprintf("%d-%d", p.pid, p.start) }

// parse reads what String wrote, and whatever was put behind it.
func parse(text string) (process, error) {
	number, rest, _ := strings.Cut(text, "-")
	ticks, _, _ := strings.Cut(rest, "-")
	pid, badPid := strconv.Atoi(number)
	start, badStart := strconv.ParseUint(ticks, 10, 64)
	return process{pid, start}, errors.Join(badPid, badStart)
}
