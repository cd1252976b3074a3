package nftables

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// addressReader finds the addresses that a rule is about in its expressions,
// which it is given in their order.
type addressReader struct {
	fields    map[uint32]field  // of the packet's network header, by register
	constants map[uint32][]byte // by register

	destination, dnat netip.Addr
}

// field is a part of a header, in bytes.
type field struct{ start, end int }

func (a *addressReader) read(name string, data []byte) {
	switch name {
	case "payload":
		to := number(data, unix.NFTA_PAYLOAD_DREG)
		delete(a.fields, to)
		if number(data, unix.NFTA_PAYLOAD_BASE) != unix.NFT_PAYLOAD_NETWORK_HEADER {
			return
		}
		if a.fields == nil {
			a.fields = map[uint32]field{}
		}
		start := int(number(data, unix.NFTA_PAYLOAD_OFFSET))
		a.fields[to] = field{start, start + int(number(data, unix.NFTA_PAYLOAD_LEN))}
	case "bitwise": // what is compared then is a part of a field
		delete(a.fields, number(data, unix.NFTA_BITWISE_DREG))
	case "cmp":
		f, ok := a.fields[number(data, unix.NFTA_CMP_SREG)]
		if ok && number(data, unix.NFTA_CMP_OP) == unix.NFT_CMP_EQ {
			a.compare(f, value(data, unix.NFTA_CMP_DATA))
		}
	case "immediate":
		if a.constants == nil {
			a.constants = map[uint32][]byte{}
		}
		a.constants[number(data, unix.NFTA_IMMEDIATE_DREG)] = value(data, unix.NFTA_IMMEDIATE_DATA)
	case "nat":
		if number(data, unix.NFTA_NAT_TYPE) == unix.NFT_NAT_DNAT {
			a.dnat, _ = netip.AddrFromSlice(a.constants[number(data, unix.NFTA_NAT_REG_ADDR_MIN)])
		}
	}
}

// The addresses in the headers of both families: the source, and the
// destination right behind it. nft compares both at once where they fit into
// one register.
var (
	addresses4 = field{12, 20}
	addresses6 = field{8, 40}
)

// compare takes note of a field that has to have a value.
func (a *addressReader) compare(f field, want []byte) {
	for _, both := range []field{addresses4, addresses6} {
		destination := field{(both.start + both.end) / 2, both.end}
		if f.start < both.start || f.start > destination.start || f.end != destination.end || len(want) != f.end-f.start {
			continue
		}
		a.destination, _ = netip.AddrFromSlice(want[destination.start-f.start:])
		return
	}
}

// number returns an attribute of 32 bits, 0 if there is none.
func number(data []byte, typ uint16) uint32 {
	if v := netlink.Attr(data, typ); len(v) == 4 {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

// value returns an attribute that holds a value (struct nft_data).
func value(data []byte, typ uint16) []byte {
	return netlink.Attr(netlink.Attr(data, typ), unix.NFTA_DATA_VALUE)
}
