// Package netns opens network namespaces by path, compares them, and runs
// functions inside them.
package netns

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrNotExist says that no network namespace is at a path: there is nothing,
// or a plain file where a namespace was mounted before.
var ErrNotExist = errors.New("no network namespace there")

// NS is an open network namespace.
type NS struct {
	fd   int
	path string
	id   ID
	home int // the namespace that IsOwn compared it with, none before
}

// none is no file.
const none = -1

// ID tells namespaces apart: the device and inode of nsfs (namespaces(7)).
type ID struct {
	Dev, Ino uint64
}

// Open opens the namespace at path. The error is ErrNotExist when there is
// none to be had: the path is missing or leads to something else.
func Open(path string) (*NS, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("%w: %s: %w", ErrNotExist, path, err)
	case err != nil:
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	ns := &NS{fd: fd, path: path, home: none}
	if err := ns.identify(); err != nil {
		ns.Close()
		return nil, err
	}
	return ns, nil
}

// identify reads the namespace's ID and makes sure that it is a network
// namespace and not, say, the empty file a namespace was mounted on.
func (ns *NS) identify() error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(ns.fd, &fs); err != nil {
		return fmt.Errorf("network namespace %s: fstatfs: %w", ns.path, err)
	}
	if fs.Type != unix.NSFS_MAGIC {
		return fmt.Errorf("%w: %s is a file of another kind", ErrNotExist, ns.path)
	}
	if kind, err := unix.IoctlRetInt(ns.fd, unix.NS_GET_NSTYPE); err == nil && kind != unix.CLONE_NEWNET {
		return fmt.Errorf("%w: %s is a namespace of another kind", ErrNotExist, ns.path)
	}
	id, err := idOf(ns.fd)
	if err != nil {
		return fmt.Errorf("network namespace %s: fstat: %w", ns.path, err)
	}
	ns.id = id
	return nil
}

func idOf(fd int) (ID, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return ID{Dev: uint64(st.Dev), Ino: st.Ino}, err
}

// ID returns what tells this namespace from others.
func (ns *NS) ID() ID { return ns.id }

// FD returns the open file, for netlink attributes that take one.
func (ns *NS) FD() int { return ns.fd }

// Path returns the path the namespace was opened by.
func (ns *NS) Path() string { return ns.path }

// Close closes the file. The namespace lives on for whoever else holds it. The
// NS can't be entered any more, even when the file's number is used again.
func (ns *NS) Close() {
	_ = unix.Close(ns.fd)
	ns.fd = none
	ns.forgetHome()
}

func (ns *NS) forgetHome() {
	if ns.home != none {
		_ = unix.Close(ns.home)
		ns.home = none
	}
}

// IsOwn tells whether the namespace is that of the calling process. The answer
// saves each Passage that is made later 25 us: the way back is open already. They
// must be made in the same namespace.
func (ns *NS) IsOwn() (bool, error) {
	own, err := openOwn()
	if err != nil {
		return false, err
	}
	ns.forgetHome()
	ns.home = own
	id, err := idOf(own)
	return ns.id == id, err
}
