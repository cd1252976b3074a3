package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netlink"
)

// Messages of ctnetlink (linux/netfilter/nfnetlink_conntrack.h).
const (
	msgGet      = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	msgDelete   = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
	msgGetStats = unix.NFNL_SUBSYS_CTNETLINK<<8 | 5
)

// Attributes of ctnetlink.
const (
	attrTupleOrig  = 1
	attrTupleReply = 2
	attrID         = 12
	attrZone       = 18
	attrFilter     = 25

	attrTupleIP    = 1
	attrTupleProto = 2

	attrIPv4Src = 1
	attrIPv4Dst = 2
	attrIPv6Src = 3
	attrIPv6Dst = 4

	attrProtoNum     = 1
	attrProtoSrcPort = 2
	attrProtoDstPort = 3

	attrStatsEntries = 1

	attrFilterOrigFlags = 1
)

// Bits of attrFilterOrigFlags: what of the tuple the kernel is to compare.
const (
	filterProtoNum     = 1 << 3
	filterProtoDstPort = 1 << 5
)

// count returns how many entries the namespace has.
func count(conn *netlink.Conn) (n uint32, err error) {
	b := &netlink.Batch{}
	b.Begin(msgGetStats, unix.NLM_F_ACK, "count the tracked connections")
	b.Header(header(unix.AF_UNSPEC)...)
	b.End()
	err = conn.Do(b, func(m netlink.Message) {
		if v := netlink.Attr(attributes(m), attrStatsEntries); len(v) == 4 {
			n = binary.BigEndian.Uint32(v)
		}
	})
	return n, err
}

// list returns the entries of the group's protocol whose original destination
// port is one of the group's.
//
// The kernel leaves out what it can since Linux 5.8; older ones list all of the
// family. It is not asked to compare the reply's tuple, which is where flows to
// a container would be recognized: before 6.6 it compares that with nothing.
func list(conn *netlink.Conn, g *group) (entries []entry, err error) {
	b := &netlink.Batch{}
	b.Begin(msgGet, unix.NLM_F_DUMP, fmt.Sprintf("list the tracked %s flows", netfilter.ProtocolName(g.protocol)))
	b.Header(header(g.family)...)
	appendFilter(b, g)
	b.End()
	err = conn.Do(b, func(m netlink.Message) {
		e, ok := parseEntry(attributes(m))
		if ok && e.protocol == g.protocol && g.ports[e.original.Port()] != nil {
			entries = append(entries, e.clone())
		}
	})
	return entries, err
}

// appendFilter appends the protocol, and the port if there is but one.
func appendFilter(b *netlink.Batch, g *group) {
	var compare uint32 = filterProtoNum
	b.Nest(attrTupleOrig, func() {
		b.Nest(attrTupleProto, func() {
			b.U8(attrProtoNum, g.protocol)
			if len(g.ports) > 1 {
				return
			}
			compare |= filterProtoDstPort
			for port := range g.ports {
				b.Bytes(attrProtoDstPort, binary.BigEndian.AppendUint16(nil, port))
			}
		})
	})
	b.Nest(attrFilter, func() { b.U32(attrFilterOrigFlags, compare) })
}

// remove forgets an entry. One that has gone by itself, or made place for
// another of the same tuple, is no error.
func remove(conn *netlink.Conn, e entry) error {
	b := &netlink.Batch{}
	b.Begin(msgDelete, unix.NLM_F_ACK, "forget the flow "+e.String())
	b.Header(header(e.family())...)
	b.Bytes(attrTupleOrig|unix.NLA_F_NESTED, e.tuple) // without it, the message is to forget all flows
	b.Bytes(attrID, e.id)
	if e.zone != nil {
		b.Bytes(attrZone, e.zone)
	}
	b.End()
	err := conn.Do(b, nil)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// attributes returns what stands behind an answer's header.
func attributes(m netlink.Message) []byte {
	return m.Payload[min(headerLen, len(m.Payload)):]
}

const headerLen = 4

// header is struct nfgenmsg of linux/netfilter/nfnetlink.h.
func header(family byte) []byte {
	return []byte{family, unix.NFNETLINK_V0, 0, 0}
}
