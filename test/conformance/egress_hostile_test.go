package conformance

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// The rows of what a hostile container sends: frames that it makes itself, on a packet socket. Whoever must not get one looks for its mark.

// frameMark is 8 bytes behind the IP header of each packet, which is where the data of UDP begins, and the number that TCP acknowledges.
const frameMark = "\xc1\xb0\xc5\x5e"

// attack is a container that has a list, and those that it must not reach.
type attack struct {
	lab                   *lab
	v6, bridged           bool
	from                  *container // may reach the outside's first address, and nothing else
	friend                *container // of the same network, may reach everything
	mac, friendMAC, toMAC net.HardwareAddr
	own, friendAddr       netip.Addr
	listed, other, node   netip.Addr // the outside's two addresses, and the node's
	gateway               netip.Addr
}

// datagram is a packet of UDP with the mark, between two addresses.
func (a *attack) datagram(src, dst netip.Addr, more ...byte) []gopacket.SerializableLayer {
	udp := &layers.UDP{SrcPort: 4000, DstPort: 80}
	ip := a.ip(src, dst, layers.IPProtocolUDP)
	_ = udp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer))
	return []gopacket.SerializableLayer{ip, udp, gopacket.Payload(append([]byte(frameMark), more...))}
}

func (a *attack) ip(src, dst netip.Addr, protocol layers.IPProtocol) gopacket.SerializableLayer {
	if a.v6 {
		return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	}
	return &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Id: 7, Protocol: protocol, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
}

func (a *attack) etherType() layers.EthernetType {
	if a.v6 {
		return layers.EthernetTypeIPv6
	}
	return layers.EthernetTypeIPv4
}

// frame is an Ethernet frame.
func frame(src, dst net.HardwareAddr, kind layers.EthernetType, inside ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	all := append([]gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: src, DstMAC: dst, EthernetType: kind}}, inside...)
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		panic(err)
	}
	return bytes.Clone(b.Bytes())
}

// routed is a frame to the gateway.
func (a *attack) routed(inside ...gopacket.SerializableLayer) []byte {
	return frame(a.mac, a.toMAC, a.etherType(), inside...)
}

// serialized is some layers without a frame around them.
func serialized(inside ...gopacket.SerializableLayer) []byte {
	return frame(make(net.HardwareAddr, 6), make(net.HardwareAddr, 6), 0, inside...)[14:]
}

// transport is an IP packet with the bytes behind its header.
func (a *attack) transport(src, dst netip.Addr, protocol layers.IPProtocol, content []byte) []byte {
	return a.routed(a.ip(src, dst, protocol), gopacket.Payload(content))
}

// marked is content with the mark at its place.
func marked(head string) []byte {
	return append([]byte((head + "\x00\x00\x00\x00\x00\x00\x00\x00")[:8]), frameMark...)
}

func hw(text string) net.HardwareAddr {
	mac, err := net.ParseMAC(text)
	if err != nil {
		panic(err)
	}
	return mac
}

var allHosts = hw("ff:ff:ff:ff:ff:ff")

// eachTarget is a packet for each destination that the list does not have.
func (a *attack) eachTarget(make func(dst netip.Addr) []byte) (frames [][]byte) {
	for _, dst := range []netip.Addr{a.other, a.node, a.gateway, a.friendAddr} {
		frames = append(frames, make(dst))
	}
	return frames
}

// from4 is one of two addresses, by the family.
func (a *attack) either(v4, v6 string) netip.Addr {
	if a.v6 {
		return addr(v6)
	}
	return addr(v4)
}

// spoofed are datagrams to the destination that is listed, and to others, from an address that is not the sender's own.
func (a *attack) spoofed(src netip.Addr, mac net.HardwareAddr) [][]byte {
	return append(a.eachTarget(func(dst netip.Addr) []byte { return frame(mac, a.toMAC, a.etherType(), a.datagram(src, dst)...) }),
		frame(mac, a.toMAC, a.etherType(), a.datagram(src, a.listed)...))
}

// attackAct is something to send. For a family in which it makes no sense it is nothing.
type attackAct struct {
	name   string
	frames func(a *attack) [][]byte
}

