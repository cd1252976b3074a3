package nft

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// rule is the words of a rule. Most load something of the packet into registers, and end the rule unless that is as it should be.
type rule []expr.Any

// sequence puts the words of some rules behind one another.
func sequence(parts ...rule) rule { return slices.Concat(parts...) }

// rename gives the sets that a rule looks into other names.
func (r rule) rename(names map[string]string) {
	for _, e := range r {
		if lookup, is := e.(*expr.Lookup); is && names[lookup.SetName] != "" {
			lookup.SetName = names[lookup.SetName]
		}
	}
}

// value is something of the packet that can be loaded into registers.
type value struct {
	kind nftables.SetDatatype
	into func(register uint32) expr.Any
}

// register is the number of the register, of 32 bits, that is behind the first bytes.
func register(bytes uint32) uint32 { return unix.NFT_REG32_00 + (bytes+3)/4 }

func meta(key expr.MetaKey, kind nftables.SetDatatype) value {
	return value{kind, func(r uint32) expr.Any { return &expr.Meta{Key: key, Register: r} }}
}

func payload(base expr.PayloadBase, offset uint32, kind nftables.SetDatatype) value {
	return value{kind, func(r uint32) expr.Any {
		return &expr.Payload{DestRegister: r, Base: base, Offset: offset, Len: kind.Bytes}
	}}
}

func inLink() value   { return meta(expr.MetaKeyIIFNAME, nftables.TypeIFName) }
func outLink() value  { return meta(expr.MetaKeyOIFNAME, nftables.TypeIFName) }
func nfproto() value  { return meta(expr.MetaKeyNFPROTO, nftables.TypeNFProto) }
func protocol() value { return meta(expr.MetaKeyL4PROTO, nftables.TypeInetProto) }
func srcEther() value { return payload(expr.PayloadBaseLLHeader, 6, nftables.TypeEtherAddr) }

// portValue is the port in TCP, UDP and SCTP.
func portValue() value { return payload(expr.PayloadBaseTransportHeader, 2, nftables.TypeInetService) }

// load loads values one behind the other, as a key.
func load(values ...value) (r rule) {
	at := uint32(0)
	for _, v := range values {
		r = append(r, v.into(register(at)))
		at += (v.kind.Bytes + 3) / 4 * 4
	}
	return r
}

// inSet goes on if the key is in a set. With a map it loads the key's data.
func inSet(s *nftables.Set, key ...value) rule {
	return append(load(key...), &expr.Lookup{SourceRegister: register(0), DestRegister: register(0), IsDestRegSet: s.IsMap, SetName: s.Name})
}

// equals goes on if the value is the data.
func equals(v value, data []byte) rule {
	return append(load(v), &expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: data})
}

// compareBits goes on if the bits of a mask relate to data by op.
func compareBits(v value, mask []byte, op expr.CmpOp, data []byte) rule {
	return append(load(v), bitwise(mask, make([]byte, len(mask))), &expr.Cmp{Op: op, Register: register(0), Data: data})
}

func bitwise(mask, xor []byte) expr.Any {
	return &expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: uint32(len(mask)), Mask: mask, Xor: xor}
}

func compareNet(v value, op expr.CmpOp, network netip.Prefix) rule {
	return compareBits(v, net.CIDRMask(network.Bits(), 8*int(v.kind.Bytes)), op, network.Masked().Addr().AsSlice())
}

// isSet goes on if all of the bits are set.
func isSet(key expr.MetaKey, bits uint32) rule {
	return compareBits(meta(key, nftables.TypeMark), native(bits), expr.CmpOpEq, native(bits))
}

// change sets bits to others.
func change(key expr.MetaKey, bits, to uint32) rule {
	return append(load(meta(key, nftables.TypeMark)), bitwise(native(^bits), native(to)),
		&expr.Meta{Key: key, SourceRegister: true, Register: register(0)})
}

func setMark(bits uint32) rule { return change(expr.MetaKeyMARK, bits, bits) }

func verdict(k expr.VerdictKind, chain string) rule {
	return rule{&expr.Verdict{Kind: k, Chain: chain}}
}

func accept() rule             { return verdict(expr.VerdictAccept, "") }
func drop() rule               { return verdict(expr.VerdictDrop, "") }
func leave() rule              { return verdict(expr.VerdictReturn, "") }
func jump(to string) rule      { return verdict(expr.VerdictJump, to) }
func gotoChain(to string) rule { return verdict(expr.VerdictGoto, to) }
func masquerade() rule         { return rule{&expr.Masq{}} }

// family is what differs between IPv4 and IPv6.
type family struct {
	number       byte
	name, digit  string // as nft calls it, and in names
	addr         nftables.SetDatatype
	srcAt, dstAt uint32 // of the addresses, in bytes from the start of the IP header
	multicast    netip.Prefix
}

