package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// DeleteAll removes links, and of veths the other ends too. Links that are gone
// already are no error.
//
// It makes a group of them and deletes that (ip-link(8), "group"), so that the
// kernel waits once for all and not once for each: 0.6 ms for a veth pair in
// place of 26. (go test -bench DeleteAll: 64 pairs, Linux 6.18, 2 CPUs.)
func (c *Conn) DeleteAll(indexes []int) error {
	const atOnce = 64 // others wait for the kernel's lock meanwhile
	var errs []error
	for some := range slices.Chunk(indexes, atOnce) {
		if len(some) > 1 && c.deleteGroup(some) == nil {
			continue
		}
		for _, index := range some {
			if err := c.Delete(index); !isNotFound(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// deleteGroup deletes all of them or, if the error is not nil, any of them.
func (c *Conn) deleteGroup(indexes []int) error {
	group, err := anyGroup()
	if err != nil {
		return err
	}
	b := &netlink.Batch{}
	for _, index := range indexes {
		begin(b, unix.RTM_NEWLINK, unix.NLM_F_ACK, fmt.Sprintf("put link %d into group %d", index, group), info{index: index})
		b.U32(unix.IFLA_GROUP, group)
		b.End()
	}
	if err := notFound(c.Do(b, nil)); err != nil {
		return err
	}
	b = &netlink.Batch{}
	begin(b, unix.RTM_DELLINK, unix.NLM_F_ACK, fmt.Sprintf("delete the links of group %d", group), info{})
	b.U32(unix.IFLA_GROUP, group)
	b.End()
	return c.Do(b, nil)
}

// anyGroup is a number among four billion that nobody uses. (People's are small.)
func anyGroup() (uint32, error) {
	var b [4]byte
	if _, err := unix.Getrandom(b[:], 0); err != nil {
		return 0, fmt.Errorf("choose a group: %w", err)
	}
	return binary.NativeEndian.Uint32(b[:]) | 1<<31, nil
}