// fragments cuts a packet behind its header into two parts, the first so long.
func (a *attack) fragments(dst netip.Addr, content []byte, protocol layers.IPProtocol, first int, overlap int) [][]byte {
	part := func(offset int, more bool, data []byte) []byte {
		if a.v6 {
			header := make([]byte, 8)
			header[0] = byte(protocol)
			binary.BigEndian.PutUint16(header[2:], uint16(offset))
			if more {
				header[3] |= 1
			}
			binary.BigEndian.PutUint32(header[4:], 77)
			return a.routed(a.ip(a.own, dst, layers.IPProtocolIPv6Fragment), gopacket.Payload(append(header, data...)))
		}
		ip := a.ip(a.own, dst, protocol).(*layers.IPv4)
		ip.FragOffset = uint16(offset / 8)
		if more {
			ip.Flags = layers.IPv4MoreFragments
		}
		return a.routed(ip, gopacket.Payload(data))
	}
	return [][]byte{part(0, true, content[:first]), part(first-overlap, false, content[first-overlap:])}
}

// udpContent is what a datagram has behind the IP header.
func (a *attack) udpContent(dst netip.Addr, size int) []byte {
	all := serialized(a.datagram(a.own, dst, make([]byte, size)...)...)
	if a.v6 {
		return all[40:]
	}
	return all[20:]
}

// extended is a datagram of IPv6 behind extension headers, each given without its first byte, which is the number of the next.
func (a *attack) extended(dst netip.Addr, headers ...[]byte) []byte {
	content := a.udpContent(dst, 0)
	next := byte(unix.IPPROTO_UDP)
	for i := len(headers) - 1; i >= 0; i-- {
		content = append(append([]byte{next}, headers[i][1:]...), content...)
		next = headers[i][0]
	}
	return a.transport(a.own, dst, layers.IPProtocol(next), content)
}

func routingHeader(kind byte, via netip.Addr) []byte {
	b := via.As16()
	head := []byte{unix.IPPROTO_ROUTING, 2, kind, 1, 0, 0, 0, 0}
	return append(head, b[:]...)
}

// discovery is a message of neighbour discovery.
func (a *attack) discovery(src, dst netip.Addr, to net.HardwareAddr, kind byte, body []byte) []byte {
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	_ = icmp.SetNetworkLayerForChecksum(ip)
	return frame(a.mac, to, layers.EthernetTypeIPv6, ip, icmp, gopacket.Payload(body))
}

func arpFrame(etherSrc, to net.HardwareAddr, op uint16, sha net.HardwareAddr, sip netip.Addr, tha net.HardwareAddr, tip netip.Addr) []byte {
	return frame(etherSrc, to, layers.EthernetTypeARP, &layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
		Operation: op, SourceHwAddress: sha, SourceProtAddress: sip.AsSlice(), DstHwAddress: tha, DstProtAddress: tip.AsSlice()}, gopacket.Payload(frameMark))
}

