package resolver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/names"
)

// watch follows the directory of records. The kernel queues what happens there before the call that does it returns, so who reads the queue before each
// question knows all that an ADD or DEL has done that has ended.
type watch struct {
	dir   string
	queue *os.File
	table *table
	stale bool // the directory is not watched

	events [16 << 10]byte
}

const (
	watched = unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	all     = unix.IN_Q_OVERFLOW | unix.IN_IGNORED | unix.IN_MOVE_SELF | unix.IN_UNMOUNT
)

func newWatch(dir string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init: %w", err)
	}
	w := &watch{dir: dir, queue: os.NewFile(uintptr(fd), "inotify")}
	if err := w.readAll(); err != nil {
		_ = w.queue.Close()
		return nil, err
	}
	return w, nil
}

// readAll begins anew.
func (w *watch) readAll() (err error) {
	defer func() { w.stale = err != nil }()
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return err
	}
	if _, err := w.control(func(fd int) (int, error) { return unix.InotifyAddWatch(fd, w.dir, watched) }); err != nil {
		return fmt.Errorf("watch %s: %w", w.dir, err)
	}
	w.table = newTable()
	files, err := os.ReadDir(w.dir)
	for _, f := range files {
		w.table.load(w.dir, f.Name())
	}
	return err
}

// control calls the kernel about the queue.
func (w *watch) control(do func(fd int) (int, error)) (n int, err error) {
	raw, err := w.queue.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) { n, err = do(int(fd)) })
	return n, errors.Join(failed, err)
}

// read reads what has happened since, and reports whether anything has. It does not wait.
func (w *watch) read() (changed bool, err error) {
	if w.stale {
		if err := w.readAll(); err != nil {
			return false, err
		}
		changed = true
	}
	for {
		n, err := w.control(func(fd int) (int, error) { return unix.Read(fd, w.events[:]) })
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			return changed, nil
		}
		if err != nil || n == 0 {
			return changed, err
		}
		changed = true
		if err := w.apply(w.events[:n]); err != nil {
			return changed, err
		}
	}
}

// apply reads the files again that events are about (inotify(7)).
func (w *watch) apply(events []byte) error {
	for len(events) >= unix.SizeofInotifyEvent {
		mask, length := binary.NativeEndian.Uint32(events[4:]), int(binary.NativeEndian.Uint32(events[12:]))
		name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+length]), "\x00")
		events = events[unix.SizeofInotifyEvent+length:]
		switch {
		case mask&all != 0:
			if err := w.readAll(); err != nil {
				return err
			}
		case name != "":
			w.table.load(w.dir, name)
		}
	}
	return nil
}

// wait waits until something has happened, and returns when the queue is closed.
func (w *watch) wait(then func()) {
	raw, err := w.queue.SyscallConn()
	if err == nil {
		_ = raw.Read(func(uintptr) bool {
			then()
			return false
		})
	}
}

// openWatch watches the directory of names.
func openWatch() (*watch, error) {
	dir := names.Dir()
	if dir == "" {
		return nil, errors.New("/run can't be written")
	}
	return newWatch(dir)
}
