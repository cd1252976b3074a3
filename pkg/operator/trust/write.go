package trust

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Write writes a file that somebody has named: a new one, or in place of one of root's or the caller's. It is there whole at all times, and has
// its mode from the beginning. The directory may be a stranger's. No link of a stranger is followed.
func Write(path string, text []byte, mode os.FileMode) error {
	p, err := locate(path)
	if err != nil {
		return err
	}
	defer p.way.close()
	if err := p.isOurs(); err != nil {
		return err
	}
	return p.replace(text, mode, nil)
}

// Rewrite writes a file that is there. It keeps owner, group and mode, and is there whole at all times.
func Rewrite(path string, text []byte) error {
	p, err := locate(path)
	if err != nil {
		return err
	}
	defer p.way.close()
	var st unix.Stat_t
	if p.old == nil {
		return &os.PathError{Op: "write", Path: path, Err: unix.ENOENT}
	}
	if err := unix.Fstat(int(p.old.Fd()), &st); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return p.wrong("it is not a regular file")
	}
	return p.replace(text, os.FileMode(st.Mode&0o777), &st)
}

// File is a file that is written bit by bit.
type File struct {
	*os.File
	target *target
}

// Create makes a file that is written bit by bit, and removes one of root's or the caller's that has its name. Else it is as Write.
func Create(path string, mode os.FileMode) (*File, error) {
	p, err := locate(path)
	if err != nil {
		return nil, err
	}
	if err = p.isOurs(); err == nil && p.old != nil {
		err = p.remove()
	}
	return p.create(mode, err)
}

// New makes a file that is written bit by bit, and is not there yet. Else it is as Write.
func New(path string, mode os.FileMode) (*File, error) {
	p, err := locate(path)
	if err != nil {
		return nil, err
	}
	return p.create(mode, nil)
}

// Close closes the file.
func (f *File) Close() error {
	f.target.way.close()
	return f.File.Close()
}

// Discard removes the file, and closes it.
func (f *File) Discard() error { return errors.Join(f.target.remove(), f.Close()) }

// target is where a file is, or will be.
type target struct {
	way  way // to its directory
	name string
	path string
	old  *os.File // what is there, nil if nothing is
}

// locate finds the place that a path means. Links that root or the caller has made are followed.
func locate(path string) (*target, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	w, err := Host.walk(path, links)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w, err = Host.walk(filepath.Dir(path), links)
		if errors.Is(err, fs.ErrNotExist) {
			err = &os.PathError{Op: "create", Path: path, Err: unix.ENOENT}
		}
		if err != nil {
			return nil, err
		}
		return &target{way: w, name: filepath.Base(path), path: path}, nil
	case err != nil:
		return nil, err
	case len(w) == 1:
		return nil, &os.PathError{Op: "write", Path: path, Err: unix.EISDIR}
	}
	return &target{way: w, name: filepath.Base(w.end().Name()), path: w.end().Name(), old: w.end()}, nil
}

func (p *target) dir() int {
	if p.old != nil {
		return int(p.way[len(p.way)-2].Fd())
	}
	return int(p.way.end().Fd())
}

func (p *target) wrong(why string) error {
	return &os.PathError{Op: "write", Path: p.path, Err: errors.New(why + "; name another file, or remove this one")}
}

// isOurs returns why what is there must not be replaced.
func (p *target) isOurs() error {
	var st unix.Stat_t
	if p.old == nil {
		return nil
	}
	if err := unix.Fstat(int(p.old.Fd()), &st); err != nil {
		return &os.PathError{Op: "write", Path: p.path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return p.wrong("it is not a regular file")
	case !isOwn(st.Uid):
		return p.wrong("it belongs to user " + strconv.Itoa(int(st.Uid)))
	}
	return nil
}

// open makes a file of a new name in the directory.
func (p *target) open(name string, mode os.FileMode) (*os.File, error) {
	fd, err := unix.Openat(p.dir(), name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode))
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: p.path, Err: err}
	}
	return os.NewFile(uintptr(fd), p.path), nil
}

func (p *target) create(mode os.FileMode, err error) (*File, error) {
	var f *os.File
	if err == nil {
		f, err = p.open(p.name, mode)
	}
	if err != nil {
		p.way.close()
		return nil, err
	}
	return &File{f, p}, nil
}

func (p *target) remove() error {
	if err := unix.Unlinkat(p.dir(), p.name, 0); err != nil {
		return &os.PathError{Op: "remove", Path: p.path, Err: err}
	}
	return nil
}

// replace puts a file in the place, with an owner if one is given.
func (p *target) replace(text []byte, mode os.FileMode, owner *unix.Stat_t) error {
	temporary := "." + p.name + "." + rand.Text()
	f, err := p.open(temporary, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil && owner != nil {
		err = f.Chown(int(owner.Uid), int(owner.Gid))
	}
	if err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = unix.Renameat(p.dir(), temporary, p.dir(), p.name)
	}
	if err != nil {
		_ = unix.Unlinkat(p.dir(), temporary, 0)
		return &os.PathError{Op: "write", Path: p.path, Err: err}
	}
	return nil
}
