package state

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Write replaces the file at path. Whoever reads it sees the old content or
// the new, whatever happens to this process. After a power failure it can be
// empty, which is fine for what a reboot makes meaningless.
func Write(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Create makes the file at path, complete with its data. It never replaces one
// that exists: that is os.ErrExist.
//
// The file is written before it has a name. A filesystem that can't do that
// (O_TMPFILE; NFS and older overlayfs) gets the name first: there, a process
// killed in between leaves an empty file.
func Create(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(filepath.Dir(path), os.O_WRONLY|unix.O_TMPFILE, mode)
	if err != nil {
		return createNamed(path, data, mode)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW); err != nil {
		return &os.PathError{Op: "create", Path: path, Err: err}
	}
	return nil
}

func createNamed(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path)
	}
	return err
}

// Writable returns an error when no file could be made now in a directory, which is made if it is missing: it writes one without a name
// into it, or into what there is of its path. Where the filesystem has no such files it is one beside the directory, whose own time
// stays as it is, and is removed again.
func Writable(dir string) error {
	probe := dir
	for _, err := os.Stat(probe); errors.Is(err, os.ErrNotExist); _, err = os.Stat(probe) {
		probe = filepath.Dir(probe)
	}
	f, err := os.OpenFile(probe, os.O_WRONLY|unix.O_TMPFILE, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) {
		if probe == dir {
			probe = filepath.Dir(dir)
		}
		if f, err = os.CreateTemp(probe, ".cnibox-probe-*"); err == nil {
			defer os.Remove(f.Name())
		}
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString("probe")
	return errors.Join(err, f.Close())
}