func attackActs() []attackAct {
	datagrams := func(a *attack) [][]byte {
		return a.eachTarget(func(dst netip.Addr) []byte { return a.routed(a.datagram(a.own, dst)...) })
	}
	protocol := func(number layers.IPProtocol, head string) func(a *attack) [][]byte {
		return func(a *attack) [][]byte {
			return a.eachTarget(func(dst netip.Addr) []byte { return a.transport(a.own, dst, number, marked(head)) })
		}
	}
	spoof := func(v4, v6 string) func(a *attack) [][]byte {
		return func(a *attack) [][]byte { return a.spoofed(a.either(v4, v6), a.mac) }
	}
	to := func(mac string, dst func(a *attack) netip.Addr) func(a *attack) [][]byte {
		return func(a *attack) [][]byte {
			return [][]byte{frame(a.mac, hw(mac), a.etherType(), a.datagram(a.own, dst(a))...)}
		}
	}
	tcp := func(flags byte) func(a *attack) [][]byte {
		return func(a *attack) [][]byte {
			return a.eachTarget(func(dst netip.Addr) []byte {
				content := append(marked("\x10\x00\x00\x50\x00\x00\x00\x07"), 0x50, flags, 0x20, 0, 0, 0, 0, 0)
				return a.transport(a.own, dst, layers.IPProtocolTCP, content)
			})
		}
	}
	tagged := func(kind layers.EthernetType, tag uint16) func(a *attack) [][]byte {
		return func(a *attack) (frames [][]byte) {
			for _, dst := range []netip.Addr{a.other, a.friendAddr, a.listed} {
				frames = append(frames, frame(a.mac, a.toMAC, kind, gopacket.Payload(append([]byte{byte(tag >> 8), byte(tag), byte(a.etherType() >> 8), byte(a.etherType())},
					serialized(a.datagram(a.own, dst)...)...))))
			}
			return frames
		}
	}
	only := func(v6 bool, frames func(a *attack) [][]byte) func(a *attack) [][]byte {
		return func(a *attack) [][]byte {
			if a.v6 != v6 {
				return nil
			}
			return frames(a)
		}
	}
	tunnel := func(head string) func(a *attack) [][]byte {
		return func(a *attack) [][]byte {
			inner := serialized(a.datagram(a.own, a.other)...)
			kind, head := layers.IPProtocolGRE, []byte(head)
			if len(head) == 0 {
				kind = layers.IPProtocolIPv4
				if a.v6 {
					kind = layers.IPProtocolIPv6
				}
			}
			return a.eachTarget(func(dst netip.Addr) []byte { return a.transport(a.own, dst, kind, append(bytes.Clone(head), inner...)) })
		}
	}
	return []attackAct{
		{"UDP to what is not listed", datagrams},
		{"TCP to what is not listed", tcp(0x02)},
		{"TCP without a connection, to what is not listed", tcp(0x10)},
		{"TCP's reset to what is not listed", tcp(0x04)},
		{"an echo request to what is not listed", func(a *attack) [][]byte {
			if a.v6 {
				return protocol(layers.IPProtocolICMPv6, "\x80\x00")(a)
			}
			return protocol(layers.IPProtocolICMPv4, "\x08\x00\xf7\xff")(a)
		}},
		{"another protocol of IP to what is not listed", protocol(253, "")},
		{"SCTP to what is not listed", protocol(132, "\x10\x00\x00\x50")},
		{"UDP-Lite to what is not listed", protocol(136, "\x10\x00\x00\x50")},
		{"a packet without anything behind its header, and one with a byte", func(a *attack) [][]byte {
			return append(a.eachTarget(func(dst netip.Addr) []byte { return a.transport(a.own, dst, 59, nil) }),
				a.eachTarget(func(dst netip.Addr) []byte { return a.transport(a.own, dst, 17, []byte{0}) })...)
		}},
		{"a neighbour's address", func(a *attack) [][]byte { return a.spoofed(a.friendAddr, a.mac) }},
		{"a neighbour's address and MAC address", func(a *attack) [][]byte { return a.spoofed(a.friendAddr, a.friendMAC) }},
		{"its own address and a neighbour's MAC address", func(a *attack) [][]byte { return a.spoofed(a.own, a.friendMAC) }},
		{"its own address and no MAC address", func(a *attack) [][]byte { return a.spoofed(a.own, make(net.HardwareAddr, 6)) }},
		{"the gateway's address", func(a *attack) [][]byte { return a.spoofed(a.gateway, a.mac) }},
		{"the gateway's address and MAC address", func(a *attack) [][]byte { return a.spoofed(a.gateway, a.toMAC) }},
		{"the node's address", func(a *attack) [][]byte { return a.spoofed(a.node, a.mac) }},
		{"an address of the outside", func(a *attack) [][]byte { return a.spoofed(a.other, a.mac) }},
		{"a free address of the subnet", spoof("10.44.0.77", "fd00:44::77")},
		{"no address", spoof("0.0.0.0", "::")},
		{"the loopback address", spoof("127.0.0.1", "::1")},
		{"a link-local address", spoof("169.254.7.7", "fe80::7")},
		{"its own link-local address", only(true, func(a *attack) [][]byte { return a.spoofed(linkLocal(a.mac), a.mac) })},
		{"the broadcast address, and a multicast one", func(a *attack) [][]byte {
			return append(a.spoofed(a.either("255.255.255.255", "ff02::1"), a.mac), a.spoofed(a.either("224.0.0.1", "ff0e::1"), a.mac)...)
		}},
		{"an IPv4 address in IPv6's form", only(true, func(a *attack) [][]byte {
			return append(a.spoofed(addr("::ffff:10.44.0.2"), a.mac), a.spoofed(addr("2002:a2c:2::1"), a.mac)...)
		})},
		{"a frame to a neighbour, with a packet to what is listed", func(a *attack) [][]byte {
			return [][]byte{frame(a.mac, a.friendMAC, a.etherType(), a.datagram(a.own, a.listed)...)}
		}},
		{"a frame to a neighbour, with a packet to it", func(a *attack) [][]byte {
			return [][]byte{frame(a.mac, a.friendMAC, a.etherType(), a.datagram(a.own, a.friendAddr)...)}
		}},
		{"a frame to nobody that is known", to("02:77:77:77:77:77", func(a *attack) netip.Addr { return a.listed })},
		{"a frame to all, with a packet to one", func(a *attack) [][]byte {
			return a.eachTarget(func(dst netip.Addr) []byte { return frame(a.mac, allHosts, a.etherType(), a.datagram(a.own, dst)...) })
		}},
		{"a frame to the link's own group, which no bridge hands on", func(a *attack) (frames [][]byte) {
			for _, mac := range []string{"01:80:c2:00:00:0e", "01:80:c2:00:00:00", "01:80:c2:00:00:02"} {
				for _, src := range []netip.Addr{a.own, a.friendAddr} {
					for _, dst := range []netip.Addr{a.node, a.gateway, a.other} {
						frames = append(frames, frame(a.mac, hw(mac), a.etherType(), a.datagram(src, dst)...))
					}
				}
			}
			return frames
		}},
		{"multicast", func(a *attack) [][]byte {
			if a.v6 {
				return [][]byte{frame(a.mac, hw("33:33:00:00:00:01"), a.etherType(), a.datagram(a.own, addr("ff02::1"))...), frame(a.mac, hw("33:33:00:00:00:fb"), a.etherType(), a.datagram(linkLocal(a.mac), addr("ff02::fb"))...)}
			}
			return [][]byte{frame(a.mac, hw("01:00:5e:00:00:01"), a.etherType(), a.datagram(a.own, addr("224.0.0.1"))...), frame(a.mac, hw("01:00:5e:00:00:fb"), a.etherType(), a.datagram(a.own, addr("224.0.0.251"))...)}
		}},
		{"broadcast", only(false, func(a *attack) [][]byte {
			return [][]byte{frame(a.mac, allHosts, a.etherType(), a.datagram(a.own, addr("255.255.255.255"))...), frame(a.mac, allHosts, a.etherType(), a.datagram(a.own, addr("10.44.0.255"))...)}
		})},
		{"a question of a DHCP client", func(a *attack) [][]byte {
			layers2 := a.datagram(a.either("0.0.0.0", "::"), a.either("255.255.255.255", "ff02::1:2"))
			udp := layers2[1].(*layers.UDP)
			udp.SrcPort, udp.DstPort = 68, 67
			if a.v6 {
				udp.SrcPort, udp.DstPort = 546, 547
			}
			return [][]byte{frame(a.mac, allHosts, a.etherType(), layers2...)}
		}},
		{"a VLAN tag", tagged(layers.EthernetTypeDot1Q, 1)},
		{"a VLAN tag of VLAN 0", tagged(layers.EthernetTypeDot1Q, 0)},
		{"a VLAN tag of providers", tagged(layers.EthernetTypeQinQ, 1)},
		{"two VLAN tags", tagged(layers.EthernetTypeQinQ, 0)},
		{"other kinds of frames", func(a *attack) (frames [][]byte) {
			for _, kind := range []layers.EthernetType{0x88b5, 0x8847, 0x8864, 0x888e, 0x88cc, 0x8035, 0x0842, 60} {
				for _, mac := range []net.HardwareAddr{allHosts, a.friendMAC, hw("01:80:c2:00:00:0e")} {
					frames = append(frames, frame(a.mac, mac, kind, gopacket.Payload(append(serialized(a.datagram(a.own, a.friendAddr)...), make([]byte, 40)...))))
				}
			}
			return frames
		}},
		{"fragments", func(a *attack) (frames [][]byte) {
			for _, dst := range []netip.Addr{a.other, a.node, a.friendAddr} {
				frames = append(frames, a.fragments(dst, a.udpContent(dst, 100), layers.IPProtocolUDP, 48, 0)...)
			}
			return frames
		}},
		{"fragments that overlap, and a tiny first one", func(a *attack) (frames [][]byte) {
			for _, dst := range []netip.Addr{a.other, a.node, a.friendAddr} {
				frames = append(frames, a.fragments(dst, a.udpContent(dst, 100), layers.IPProtocolUDP, 48, 16)...)
				frames = append(frames, a.fragments(dst, a.udpContent(dst, 100), layers.IPProtocolUDP, 8, 0)...)
			}
			return frames
		}},
		{"a last fragment alone", func(a *attack) [][]byte {
			return a.eachTarget(func(dst netip.Addr) []byte {
				return a.fragments(dst, append(make([]byte, 56), marked("")...), layers.IPProtocolUDP, 56, 0)[1]
			})
		}},
		{"by whom it wants to go", func(a *attack) (frames [][]byte) {
			for _, via := range []netip.Addr{a.other, a.friendAddr, a.node} {
				for _, first := range []netip.Addr{a.listed, a.gateway} {
					if a.v6 {
						for _, kind := range []byte{0, 2, 3, 4} {
							frames = append(frames, a.extended(first, routingHeader(kind, via)))
						}
						continue
					}
					for _, kind := range []byte{131, 137} {
						inside := a.datagram(a.own, first)
						v4 := via.As4()
						inside[0].(*layers.IPv4).Options = []layers.IPv4Option{{OptionType: kind, OptionLength: 7, OptionData: append([]byte{4}, v4[:]...)}, {OptionType: 0}}
						frames = append(frames, a.routed(inside...))
					}
				}
			}
			return frames
		}},
		{"extension headers before UDP", only(true, func(a *attack) [][]byte {
			pad := func(kind byte) []byte { return []byte{kind, 0, 1, 4, 0, 0, 0, 0} }
			return append(a.eachTarget(func(dst netip.Addr) []byte { return a.extended(dst, pad(0), pad(60)) }),
				a.eachTarget(func(dst netip.Addr) []byte { return a.extended(dst, pad(60), pad(60), pad(60)) })...)
		})},
		{"a tunnel of IP in IP", tunnel("")},
		{"a tunnel of GRE", tunnel("\x00\x00\x08\x00")},
		{"a tunnel of VXLAN", func(a *attack) [][]byte {
			return a.eachTarget(func(dst netip.Addr) []byte {
				inside := a.datagram(a.own, dst, frame(a.mac, a.friendMAC, a.etherType(), a.datagram(a.own, a.friendAddr)...)...)
				inside[1].(*layers.UDP).DstPort = 4789
				return a.routed(inside...)
			})
		}},
		{"6to4, mapped and translated forms of addresses", only(true, func(a *attack) (frames [][]byte) {
			for _, dst := range []string{"2002:c000:2fd::1", "::ffff:192.0.2.253", "64:ff9b::c000:2fd", "::192.0.2.253"} {
				frames = append(frames, a.routed(a.datagram(a.own, addr(dst))...))
			}
			return frames
		})},
		{"an error about another's connection", func(a *attack) [][]byte {
			inner := serialized(a.datagram(a.other, a.friendAddr)...)
			inner2 := serialized(a.datagram(a.other, a.node)...)
			var frames [][]byte
			for _, about := range [][]byte{inner, inner2} {
				if a.v6 {
					icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(1, 4)}
					ip := a.ip(a.own, a.other, layers.IPProtocolICMPv6)
					_ = icmp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer))
					frames = append(frames, a.routed(ip, icmp, gopacket.Payload(append(make([]byte, 4), append(about, frameMark...)...))))
					continue
				}
				frames = append(frames, a.routed(a.ip(a.own, a.other, layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}, gopacket.Payload(append(about, frameMark...))))
			}
			return frames
		}},
		{"ARP for others' addresses", only(false, func(a *attack) (frames [][]byte) {
			for _, ip := range []netip.Addr{a.friendAddr, a.gateway, addr("10.44.0.77")} {
				for _, to := range []net.HardwareAddr{allHosts, a.toMAC, a.friendMAC} {
					frames = append(frames, arpFrame(a.mac, to, 1, a.mac, ip, make(net.HardwareAddr, 6), ip), arpFrame(a.mac, to, 2, a.mac, ip, a.toMAC, a.gateway),
						arpFrame(a.friendMAC, to, 2, a.mac, ip, a.toMAC, a.gateway), arpFrame(a.mac, to, 1, a.mac, addr("0.0.0.0"), make(net.HardwareAddr, 6), ip))
					if a.bridged { // on a link of its own it would harm itself
						frames = append(frames, arpFrame(a.mac, to, 2, a.friendMAC, a.own, a.toMAC, a.gateway))
					}
				}
			}
			return frames
		})},
		{"neighbour discovery for others' addresses", only(true, func(a *attack) (frames [][]byte) {
			for _, ip := range []netip.Addr{a.friendAddr, a.gateway, addr("fd00:44::77")} {
				target := append([]byte{0x60, 0, 0, 0}, ip.AsSlice()...)
				advert := append(target, append([]byte{2, 1}, a.mac...)...)
				solicit := append(append([]byte{0, 0, 0, 0}, ip.AsSlice()...), append([]byte{1, 1}, a.mac...)...)
				for _, to := range []net.HardwareAddr{hw("33:33:00:00:00:01"), a.toMAC, a.friendMAC} {
					for _, src := range []netip.Addr{a.own, linkLocal(a.mac), ip} {
						frames = append(frames, a.discovery(src, addr("ff02::1"), to, 136, advert), a.discovery(src, a.gateway, to, 136, advert))
					}
					frames = append(frames, a.discovery(ip, addr("ff02::1"), to, 135, solicit), a.discovery(addr("::"), addr("ff02::1"), to, 135, solicit[:20]))
				}
			}
			return frames
		})},
		{"neighbour discovery and multicast membership, routed to a neighbour", func(a *attack) (frames [][]byte) {
			for _, src := range []netip.Addr{linkLocal(a.mac), addr("::")} {
				for _, kind := range []byte{131, 132, 133, 135, 136, 143} {
					if a.v6 {
						frames = append(frames, a.transport(src, a.friendAddr, layers.IPProtocolICMPv6, append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, frameMark...)))
					}
				}
			}
			return frames
		}},
		{"it says that it is a router", func(a *attack) [][]byte {
			if !a.v6 {
				gw, about := a.own.As4(), serialized(a.datagram(a.friendAddr, a.other)...)
				return [][]byte{a.transport(a.own, a.node, layers.IPProtocolICMPv4, append(append([]byte{5, 1, 0, 0}, gw[:]...), about...)),
					a.transport(a.gateway, a.friendAddr, layers.IPProtocolICMPv4, append(append([]byte{5, 1, 0, 0}, gw[:]...), about...))}
			}
			advert := append([]byte{64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}, append([]byte{1, 1}, a.mac...)...)
			redirect := append(append([]byte{0, 0, 0, 0}, linkLocal(a.mac).AsSlice()...), a.other.AsSlice()...)
			return [][]byte{a.discovery(linkLocal(a.mac), addr("ff02::1"), hw("33:33:00:00:00:01"), 134, advert), a.discovery(a.own, addr("ff02::1"), a.toMAC, 134, advert),
				a.discovery(linkLocal(a.mac), a.node, a.toMAC, 137, redirect), a.discovery(a.gateway, a.friendAddr, a.friendMAC, 137, redirect)}
		}},
	}
}

