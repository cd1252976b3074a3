package state

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Write replaces the file at path. Whoever reads it sees the old content or the new, whatever happens to this process. After a power
// failure it can be empty, which is fine for what a reboot makes meaningless.
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

// Create makes the file at path, complete with its data. It never replaces one that exists: that is os.ErrExist.
//
// The file is written before it has a name. A filesystem that can't do that (O_TMPFILE; NFS and older overlayfs) gets the name first:
// there, a process killed in between leaves an empty file.
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

// Remove removes the file at path. That it is gone is no error.
func Remove(path string) error {
	if err := os.Remove(path); !IsMissing(err) {
		return err
	}
	return nil
}

// IsMissing reports whether an error says that there is no such file, or that there can't be one.
func IsMissing(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG)
}

// Writable reports whether files can be made in a directory, or in what there is of the way to it. It makes none.
func Writable(dir string) error {
	for _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist); _, err = os.Stat(dir) {
		dir = filepath.Dir(dir)
	}
	err := access(dir)
	var disk unix.Statfs_t
	if err == nil {
		err = unix.Statfs(dir, &disk)
	}
	if err == nil && disk.Blocks > 0 && disk.Bfree == 0 {
		err = unix.ENOSPC
	}
	if err != nil {
		return &os.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}
