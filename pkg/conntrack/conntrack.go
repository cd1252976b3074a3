// Package conntrack makes the kernel forget flows to published ports that it
// would go on sending to where the port led before.
//
// The kernel decides about the destination of a flow when it sees the first
// packet, and keeps to that while packets go on coming. A TCP client whose
// server is gone opens another connection; for UDP and SCTP one that keeps its
// source port, such as a resolver, an agent or a phone, would be in the void
// for as long as it tries. TCP is left alone.
package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// FlushPublished forgets the flows to the host's side of ports that do not lead
// to the container: those from before the ports were published, to the host
// itself, and those to a container that had them earlier. To be called when the
// ports are in the packet filter, in a thread of the host's namespace.
//
// A flow to another container by a rule that is older and still holds is not
// told from these. It is forgotten too, and goes the same way again.
func FlushPublished(ctx context.Context, ports []netfilter.PortMap) error {
	local := map[netip.Addr]bool{} // which addresses are the host's, once asked for
	return flush(ctx, ports, func(f flow, maps []netfilter.PortMap) (bool, error) {
		m, bound := governing(f.to.Addr(), maps)
		if m == nil || f.leadsTo == m.Container {
			return false, nil
		}
		// Ports are published on addresses of the host. What only passes it,
		// to port 53 of some other machine, is none of ours.
		if is, known := local[f.to.Addr()]; bound || known {
			return bound || is, nil
		}
		is, err := isLocal(f.to.Addr())
		local[f.to.Addr()] = is
		return is, err
	})
}

// FlushWithdrawn forgets the flows that lead from the host's side of ports to
// their containers' addresses. To be called when the ports have left the packet
// filter: a packet that comes in between would begin the flow again.
func FlushWithdrawn(ctx context.Context, ports []netfilter.PortMap) error {
	return flush(ctx, ports, func(f flow, maps []netfilter.PortMap) (bool, error) {
		for _, m := range maps {
			container := m.Container.Addr()
			redirected := f.to.Addr() != container && f.leadsTo.Addr() == container
			if redirected && (!m.HostIP.IsValid() || m.HostIP == f.to.Addr()) {
				return true, nil
			}
		}
		return false, nil
	})
}

// governing returns which of the port maps applies to packets to an address: the
// one that is bound to it, else the one for all addresses; nil if there is none.
func governing(to netip.Addr, maps []netfilter.PortMap) (governs *netfilter.PortMap, bound bool) {
	for i := range maps {
		switch {
		case maps[i].HostIP == to:
			return &maps[i], true
		case !maps[i].HostIP.IsValid():
			governs = &maps[i]
		}
	}
	return governs, false
}

// isLocal asks the kernel what kind of route leads to the address.
func isLocal(a netip.Addr) (bool, error) {
	routes, err := netlink.RouteGet(a.AsSlice())
	for _, no := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL} { // no route, or one that drops
		if errors.Is(err, no) {
			return false, nil
		}
	}
	return len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, err
}

// flush forgets the flows to the ports that are stale. All of them are tried;
// the error is the first one.
func flush(ctx context.Context, ports []netfilter.PortMap, stale func(flow, []netfilter.PortMap) (bool, error)) error {
	var first error
	for _, t := range []table{{unix.AF_INET, unix.IPPROTO_UDP}, {unix.AF_INET6, unix.IPPROTO_UDP}, {unix.AF_INET, unix.IPPROTO_SCTP}, {unix.AF_INET6, unix.IPPROTO_SCTP}} {
		maps := map[uint16][]netfilter.PortMap{}
		for _, m := range ports {
			if m.Protocol == t.protocol && m.Container.Addr().Is4() == (t.family == unix.AF_INET) {
				maps[m.HostPort] = append(maps[m.HostPort], m)
			}
		}
		if len(maps) == 0 {
			continue
		}
		flows, err := t.list(maps)
		if err != nil {
			return errors.Join(first, fmt.Errorf("list the tracked %s flows: %w", netfilter.ProtocolName(t.protocol), err))
		}
		for _, f := range flows {
			if err := ctx.Err(); err != nil {
				return errors.Join(first, err)
			}
			is, err := stale(f, maps[f.to.Port()])
			if is && err == nil {
				err = f.forget()
			}
			if err != nil && first == nil {
				first = fmt.Errorf("forget the %s flow to %s: %w", netfilter.ProtocolName(t.protocol), f.to, err)
			}
		}
	}
	return first
}

