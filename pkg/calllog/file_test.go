package calllog

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// turnedOn returns a directory in which the log is on.
func turnedOn(t *testing.T, limit int64) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "log")
	if err := On(dir, limit); err != nil {
		t.Fatal(err)
	}
	return dir
}

// read returns the calls of a log without torn lines.
func read(t *testing.T, dir string) []Call {
	t.Helper()
	all, torn, err := Read(dir)
	if err != nil || torn != 0 {
		t.Fatalf("%d torn lines, %v", torn, err)
	}
	return all
}

// numbered writes n calls of the containers prefix0, prefix1 …
func numbered(t *testing.T, dir, prefix string, n int) {
	t.Helper()
	for i := range n {
		c := Call{Time: full().Time, Verb: "DEL", Plugin: "demo", PID: i, Key: plugin.Key{ContainerID: prefix + strconv.Itoa(i)}}
		if err := add(dir, c.line()); err != nil {
			t.Error(err)
		}
	}
}

// rotateNow opens the current file and has it rotated, which it returns.
func rotateNow(t *testing.T, dir string) *os.File {
	t.Helper()
	f, _, err := open(filepath.Join(dir, current), os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if !rotate(dir, f, MinSize) {
		t.Error("it is not rotated")
	}
	return f
}

// While another process is about to rotate the file nobody waits for it, and the file does not grow for ever.
func TestRotationOfAnother(t *testing.T) {
	dir := turnedOn(t, MinSize)
	f, _, err := open(filepath.Join(dir, current), os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	c := full()
	written := 0
	for add(dir, c.line()) == nil {
		written += len(c.line())
	}
	if written < MinSize || written > 2*MinSize {
		t.Errorf("%d bytes were written", written)
	}
	if _, err := os.Stat(filepath.Join(dir, older)); err == nil {
		t.Error("it was rotated")
	}
}

// A process that was killed between the two steps of rotating leaves one file with two names. Nothing is read twice, and the next rotation ends
// it. One who has the file open that others have rotated does not do it once more.
func TestRotationThatWasKilled(t *testing.T) {
	dir := turnedOn(t, MinSize)
	numbered(t, dir, "old", 10)
	if err := os.Link(filepath.Join(dir, current), filepath.Join(dir, older)); err != nil {
		t.Fatal(err)
	}
	if all := read(t, dir); len(all) != 10 {
		t.Errorf("%d calls", len(all))
	}
	if rotate(dir, rotateNow(t, dir), MinSize) {
		t.Error("it is rotated twice")
	}
	numbered(t, dir, "new", 1)
	if all := read(t, dir); len(all) != 11 {
		t.Errorf("%d calls", len(all))
	}
}
