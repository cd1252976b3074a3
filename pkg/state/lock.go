// Package state holds what is kept in files: files that are there completely or not at all, and locks between processes.
package state

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

// Lock is an exclusive flock(2) on a file, held by this process.
type Lock struct {
	file *os.File // nil where locks have no place
}

// removals is how often in a row the file may be removed under us before that is taken for a filesystem that reports inodes inconsistently.
const removals = 10

// LockRun locks a file of RunDir, and waits for other holders a minute at most.
func LockRun(ctx context.Context, name string) (*Lock, error) {
	return LockRunWithin(ctx, name, time.Minute)
}

// LockRunWithin locks a file of RunDir, which is made with its directory if it is missing, and waits for other holders as Acquire does. Where
// there is no RunDir it locks nothing: a call without a lock is better than none.
func LockRunWithin(ctx context.Context, name string, wait time.Duration) (*Lock, error) {
	path := RunFile(name)
	if path == "" {
		return &Lock{}, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return Acquire(ctx, path, 0o600, wait)
}

// Locked does something with a lock held, as LockRun takes it.
func Locked(ctx context.Context, name string, do func() error) error {
	lock, err := LockRun(ctx, name)
	if err != nil {
		return err
	}
	defer lock.Release()
	return do()
}

// Acquire locks the file at path, which is created with mode if it is missing (its directory is not). It waits for other holders until ctx
// ends, and wait at most, or not at all if that is 0; then the error (code 11, try again later) names the file and, if the kernel tells, the holder.
//
// The kernel serves waiters in the order they came, so they wait in it and not in a loop of tries.
func Acquire(ctx context.Context, path string, mode os.FileMode, wait time.Duration) (*Lock, error) {
	return acquire(ctx, path, os.O_CREATE, mode, wait)
}

// AcquireThere is Acquire for a file that is there; otherwise there is no lock.
func AcquireThere(ctx context.Context, path string, wait time.Duration) (*Lock, error) {
	lock, err := acquire(ctx, path, 0, 0, wait)
	if IsMissing(err) {
		return nil, nil
	}
	return lock, err
}

func acquire(ctx context.Context, path string, flags int, mode os.FileMode, wait time.Duration) (*Lock, error) {
	end := time.Now().Add(wait)
	for try := 1; ; try++ {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|flags, mode)
		if err != nil {
			return nil, err
		}
		err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
		if err == unix.EWOULDBLOCK {
			err = await(ctx, f, end, wait)
		}
		switch err.(type) {
		case nil:
		case *types.Error:
			return nil, err
		default:
			_ = f.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
		if isAt(f, path) || try == removals {
			return &Lock{f}, nil
		}
		_ = f.Close() // someone removed the file while we waited: others lock a new one
	}
}

// Try locks the file at path if it is there and nobody has it locked; otherwise there is no lock.
func Try(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && isAt(f, path) {
		return &Lock{f}, nil
	}
	_ = f.Close()
	if err == nil || err == unix.EWOULDBLOCK {
		return nil, nil
	}
	return nil, &os.PathError{Op: "lock", Path: path, Err: err}
}

// await locks the file, or gives up and closes it.
func await(ctx context.Context, f *os.File, end time.Time, wait time.Duration) error {
	if wait <= 0 {
		defer f.Close()
		return busy(f.Name(), "it does not wait")
	}
	granted := make(chan error, 1)
	go func() { granted <- flock(f, unix.LOCK_EX) }()
	why := fmt.Sprintf("after %v", wait)
	select {
	case err := <-granted:
		return err
	case <-time.After(time.Until(end)):
	case <-ctx.Done():
		why = context.Cause(ctx).Error()
	}
	err := busy(f.Name(), why)
	go func() { // what is granted from now on is given back
		<-granted
		_ = f.Close()
	}()
	return err
}

// Release gives the lock back, if there is one, also when a child inherited it.
func (l *Lock) Release() {
	if l == nil || l.file == nil {
		return
	}
	_ = flock(l.file, unix.LOCK_UN)
	_ = l.file.Close()
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

func isAt(f *os.File, path string) bool {
	own, err := f.Stat()
	there, lerr := os.Lstat(path)
	return err == nil && lerr == nil && os.SameFile(own, there)
}

// busy is the error of who waits no longer.
func busy(path, why string) error {
	by := holder(path)
	if by == "" {
		by = "another process"
	}
	return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("the lock %s is held by %s; gave up waiting: %s", path, by, why),
		"repeat the call; if that process hangs, end it: the lock goes with it (never remove the file)")
}

// holder returns which process holds the lock on the file at path, such as "process 4711 (host-local)", "" when the kernel does not tell:
// /proc/locks lists only processes of our pid namespace, and some filesystems under another device number than stat(2) returns.
func holder(path string) string {
	var st unix.Stat_t
	table, err := os.ReadFile("/proc/locks")
	if err != nil || unix.Stat(path, &st) != nil {
		return ""
	}
	pid := holderIn(string(table), fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)), st.Ino))
	if pid == "" {
		return ""
	}
	name, err := os.ReadFile("/proc/" + pid + "/comm")
	if err != nil {
		return "process " + pid
	}
	return fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(name)))
}

// holderIn finds the process in the text of /proc/locks, whose lines are
//
//	1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:1234 0 EOF
//
// with an arrow for one who waits.
func holderIn(table, file string) (pid string) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) >= 6 && f[1] == "FLOCK" && f[5] == file && f[4] != "0" && f[4] != "-1" {
			return f[4]
		}
	}
	return ""
}