var (
	ipv4 = family{unix.NFPROTO_IPV4, "ip", "4", nftables.TypeIPAddr, 12, 16, netip.MustParsePrefix("224.0.0.0/4")}
	ipv6 = family{unix.NFPROTO_IPV6, "ip6", "6", nftables.TypeIP6Addr, 8, 24, netip.MustParsePrefix("ff00::/8")}
)

func families() []*family { return []*family{&ipv4, &ipv6} }

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return &ipv4
	}
	return &ipv6
}

func (f *family) only() rule { return equals(nfproto(), []byte{f.number}) }
func (f *family) src() value { return payload(expr.PayloadBaseNetworkHeader, f.srcAt, f.addr) }
func (f *family) dst() value { return payload(expr.PayloadBaseNetworkHeader, f.dstAt, f.addr) }

// dnat sends a connection to the address and port that a map's data has.
func (f *family) dnat() rule {
	return rule{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.number), RegAddrMin: register(0), RegProtoMin: register(f.addr.Bytes)}}
}

// isLocalhost goes on if an IPv4 address is of 127.0.0.0/8.
func isLocalhost(addr value) rule {
	return sequence(ipv4.only(), compareNet(addr, expr.CmpOpEq, netip.MustParsePrefix("127.0.0.0/8")))
}

// isLocal goes on if the packet is for an address of the host.
func isLocal() rule { return isFor(unix.RTN_LOCAL) }

// isFor goes on if the host's routes have the packet's destination as of a kind (rtnetlink(7)).
func isFor(kind uint32) rule {
	of := func(r uint32) expr.Any { return &expr.Fib{Register: r, FlagDADDR: true, ResultADDRTYPE: true} }
	return equals(value{nftables.TypeInteger, of}, native(kind))
}

// isNotAnsweredThere goes on if the host would send answers to the packet by another link than the one that it came in by.
func isNotAnsweredThere() rule {
	link := func(r uint32) expr.Any {
		return &expr.Fib{Register: r, FlagSADDR: true, FlagIIF: true, ResultOIF: true}
	}
	return equals(value{nftables.TypeInteger, link}, native(0))
}

// fromKind goes on if the packet came in by a link of a kind, such as "veth".
func fromKind(kind string) rule {
	const iifKind = 26 // NFT_META_IIFKIND in linux/netfilter/nf_tables.h
	return equals(meta(iifKind, nftables.TypeIFName), linkKey(kind))
}

// connection goes on if something of the packet's connection has one of the bits, which are those of
// linux/netfilter/nf_conntrack_common.h.
func connection(key expr.CtKey, bits uint32) rule {
	v := value{nftables.TypeInteger, func(r uint32) expr.Any { return &expr.Ct{Key: key, Register: r} }}
	return compareBits(v, native(bits), expr.CmpOpNeq, native(0))
}

// wasRedirected goes on if the destination of the packet's connection was changed, isAnswer if the packet is of a connection that is
// known (established), or that belongs to one (related).
func wasRedirected() rule { return connection(expr.CtKeySTATUS, 1<<5) }
func isAnswer() rule      { return connection(expr.CtKeySTATE, 1<<1|1<<2) }
func isEstablished() rule { return connection(expr.CtKeySTATE, 1<<1) }
func isRelated() rule     { return connection(expr.CtKeySTATE, 1<<2) }

// A label of a connection has 128 bits, which others use, too.
func labelBits(bit int) []byte {
	bits := make([]byte, 16)
	binary.NativeEndian.PutUint32(bits[bit/32*4:], 1<<(bit%32))
	return bits
}

// setLabel sets a bit of the connection's label, and leaves all others.
func setLabel(bit int) rule {
	return rule{&expr.Immediate{Register: register(0), Data: labelBits(bit)}, &expr.Ct{Key: expr.CtKeyLABELS, Register: register(0), SourceRegister: true}}
}

// hasLabel goes on if a bit of the connection's label is set.
func hasLabel(bit int) rule {
	v := value{nftables.TypeInteger, func(r uint32) expr.Any { return &expr.Ct{Key: expr.CtKeyLABELS, Register: r} }}
	bits := labelBits(bit)
	return compareBits(v, bits, expr.CmpOpNeq, make([]byte, len(bits)))
}

// isDirection goes on if the packet goes the way of the one that began its connection, or the way of the answers.
func isDirection(way byte) rule {
	direction := func(r uint32) expr.Any { return &expr.Ct{Key: expr.CtKeyDIRECTION, Register: r} }
	return equals(value{nftables.TypeInteger, direction}, []byte{way})
}

const original, answer = 0, 1

// The parts of keys and data, each filled up to whole registers.

func pad(b ...byte) []byte    { return append(b[:len(b):len(b)], make([]byte, -len(b)&3)...) }
func native(n uint32) []byte  { return binary.NativeEndian.AppendUint32(nil, n) }
func portKey(p uint16) []byte { return pad(byte(p>>8), byte(p)) }
func linkKey(name string) []byte {
	return []byte(name + strings.Repeat("\x00", unix.IFNAMSIZ))[:unix.IFNAMSIZ:unix.IFNAMSIZ]
}
