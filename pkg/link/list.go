package link

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// List returns all links.
func List(h *netlink.Handle) ([]netlink.Link, error) { return Uninterrupted(h.LinkList) }

// Addresses returns a link's addresses.
func Addresses(h *netlink.Handle, l netlink.Link, family int) ([]netlink.Addr, error) {
	return Uninterrupted(func() ([]netlink.Addr, error) { return h.AddrList(l, family) })
}

// Prefixes returns the addresses of a link of the calling thread's namespace. The kernel is asked for those of this link alone, where
// vishvananda/netlink has it list those of all links: a host has as many links as containers.
func Prefixes(l netlink.Link) ([]netip.Prefix, error) {
	return Uninterrupted(func() ([]netip.Prefix, error) { return prefixes(l.Attrs().Index) })
}

func prefixes(index int) (list []netip.Prefix, err error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE) // to nothing
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	_ = unix.SetsockoptInt(socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1) // kernels before 4.20 list all
	request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	message := nl.NewIfAddrmsg(unix.AF_UNSPEC)
	message.Index = uint32(index)
	request.AddData(message)
	replies, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
	for _, reply := range replies {
		of := nl.DeserializeIfAddrmsg(reply)
		attrs, _ := nl.ParseRouteAttr(reply[of.Len():]) // the kernel's are well-formed
		var p netip.Prefix
		for _, a := range attrs {
			address, _ := netip.AddrFromSlice(a.Value)
			switch {
			case a.Attr.Type == unix.IFA_ADDRESS:
				p = netip.PrefixFrom(address, int(of.Prefixlen))
			case a.Attr.Type == unix.IFA_LOCAL && address != p.Addr(): // the other one, which comes first, is a peer's
				p = netip.PrefixFrom(address, address.BitLen())
			}
		}
		if int(of.Index) == index && p.IsValid() {
			list = append(list, p)
		}
	}
	return list, err
}

// Routes returns the routes that are like one, by what the mask says.
func Routes(h *netlink.Handle, family int, like *netlink.Route, mask uint64) ([]netlink.Route, error) {
	return Uninterrupted(func() ([]netlink.Route, error) { return h.RouteListFiltered(family, like, mask) })
}

// Rules returns the rules of both families, each in the order in which they are asked.
func Rules(h *netlink.Handle) ([]netlink.Rule, error) {
	return Uninterrupted(func() ([]netlink.Rule, error) { return h.RuleList(netlink.FAMILY_ALL) })
}

// Uninterrupted lists again what has changed meanwhile, since something may be missing then (NLM_F_DUMP_INTR).
func Uninterrupted[T any](list func() (T, error)) (all T, err error) {
	const most = 100
	for range most {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// OfKind returns the links of a kind that the calling thread's namespace has, without their counters. It asks once: while others come and
// go it may miss some, and on a busy node nobody gets a list that is whole. The error is netlink.ErrDumpInterrupted then, beside the list.
func OfKind(kind string) (links []netlink.Link, err error) {
	const skipStats = 1 << 3 // RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
	request.AddData(info)
	messages, interrupted := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if interrupted != nil && !errors.Is(interrupted, netlink.ErrDumpInterrupted) {
		return nil, interrupted
	}
	for _, m := range messages {
		l, err := netlink.LinkDeserialize(nil, m)
		if err != nil {
			return nil, err
		}
		if l.Type() == kind { // a kernel that knows no such kind returns all
			links = append(links, l)
		}
	}
	return links, interrupted
}
