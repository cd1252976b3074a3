package calllog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/state"
)

// The log's files. That the current one is there is what makes it on.
const (
	current = "calls.jsonl"
	older   = current + ".1"   // what was current before the file was full
	ended   = current + ".off" // what was current before the log was turned off
)

// How many bytes each of the files may have.
const (
	MinSize     = 16_000
	DefaultSize = 10_000_000
	MaxSize     = 100_000_000 // who reads the log reads all of it
)

// headStart is what a file's first line begins with, which says how large it may become.
const headStart = `{"log":"calls of cnibox","size":`

// head returns a file's first line. All have one length, so that it can be changed in its place.
func head(limit int64) []byte { return fmt.Appendf(nil, headStart+"%10d}\n", limit) }

const headLength = len(headStart) + 12

// limitOf returns how many bytes a file may have, and whether its first line says so: it does not once somebody has emptied it.
func limitOf(f *os.File) (limit int64, said bool) {
	line := make([]byte, headLength)
	_, err := f.ReadAt(line, 0)
	o, noHead := conf.Parse(line)
	n := 0
	if err == nil && noHead == nil {
		o.Int("size", &n)
	}
	if n < MinSize || n > MaxSize {
		return DefaultSize, false
	}
	return int64(n), true
}

// errForeign says why a file is not one of the log's.
var errForeign = errors.New("not a regular file of root's")

// open opens one of the log's files, which is never made by that. Whatever else is there is neither waited for nor followed.
func open(path string, flag int) (*os.File, os.FileInfo, error) {
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ELOOP) {
		err = &os.PathError{Op: "open", Path: path, Err: errForeign}
	}
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && (!st.Mode().IsRegular() || st.Sys().(*syscall.Stat_t).Uid != 0) {
		err = &os.PathError{Op: "open", Path: path, Err: errForeign}
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

// add writes a line at the end of the current file, and begins a new one if that is full.
func add(dir string, line []byte) error {
	for {
		f, st, err := open(filepath.Join(dir, current), os.O_RDWR|os.O_APPEND)
		if err != nil {
			return err
		}
		limit, _ := limitOf(f)
		size := st.Size() + int64(len(line))
		if size > limit && rotate(dir, f, limit) {
			_ = f.Close()
			continue
		}
		if size > 2*limit { // it can't be rotated
			err = unix.EFBIG
		} else {
			_, err = f.Write(line)
		}
		return errors.Join(err, f.Close())
	}
}

// rotate makes the current file the older one, and begins a new one. It reports whether it did: of several processes one does, and others
// go on with the file that they have. There is a current file at any time.
func rotate(dir string, f *os.File, limit int64) bool {
	path := filepath.Join(dir, current)
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || !isAt(f, path) {
		return false
	}
	_ = os.Remove(filepath.Join(dir, older))
	if os.Link(path, filepath.Join(dir, older)) != nil {
		return false
	}
	return state.Write(path, head(limit), 0o600) == nil
}

func isAt(f *os.File, path string) bool {
	own, err := f.Stat()
	there, lerr := os.Lstat(path)
	return err == nil && lerr == nil && os.SameFile(own, there)
}
