package orphan

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/seccomp"
)

func TestWrite(t *testing.T) {
	r, w := pipe(t)
	if err := Write(int(w.Fd()), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	w.Close()
	got, err := io.ReadAll(r) // ends when nobody has the other end open, the orphan neither
	if err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := Write(-1, []byte("hello")); !errors.Is(err, unix.EBADF) {
		t.Errorf("a file that is not open: %v", err)
	}
}

// A process that may run one thread at a time goes on beside its orphan, which here
// ends when it has.
func TestWriteOnOneProcessor(t *testing.T) {
	allowEndless(t)
	runtime.GOMAXPROCS(1)
	r, w := pipe(t)
	before := fill(t, w)
	if err := Write(int(w.Fd()), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	w.Close()
	runtime.Gosched() // to the thread that makes the orphan
	got, err := io.ReadAll(r)
	if err != nil || string(got[before:]) != "hello" {
		t.Errorf("read %d bytes, %v; want %d and the orphan's", len(got), err, before)
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
	allowEndless(t)
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	answer, stdout := pipe(t)
	_, full := pipe(t)
	fill(t, full)
	// Fd makes the file blocking, so the orphan's write waits for ever.
	o := writer(int(full.Fd()), []byte("x"))
	ended := make(chan unix.Errno, 1)
	go func() { ended <- o.run() }()
	pid := o.number(t)
	defer func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		if errno := <-ended; errno != 0 {
			t.Error(errno)
		}
	}()
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

// allowEndless has the test go on beside an orphan that does not end: see Write.
func allowEndless(t *testing.T) {
	percent, processors := debug.SetGCPercent(-1), runtime.GOMAXPROCS(4)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		runtime.GOMAXPROCS(processors)
	})
}

// number waits until there is the process.
func (o *orphan) number(t *testing.T) int {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if pid := atomic.LoadUint32(&o.alive); pid != 0 {
			return int(pid)
		}
	}
	t.Fatal("no orphan")
	return 0
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
	if errno := newOrphan().run(); errno != 0 {
		t.Fatal(errno)
	}
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

// Where no orphan can be made the thread itself writes.
func TestCloneIsNotAllowed(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS, unix.EAGAIN, unix.ENOMEM} {
		alone(t, func() {
			forbid(t, unix.SYS_CLONE, errno)
			if err := newOrphan().run(); err != errno {
				t.Errorf("got %v, want %v", err, errno)
			}
			if failed := once(write); failed != "" {
				t.Errorf("%v: %s", errno, failed)
			}
		})
	}
}

// Many threads make orphans while others allocate and collect garbage.
func TestOrphansOfABusyProcess(t *testing.T) {
	stop := make(chan struct{})
	var others sync.WaitGroup
	defer others.Wait()
	defer close(stop)
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = make([]byte, 1<<16)
					runtime.GC()
				}
			}
		})
	}
	done := make(chan string)
	const threads, each = 8, 25
	for range threads {
		go func() {
			for range each {
				done <- once(write)
			}
		}()
	}
	for range threads * each {
		if failed := <-done; failed != "" {
			t.Error(failed)
		}
	}
}

// once has a pipe written to, and says what went wrong. write closes the file.
func once(write func(fd int, data []byte)) string {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err.Error()
	}
	defer unix.Close(p[0])
	write(p[1], []byte("x"))
	var two [2]byte
	n, err := unix.Read(p[0], two[:])
	if n != 1 || err != nil {
		return fmt.Sprintf("read %d bytes, %v", n, err)
	}
	return ""
}

// An orphan that is killed gives its thread back unharmed, whatever it was at.
func TestKilledOrphan(t *testing.T) {
	allowEndless(t)
	for round := range 200 {
		o := newOrphan()
		for range 20 * round {
			o.does(unix.SYS_GETPID, 0, 0, 0)
		}
		o.does(unix.SYS_PPOLL, 0, 0, 0) // has no end
		ended := make(chan unix.Errno, 1)
		go func() { ended <- o.run() }()
		if err := unix.Kill(o.number(t), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if errno := <-ended; errno != 0 {
			t.Fatal(errno)
		}
	}
}

// TestPlay looks at what the compiler makes of play: a stack can be shared as long
// as there is one call.
func TestPlay(t *testing.T) {
	for _, arch := range []string{"amd64", "arm", "arm64", "mips64le", "ppc64le", "riscv64", "s390x"} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			build := exec.Command("go", "build", "-trimpath", "-gcflags=-S", ".")
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
			out, err := build.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			_, play, found := strings.Cut(string(out), "orphan.play STEXT")
			play, _, _ = strings.Cut(play, " STEXT ")
			calls := regexp.MustCompile(`\t(CALL|JAL\tX1,|DUFF\w+)\s.*`).FindAllString(play, -1)
			if !found || len(calls) != 1 || !strings.Contains(calls[0], "RawSyscall6") {
				t.Errorf("the calls are %q, want RawSyscall6 alone\n%s", calls, play)
			}
		})
	}
}

func BenchmarkOrphan(b *testing.B) {
	for b.Loop() {
		if errno := newOrphan().run(); errno != 0 {
			b.Fatal(errno)
		}
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

// fill writes as much into a pipe as fits.
func fill(t *testing.T, w *os.File) (size int) {
	t.Helper()
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	if err == nil {
		_, err = w.Write(make([]byte, size))
	}
	if err != nil {
		t.Fatal(err)
	}
	return size
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
