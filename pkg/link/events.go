package link

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// WaitUntil waits until the link satisfies done, on a socket that is its own:
// it asks once, and then again after the kernel announced a change of the link.
// It returns the link as last seen, and an error when the time is up.
func WaitUntil(index int, limit time.Duration, done func(*Link) bool) (*Link, error) {
	c, err := Open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	l, err := c.ByIndex(index)
	if err != nil || done(l) {
		return l, err
	}
	if err := c.Join(unix.RTNLGRP_LINK); err != nil {
		return l, err
	}
	for end := time.Now().Add(limit); ; {
		// Ask after subscribing, and again after each change: announcements
		// can be lost when many links change (ENOBUFS).
		l, err = c.ByIndex(index)
		if err != nil || done(l) {
			return l, err
		}
		left := time.Until(end)
		if left <= 0 {
			return l, fmt.Errorf("link %s: not ready after %v", l.Name, limit)
		}
		if err := c.SetTimeout(left); err != nil {
			return l, err
		}
		err := c.Receive(func(m netlink.Message) bool { return parse(m.Payload).Index != index })
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EAGAIN) {
			return l, err
		}
	}
}
