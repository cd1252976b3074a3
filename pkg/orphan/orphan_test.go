package orphan

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/seccomp"
)

func TestWrite(t *testing.T) {
	r, w := pipe(t)
	pid, err := Write(int(w.Fd()), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
	if status := wait(t, pid); !status.Exited() || status.ExitStatus() != 0 {
		t.Errorf("the orphan ended with %#x", status)
	}
}

// An orphan that is kept from its end holds one file, and no signal but the last
// resort ends it.
func TestOrphanIsAlone(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T){
		"close_range":                func(*testing.T) {},
		"close_range is missing":     func(t *testing.T) { forbid(t, unix.SYS_CLOSE_RANGE, unix.ENOSYS) },
		"close_range is not allowed": func(t *testing.T) { forbid(t, unix.SYS_CLOSE_RANGE, unix.EPERM) },
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, func() {
				prepare(t)
				testOrphanIsAlone(t)
			})
		})
	}
}

func testOrphanIsAlone(t *testing.T) {
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	answer, stdout := pipe(t)
	_, full := pipe(t)
	size, err := unix.FcntlInt(full.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := full.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	// Fd makes the file blocking, so the orphan's write waits for ever.
	pid, err := Write(int(full.Fd()), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer wait(t, pid)
	defer unix.Kill(pid, unix.SIGKILL)
	if !sleeps(pid) {
		t.Fatal("the orphan does not get to its write")
	}

	stdout.Close()
	if rest, err := io.ReadAll(answer); err != nil || len(rest) > 0 { // ends when nobody has the other end open
		t.Errorf("standard output: %q, %v", rest, err)
	}
	lock.Close()
	again, err := os.Open(lock.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the lock is held: %v", err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil || len(files) != 1 {
		t.Errorf("open files of the orphan: %v, %v; want one", files, err)
	}
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGURG, unix.SIGPIPE, unix.SIGPROF} {
		if err := unix.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
	}
	if !sleeps(pid) {
		t.Error("a signal ended the orphan")
	}
}

// sleeps waits until a process does, which here is until it writes. A zombie
// never does.
func sleeps(pid int) bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(text), ") Z") {
			return false
		}
		if strings.Contains(string(text), ") S") {
			return true
		}
	}
	return false
}

// The thread that makes an orphan hears signals as before.
func TestSignalsAreRestored(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := blocked(t)
	pid, errno := start(none, 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	wait(t, int(pid))
	if after := blocked(t); after != before {
		t.Errorf("blocked signals %s, before %s", after, before)
	}
}

func blocked(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	return lines[slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "SigBlk:") })]
}

func TestCloneIsNotAllowed(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS, unix.EAGAIN, unix.ENOMEM} {
		alone(t, func() {
			forbid(t, unix.SYS_CLONE, errno)
			_, w := pipe(t)
			pid, err := Write(int(w.Fd()), []byte("x"))
			if pid != 0 || !errors.Is(err, errno) || !strings.Contains(err.Error(), "clone") {
				t.Errorf("Write = %d, %v; want %v", pid, err, errno)
			}
		})
	}
}

// Many threads make orphans while others allocate and collect garbage.
func TestOrphansOfABusyProcess(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	for range 4 {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = make([]byte, 1<<16)
					runtime.GC()
				}
			}
		}()
	}
	done := make(chan string)
	const threads, each = 8, 25
	for range threads {
		go func() {
			for range each {
				done <- once()
			}
		}()
	}
	for range threads * each {
		if failed := <-done; failed != "" {
			t.Error(failed)
		}
	}
}

// once has an orphan write into a pipe, and says what went wrong.
func once() string {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err.Error()
	}
	pid, err := Write(p[1], []byte("x"))
	_ = unix.Close(p[1])
	defer unix.Close(p[0])
	if err != nil {
		return err.Error()
	}
	var one [2]byte
	n, err := unix.Read(p[0], one[:])
	if n != 1 || err != nil {
		return fmt.Sprintf("read %d bytes, %v", n, err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status != 0 {
		return fmt.Sprintf("status %#x, %v", status, err)
	}
	return ""
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		pid, errno := start(none, 0, 0)
		if errno != 0 {
			b.Fatal(errno)
		}
		b.StopTimer()
		_, _ = unix.Wait4(int(pid), nil, 0, nil)
		b.StartTimer()
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

func wait(t *testing.T, pid int) (status unix.WaitStatus) {
	t.Helper()
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		t.Errorf("wait for the orphan: %v", err)
	}
	return status
}

// alone runs f on a thread that ends with it.
func alone(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("no end")
	}
}

// forbid refuses a system call to the calling thread.
func forbid(t *testing.T, call uint32, errno unix.Errno) {
	t.Helper()
	if err := seccomp.Refuse(call, errno); err != nil {
		t.Fatal(err)
	}
}
