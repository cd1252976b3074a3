package link

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// WaitUp waits until a link passes packets: the kernel notices a carrier a moment after the other end is up. It returns the link's
// operational state as last seen, and an error when the time is up.
func WaitUp(h *netlink.Handle, name string, limit time.Duration) (state netlink.LinkOperState, err error) {
	changes, done := make(chan netlink.LinkUpdate, 16), make(chan struct{})
	defer close(done)
	subscribe := func() error { return netlink.LinkSubscribe(changes, done) }
	err = await(limit, subscribe, drain(changes), func() (bool, error) {
		l, err := h.LinkByName(name)
		if err != nil {
			return false, fmt.Errorf("look up link %s: %w", name, err)
		}
		state = l.Attrs().OperState
		return state == netlink.OperUp, nil
	})
	return state, err
}

// WaitForAddresses waits until no IPv6 address of a link is tentative any more, and returns one that failed duplicate address
// detection, if any: a link-local one, which the kernel has made from the MAC address, only if no other did.
func WaitForAddresses(l netlink.Link, limit time.Duration) (failed net.IP, err error) {
	changes, done := make(chan netlink.AddrUpdate, 16), make(chan struct{})
	defer close(done)
	subscribe := func() error { return netlink.AddrSubscribe(changes, done) }
	err = await(limit, subscribe, drain(changes), func() (bool, error) {
		addresses, err := Addresses(&netlink.Handle{}, l, unix.AF_INET6)
		if err != nil {
			return false, fmt.Errorf("list the addresses of %s: %w", l.Attrs().Name, err)
		}
		settled := true
		for _, a := range addresses {
			switch {
			case a.Flags&unix.IFA_F_DADFAILED != 0:
				if failed == nil || failed.IsLinkLocalUnicast() {
					failed = a.IP
				}
			case a.Flags&unix.IFA_F_TENTATIVE != 0:
				settled = false
			}
		}
		return settled || failed != nil && !failed.IsLinkLocalUnicast(), nil
	})
	return failed, err
}

// WhenFree calls a function, and again for a while as long as the kernel answers that another link has what it asks for, such as a MAC
// address. That can be one of a namespace that nobody has any more: the kernel deletes its links some time later.
func WhenFree(taken unix.Errno, do func() error) error {
	const longest, pause = 3 * time.Second, 10 * time.Millisecond
	for end := time.Now().Add(longest); ; time.Sleep(pause) {
		if err := do(); !errors.Is(err, taken) || time.Now().After(end) {
			return err
		}
	}
}

// await waits until something holds: it asks once, and then again after each change, and at least ten times a second, as
// announcements can be lost when many links change.
func await(limit time.Duration, subscribe func() error, changed func(time.Duration), holds func() (bool, error)) error {
	if now, err := holds(); now || err != nil {
		return err
	}
	if err := subscribe(); err != nil {
		return err
	}
	for end := time.Now().Add(limit); ; {
		now, err := holds()
		if now || err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return fmt.Errorf("not so after %v", limit)
		}
		changed(min(left, time.Second/10))
	}
}

// drain returns a function that waits for a change, for a time at most.
func drain[T any](changes chan T) func(time.Duration) {
	return func(limit time.Duration) {
		select {
		case <-changes:
		case <-time.After(limit):
		}
	}
}
