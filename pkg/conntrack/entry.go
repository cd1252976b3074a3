package conntrack

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netlink"
)

// entry is a flow that the kernel knows.
type entry struct {
	protocol uint8
	client   netip.AddrPort // who sent the first packet
	original netip.AddrPort // where it was sent to
	leadsTo  netip.AddrPort // who answers: the packets' real destination

	// What the kernel knows it by. tuple is never empty.
	tuple, id, zone []byte
}

// parseEntry reads the attributes of one entry of a listing; ok is false if it
// is not one of a protocol with ports. The entry is only valid while data is.
func parseEntry(data []byte) (e entry, ok bool) {
	netlink.Attrs(data, func(typ uint16, v []byte) {
		switch typ {
		case attrTupleOrig:
			e.tuple = v
		case attrID:
			e.id = v
		case attrZone:
			e.zone = v
		}
	})
	original := parseTuple(e.tuple)
	reply := parseTuple(netlink.Attr(data, attrTupleReply))
	if !original.ok || !reply.ok || len(e.id) != 4 {
		return entry{}, false
	}
	e.protocol, e.client, e.original, e.leadsTo = original.protocol, original.src, original.dst, reply.src
	return e, true
}

// clone makes the entry outlive what it was read from.
func (e entry) clone() entry {
	e.tuple, e.id, e.zone = bytes.Clone(e.tuple), bytes.Clone(e.id), bytes.Clone(e.zone)
	return e
}

func (e entry) family() byte {
	if e.original.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// String returns the flow as people read it.
func (e entry) String() string {
	return netfilter.ProtocolName(e.protocol) + " from " + e.client.String() + " to " + e.original.String()
}

// tuple is one direction of a flow.
type tuple struct {
	protocol uint8
	src, dst netip.AddrPort
	ok       bool
}

func parseTuple(data []byte) tuple {
	var t tuple
	var src, dst netip.Addr
	var srcPort, dstPort []byte
	netlink.Attrs(netlink.Attr(data, attrTupleIP), func(typ uint16, v []byte) {
		switch typ {
		case attrIPv4Src, attrIPv6Src:
			src, _ = netip.AddrFromSlice(v)
		case attrIPv4Dst, attrIPv6Dst:
			dst, _ = netip.AddrFromSlice(v)
		}
	})
	netlink.Attrs(netlink.Attr(data, attrTupleProto), func(typ uint16, v []byte) {
		switch {
		case typ == attrProtoNum && len(v) == 1:
			t.protocol = v[0]
		case typ == attrProtoSrcPort:
			srcPort = v
		case typ == attrProtoDstPort:
			dstPort = v
		}
	})
	if !src.IsValid() || !dst.IsValid() || len(srcPort) != 2 || len(dstPort) != 2 {
		return tuple{}
	}
	t.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(srcPort))
	t.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(dstPort))
	t.ok = true
	return t
}
