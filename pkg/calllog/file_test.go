package calllog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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

// Callers at the same time do not mix, and nothing is lost when the file is rotated once.
func TestConcurrent(t *testing.T) {
	const writers, each = 8, 50
	c := Call{Time: full().Time, Verb: "DEL", Plugin: "demo", PID: 10, Key: plugin.Key{ContainerID: "writer0.10"}}
	dir := turnedOn(t, max(MinSize, writers*each*int64(len(c.line()))*2/3))
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() { numbered(t, dir, fmt.Sprintf("writer%d.", w), each) })
	}
	wait.Wait()
	seen := map[string]bool{}
	for _, c := range read(t, dir) {
		seen[c.ContainerID] = true
	}
	if _, err := os.Stat(filepath.Join(dir, older)); err != nil {
		t.Error("it was not rotated: ", err)
	}
	if len(seen) != writers*each {
		t.Errorf("%d calls, want %d", len(seen), writers*each)
	}
}

func TestRotate(t *testing.T) {
	dir := turnedOn(t, MinSize)
	numbered(t, dir, "c", 1000)
	var size int64
	for _, name := range []string{current, older} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Size() > MinSize || st.Size() < 100 || st.Mode() != 0o600 {
			t.Fatalf("%s: %v, %v", name, st, err)
		}
		size += st.Size()
	}
	if s, err := Look(dir); err != nil || s.Limit != MinSize || !s.On || s.Size != size {
		t.Errorf("after that: %+v, %v", s, err)
	}
	all := read(t, dir)
	for i, c := range all {
		if want := fmt.Sprint("c", 1000-len(all)+i); c.ContainerID != want {
			t.Fatalf("call %d is %s, want %s", i, c.ContainerID, want)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
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

// One who has the file open that others have rotated does not do it once more.
func TestRotatedTwice(t *testing.T) {
	dir := turnedOn(t, MinSize)
	numbered(t, dir, "old", 3)
	f, _, err := open(filepath.Join(dir, current), os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !rotate(dir, f, MinSize) || rotate(dir, f, MinSize) {
		t.Error("want it to be rotated once")
	}
	numbered(t, dir, "new", 1)
	if all := read(t, dir); len(all) != 4 {
		t.Errorf("%d calls", len(all))
	}
}

// A process that was killed between the two steps of rotating leaves one file with two names. Nothing is read twice, and the next rotation ends it.
func TestRotationThatWasKilled(t *testing.T) {
	dir := turnedOn(t, MinSize)
	numbered(t, dir, "old", 10)
	if err := os.Link(filepath.Join(dir, current), filepath.Join(dir, older)); err != nil {
		t.Fatal(err)
	}
	if all := read(t, dir); len(all) != 10 {
		t.Errorf("%d calls", len(all))
	}
	f, _, err := open(filepath.Join(dir, current), os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !rotate(dir, f, MinSize) {
		t.Error("it is not rotated")
	}
	numbered(t, dir, "new", 1)
	if all := read(t, dir); len(all) != 11 {
		t.Errorf("%d calls", len(all))
	}
}

// What stands in the place of the file and is none of ours is neither written nor waited for.
func TestForeignFiles(t *testing.T) {
	tests := map[string]func(path, victim string) error{
		"symbolic link":         func(path, victim string) error { return os.Symlink(victim, path) },
		"link that leads away":  func(path, victim string) error { return os.Symlink(victim+".none", path) },
		"pipe":                  func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
		"directory":             func(path, _ string) error { return os.Mkdir(path, 0o700) },
		"file of somebody else": func(path, victim string) error { return errors.Join(os.Link(victim, path), os.Chown(path, 1000, 1000)) },
		"device":                func(path, _ string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
	}
	for name, place := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, victim := filepath.Join(dir, current), filepath.Join(dir, "victim")
			if err := errors.Join(os.WriteFile(victim, []byte("what it has\n"), 0o600), place(path, victim)); err != nil {
				t.Fatal(err)
			}
			Begin(dir).End("demo", &plugin.Request{Command: plugin.Del}, nil, nil, "")
			c := full()
			if err := add(dir, c.line()); err == nil {
				t.Error("it was written")
			}
			if text, err := os.ReadFile(victim); string(text) != "what it has\n" {
				t.Errorf("the file has %q, %v", text, err)
			}
			if entries, _ := os.ReadDir(dir); len(entries) > 2 {
				t.Errorf("made: %v", entries)
			}
			if all, _, err := Read(dir); err == nil || len(all) > 0 {
				t.Errorf("read: %v, %v", all, err)
			}
			if _, err := Look(dir); err == nil || name != "directory" && !strings.Contains(plugin.AsError(err).Details, "move it away") {
				t.Errorf("look: %v", err)
			}
			if err := On(dir, MinSize); err == nil {
				t.Error("it was turned on")
			}
		})
	}
}

// A full disk is no reason to fail, and what it has torn is told.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	if err := On(dir, DefaultSize); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		Begin(dir).End("demo", &plugin.Request{Command: plugin.Del}, nil, errors.New(strings.Repeat("x", 900)), "")
	}
	c := full()
	if err := add(dir, c.line()); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v", err)
	}
	all, torn, err := Read(dir)
	if err != nil || len(all) < 20 || torn > 1 {
		t.Errorf("%d calls, %d torn, %v", len(all), torn, err)
	}
}