func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// sniffer keeps the frames with the mark that a link sees.
type sniffer struct {
	sync.Mutex
	frames [][]byte
}

// sniff looks at a link of a namespace until the row ends.
func (l *lab) sniff(n *netlab.Namespace, link string) *sniffer {
	s := &sniffer{}
	conn := n.PacketSocket(l, link)
	go func() {
		for b := make([]byte, 4096); ; {
			length, _, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if bytes.Contains(b[:length], []byte(frameMark)) {
				s.Lock()
				s.frames = append(s.frames, bytes.Clone(b[:length]))
				s.Unlock()
			}
		}
	}()
	return s
}

// take returns the frames so far that are not a container's own to what is listed.
func (s *sniffer) take(listed netip.Addr) (frames []string) {
	s.Lock()
	defer s.Unlock()
	for _, f := range s.frames {
		at := map[bool]int{true: 30, false: 38}[listed.Is4()] // where the packet's destination stands
		if len(f) < at+listed.BitLen()/8 || !bytes.Equal(f[at:at+listed.BitLen()/8], listed.AsSlice()) {
			frames = append(frames, hex.EncodeToString(f))
		}
	}
	s.frames = nil
	return frames
}

// newAttack is between two containers of one network.
func newAttack(l *lab, main string, v6 bool, evil, friend *container) *attack {
	a := &attack{lab: l, v6: v6, from: evil, friend: friend, mac: l.attributes(&evil.Namespace, "eth0").HardwareAddr, friendMAC: l.attributes(&friend.Namespace, "eth0").HardwareAddr}
	a.own, a.friendAddr = addr(evil.v4), addr(friend.v4)
	a.listed, a.other, a.node, a.gateway = addr(netlab.OutsideIPv4), addr(otherIPv4), addr(netlab.HostIPv4), addr("10.44.0.1")
	if v6 {
		a.own, a.friendAddr = addr(evil.v6), addr(friend.v6)
		a.listed, a.other, a.node, a.gateway = addr(netlab.OutsideIPv6), addr(otherIPv6), addr(netlab.HostIPv6), addr("fd00:44::1")
	}
	a.bridged = strings.Contains(main, "lan0")
	a.toMAC = a.gatewayMAC(evil)
	return a
}

