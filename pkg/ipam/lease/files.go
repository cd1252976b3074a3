package lease

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// maxContent is what a lease file may hold. Container ids of libcni's callers are much shorter: it keeps its results in files named by network,
// container and interface together, 255 bytes at most.
const maxContent = 1024

// entry is what a file stands for.
type entry int

const (
	absent  entry = iota // no such file
	leased               // a lease
	torn                 // an unfinished lease: nobody's
	foreign              // no regular file, or too large for a lease
)

// file returns the path of the file of an address.
func (s *Store) file(a netip.Addr) string { return filepath.Join(s.path, a.String()) }

// read returns what the file of an address holds.
func (s *Store) read(a netip.Addr) (owner plugin.Key, is entry, err error) {
	content, is, err := readFile(s.file(a))
	if err != nil || is != leased {
		return owner, is, err
	}
	owner, broken := parse(s.network, content)
	if broken {
		is = torn
	}
	return owner, is, nil
}

// readFile returns the content of a small regular file; is is held, absent or foreign.
func readFile(path string) (content string, is entry, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch err {
	case nil:
	case unix.ENOENT:
		return "", absent, nil
	case unix.ELOOP, unix.ENXIO: // a symbolic link, a socket
		return "", foreign, nil
	default:
		return "", foreign, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var buffer [maxContent + 1]byte
	n, err := unix.Read(fd, buffer[:])
	switch {
	case err == unix.EISDIR || err == unix.EAGAIN || n > maxContent:
		return "", foreign, nil
	case err != nil:
		return "", foreign, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return string(buffer[:n]), leased, nil
}

// remove removes the file of an address; one that is gone is no error.
func (s *Store) remove(a netip.Addr) error { return state.Remove(s.file(a)) }

// names returns the names of all files.
func (s *Store) names() (map[string]bool, error) {
	d, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	list, err := d.Readdirnames(-1)
	names := make(map[string]bool, len(list))
	for _, name := range list {
		names[name] = true
	}
	return names, err
}

// scan reads the files of all addresses. A torn file is a lease without an owner.
func (s *Store) scan() (leases []Lease, err error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	for name := range names {
		a, ok := parseName(name)
		if !ok {
			continue
		}
		owner, is, err := s.read(a)
		switch {
		case errors.Is(err, os.ErrPermission): // a file we can't read is not ours to judge
		case err != nil:
			return nil, err
		case is == leased || is == torn:
			leases = append(leases, Lease{Address: a, Owner: owner})
		}
	}
	return leases, nil
}

// hint is the file that names the address handed out last from a pool, behind which the next search starts.
func (s *Store) hint(pool int) string {
	return filepath.Join(s.path, "last_reserved_ip."+strconv.Itoa(pool))
}

// last returns the address in the hint, the zero Addr if that is not known.
func (s *Store) last(pool int) netip.Addr {
	text, _, _ := readFile(s.hint(pool))
	a, _ := netip.ParseAddr(text)
	return a
}

// overwrite gives a file new content in place, which a process killed meanwhile leaves half done: it is for what may be wrong. (Files
// truncated first, or replaced by renaming, are written to disk by ext4 at once.)
func overwrite(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Truncate(int64(len(text))), f.Close())
}
