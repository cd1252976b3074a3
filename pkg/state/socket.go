package state

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Listen makes a socket that root alone can connect to, in place of a stale one. The caller holds a lock, so that no other process looks
// at the stale one, too.
func Listen(path string) (*net.UnixListener, error) {
	stale, err := IsStale(path)
	if stale {
		err = os.Remove(path)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Umask(unix.Umask(0o177))
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

// IsStale reports whether a socket is there that nobody listens at. Anything else that is there is an error.
func IsStale(path string) (bool, error) {
	file, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if file.Mode().Type() != fs.ModeSocket {
		return false, fmt.Errorf("%s is no socket: remove it, or choose another path", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return false, fmt.Errorf("another process listens at %s", path)
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		return true, nil
	}
	return false, err
}
