package socket

import (
	"fmt"
	"net"
	"slices"

	"github.com/coreos/go-systemd/v22/activation"
)

// Passed are the sockets that systemd has passed to this process, by their names (FileDescriptorName= of their units).
type Passed map[string][]net.Listener

// FromSystemd returns them, and removes the variables that say so, as children must not read them.
func FromSystemd() Passed {
	passed, _ := activation.ListenersWithNames() // never fails
	return passed
}

// pop returns the socket with this name, or at this path; nil if there is none.
func (p Passed) pop(path, name string) (*net.UnixListener, error) {
	for of, list := range p {
		for i, l := range list {
			if of != name && l.Addr().String() != path {
				continue
			}
			p[of] = slices.Delete(list, i, i+1)
			socket, is := l.(*net.UnixListener)
			if !is || socket.Addr().String() != path {
				_ = l.Close()
				return nil, fmt.Errorf("the socket %s that systemd passes is at %s: correct ListenStream= in its unit", name, l.Addr())
			}
			return socket, nil
		}
	}
	return nil, nil
}

// Close closes what nobody has taken, and returns the names.
func (p Passed) Close() (names []string) {
	for name, list := range p {
		for _, l := range list {
			names = append(names, name)
			_ = l.Close()
		}
	}
	clear(p)
	return names
}
