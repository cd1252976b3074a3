package trace

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Protocol is how a packet asks.
type Protocol string

// The protocols.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	Ping Protocol = "ping"
)

// Flow is the packets of one connection, or of one ping, as its sender begins it.
type Flow struct {
	Protocol Protocol
	From, To netip.Addr
	Port     uint16 // the sender's; of a ping its identifier. 0: whatever it is
	ToPort   uint16 // 0 if it is a ping
}

// String is the flow for people.
func (f Flow) String() string {
	if f.Protocol == Ping {
		return fmt.Sprintf("ping from %s to %s", f.From, f.To)
	}
	return fmt.Sprintf("%s from %s to %s", f.Protocol, f.From, netip.AddrPortFrom(f.To, f.ToPort))
}

func (f Flow) is6() bool { return f.To.Is6() }

// version is that of IP, as Go has it in the names of networks: a socket without an address could be of either.
func (f Flow) version() string {
	if f.is6() {
		return "6"
	}
	return "4"
}

// number is that of the protocol in IP headers.
func (f Flow) number() byte {
	switch {
	case f.Protocol == TCP:
		return unix.IPPROTO_TCP
	case f.Protocol == UDP:
		return unix.IPPROTO_UDP
	}
	return f.icmp()
}

func (f Flow) icmp() byte {
	if f.is6() {
		return unix.IPPROTO_ICMPV6
	}
	return unix.IPPROTO_ICMP
}

// condition is what a rule asks for.
type condition = []expr.Any

// isOf are the conditions of rules that together match the flow's packets: requests, answers, and what routers say of them. The host may change
// addresses on the way; the sender's port stays, as far as it is free.
func (f Flow) isOf() (list []condition) {
	if f.Port == 0 {
		return f.isNext()
	}
	port := binary.BigEndian.AppendUint16(nil, f.Port)
	inner := uint32(8 + 20) // the packet that an error by ICMP quotes
	if f.is6() {
		inner = 8 + 40
	}
	if f.Protocol == Ping {
		const identifier = 4
		return []condition{
			append(isProtocol(f.icmp()), transport(identifier, port)...),
			append(isProtocol(f.icmp()), transport(inner+identifier, port)...),
		}
	}
	const source, destination = 0, 2
	return []condition{
		append(isProtocol(f.number()), transport(source, port)...),
		append(isProtocol(f.number()), transport(destination, port)...),
		append(isProtocol(f.icmp()), transport(inner+source, port)...),
		append(isProtocol(f.icmp()), transport(inner+destination, port)...),
	}
}

// isNext matches what a sender sends next, and the answer where it has come back to the addresses that were asked for.
func (f Flow) isNext() []condition {
	there, back := isProtocol(f.number()), isProtocol(f.number())
	const source, destination = 0, 2
	if f.From.IsValid() {
		there, back = append(there, f.address(true, f.From)...), append(back, f.address(false, f.From)...)
	}
	if f.To.IsValid() {
		there, back = append(there, f.address(false, f.To)...), append(back, f.address(true, f.To)...)
	}
	if f.ToPort != 0 {
		port := binary.BigEndian.AppendUint16(nil, f.ToPort)
		there, back = append(there, transport(destination, port)...), append(back, transport(source, port)...)
	}
	return []condition{there, back}
}

// isTracked matches the flow's packets by what the host's connection tracking knows of them, whatever was changed on the way.
func (f Flow) isTracked() condition {
	if f.Protocol == Ping || f.ToPort == 0 {
		return nil
	}
	c := append(isProtocol(f.number()), original(unix.NFT_CT_PROTO_DST, f.ToPort)...)
	if f.Port != 0 {
		c = append(c, original(unix.NFT_CT_PROTO_SRC, f.Port)...)
	}
	return c
}

func original(key expr.CtKey, port uint16) condition {
	return condition{&expr.Ct{Key: key, Register: 1}, equals(binary.BigEndian.AppendUint16(nil, port))}
}

func isProtocol(number byte) condition {
	return condition{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{number})}
}

func transport(offset uint32, data []byte) condition {
	return condition{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: uint32(len(data))}, equals(data)}
}

// address matches a packet's source or destination. That the packet is of the same family is asked first: otherwise other bytes would be compared.
func (f Flow) address(source bool, a netip.Addr) condition {
	offset, ether := uint32(16), uint16(unix.ETH_P_IP)
	if a.Is6() {
		offset, ether = 24, unix.ETH_P_IPV6
	}
	if source {
		offset -= uint32(len(a.AsSlice()))
	}
	return condition{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1}, equals(binary.BigEndian.AppendUint16(nil, ether)),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(a.AsSlice()))}, equals(a.AsSlice()),
	}
}

// asksFor match questions and answers about who has an address: by ARP, or neighbour discovery.
func asksFor(a netip.Addr) (list []condition) {
	if a.Is6() {
		const target = 8
		return []condition{append(isProtocol(unix.IPPROTO_ICMPV6), transport(target, a.AsSlice())...)}
	}
	const sender, target = 14, 24
	for _, offset := range []uint32{sender, target} {
		list = append(list, condition{
			&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1}, equals(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP)),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4}, equals(a.AsSlice()),
		})
	}
	return list
}

func equals(data []byte) *expr.Cmp { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

// isMine reports whether an event is about the flow, and not about another packet: one that has the same port by chance, or is of another trace. known are
// the packets that are, and ports those that the host has given the sender.
func (f Flow) isMine(e Event, known map[uint32]bool, ports map[uint16]bool) bool {
	h := e.Packet
	isPort := f.Port == 0 || h.FromPort == f.Port || h.ToPort == f.Port || ports[h.ToPort] || h.FromPort == 0
	isAddress := h.From == f.From || h.To == f.From || h.From == f.To || h.To == f.To
	is := known[e.id] || h.About.IsValid() || h.isError() || isAddress && isPort
	known[e.id] = known[e.id] || is
	return is
}
