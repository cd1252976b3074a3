package watch

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Number returns the number that an open network namespace has for the calling thread's, and gives it one if it has none: only what has one is
// heard of. A veth pair into a namespace gives it one, a macvlan that was made in it does not.
func Number(fd int) (int, error) {
	const free = -1
	id, err := netlink.GetNetNsIdByFd(fd)
	if err == nil && id < 0 {
		if err = netlink.SetNetNsIdByFd(fd, free); err == nil || errors.Is(err, unix.EEXIST) { // somebody else was faster
			id, err = netlink.GetNetNsIdByFd(fd)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("give a network namespace a number: %w", err)
	}
	return id, nil
}
