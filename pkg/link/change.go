package link

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// SetUpAs gives a link of the calling thread's namespace an alias and sets it up, with one message where vishvananda/netlink takes two.
func SetUpAs(index int, alias string) error {
	return Change(index, unix.IFF_UP, unix.IFF_UP, nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(alias)))
}

// SetUpHostEnd is SetUpAs for a host end, which it makes a port of a master unless that is 0. It gets no IPv6 address of its own: nobody could reach
// that of a port, and the kernel goes through the routes of all such addresses whenever a link comes or goes.
func SetUpHostEnd(index int, alias string, master int) error {
	attrs := []nl.NetlinkRequestData{nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(alias))}
	if master != 0 {
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(master))))
	}
	err := Change(index, unix.IFF_UP, unix.IFF_UP, append(attrs, ipv6Addresses(nl.IN6_ADDR_GEN_MODE_NONE))...)
	if errors.Is(err, unix.EAFNOSUPPORT) { // there is no IPv6
		err = Change(index, unix.IFF_UP, unix.IFF_UP, attrs...)
	}
	return err
}

// AllowIPv6Address lets a host end have a link-local address as soon as its other end is up.
func AllowIPv6Address(index int) error {
	return Change(index, 0, 0, ipv6Addresses(nl.IN6_ADDR_GEN_MODE_EUI64))
}

// ipv6Addresses is how the kernel makes a link's link-local address (ip-link(8), addrgenmode).
func ipv6Addresses(mode uint8) *nl.RtAttr {
	families := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	families.AddRtAttr(unix.AF_INET6, nil).AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, nl.Uint8Attr(mode))
	return families
}

// Move moves a link of the calling thread's namespace into another one, where it gets a name and an alias, all in one step. It is
// down then. If the name is taken there the link may have been moved and not renamed.
func Move(index int, to ns.NetNS, name, alias string) error {
	return Change(index, 0, 0,
		nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(to.Fd()))),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)),
		nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(alias)))
}

// Change sets attributes of a link of the calling thread's namespace, and those of its flags that are in the mask.
func Change(index int, flags, mask uint32, attrs ...nl.NetlinkRequestData) error {
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index, message.Flags, message.Change = int32(index), flags, mask
	request.AddData(message)
	for _, a := range attrs {
		request.AddData(a)
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// Attributes returns what the kernel says of a link of the calling thread's namespace, for what vishvananda/netlink leaves out.
func Attributes(index int) (map[uint16]syscall.NetlinkRouteAttr, error) {
	request, message := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0), nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(index)
	request.AddData(message)
	replies, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, err
	}
	return nl.ParseRouteAttrAsMap(replies[0][unix.SizeofIfInfomsg:])
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