// gatewayMAC is the MAC address at which a container finds the host.
func (a *attack) gatewayMAC(c *container) net.HardwareAddr {
	if a.bridged {
		return a.lab.attributes(&a.lab.host.Namespace, "lan0").HardwareAddr
	}
	return a.lab.attributes(&a.lab.host.Namespace, c.hostEnd()).HardwareAddr
}

// forgedAnswers has answers planted in the host's list of connections, before and after the list is there: the container itself and one without a list
// send what looks as if somebody elsewhere asked the container.
func forgedAnswers(l *lab, main string, v6 bool) {
	l.wideOutside()
	friend, evil := l.attach(conf(main), "friend"), l.attach(conf(main), "evil")
	a := newAttack(l, main, v6, evil, friend)
	between := func(src, dst netip.Addr, from, to layers.UDPPort, content string) []gopacket.SerializableLayer {
		datagram := &layers.UDP{SrcPort: from, DstPort: to}
		ip := a.ip(src, dst, layers.IPProtocolUDP)
		_ = datagram.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer))
		return []gopacket.SerializableLayer{ip, datagram, gopacket.Payload(content)}
	}
	send := func(c *container, mac net.HardwareAddr, inside ...gopacket.SerializableLayer) error {
		f := frame(mac, a.gatewayMAC(c), a.etherType(), inside...)
		_, err := c.PacketSocket(l, "eth0").WriteTo(append(f, make([]byte, 20)...), &packet.Addr{HardwareAddr: f[:6]})
		return err
	}
	const ofItself, ofFriend, asked = 4000, 4001, 80
	l.must(send(evil, a.mac, between(a.other, a.own, asked, ofItself, "planted by itself")...))
	l.pass(udp(&evil.Namespace, a.other.String(), 80)) // behind it
	list := with(egress("allow", `["192.0.2.254","2001:db8:2::254"]`), "name", text(evil.network.name), "prevResult", evil.printed)
	_, err := l.exec("ADD", evil, list)
	l.must(err)
	l.must(send(friend, a.friendMAC, between(a.other, a.own, asked, ofFriend, "planted by another")...))
	l.pass(udp(&friend.Namespace, a.other.String(), 80))
	outside := l.sniff(&l.out.Namespace, "uplink0")
	for _, port := range []layers.UDPPort{ofItself, ofFriend} {
		l.must(send(evil, a.mac, between(a.own, a.other, port, asked, frameMark)...))
	}
	l.pass(udp(&evil.Namespace, a.listed.String(), 80))
	if reached := outside.take(a.listed); len(reached) > 0 {
		l.Errorf("the outside got %d packets, such as %s", len(reached), reached[0])
	}
	_, err = l.exec("DEL", evil, list)
	l.must(err)
	// The link is still there. Its other end is down, and if the kernel has taken that in, nothing can be sent.
	if err := send(evil, a.mac, between(a.own, a.other, ofItself, asked, frameMark)...); !errors.Is(err, unix.ENOBUFS) {
		l.must(err)
	}
	l.pass(udp(&friend.Namespace, a.other.String(), 80))
	if reached := outside.take(a.listed); len(reached) > 0 {
		l.Errorf("after DEL of egress and before that of %s the outside got %s", main, reached[0])
	}
}

