package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
	err = EachPrefix(index, func(_ int, p netip.Prefix) bool {
		list = append(list, p)
		return true
	})
	return list, err
}

// EachPrefix calls f for the addresses of a link of the calling thread's namespace, or of all its links if index is 0, and ends when f returns false.
// They are read one by one: a container may have any number of them.
func EachPrefix(index int, f func(index int, p netip.Prefix) bool) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE) // to nothing
	if err != nil {
		return err
	}
	defer socket.Close()
	_ = unix.SetsockoptInt(socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1) // kernels before 4.20 list all
	request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	message := nl.NewIfAddrmsg(unix.AF_UNSPEC)
	message.Index = uint32(index)
	request.AddData(message)
	return request.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWADDR, func(reply []byte) bool {
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
		return !p.IsValid() || index != 0 && int(of.Index) != index || f(int(of.Index), p)
	})
}

// Routes returns the routes that are like one, by what the mask says.
func Routes(h *netlink.Handle, family int, like *netlink.Route, mask uint64) ([]netlink.Route, error) {
	return Uninterrupted(func() ([]netlink.Route, error) { return h.RouteListFiltered(family, like, mask) })
}

// A container may have any number of routes: no more than these of one link are kept, as a caller's memory is its own, and no more are read.
const (
	mostKept = 10_000
	mostRead = 1_000_000
)

// RoutesOver returns the wanted routes of all tables that lead over a link, if only by one of several hops. The kernel is asked for those of this
// link alone (kernels before 4.20 list all), and they are read one by one until ctx ends.
func RoutesOver(ctx context.Context, h *netlink.Handle, index int, isWanted func(netlink.Route) bool) ([]netlink.Route, error) {
	_ = h.SetStrictCheck(true)
	defer func() { _ = h.SetStrictCheck(false) }()
	read := 0 // also of lists that were interrupted: a container can see to it that all are
	return Uninterrupted(func() (list []netlink.Route, err error) {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			failed := h.RouteListFilteredIter(family, &netlink.Route{LinkIndex: index}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
				leads := r.LinkIndex == index || slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool { return hop.LinkIndex == index })
				if leads && isWanted(r) {
					list = append(list, r)
				}
				read++
				return ctx.Err() == nil && len(list) <= mostKept && read <= mostRead
			})
			switch {
			case len(list) > mostKept, read > mostRead:
				return nil, fmt.Errorf("link %d has too many routes: remove some of %d", index, read)
			case ctx.Err() != nil:
				return nil, fmt.Errorf("list the routes of link %d: %w", index, context.Cause(ctx))
			case failed != nil:
				return list, failed
			}
		}
		return list, nil
	})
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
