// Package socket is how the agent is spoken to: sockets that root alone can reach, and what may be asked of a process that runs for months.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Claim is where a socket is, or will be. No other process has it as long as it is not closed.
type Claim struct {
	Path string
	lock *state.Lock
}

// Own makes sure that the socket's directory is root's alone, makes it if it is missing, and takes the lock PATH.lock. It fails at once if
// another process has that.
func Own(path string) (*Claim, error) {
	if !filepath.IsAbs(path) || len(path) >= len(syscall.RawSockaddrUnix{}.Path) {
		return nil, plugin.Errorf("name another path", "a socket can't be at %q: the path must be absolute and shorter than %d characters", path, len(syscall.RawSockaddrUnix{}.Path))
	}
	if err := ownDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	lock, err := state.Acquire(context.Background(), path+".lock", 0o600, 0)
	if err != nil {
		return nil, fmt.Errorf("another agent runs: %w", err)
	}
	return &Claim{path, lock}, nil
}

// ownDir makes a directory with the mode that keeps others from the socket, or makes sure that it is like that. A socket's own mode can be
// set only after it is there.
func ownDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	file, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	const remedy = "give the socket a directory of its own (root's, mode 0700), or remove this one"
	switch owner := file.Sys().(*syscall.Stat_t).Uid; {
	case !file.IsDir():
		return plugin.Errorf(remedy, "%s is no directory", dir)
	case int(owner) != os.Geteuid():
		return plugin.Errorf(remedy, "the directory %s belongs to uid %d", dir, owner)
	case file.Mode().Perm()&0o077 != 0:
		return plugin.Errorf(remedy, "the directory %s can be used by others than root: its mode is %04o", dir, file.Mode().Perm())
	}
	return nil
}

// Listen returns the socket: the one that systemd has passed, which stays when it is closed, or a new one in place of a stale one.
func (p *Claim) Listen(passed Passed, name string) (*net.UnixListener, error) {
	l, err := passed.pop(p.Path, name)
	if l == nil && err == nil {
		l, err = state.Listen(p.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", p.Path, err)
	}
	return l, nil
}

// Close gives the place to whoever comes next. The socket has to be closed by then.
func (p *Claim) Close() { p.lock.Release() }
