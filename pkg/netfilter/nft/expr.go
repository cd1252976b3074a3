package nft

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// expr is one expression of a rule, as the kernel knows it
// (linux/netfilter/nf_tables.h).
type expr struct {
	name string
	data func(b *netlink.Batch) // appends its attributes
}

// register is the number of the n-th of the sixteen 32-bit registers.
func register(n int) uint32 { return unix.NFT_REG32_00 + uint32(n) }

// words is how many registers a value of some bytes takes: values are aligned
// to registers, as are the parts of a set's key.
func words(bytes int) int { return (bytes + 3) / 4 }

// load puts something of the packet into registers.
type load struct {
	size int // bytes
	expr func(register uint32) expr
}

func meta(key uint32, size int) load {
	return load{size, func(reg uint32) expr {
		return expr{"meta", func(b *netlink.Batch) {
			b.BE32(unix.NFTA_META_DREG, reg)
			b.BE32(unix.NFTA_META_KEY, key)
		}}
	}}
}

func payload(base uint32, offset, size int) load {
	return load{size, func(reg uint32) expr {
		return expr{"payload", func(b *netlink.Batch) {
			b.BE32(unix.NFTA_PAYLOAD_DREG, reg)
			b.BE32(unix.NFTA_PAYLOAD_BASE, base)
			b.BE32(unix.NFTA_PAYLOAD_OFFSET, uint32(offset))
			b.BE32(unix.NFTA_PAYLOAD_LEN, uint32(size))
		}}
	}}
}

// What our rules look at. The destination port is at the same place in TCP,
// UDP and SCTP.
func inLink() load   { return meta(unix.NFT_META_IIFNAME, unix.IFNAMSIZ) }
func outLink() load  { return meta(unix.NFT_META_OIFNAME, unix.IFNAMSIZ) }
func protocol() load { return meta(unix.NFT_META_L4PROTO, 1) }
func nfproto() load  { return meta(unix.NFT_META_NFPROTO, 1) }
func mark() load     { return meta(unix.NFT_META_MARK, 4) }
func dstPort() load  { return payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2) }
func (f *family) src() load {
	return payload(unix.NFT_PAYLOAD_NETWORK_HEADER, f.srcOffset, f.addr.size)
}
func (f *family) dst() load {
	return payload(unix.NFT_PAYLOAD_NETWORK_HEADER, f.dstOffset, f.addr.size)
}

// connStatus is the state bits of the packet's connection (IPS_…).
func connStatus() load {
	return load{4, func(reg uint32) expr {
		return expr{"ct", func(b *netlink.Batch) {
			b.BE32(unix.NFTA_CT_DREG, reg)
			b.BE32(unix.NFTA_CT_KEY, unix.NFT_CT_STATUS)
		}}
	}}
}

// dstType is what kind of address the packet's destination is to the routing
// tables (RTN_…).
func dstType() load {
	return load{4, func(reg uint32) expr {
		return expr{"fib", func(b *netlink.Batch) {
			b.BE32(unix.NFTA_FIB_DREG, reg)
			b.BE32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE)
			b.BE32(unix.NFTA_FIB_FLAGS, unix.NFTA_FIB_F_DADDR)
		}}
	}}
}

// compare ends the rule unless what is loaded relates to value by op.
func compare(l load, op uint32, value []byte) []expr {
	return []expr{l.expr(register(0)), cmp(op, value)}
}

// compareMasked is compare for the bits of a mask.
func compareMasked(l load, mask []byte, op uint32, value []byte) []expr {
	return []expr{l.expr(register(0)), bitwise(mask, make([]byte, len(mask))), cmp(op, value)}
}

// compareNet ends the rule unless the address loaded is in a network, or is
// not, as op says.
func compareNet(l load, op uint32, network netip.Prefix) []expr {
	mask := make([]byte, l.size)
	for i := range network.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return compareMasked(l, mask, op, network.Masked().Addr().AsSlice())
}

func cmp(op uint32, value []byte) expr {
	return expr{"cmp", func(b *netlink.Batch) {
		b.BE32(unix.NFTA_CMP_SREG, register(0))
		b.BE32(unix.NFTA_CMP_OP, op)
		dataValue(b, unix.NFTA_CMP_DATA, value)
	}}
}

// bitwise makes register 0 (register 0 & mask) ^ xor.
func bitwise(mask, xor []byte) expr {
	return expr{"bitwise", func(b *netlink.Batch) {
		b.BE32(unix.NFTA_BITWISE_SREG, register(0))
		b.BE32(unix.NFTA_BITWISE_DREG, register(0))
		b.BE32(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		dataValue(b, unix.NFTA_BITWISE_MASK, mask)
		dataValue(b, unix.NFTA_BITWISE_XOR, xor)
	}}
}

// setMark sets bits of the packet's mark.
func setMark(bits uint32) []expr {
	return []expr{
		mark().expr(register(0)),
		bitwise(native(^bits), native(bits)),
		{"meta", func(b *netlink.Batch) {
			b.BE32(unix.NFTA_META_SREG, register(0))
			b.BE32(unix.NFTA_META_KEY, unix.NFT_META_MARK)
		}},
	}
}

// concat loads values one behind the other, as a key.
func concat(loads ...load) []expr {
	var out []expr
	at := 0
	for _, l := range loads {
		out = append(out, l.expr(register(at)))
		at += words(l.size)
	}
	return out
}

// lookup ends the rule unless the key loaded is in the set.
func lookup(s *set) expr {
	return expr{"lookup", func(b *netlink.Batch) {
		b.String(unix.NFTA_LOOKUP_SET, s.name)
		b.BE32(unix.NFTA_LOOKUP_SREG, register(0))
		if s.data != nil {
			b.BE32(unix.NFTA_LOOKUP_DREG, register(0))
		}
	}}
}

// dnat sends the connection to the address and port that stand in registers
// since a lookup.
func dnat(f *family) expr {
	return expr{"nat", func(b *netlink.Batch) {
		b.BE32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
		b.BE32(unix.NFTA_NAT_FAMILY, uint32(f.nfproto))
		b.BE32(unix.NFTA_NAT_REG_ADDR_MIN, register(0))
		b.BE32(unix.NFTA_NAT_REG_PROTO_MIN, register(words(f.addr.size)))
	}}
}

// masquerade gives the connection the address of the link it leaves by.
func masquerade() expr {
	return expr{"masq", func(*netlink.Batch) {}}
}

// verdict ends the chain (NF_DROP, NFT_RETURN) or goes on in another one.
func verdict(code int32, chain string) expr {
	return expr{"immediate", func(b *netlink.Batch) {
		b.BE32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		b.Nest(unix.NFTA_IMMEDIATE_DATA, func() {
			b.Nest(unix.NFTA_DATA_VERDICT, func() {
				b.BE32(unix.NFTA_VERDICT_CODE, uint32(code))
				if chain != "" {
					b.String(unix.NFTA_VERDICT_CHAIN, chain)
				}
			})
		})
	}}
}

// dataValue appends an attribute that holds a value (struct nft_data).
func dataValue(b *netlink.Batch, typ uint16, value []byte) {
	b.Nest(typ, func() { b.Bytes(unix.NFTA_DATA_VALUE, value) })
}

// native returns a number as it stands in a register of a packet's mark.
func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