// table is the part of the kernel's table that is listed at once. The messages
// are built here, with the library's nl, as its own calls see no ports of SCTP.
type table struct{ family, protocol byte }

// flow is an entry of the table.
type flow struct {
	to      netip.AddrPort // where the first packet was sent to
	leadsTo netip.AddrPort // who answers: the packets' real destination
	entry   []byte         // as the kernel listed it
}

// What nl lacks of linux/netfilter/nfnetlink_conntrack.h.
const (
	ctaFilter          = 25
	ctaFilterOrigFlags = 1
	filterProtoNum     = 1 << 3
	filterProtoDstPort = 1 << 5
)

func request(family byte, message, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|message, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return r
}

// list returns the flows to the ports of the maps. A kernel without ctnetlink
// (CONFIG_NF_CT_NETLINK) has none for us: ports can be published all the same.
func (t table) list(maps map[uint16][]netfilter.PortMap) (flows []flow, err error) {
	// Listing makes the kernel look at each slot of its table, of which a
	// machine with more than 4 GB has 262,144 (up to 10 ms). Counting does not.
	if n, err := sysctl.Get("net/netfilter/nf_conntrack_count"); n == "0" || errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	err = t.listing(maps).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(entry []byte) bool {
		original := attribute(entry[nl.SizeofNfgenmsg:], nl.CTA_TUPLE_ORIG)
		to := endpoint(original, nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, nl.CTA_PROTO_DST_PORT)
		protocol := attribute(original, nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_NUM)
		if maps[to.Port()] != nil && len(protocol) == 1 && protocol[0] == t.protocol {
			reply := attribute(entry[nl.SizeofNfgenmsg:], nl.CTA_TUPLE_REPLY)
			flows = append(flows, flow{to, endpoint(reply, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT), entry})
		}
		return true
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil // nfnetlink says EINVAL to messages of a subsystem that it lacks
	}
	return flows, err
}

// listing asks for the flows of the protocol, and of the port if it is but one
// (which the kernel looks at for UDP). Kernels before 5.8 list the whole family.
// None is asked to compare who answers: before 6.6 it compares that with nothing.
func (t table) listing(maps map[uint16][]netfilter.PortMap) *nl.NetlinkRequest {
	tuple := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	proto := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{t.protocol})
	compare := uint32(filterProtoNum)
	if len(maps) == 1 {
		compare |= filterProtoDstPort
		for port := range maps {
			proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(port))
		}
	}
	filter := nl.NewRtAttr(unix.NLA_F_NESTED|ctaFilter, nil)
	filter.AddRtAttr(ctaFilterOrigFlags, nl.Uint32Attr(compare))
	r := request(t.family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	r.AddData(tuple)
	r.AddData(filter)
	return r
}

// forget removes the entry. One that has gone by itself, or made place for
// another of the same tuple, which the kernel tells by the id, is no error.
func (f flow) forget() error {
	r := request(f.entry[0], nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	r.AddRawData(f.entry[nl.SizeofNfgenmsg:])
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// endpoint returns one end of a direction, zero if it has no port.
func endpoint(tuple []byte, v4, v6, port uint16) netip.AddrPort {
	p := attribute(tuple, nl.CTA_TUPLE_PROTO, port)
	if len(p) != 2 {
		return netip.AddrPort{}
	}
	a, ok := netip.AddrFromSlice(attribute(tuple, nl.CTA_TUPLE_IP, v4))
	if !ok {
		a, _ = netip.AddrFromSlice(attribute(tuple, nl.CTA_TUPLE_IP, v6))
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(p))
}

// attribute returns the value of an attribute that is nested in others as path
// says; nil if it is not there.
func attribute(data []byte, path ...uint16) []byte {
	for _, typ := range path {
		attrs, _ := nl.ParseRouteAttr(data)
		data = nil
		for _, a := range attrs {
			if a.Attr.Type&nl.NLA_TYPE_MASK == typ {
				data = a.Value
			}
		}
	}
	return data
}
