package lease

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// directory is an open <dataDir>/<network>. Everything in it is reached
// through the descriptor and without following symbolic links, so that no name
// leads elsewhere.
type directory struct {
	fd   int
	path string // for messages
}

// maxContent is more than any lease file holds: libcni keeps its results in
// files named by network, container and interface together, 255 bytes at most.
const maxContent = 1024

func openDirectory(path string) (directory, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return directory{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return directory{fd: fd, path: path}, nil
}

func (d directory) close() { _ = unix.Close(d.fd) }

// entry is what a file stands for.
type entry int

const (
	absent  entry = iota // no such file
	held                 // a lease
	torn                 // an unfinished lease: nobody's
	foreign              // no regular file, or too large for a lease
)

// read returns what the file of an address holds.
func (d directory) read(a netip.Addr) (owner plugin.Attachment, is entry, err error) {
	data, is, err := d.readFile(a.String())
	if err != nil || is != held {
		return owner, is, err
	}
	owner, broken := parse(data)
	if broken {
		is = torn
	}
	return owner, is, nil
}

// readFile returns a small regular file's content; is is held, absent or
// foreign.
func (d directory) readFile(name string) (data []byte, is entry, err error) {
	fd, err := unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch err {
	case nil:
	case unix.ENOENT:
		return nil, absent, nil
	case unix.ELOOP, unix.ENXIO: // a symbolic link, a socket
		return nil, foreign, nil
	default:
		return nil, foreign, d.wrap("open", name, err)
	}
	defer unix.Close(fd)
	var buffer [maxContent + 1]byte
	n, err := unix.Read(fd, buffer[:])
	switch {
	case err == unix.EISDIR || err == unix.EAGAIN || n > maxContent:
		return nil, foreign, nil
	case err != nil:
		return nil, foreign, d.wrap("read", name, err)
	}
	return append([]byte(nil), buffer[:n]...), held, nil
}

func (d directory) exists(a netip.Addr) bool {
	return unix.Faccessat(d.fd, a.String(), unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// create makes the file of owner's lease, complete or not at all. One that
// exists is os.ErrExist.
func (d directory) create(a netip.Addr, owner plugin.Attachment) error {
	if err := state.CreateAt(d.fd, a.String(), format(owner), 0o600); err != nil {
		return fmt.Errorf("in %s: %w", d.path, err)
	}
	return nil
}

// remove removes the file of an address; one that is gone is no error.
func (d directory) remove(a netip.Addr) error {
	if err := unix.Unlinkat(d.fd, a.String(), 0); err != nil && err != unix.ENOENT {
		return d.wrap("remove", a.String(), err)
	}
	return nil
}

// addresses calls f for each address that a file is named by.
func (d directory) addresses(f func(netip.Addr) error) error {
	if _, err := unix.Seek(d.fd, 0, 0); err != nil {
		return d.wrap("list", ".", err)
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := unix.ReadDirent(d.fd, buffer)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return d.wrap("list", ".", err)
		}
		if n == 0 {
			return nil
		}
		_, _, names := unix.ParseDirent(buffer[:n], -1, nil)
		for _, name := range names {
			a, ok := parseName(name)
			if !ok {
				continue
			}
			if err := f(a); err != nil {
				return err
			}
		}
	}
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func (d directory) wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: d.path + "/" + name, Err: err}
}
