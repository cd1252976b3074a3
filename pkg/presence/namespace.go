package presence

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
)

// Namespace is a network namespace that lives.
type Namespace struct {
	Inode uint64   `json:"inode"`
	Paths []string `json:"paths"`         // where it is mounted: here or, if it is not, in other mount namespaces
	PID   int      `json:"pid,omitempty"` // of the first process in it, or of a thread

	root   string // what the paths begin with if they are in another mount namespace
	cookie uint64 // 0 until it is asked for
}

// Path returns a path at which the namespace can be opened.
func (s *Namespace) Path() string {
	if len(s.Paths) > 0 {
		return s.Paths[0]
	}
	return fmt.Sprintf("/proc/%d/ns/net", s.PID)
}

func (s *Namespace) isAt(path string) bool { return inodeOf(path) == s.Inode }

// open opens the namespace, if it is still at its path. Others than root may have something else there by now, a pipe or a device, which must not even be
// opened.
func (s *Namespace) open() (*netns.Pair, error) {
	path := s.Path()
	fd, err := s.find()
	if errors.Is(err, unix.ENOSYS) {
		return nil, fmt.Errorf("open %s in its mount namespace: openat2 needs Linux 5.6", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: it is not at %s any more: %w", netns.ErrNotExist, path, err)
	}
	defer unix.Close(fd)
	pair := netns.NewPair(fmt.Sprintf("/proc/self/fd/%d", fd), true)
	if err := pair.Unclear(); err != nil {
		return nil, err
	}
	if pair.NS() == nil {
		return nil, fmt.Errorf("%w: it is not at %s any more", netns.ErrNotExist, path)
	}
	return pair, nil
}

// find returns a descriptor of the namespace's place, by which nothing is opened yet (O_PATH of open(2)).
func (s *Namespace) find() (fd int, err error) {
	if s.root == "" {
		fd, err = unix.Open(s.Path(), unix.O_PATH|unix.O_CLOEXEC, 0)
	} else {
		fd, err = openBelow(s.root, s.Path())
	}
	if err != nil {
		return -1, err
	}
	var file unix.Stat_t
	var system unix.Statfs_t
	err = errors.Join(unix.Fstat(fd, &file), unix.Fstatfs(fd, &system))
	if err == nil && (file.Ino != s.Inode || system.Type != unix.NSFS_MAGIC) {
		err = errors.New("something else is there")
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openBelow opens a path that begins with a root, and follows no links on the way (openat2(2), since Linux 5.6).
func openBelow(root, path string) (int, error) {
	in, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(in)
	return unix.Openat2(in, strings.TrimPrefix(path, root), &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS})
}
