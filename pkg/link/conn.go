// Package link makes, reads and removes links, addresses, routes and
// neighbours over rtnetlink(7), in few messages and without dumps.
package link

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
	"github.com/cnibox/cnibox/pkg/netns"
)

// ErrNotFound says that there is no such link.
var ErrNotFound = errors.New("no such link")

// Conn is an rtnetlink socket in one network namespace.
type Conn struct {
	*netlink.Conn
}

// Open opens a socket in the calling thread's namespace.
func Open() (*Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Conn{c}, nil
}

// OpenIn opens a socket in ns, usable from any thread.
func OpenIn(ns *netns.NS) (*Conn, error) {
	passage, err := ns.Passage()
	if err != nil {
		return nil, err
	}
	defer passage.Close()
	c, err := netlink.DialBy(passage.Socket, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Conn{c}, nil
}

// notFound turns the kernel's ways of saying "no such link" into ErrNotFound.
func notFound(err error) error {
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }
