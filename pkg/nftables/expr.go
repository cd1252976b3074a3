package nftables

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// Expr is one expression of a rule.
type Expr struct {
	name string
	data func(b *netlink.Batch) // appends its attributes
}

// MakeRule puts a rule together of matches and statements.
func MakeRule(parts ...[]Expr) Rule {
	var out Rule
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// register is the number of the n-th of the sixteen 32-bit registers.
func register(n int) uint32 { return unix.NFT_REG32_00 + uint32(n) }

// words is how many registers a value of some bytes takes: values are aligned
// to registers, as are the parts of a set's key.
func words(bytes int) int { return (bytes + 3) / 4 }

// Load puts something of the packet into registers.
type Load struct {
	Size int // bytes
	expr func(register uint32) Expr
}

func meta(key uint32, size int) Load {
	return Load{size, func(reg uint32) Expr {
		return Expr{"meta", func(b *netlink.Batch) {
			b.BE32(unix.NFTA_META_DREG, reg)
			b.BE32(unix.NFTA_META_KEY, key)
		}}
	}}
}

func payload(base uint32, offset, size int) Load {
	return Load{size, func(reg uint32) Expr {
		return Expr{"payload", func(b *netlink.Batch) {
			b.BE32(unix.NFTA_PAYLOAD_DREG, reg)
			b.BE32(unix.NFTA_PAYLOAD_BASE, base)
			b.BE32(unix.NFTA_PAYLOAD_OFFSET, uint32(offset))
			b.BE32(unix.NFTA_PAYLOAD_LEN, uint32(size))
		}}
	}}
}

// InLink is the name of the link that the packet came in by.
func InLink() Load { return meta(unix.NFT_META_IIFNAME, unix.IFNAMSIZ) }

// OutLink is the name of the link that the packet leaves by.
func OutLink() Load { return meta(unix.NFT_META_OIFNAME, unix.IFNAMSIZ) }

// L4Protocol is the protocol above IP, 1 byte.
func L4Protocol() Load { return meta(unix.NFT_META_L4PROTO, 1) }

// Family is NFPROTO_IPV4 or NFPROTO_IPV6, 1 byte.
func Family() Load { return meta(unix.NFT_META_NFPROTO, 1) }

// Mark is the packet's mark.
func Mark() Load { return meta(unix.NFT_META_MARK, 4) }

// DstPort is at the same place in TCP, UDP and SCTP.
func DstPort() Load { return payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2) }

// Network is a part of the IP header, in bytes from its start.
func Network(offset, size int) Load {
	return payload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, size)
}

// SrcEther is the sender's MAC address.
func SrcEther() Load { return payload(unix.NFT_PAYLOAD_LL_HEADER, 6, 6) }

// ConnStatus is the state bits of the packet's connection (IPS_… of
// linux/netfilter/nf_conntrack_common.h).
func ConnStatus() Load { return ct(unix.NFT_CT_STATUS) }

// ConnState is a bit for what the packet is to its connection
// (NF_CT_STATE_BIT of linux/netfilter/nf_conntrack_common.h).
func ConnState() Load { return ct(unix.NFT_CT_STATE) }

func ct(key uint32) Load {
	return Load{4, func(reg uint32) Expr {
		return Expr{"ct", func(b *netlink.Batch) {
			b.BE32(unix.NFTA_CT_DREG, reg)
			b.BE32(unix.NFTA_CT_KEY, key)
		}}
	}}
}

// DstType is what kind of address the packet's destination is to the routing
// tables (RTN_…).
func DstType() Load {
	return Load{4, func(reg uint32) Expr {
		return Expr{"fib", func(b *netlink.Batch) {
			b.BE32(unix.NFTA_FIB_DREG, reg)
			b.BE32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE)
			b.BE32(unix.NFTA_FIB_FLAGS, unix.NFTA_FIB_F_DADDR)
		}}
	}}
}

// Compare ends the rule unless what is loaded relates to value by op
// (NFT_CMP_…).
func Compare(l Load, op uint32, value []byte) []Expr {
	return []Expr{l.expr(register(0)), cmp(op, value)}
}

// CompareMasked is Compare for the bits of a mask.
func CompareMasked(l Load, mask []byte, op uint32, value []byte) []Expr {
	return []Expr{l.expr(register(0)), bitwise(mask, make([]byte, len(mask))), cmp(op, value)}
}

// CompareNet ends the rule unless the address loaded is in a network, or is
// not, as op says.
func CompareNet(l Load, op uint32, network netip.Prefix) []Expr {
	mask := make([]byte, l.Size)
	for i := range network.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return CompareMasked(l, mask, op, network.Masked().Addr().AsSlice())
}

func cmp(op uint32, value []byte) Expr {
	return Expr{"cmp", func(b *netlink.Batch) {
		b.BE32(unix.NFTA_CMP_SREG, register(0))
		b.BE32(unix.NFTA_CMP_OP, op)
		dataValue(b, unix.NFTA_CMP_DATA, value)
	}}
}

// bitwise makes register 0 (register 0 & mask) ^ xor.
func bitwise(mask, xor []byte) Expr {
	return Expr{"bitwise", func(b *netlink.Batch) {
		b.BE32(unix.NFTA_BITWISE_SREG, register(0))
		b.BE32(unix.NFTA_BITWISE_DREG, register(0))
		b.BE32(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		dataValue(b, unix.NFTA_BITWISE_MASK, mask)
		dataValue(b, unix.NFTA_BITWISE_XOR, xor)
	}}
}

// SetMark sets bits of the packet's mark.
func SetMark(bits uint32) []Expr { return changeMark(^bits, bits) }

// ClearMark clears bits of the packet's mark.
func ClearMark(bits uint32) []Expr { return changeMark(^bits, 0) }

func changeMark(keep, set uint32) []Expr {
	return []Expr{
		Mark().expr(register(0)),
		bitwise(Native(keep), Native(set)),
		{"meta", func(b *netlink.Batch) {
			b.BE32(unix.NFTA_META_SREG, register(0))
			b.BE32(unix.NFTA_META_KEY, unix.NFT_META_MARK)
		}},
	}
}

// Concat loads values one behind the other, as a key.
func Concat(loads ...Load) []Expr {
	var out []Expr
	at := 0
	for _, l := range loads {
		out = append(out, l.expr(register(at)))
		at += words(l.Size)
	}
	return out
}

// In ends the rule unless the key that is loaded is in the set.
func In(s *Set, loads ...Load) []Expr { return append(Concat(loads...), lookup(s)) }

// InBut is In, and also ends the rule if the key is in another set, which is
// looked at first.
func InBut(s, but *Set, loads ...Load) []Expr {
	isNotIn := Expr{"lookup", func(b *netlink.Batch) {
		b.String(unix.NFTA_LOOKUP_SET, but.Name)
		b.BE32(unix.NFTA_LOOKUP_SREG, register(0))
		b.BE32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
	}}
	return append(Concat(loads...), isNotIn, lookup(s))
}

func lookup(s *Set) Expr {
	return Expr{"lookup", func(b *netlink.Batch) {
		b.String(unix.NFTA_LOOKUP_SET, s.Name)
		b.BE32(unix.NFTA_LOOKUP_SREG, register(0))
		if s.Data != nil {
			b.BE32(unix.NFTA_LOOKUP_DREG, register(0))
		}
	}}
}

// DNAT sends the connection to the address, of a type, and the port that stand
// in registers since a lookup in a map.
func DNAT(nfproto uint8, addr Type) []Expr {
	return []Expr{{"nat", func(b *netlink.Batch) {
		b.BE32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
		b.BE32(unix.NFTA_NAT_FAMILY, uint32(nfproto))
		b.BE32(unix.NFTA_NAT_REG_ADDR_MIN, register(0))
		b.BE32(unix.NFTA_NAT_REG_PROTO_MIN, register(words(addr.Size())))
	}}}
}

// Masquerade gives the connection the address of the link it leaves by.
func Masquerade() []Expr { return []Expr{{"masq", func(*netlink.Batch) {}}} }

// Drop drops the packet.
func Drop() []Expr {
	const nfDrop = 0 // NF_DROP of linux/netfilter.h
	return verdict(nfDrop, "")
}

// Accept ends the base chain; later ones still see the packet.
func Accept() []Expr {
	const nfAccept = 1 // NF_ACCEPT of linux/netfilter.h
	return verdict(nfAccept, "")
}

// Return ends the chain.
func Return() []Expr { return verdict(unix.NFT_RETURN, "") }

// Jump goes on in another chain, and comes back.
func Jump(to string) []Expr { return verdict(unix.NFT_JUMP, to) }

// Goto goes on in another chain, and comes back to where this one was called.
func Goto(to string) []Expr { return verdict(unix.NFT_GOTO, to) }

func verdict(code int32, chain string) []Expr {
	return []Expr{{"immediate", func(b *netlink.Batch) {
		b.BE32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		b.Nest(unix.NFTA_IMMEDIATE_DATA, func() {
			b.Nest(unix.NFTA_DATA_VERDICT, func() {
				b.BE32(unix.NFTA_VERDICT_CODE, uint32(code))
				if chain != "" {
					b.String(unix.NFTA_VERDICT_CHAIN, chain)
				}
			})
		})
	}}}
}

// dataValue appends an attribute that holds a value (struct nft_data).
func dataValue(b *netlink.Batch, typ uint16, value []byte) {
	b.Nest(typ, func() { b.Bytes(unix.NFTA_DATA_VALUE, value) })
}
