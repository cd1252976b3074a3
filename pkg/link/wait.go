package link

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// portTime bounds the wait for a link to pass packets. The kernel takes milliseconds; a bridge with spanning tree takes longer, and is not
// waited for beyond this. detectionTime bounds that for duplicate address detection, which takes one to two seconds (RFC 4862).
const portTime, detectionTime = 3 * time.Second, 10 * time.Second

// lostTime is when a question is asked again though no change was announced: announcements can be lost when many links change.
const lostTime = time.Second / 10

// WaitUp waits until a link passes packets: the kernel notices a carrier a moment after the other end is up. It returns the link's
// operational state as last seen, and an error when the time is up.
func WaitUp(h *netlink.Handle, name string) (state netlink.LinkOperState, err error) {
	if state, err = operState(h, name); err != nil || state == netlink.OperUp {
		return state, err
	}
	changes, done := make(chan netlink.LinkUpdate, 16), make(chan struct{})
	defer close(done)
	if err := netlink.LinkSubscribe(changes, done); err != nil {
		return state, err
	}
	for end := time.Now().Add(portTime); ; {
		isOver := time.Now().After(end) // before the last look: this process may have stood still
		if state, err = operState(h, name); err != nil || state == netlink.OperUp {
			return state, err
		}
		if isOver {
			return state, fmt.Errorf("not so after %v", portTime)
		}
		select {
		case <-changes:
		case <-time.After(lostTime):
		}
	}
}

func operState(h *netlink.Handle, name string) (netlink.LinkOperState, error) {
	l, err := h.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("look up link %s: %w", name, err)
	}
	return l.Attrs().OperState, nil
}

// WaitForAddresses waits until no IPv6 address of a link is tentative any more, and returns one that failed duplicate address
// detection, if any: a link-local one, which the kernel has made from the MAC address, only if no other did.
func WaitForAddresses(l netlink.Link) (failed net.IP, err error) {
	failed, settled, err := detection(l)
	if settled || err != nil {
		return failed, err
	}
	changes, done := make(chan netlink.AddrUpdate, 16), make(chan struct{})
	defer close(done)
	if err := netlink.AddrSubscribe(changes, done); err != nil {
		return nil, err
	}
	for end := time.Now().Add(detectionTime); ; {
		isOver := time.Now().After(end)
		if failed, settled, err = detection(l); settled || err != nil {
			return failed, err
		}
		if isOver {
			return failed, fmt.Errorf("not so after %v", detectionTime)
		}
		select {
		case <-changes:
		case <-time.After(lostTime):
		}
	}
}

// detection says how duplicate address detection stands: which address has failed, and whether that is known of all that matter.
func detection(l netlink.Link) (failed net.IP, settled bool, err error) {
	addresses, err := Addresses(&netlink.Handle{}, l, unix.AF_INET6)
	if err != nil {
		return nil, false, fmt.Errorf("list the addresses of %s: %w", l.Attrs().Name, err)
	}
	settled = true
	for _, a := range addresses {
		switch {
		case a.Flags&unix.IFA_F_DADFAILED != 0 && !a.IP.IsLinkLocalUnicast():
			return a.IP, true, nil
		case a.Flags&unix.IFA_F_DADFAILED != 0:
			failed = a.IP
		case a.Flags&unix.IFA_F_TENTATIVE != 0:
			settled = false
		}
	}
	return failed, settled, nil
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
