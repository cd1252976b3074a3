package calllog

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Status is what there is of a log.
type Status struct {
	On    bool   `json:"on"`
	File  string `json:"file"`  // of calls to come
	Limit int64  `json:"limit"` // how many bytes it may have, and the older one as many; 0 while the log is off
	Size  int64  `json:"size"`  // of all files, in bytes
}

// Look looks at the log of a directory. The error says why calls can't be written though the log is on.
func Look(dir string) (Status, error) {
	s := Status{File: filepath.Join(dir, current)}
	for _, name := range []string{current, older, ended} {
		f, st, err := open(filepath.Join(dir, name), os.O_RDONLY)
		if state.IsMissing(err) {
			continue
		}
		if err != nil {
			return s, unusable(err)
		}
		s.Size += st.Size()
		if name == current {
			s.On = true
			s.Limit, _ = limitOf(f)
		}
		_ = f.Close()
	}
	return s, nil
}

// On turns the log on, with files of limit bytes at most each. The lines of an earlier one are kept.
func On(dir string, limit int64) error {
	if err := private(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, current)
	if _, err := os.Lstat(path); state.IsMissing(err) {
		if err = os.Rename(filepath.Join(dir, ended), path); state.IsMissing(err) {
			err = state.Create(path, head(limit), 0o600)
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return setLimit(dir, limit)
}

// setLimit changes the first line of the current file, or begins a new one if it has none.
func setLimit(dir string, limit int64) error {
	f, _, err := open(filepath.Join(dir, current), os.O_RDWR) // what is opened to append is written at its end only
	if err != nil {
		return unusable(err)
	}
	defer f.Close()
	if _, said := limitOf(f); !said {
		if !rotate(dir, f, limit) {
			return plugin.Errorf("repeat it, or move the file away", "%s lacks cnibox's first line, and no new file can be made", f.Name())
		}
		return nil
	}
	_, err = f.WriteAt(head(limit), 0)
	return errors.Join(err, f.Chmod(0o600))
}

// Off turns the log off. Its lines can still be read, and On goes on with them.
func Off(dir string) error {
	err := os.Rename(filepath.Join(dir, current), filepath.Join(dir, ended))
	if state.IsMissing(err) {
		return nil
	}
	return err
}

// private makes a directory that is root's alone.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0 {
		return plugin.Errorf("move it away: the log has to be root's alone", "%s is not a directory of root's", dir)
	}
	return os.Chmod(dir, 0o700)
}

// unusable says what to do about one of the log's files that can't be used.
func unusable(err error) error {
	remedy := "nothing is written there; repair what is in the way"
	switch {
	case errors.Is(err, errForeign):
		remedy = "nothing is written there; move it away and turn the log on again"
	case errors.Is(err, os.ErrPermission) && os.Geteuid() != 0: // root is told so of a device on a file system without any
		remedy = "the log is root's alone: repeat it as root"
	}
	return plugin.Errorf(remedy, "%w", err)
}
