// Package conntrack makes the kernel forget flows to published ports that it would go on sending to where the port led before.
//
// The kernel decides about the destination of a flow when it sees the first packet, and keeps to that while packets go on coming. A
// TCP client whose server is gone opens another connection; for UDP and SCTP one that keeps its source port, such as a resolver, an
// agent or a phone, would be in the void for as long as it tries. TCP is left alone.
package conntrack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// FlushPublished forgets the flows to the host's side of ports that do not lead to the container: those from before the ports were
// published, to the host itself, and those to a container that had them earlier. To be called when the ports are in the packet
// filter, in a thread of the host's namespace. A flow to another container by a rule that is older and still holds is forgotten too,
// and goes the same way again.
func FlushPublished(ctx context.Context, ports []spec.PortMap) error {
	local := map[netip.Addr]bool{} // which addresses are the host's, once asked for
	return flush(ctx, ports, func(f flow, maps []spec.PortMap) bool {
		to := f.to.Addr()
		mapOf := func(host netip.Addr) int {
			return slices.IndexFunc(maps, func(m spec.PortMap) bool { return m.HostIP == host })
		}
		governs := mapOf(to)
		if governs < 0 {
			governs = mapOf(netip.Addr{})
		}
		if governs < 0 || f.leadsTo == maps[governs].Container {
			return false
		}
		isBound := maps[governs].HostIP == to
		if _, asked := local[to]; !asked && !isBound {
			routes, err := netlink.RouteGet(to.AsSlice())
			local[to] = err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
		}
		return isBound || local[to] // what only passes the host, to that port of some other machine, is none of ours
	})
}

// FlushWithdrawn forgets the flows that lead from the host's side of ports to their containers' addresses. To be called when the
// ports have left the packet filter: a packet that comes in between would begin the flow again.
func FlushWithdrawn(ctx context.Context, ports []spec.PortMap) error {
	return flush(ctx, ports, func(f flow, maps []spec.PortMap) bool {
		return slices.ContainsFunc(maps, func(m spec.PortMap) bool {
			isRedirected := f.leadsTo.Addr() == m.Container.Addr() && f.to.Addr() != m.Container.Addr()
			return isRedirected && (!m.HostIP.IsValid() || m.HostIP == f.to.Addr())
		})
	})
}

// flush forgets the flows to ports that are stale, judged by the port maps of the flow's port.
func flush(ctx context.Context, ports []spec.PortMap, isStale func(flow, []spec.PortMap) bool) error {
	var errs []error
	for _, protocol := range []uint8{unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			maps := map[uint16][]spec.PortMap{}
			for _, m := range ports {
				if m.Protocol == protocol && m.Container.Addr().Is4() == (family == unix.AF_INET) {
					maps[m.HostPort] = append(maps[m.HostPort], m)
				}
			}
			if len(maps) == 0 {
				continue
			}
			flows, err := list(family, ofProtocol(protocol), func(f flow) bool {
				return bytes.Equal(f.protocol, []byte{protocol}) && isStale(f, maps[f.to.Port()])
			})
			if err != nil {
				errs = append(errs, fmt.Errorf("list the tracked %s flows: %w", spec.ProtocolName(protocol), err))
			}
			for _, f := range flows {
				if ctx.Err() != nil {
					return errors.Join(append(errs, ctx.Err())...)
				}
				if err := f.forget(); err != nil {
					errs = append(errs, fmt.Errorf("forget the %s flow to %s: %w", spec.ProtocolName(protocol), f.to, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// ForgetFrom forgets the flows that begin at some addresses, and lead to a port; 0 is any. To be called before the addresses have a new owner, who could go on
// with what an earlier one was allowed.
func ForgetFrom(ctx context.Context, addrs []netip.Addr, port uint16) error {
	var errs []error
	for _, addr := range addrs {
		family := uint8(unix.AF_INET)
		if addr.Is6() {
			family = unix.AF_INET6
		}
		flows, err := list(family, ofSource(addr), func(f flow) bool { return f.from == addr && (port == 0 || f.to.Port() == port) })
		for _, f := range flows {
			err = errors.Join(err, ctx.Err(), f.forget())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("forget the flows from %s: %w", addr, err))
		}
	}
	return errors.Join(errs...)
}

// flow is an entry of the kernel's table. The messages are built here, with the library's nl: its own calls see no ports of SCTP.
type flow struct {
	protocol []byte
	from     netip.Addr     // who sent the first packet
	to       netip.AddrPort // where that was sent to
	leadsTo  netip.AddrPort // who answers: the packets' real destination
	entry    []byte         // as the kernel listed it
}

func request(family uint8, message, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|message, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return r
}

// filter is what the kernel lists alone, from Linux 5.8 on; earlier ones list all.
type filter struct {
	tuple *nl.RtAttr
	flag  uint32 // what of the tuple counts: CTA_FILTER_F_… of the kernel's nf_conntrack_netlink.c
}

func ofProtocol(number uint8) filter {
	proto := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{number})
	return filter{proto, 1 << 3}
}

func ofSource(addr netip.Addr) filter {
	kind := nl.CTA_IP_V4_SRC
	if addr.Is6() {
		kind = nl.CTA_IP_V6_SRC
	}
	ip := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
	ip.AddRtAttr(kind, addr.AsSlice())
	return filter{ip, 1 << 0}
}

// list returns some flows. A kernel without ctnetlink (CONFIG_NF_CT_NETLINK) has none for us: ports can be published
// all the same.
func list(family uint8, of filter, wanted func(flow) bool) (flows []flow, err error) {
	// Listing makes the kernel look at each slot of a large table. Counting does not.
	if n, err := sysctl.Get("net/netfilter/nf_conntrack_count"); n == "0" || errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	const filterAttr, filterOrigFlags = 25, 1 // CTA_FILTER and CTA_FILTER_ORIG_FLAGS
	r := request(family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	tuple := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	tuple.AddChild(of.tuple)
	r.AddData(tuple)
	compare := nl.NewRtAttr(unix.NLA_F_NESTED|filterAttr, nil)
	compare.AddRtAttr(filterOrigFlags, nl.Uint32Attr(of.flag))
	r.AddData(compare)
	err = r.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(entry []byte) bool {
		original, reply := attribute(entry[nl.SizeofNfgenmsg:], nl.CTA_TUPLE_ORIG), attribute(entry[nl.SizeofNfgenmsg:], nl.CTA_TUPLE_REPLY)
		f := flow{
			protocol: attribute(original, nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_NUM), from: address(original, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC),
			to:      endpoint(original, nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, nl.CTA_PROTO_DST_PORT),
			leadsTo: endpoint(reply, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT), entry: entry,
		}
		if wanted(f) {
			flows = append(flows, f)
		}
		return true
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil // nfnetlink says EINVAL to messages of a subsystem that it lacks
	}
	return flows, err
}

// forget removes the entry. One that has gone by itself, or made place for another of the same tuple, which the kernel tells by the
// id, is no error.
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
	return netip.AddrPortFrom(address(tuple, v4, v6), binary.BigEndian.Uint16(p))
}

// address returns the address of a direction, which has one of either family.
func address(tuple []byte, v4, v6 uint16) netip.Addr {
	ip, _ := netip.AddrFromSlice(slices.Concat(attribute(tuple, nl.CTA_TUPLE_IP, v4), attribute(tuple, nl.CTA_TUPLE_IP, v6)))
	return ip
}

// attribute returns the value of an attribute that is nested in others as path says; nil if it is not there.
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
