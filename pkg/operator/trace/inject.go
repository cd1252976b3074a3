package trace

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// injector lets a packet come in by a link of the host, as if the other end had sent it: it passes all that the host has for what comes in there. It is
// a link of its own, whose packets are led there; the kernel removes it with this process.
type injector struct {
	link netlink.Link
	tap  *os.File
	to   netlink.Link // by which the packet comes in
}

func newInjector(to netlink.Link) (*injector, error) {
	tap := &netlink.Tuntap{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_ONE_QUEUE, NonPersist: true, Queues: 1}
	tap.Name = "trace-" + strings.ToLower(rand.Text()[:8])
	if err := netlink.LinkAdd(tap); err != nil {
		return nil, fmt.Errorf("make a link from which a packet is let in, with /dev/net/tun: %w", err)
	}
	i := &injector{link: tap, tap: tap.Fds[0], to: to}
	if err := i.lead(); err != nil {
		return nil, errors.Join(fmt.Errorf("let a packet in by %s: %w", to.Attrs().Name, err), i.close())
	}
	return i, nil
}

// lead has the kernel take what comes in at the link for what comes in at the other.
func (i *injector) lead() error {
	at, err := netlink.LinkByName(i.link.Attrs().Name)
	if err != nil {
		return err
	}
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: at.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}}
	all := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: at.Attrs().Index, Parent: netlink.MakeHandle(0xffff, 0), Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions: []netlink.Action{&netlink.MirredAction{ActionAttrs: netlink.ActionAttrs{Action: netlink.TC_ACT_STOLEN},
			MirredAction: netlink.TCA_INGRESS_REDIR, Ifindex: i.to.Attrs().Index}},
	}
	if mac := i.to.Attrs().HardwareAddr; len(mac) == 6 { // otherwise what comes in would not be for this node
		if err := netlink.LinkSetHardwareAddr(at, mac); err != nil {
			return err
		}
	}
	// The link has no address of IPv6 and so says nothing by itself.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+at.Attrs().Name+"/disable_ipv6", []byte("1"), 0)
	if err := errors.Join(netlink.QdiscAdd(ingress), netlink.FilterAdd(all)); err != nil {
		return err
	}
	return netlink.LinkSetUp(at)
}

// isUp reports whether the link by which the packet comes in takes any.
func (i *injector) isUp() bool {
	l, err := netlink.LinkByIndex(i.to.Attrs().Index)
	return err == nil && l.Attrs().Flags&net.FlagUp != 0
}

func (i *injector) close() error { return i.tap.Close() }

// send lets a packet in. from is the sender's link address; nil is one that nobody has.
func (i *injector) send(p packet) error {
	frame, err := p.frame(i.to.Attrs().HardwareAddr)
	if err == nil {
		_, err = i.tap.Write(frame)
	}
	return err
}

// packet is one that is made by hand.
type packet struct {
	flow     Flow
	source   net.HardwareAddr // nil: one that nobody has
	to       net.HardwareAddr // nil: the link's
	sequence uint32           // of TCP
	reset    bool             // it ends the connection that the one before has begun
}

func newPacket(f Flow) packet {
	number := make([]byte, 4)
	_, _ = rand.Read(number)          // never fails
	const lowest, count = 61000, 4500 // of the ports that no kernel gives to anybody by itself
	p := packet{flow: f, sequence: binary.BigEndian.Uint32(number)}
	p.flow.Port = uint16(lowest + p.sequence%count)
	return p
}

// end is the packet that ends what p has begun.
func (p packet) end() packet {
	p.reset = true
	p.sequence++
	return p
}

// frame writes the packet.
func (p packet) frame(link net.HardwareAddr) ([]byte, error) {
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: link, EthernetType: layers.EthernetTypeIPv4}
	if p.source != nil {
		eth.SrcMAC = p.source
	}
	if p.to != nil {
		eth.DstMAC = p.to
	}
	if len(eth.DstMAC) == 0 { // such as a tunnel, which takes the rest alone
		eth.DstMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	}
	const hops = 64
	var ip gopacket.NetworkLayer
	var all []gopacket.SerializableLayer
	if p.flow.is6() {
		eth.EthernetType = layers.EthernetTypeIPv6
		v6 := &layers.IPv6{Version: 6, HopLimit: hops, NextHeader: layers.IPProtocol(p.flow.number()), SrcIP: p.flow.From.AsSlice(), DstIP: p.flow.To.AsSlice()}
		ip, all = v6, append(all, eth, v6)
	} else {
		v4 := &layers.IPv4{Version: 4, TTL: hops, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocol(p.flow.number()), SrcIP: p.flow.From.AsSlice(), DstIP: p.flow.To.AsSlice()}
		ip, all = v4, append(all, eth, v4)
	}
	above, err := p.above(ip)
	if err != nil {
		return nil, err
	}
	buffer := gopacket.NewSerializeBuffer()
	err = gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, append(all, above...)...)
	return buffer.Bytes(), err
}

// above are the layers above IP.
func (p packet) above(ip gopacket.NetworkLayer) (list []gopacket.SerializableLayer, err error) {
	body := gopacket.Payload("cnictl trace")
	switch p.flow.Protocol {
	case TCP:
		const window = 64240
		tcp := &layers.TCP{SrcPort: layers.TCPPort(p.flow.Port), DstPort: layers.TCPPort(p.flow.ToPort), Seq: p.sequence, SYN: !p.reset, RST: p.reset, Window: window}
		return []gopacket.SerializableLayer{tcp}, tcp.SetNetworkLayerForChecksum(ip)
	case UDP:
		udp := &layers.UDP{SrcPort: layers.UDPPort(p.flow.Port), DstPort: layers.UDPPort(p.flow.ToPort)}
		return []gopacket.SerializableLayer{udp, body}, udp.SetNetworkLayerForChecksum(ip)
	}
	if !p.flow.is6() {
		return []gopacket.SerializableLayer{&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(echoRequest4, 0), Id: p.flow.Port, Seq: 1}, body}, nil
	}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(echoRequest6, 0)}
	return []gopacket.SerializableLayer{icmp, &layers.ICMPv6Echo{Identifier: p.flow.Port, SeqNumber: 1}, body}, icmp.SetNetworkLayerForChecksum(ip)
}
