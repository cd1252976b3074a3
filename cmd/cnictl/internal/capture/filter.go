package capture

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Filter says which packets count: those that have one of each kind that is given. With ports, of a packet in fragments the first counts.
type Filter struct {
	Protocols []Protocol
	Addresses []netip.Addr // of the sender or the receiver
	Ports     []uint16     // of the sender or the receiver
}

// Protocol is what an IP packet carries, or ARP.
type Protocol struct {
	Name string
	ipv4 uint32 // 0: none
	ipv6 uint32
}

// The protocols that can be filtered by.
var (
	ARP  = Protocol{"arp", 0, 0}
	TCP  = Protocol{"tcp", unix.IPPROTO_TCP, unix.IPPROTO_TCP}
	UDP  = Protocol{"udp", unix.IPPROTO_UDP, unix.IPPROTO_UDP}
	SCTP = Protocol{"sctp", unix.IPPROTO_SCTP, unix.IPPROTO_SCTP}
	ICMP = Protocol{"icmp", unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6}
)

// AllProtocols are those that can be named.
var AllProtocols = []Protocol{ARP, TCP, UDP, SCTP, ICMP}

// network is where the kernel has a packet's network header, with an Ethernet header before it or without (SKF_NET_OFF in linux/filter.h).
const network = 1<<32 - 0x100000

// program is a piece of a filter. Nothing in it jumps farther than to its end.
type program []bpf.Instruction

var (
	refuse = bpf.RetConstant{Val: 0}
	accept = bpf.RetConstant{Val: maxFrame}
)

// Compile returns the filter in the kernel's form, nil if all packets count.
func (f Filter) Compile() ([]bpf.RawInstruction, error) {
	if f.Protocols == nil && f.Addresses == nil && f.Ports == nil {
		return nil, nil
	}
	return bpf.Assemble(byFamily(f.ipv4(), f.ipv6(), f.arp()))
}

// Traces returns a filter for what tells where the packets of connections to ports went: these, and all ARP and ICMP.
func Traces(ports []uint16) ([]bpf.RawInstruction, error) {
	icmp4 := program{at(9, 1), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ICMP.ipv4, SkipTrue: 1}, accept}
	icmp6 := program{at(6, 1), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ICMP.ipv6, SkipTrue: 1}, accept}
	f := Filter{Ports: ports}
	return bpf.Assemble(byFamily(append(icmp4, f.ipv4()...), append(icmp6, f.ipv6()...), program{accept}))
}

// byFamily has a piece for each kind of packet, all of which return.
func byFamily(ipv4, ipv6, arp program) program {
	all := program{bpf.LoadExtension{Num: bpf.ExtProto}}
	for _, family := range []struct {
		protocol uint32
		body     program
	}{{unix.ETH_P_IP, ipv4}, {unix.ETH_P_IPV6, ipv6}, {unix.ETH_P_ARP, arp}} {
		all = append(all, bpf.JumpIf{Cond: bpf.JumpEqual, Val: family.protocol, SkipTrue: 1}, bpf.Jump{Skip: uint32(len(family.body))})
		all = append(all, family.body...)
	}
	return append(all, refuse)
}

// comparison holds if what is loaded is the value.
type comparison struct {
	load  bpf.Instruction
	value uint32
}

// at loads from the network header.
func at(offset uint32, size int) bpf.Instruction {
	return bpf.LoadAbsolute{Off: network + offset, Size: size}
}

// require refuses a packet for which no alternative holds; one holds if all of its comparisons do.
func require(alternatives [][]comparison) (p program) {
	length := 1 // of all, with the refusal
	for _, a := range alternatives {
		length += 2*len(a) + 1
	}
	for _, a := range alternatives {
		for i, c := range a {
			toNext := 2*(len(a)-i) - 1
			p = append(p, c.load, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.value, SkipTrue: uint8(toNext)})
		}
		p = append(p, bpf.Jump{Skip: uint32(length - len(p) - 1)})
	}
	return append(p, refuse)
}

func (f Filter) ipv4() (p program) {
	var protocols, addresses [][]comparison
	for _, protocol := range f.carried() {
		if protocol.ipv4 != 0 {
			protocols = append(protocols, []comparison{{at(9, 1), protocol.ipv4}})
		}
	}
	for _, a := range f.Addresses {
		if a.Is4() {
			addresses = append(addresses, address4(12, a), address4(16, a))
		}
	}
	if f.carried() != nil {
		p = append(p, require(protocols)...)
	}
	if f.Addresses != nil {
		p = append(p, require(addresses)...)
	}
	if f.Ports != nil {
		// A later fragment has no ports. Where they are in the first one depends on the header's length, which goes into X.
		p = append(p, at(6, 2), bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: 0x1fff, SkipTrue: 1}, refuse, bpf.LoadMemShift{Off: network})
		p = append(p, requirePort(f.Ports)...)
	}
	return append(p, accept)
}

// ipv6 does not look behind extension headers.
func (f Filter) ipv6() (p program) {
	var protocols, addresses [][]comparison
	for _, protocol := range f.carried() {
		if protocol.ipv6 != 0 {
			protocols = append(protocols, []comparison{{at(6, 1), protocol.ipv6}})
		}
	}
	for _, a := range f.Addresses {
		if a.Is6() {
			addresses = append(addresses, address6(8, a), address6(24, a))
		}
	}
	if f.carried() != nil {
		p = append(p, require(protocols)...)
	}
	if f.Addresses != nil {
		p = append(p, require(addresses)...)
	}
	if f.Ports != nil {
		p = append(append(p, bpf.LoadConstant{Dst: bpf.RegX, Val: 40}), requirePort(f.Ports)...)
	}
	return append(p, accept)
}

func (f Filter) arp() (p program) {
	wanted := f.Protocols == nil
	for _, protocol := range f.Protocols {
		wanted = wanted || protocol == ARP
	}
	if !wanted || f.Ports != nil {
		return program{refuse}
	}
	var addresses [][]comparison
	for _, a := range f.Addresses {
		if a.Is4() { // the sender's, and the one that is asked for
			addresses = append(addresses, address4(14, a), address4(24, a))
		}
	}
	if f.Addresses != nil {
		p = require(addresses)
	}
	return append(p, accept)
}

// carried are the protocols that count: if only ports are given, those that have some.
func (f Filter) carried() []Protocol {
	if f.Protocols == nil && f.Ports != nil {
		return []Protocol{TCP, UDP, SCTP}
	}
	return f.Protocols
}

func address4(offset uint32, a netip.Addr) []comparison {
	return []comparison{{at(offset, 4), binary.BigEndian.Uint32(a.AsSlice())}}
}

func address6(offset uint32, a netip.Addr) (all []comparison) {
	bytes := a.As16()
	for i := uint32(0); i < 16; i += 4 {
		all = append(all, comparison{at(offset+i, 4), binary.BigEndian.Uint32(bytes[i:])})
	}
	return all
}

// requirePort looks at the two ports behind a header whose length is in X.
func requirePort(ports []uint16) program {
	var all [][]comparison
	for _, port := range ports {
		for _, offset := range []uint32{0, 2} {
			all = append(all, []comparison{{bpf.LoadIndirect{Off: network + offset, Size: 2}, uint32(port)}})
		}
	}
	return require(all)
}
