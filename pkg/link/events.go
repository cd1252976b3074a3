package link

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// WaitUntil waits until the link satisfies done: it asks once, and then again
// after each change of the link, of which another socket hears. (On one socket
// an announcement that comes while an answer is read would be lost.) It returns
// the link as last seen, and an error when the time is up. It must be called in
// the socket's namespace.
func (c *Conn) WaitUntil(index int, limit time.Duration, done func(*Link) bool) (*Link, error) {
	l, err := c.ByIndex(index)
	if err != nil || done(l) {
		return l, err
	}
	events, err := Open()
	if err != nil {
		return l, err
	}
	defer events.Close()
	if err := events.Join(unix.RTNLGRP_LINK); err != nil {
		return l, err
	}
	for end := time.Now().Add(limit); ; {
		// Ask after joining, and again after each change: announcements can
		// be lost when many links change (ENOBUFS).
		l, err = c.ByIndex(index)
		if err != nil || done(l) {
			return l, err
		}
		left := time.Until(end)
		if left <= 0 {
			return l, fmt.Errorf("link %s: not ready after %v", l.Name, limit)
		}
		if err := events.SetTimeout(left); err != nil {
			return l, err
		}
		err := events.Receive(func(m netlink.Message) bool { return indexOf(m.Payload) != index })
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EAGAIN) {
			return l, err
		}
	}
}

// Settle waits until no IPv6 address of the link is tentative, and returns an
// address that failed duplicate address detection, if any: a link-local one, which
// the kernel has made from the MAC address, only if no other did. It must be called
// in the socket's namespace.
func (c *Conn) Settle(index int, limit time.Duration) (failed netip.Prefix, err error) {
	events, err := Open()
	if err != nil {
		return failed, err
	}
	defer events.Close()
	if err := events.Join(unix.RTNLGRP_IPV6_IFADDR); err != nil {
		return failed, err
	}
	for end := time.Now().Add(limit); ; {
		addresses, err := c.Addresses(index)
		if err != nil {
			return failed, err
		}
		tentative := false
		for _, a := range addresses {
			switch {
			case a.Flags&unix.IFA_F_DADFAILED != 0:
				failed = a.Prefix
			case a.Flags&unix.IFA_F_TENTATIVE != 0:
				tentative = true
			}
			if failed.IsValid() && !failed.Addr().IsLinkLocalUnicast() {
				return failed, nil
			}
		}
		left := time.Until(end)
		switch {
		case !tentative:
			return failed, nil
		case left <= 0:
			return failed, fmt.Errorf("link %d has tentative addresses after %v", index, limit)
		}
		if err := events.SetTimeout(left); err != nil {
			return failed, err
		}
		err = events.Receive(func(netlink.Message) bool { return false })
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EAGAIN) {
			return failed, err
		}
	}
}
