// Package link has what vishvananda/netlink does not: deleting many links at once, deleting one without waiting for the kernel to
// free its memory, and waiting for what the kernel does a moment later.
package link

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// IsNotFound reports whether an error says that there is no such link.
func IsNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}

// IgnoreNotFound returns an error unless it says that there is no such link.
func IgnoreNotFound(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}

// List returns all links.
func List(h *netlink.Handle) ([]netlink.Link, error) { return whole(h.LinkList) }

// OfKind returns the links of a kind that the calling thread's namespace has, without their counters, for GC. It asks once: while others
// come and go it may miss some, which are left to the next GC, and on a busy node nobody gets a list that is whole.
func OfKind(kind string) (links []netlink.Link, err error) {
	const skipStats = 1 << 3 // RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
	request.AddData(info)
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		err = nil
	}
	for _, m := range messages {
		l, failed := netlink.LinkDeserialize(nil, m)
		if failed != nil {
			return nil, failed
		}
		if l.Type() == kind { // a kernel that knows no such kind returns all
			links = append(links, l)
		}
	}
	return links, err
}

// Addresses returns a link's addresses.
func Addresses(h *netlink.Handle, l netlink.Link, family int) ([]netlink.Addr, error) {
	return whole(func() ([]netlink.Addr, error) { return h.AddrList(l, family) })
}

// Routes returns the routes that are like one, by what the mask says.
func Routes(h *netlink.Handle, family int, like *netlink.Route, mask uint64) ([]netlink.Route, error) {
	return whole(func() ([]netlink.Route, error) { return h.RouteListFiltered(family, like, mask) })
}

// Filters returns the filters that a link's queueing discipline with a handle has.
func Filters(h *netlink.Handle, index int, handle uint32) ([]netlink.Filter, error) {
	l := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
	return whole(func() ([]netlink.Filter, error) { return h.FilterList(l, handle) })
}

// Rules returns the rules of both families, each in the order in which they are asked.
func Rules(h *netlink.Handle) ([]netlink.Rule, error) {
	return whole(func() ([]netlink.Rule, error) { return h.RuleList(netlink.FAMILY_ALL) })
}

// VLANs returns the VLANs of a bridge's port.
func VLANs(h *netlink.Handle, port netlink.Link) ([]*nl.BridgeVlanInfo, error) {
	all, err := whole(h.BridgeVlanList)
	return all[int32(port.Attrs().Index)], err
}

// whole lists again what has changed meanwhile, since something may be missing then (NLM_F_DUMP_INTR).
func whole[T any](list func() (T, error)) (all T, err error) {
	const most = 100
	for range most {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

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

// SetUpAs gives a link of the calling thread's namespace an alias, makes it a port of a master unless that is 0, and sets it up, with
// one message where vishvananda/netlink takes one for each. A port gets no IPv6 address of its own: nobody could reach it.
func SetUpAs(index int, alias string, master int) error {
	attrs := []nl.NetlinkRequestData{nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(alias))}
	if master != 0 {
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(master))), withoutIPv6Address())
	}
	err := change(index, unix.IFF_UP, attrs)
	if errors.Is(err, unix.EAFNOSUPPORT) && master != 0 { // there is no IPv6
		err = change(index, unix.IFF_UP, attrs[:2])
	}
	return err
}

func withoutIPv6Address() *nl.RtAttr {
	families := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	families.AddRtAttr(unix.AF_INET6, nil).AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, nl.Uint8Attr(nl.IN6_ADDR_GEN_MODE_NONE))
	return families
}

// change sets flags and attributes of a link.
func change(index int, flags uint32, attrs []nl.NetlinkRequestData) error {
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index, message.Flags, message.Change = int32(index), flags, flags
	request.AddData(message)
	for _, a := range attrs {
		request.AddData(a)
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// KeepMAC sets a bridge's MAC address to what it is, unless somebody has set it. The kernel gives a bridge whose address nobody has
// set the lowest of its ports', and changes it as they come and go: who knows the old one would be cut off. Without ports it has
// none.
func KeepMAC(h *netlink.Handle, link netlink.Link) error {
	const set = "3" // NET_ADDR_SET of linux/netdevice.h
	attrs := link.Attrs()
	how, err := os.ReadFile("/sys/class/net/" + attrs.Name + "/addr_assign_type")
	if err == nil && strings.TrimSpace(string(how)) == set {
		return nil
	}
	mac := attrs.HardwareAddr
	if slices.Equal(mac, make(net.HardwareAddr, len(mac))) {
		mac = RandomMAC()
	}
	if err := h.LinkSetHardwareAddr(link, mac); err != nil {
		return fmt.Errorf("keep the MAC address of %s: %w", attrs.Name, err)
	}
	attrs.HardwareAddr = mac
	return nil
}

// RandomMAC returns a locally administered unicast address.
func RandomMAC() net.HardwareAddr {
	mac := net.HardwareAddr{0x02, 0, 0, 0, 0, 0}
	_, _ = rand.Read(mac[1:]) // never fails
	return mac
}

// ParseMAC reads a MAC address that one Ethernet interface can have, in any form that people write one in.
func ParseMAC(text string) (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(text)
	switch {
	case err != nil || len(mac) != 6:
		return nil, fmt.Errorf("%q is no MAC address: want six bytes, such as 02:00:00:12:34:56", text)
	case mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00":
		return nil, fmt.Errorf("%q is no MAC address of one interface: its first byte is odd or all are zero", text)
	}
	return mac, nil
}

// LeadsInto reports whether a link of the host is a veth whose other end is in a namespace.
func LeadsInto(outside netlink.Link, n ns.NetNS) (bool, error) {
	id, err := netlink.GetNetNsIdByFd(int(n.Fd()))
	if err != nil {
		return false, fmt.Errorf("look up the id of %s: %w", n.Path(), err)
	}
	return id >= 0 && outside.Type() == "veth" && outside.Attrs().NetNsID == id, nil
}

// PortOption reports whether a port of a bridge has one of the options nl.IFLA_BRPORT_…. vishvananda/netlink asks the kernel for all ports to
// tell of one, and /sys may show another namespace's.
func PortOption(port string, option uint16) (bool, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(port)))
	replies, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return false, fmt.Errorf("look up the options of port %s: %w", port, err)
	}
	data := replies[0][unix.SizeofIfInfomsg:]
	for _, number := range []uint16{unix.IFLA_LINKINFO, nl.IFLA_INFO_SLAVE_DATA, option} {
		attrs, err := nl.ParseRouteAttrAsMap(data)
		if err != nil {
			return false, err
		}
		data = attrs[number].Value
	}
	return len(data) == 1 && data[0] == 1, nil
}