// hostileTable has a container try all acts, and looks at whom it has reached.
func hostileTable(l *lab, main string, v6 bool) {
	l.wideOutside()
	n := conf(main, egress("allow", `["192.0.2.254","2001:db8:2::254"]`))
	friend := l.attach(conf(main), "friend")
	l.serve(&friend.Namespace, 80)
	evil := l.attach(n, "evil")
	a := newAttack(l, main, v6, evil, friend)
	for _, family := range []string{"ipv4", "ipv6"} { // a node that listens to all that it should not
		for _, link := range []string{"all", strings.TrimSpace(evil.hostEnd())} {
			for _, key := range []string{"accept_source_route=1", "accept_redirects=1"} {
				l.run("sysctl -qw net." + family + ".conf." + link + "." + key)
			}
		}
	}
	l.run("sysctl -qw net.ipv6.conf."+evil.hostEnd()+".accept_ra=2", "sysctl -qw net.ipv6.conf."+evil.hostEnd()+".seg6_enabled=1")
	l.pass(udp(&friend.Namespace, a.other.String(), 80), udp(&friend.Namespace, a.node.String(), 80)) // connections of others
	l.write("/run/got.nft", `table inet row {
		chain input { type filter hook input priority 100; @th,64,32 0xc1b0c55e counter comment "node" ; }
		chain forward { type filter hook forward priority 100; @th,64,32 0xc1b0c55e ip daddr != 192.0.2.254 counter comment "other"; @th,64,32 0xc1b0c55e ip6 daddr != 2001:db8:2::254 counter comment "other" ; }
	}`)
	l.run("nft -f /run/got.nft")
	seen := map[string]*sniffer{"a neighbour": l.sniff(&friend.Namespace, "eth0"), "the outside": l.sniff(&l.out.Namespace, "uplink0")}
	socket := evil.PacketSocket(l, "eth0")
	neighbours := func() string {
		return l.run("ip -4 neigh show nud all", "ip -6 neigh show nud all") + friend.run("ip -4 neigh show nud all", "ip -6 neigh show nud all")
	}
	for _, act := range attackActs() {
		frames := act.frames(a)
		for _, f := range frames {
			_, err := socket.WriteTo(append(f, make([]byte, max(0, 60-len(f)))...), &packet.Addr{HardwareAddr: f[:6]})
			l.must(err)
		}
		l.pass(udp(&evil.Namespace, a.listed.String(), 80)) // behind all of them
		for who, s := range seen {
			if reached := s.take(a.listed); len(reached) > 0 {
				l.Errorf("%s: %s got %d of %d frames: %s", act.name, who, len(reached), len(frames), reached[0])
			}
		}
		for line := range strings.Lines(l.run("nft list table inet row")) {
			if strings.Contains(line, "counter packets") && !strings.Contains(line, "packets 0 ") {
				l.Errorf("%s: %s", act.name, strings.TrimSpace(line))
			}
		}
		l.run("nft reset counters table inet row", "nft delete table inet row", "nft -f /run/got.nft")
		for line := range strings.Lines(neighbours()) {
			if strings.Contains(line, a.mac.String()) && !strings.Contains(line, "dev "+evil.hostEnd()) && !strings.HasPrefix(line, a.own.String()+" ") && !strings.HasPrefix(line, evil.v4+" ") && !strings.HasPrefix(line, evil.v6+" ") && !strings.HasPrefix(line, linkLocal(a.mac).String()+" ") {
				l.Errorf("%s: a neighbour's entry is %s", act.name, strings.TrimSpace(line))
			}
		}
		if routes := l.run("ip -6 route show proto ra", "ip route show proto redirect", "ip -6 route show proto redirect"); strings.TrimSpace(routes) != "" {
			l.Errorf("%s: the node has routes: %s", act.name, routes)
		}
	}
	l.must(evil.check())
	l.pass(both(&evil.Namespace, 81, a.listed.String())...)
	l.pass(both(&friend.Namespace, 80, a.other.String(), a.node.String())...)
}

func egressHostile() (rows []row) {
	for _, family := range []string{"IPv4", "IPv6"} {
		rows = append(rows, listed(fmt.Sprintf("whatever packets a container makes reach nobody who is not in its list, over %s", family), func(l *lab, main string) {
			hostileTable(l, main, family == "IPv6")
		})...)
		rows = append(rows, listed("an answer that nobody asked for opens nothing, whoever has planted it, and DEL opens nothing, over "+family, func(l *lab, main string) {
			forgedAnswers(l, main, family == "IPv6")
		})...)
	}
	return rows
}
