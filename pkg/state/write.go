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
func Write(path string, data []byte, mode os.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// CreateAt makes the file called name in the open directory dir, complete with
// its data. It never replaces one that exists: that is os.ErrExist.
//
// The file is written before it has a name. A filesystem that can't do that
// (O_TMPFILE; NFS and older overlayfs) gets the name first: there, a process
// killed in between leaves an empty file.
func CreateAt(dir int, name string, data []byte, mode os.FileMode) error {
	fd, err := unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, uint32(mode.Perm()))
	if err != nil {
		return createNamed(dir, name, data, mode)
	}
	defer unix.Close(fd)
	if err := writeAll(fd, data); err != nil {
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	switch err := link(fd, dir, name); err {
	case nil:
		return nil
	case unix.EEXIST:
		return &os.PathError{Op: "create", Path: name, Err: err}
	default: // no /proc
		return createNamed(dir, name, data, mode)
	}
}

// link gives the file fd, which has none, a name. Through the descriptor itself
// that takes CAP_DAC_READ_SEARCH, which root may lack in a container, and 6 us;
// by its path in /proc, which the kernel makes anew for each process, 24 us.
func link(fd, dir int, name string) error {
	err := unix.Linkat(fd, "", dir, name, unix.AT_EMPTY_PATH)
	if err == nil || err == unix.EEXIST {
		return err
	}
	return linkByPath(fd, dir, name)
}

func linkByPath(fd, dir int, name string) error {
	return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), dir, name, unix.AT_SYMLINK_FOLLOW)
}

func createNamed(dir int, name string, data []byte, mode os.FileMode) error {
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, uint32(mode.Perm()))
	if err != nil {
		return &os.PathError{Op: "create", Path: name, Err: err}
	}
	err = errors.Join(writeAll(fd, data), unix.Close(fd))
	if err != nil {
		_ = unix.Unlinkat(dir, name, 0)
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
