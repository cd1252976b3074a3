package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

// lockHelper makes the test binary lock that file and wait for its end.
const lockHelper = "STATE_TEST_LOCK"

func TestMain(m *testing.M) {
	if path := os.Getenv(lockHelper); path != "" {
		if _, err := Acquire(context.Background(), path, 0o600, time.Minute); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		_ = unix.Pause() // until we are killed
	}
	os.Exit(m.Run())
}

func mustAcquire(t *testing.T, path string) *Lock {
	t.Helper()
	l, err := Acquire(t.Context(), path, 0o600, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLockExcludesGoroutines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var inside, done atomic.Int32
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			l, err := Acquire(context.Background(), path, 0o600, time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d hold the lock", n)
			}
			runtime.Gosched()
			inside.Add(-1)
			l.Release()
			done.Add(1)
		})
	}
	wg.Wait()
	if done.Load() != 50 {
		t.Errorf("%d got the lock, want 50", done.Load())
	}
}

func TestLockNamesItsHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lockHelper+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if line := make([]byte, 16); mustRead(t, out.Read, line) != "locked\n" {
		t.Fatalf("the helper said %q", line)
	}

	_, err = Acquire(t.Context(), path, 0o600, time.Millisecond)
	var e *types.Error
	if !errors.As(err, &e) || e.Code != types.ErrTryAgainLater {
		t.Fatalf("got %v, want an error of code 11", err)
	}
	if !strings.Contains(e.Msg, path) {
		t.Errorf("%q does not name the file %s", e.Msg, path)
	}
	if want := fmt.Sprintf("process %d", cmd.Process.Pid); holder(path) != "" && !strings.Contains(e.Msg, want) {
		t.Errorf("%q does not name %s", e.Msg, want)
	}

	_ = cmd.Process.Kill()
	mustAcquire(t, path).Release() // the lock went with its holder
}

func mustRead(t *testing.T, read func([]byte) (int, error), b []byte) string {
	t.Helper()
	n, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestLockStopsWaiting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := mustAcquire(t, path)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the caller went home"))
	if _, err := Acquire(ctx, path, 0o600, time.Minute); err == nil || !strings.Contains(err.Error(), "the caller went home") {
		t.Errorf("got %v, want the context's cause", err)
	}
	// Whoever gave up does not keep the lock that it gets after all.
	first.Release()
	mustAcquire(t, path).Release()
}

func TestLockFollowsRemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := mustAcquire(t, path)
	second := make(chan *Lock)
	go func() {
		l, _ := Acquire(context.Background(), path, 0o600, time.Minute)
		second <- l
	}()
	for openFiles(t, path) < 2 { // the second has it open before it is removed
		runtime.Gosched()
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	first.Release()
	l := <-second
	defer l.Release()
	if !isAt(l.file, path) {
		t.Error("the second lock is on a file that has no name")
	}
}

// openFiles returns how many of our descriptors are of the file at path.
func openFiles(t *testing.T, path string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, _ := os.Readlink("/proc/self/fd/" + e.Name()); target == path {
			n++
		}
	}
	return n
}

func TestHolderOfTable(t *testing.T) {
	const table = `1: POSIX  ADVISORY  WRITE 1 fe:00:7 0 EOF
2: -> FLOCK  ADVISORY  WRITE 2 fe:00:7 0 EOF
3: FLOCK  ADVISORY  WRITE 3 fe:00:77 0 EOF
4: FLOCK  ADVISORY  WRITE 4 fe:00:7 0 EOF
5: FLOCK  ADVISORY  WRITE 0 fe:00:8 0 EOF
`
	for file, want := range map[string]string{"fe:00:7": "4", "fe:00:77": "3", "fe:00:8": "", "fe:01:7": ""} {
		if got := holderIn(table, file); got != want {
			t.Errorf("holder of %s is %q, want %q", file, got, want)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"the first", "2nd"} {
		if err := Write(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		holds(t, path, text, 0o640)
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "taken"), []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	onlyFiles(t, dir, "file", "taken")
}

func holds(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	got, _ := os.ReadFile(path)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != text || st.Mode() != mode {
		t.Errorf("the file holds %q, %v; want %q, %v", got, st.Mode(), text, mode)
	}
}

func TestCreate(t *testing.T) {
	for name, create := range map[string]func(string, []byte, os.FileMode) error{"Create": Create, "createNamed": createNamed} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a")
			if err := create(path, []byte("one"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := create(path, []byte("two"), 0o600); !errors.Is(err, os.ErrExist) {
				t.Errorf("the second time: %v, want that it exists", err)
			}
			holds(t, path, "one", 0o600)
			onlyFiles(t, dir, "a")
		})
	}
}

func onlyFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the directory holds %v, want %v", got, want)
	}
}

// patient is a context that nobody may wait for.
type patient struct {
	context.Context
	t *testing.T
}

func (p patient) Done() <-chan struct{} {
	p.t.Error("somebody waits")
	return nil
}

func TestFreeLockIsNotWaitedFor(t *testing.T) {
	l, err := Acquire(patient{context.Background(), t}, filepath.Join(t.TempDir(), "lock"), 0o600, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
}
