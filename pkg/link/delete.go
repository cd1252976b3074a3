package link

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Delete removes a link, and of a veth the other end too. One that is gone is no error.
func Delete(h *netlink.Handle, index int) error {
	err := h.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}})
	if IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete link %d: %w", index, err)
	}
	return nil
}

// DeleteAll removes links as Delete does. It makes a group of them and deletes that (ip-link(8), "group"), so that the kernel waits
// once for all and not once for each.
func DeleteAll(h *netlink.Handle, indexes []int) error {
	if len(indexes) > 1 && deleteGroup(h, indexes) == nil {
		return nil
	}
	var errs []error
	for _, index := range indexes {
		errs = append(errs, Delete(h, index))
	}
	return errors.Join(errs...)
}

// deleteGroup deletes all of them or, if the error is not nil, any of them.
func deleteGroup(h *netlink.Handle, indexes []int) error {
	var random [4]byte
	_, _ = rand.Read(random[:])                            // never fails
	group := binary.NativeEndian.Uint32(random[:]) | 1<<31 // people's are small
	for _, index := range indexes {
		link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
		if err := h.LinkSetGroup(link, int(group)); err != nil && !IsNotFound(err) {
			return err
		}
	}
	request := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
