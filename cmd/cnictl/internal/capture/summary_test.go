package capture

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// TestSummary has a line for packets of every kind, and for what is no packet.
func TestSummary(t *testing.T) {
	from, to := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	ethernet := func(kind layers.EthernetType) *layers.Ethernet {
		return &layers.Ethernet{SrcMAC: from, DstMAC: to, EthernetType: kind}
	}
	ipv4 := func(protocol layers.IPProtocol) *layers.IPv4 {
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: net.IP{10, 1, 0, 2}, DstIP: net.IP{10, 1, 0, 3}}
	}
	fragment := ipv4(layers.IPProtocolUDP)
	fragment.FragOffset = 185
	ipv6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolICMPv6, SrcIP: net.ParseIP("fd00::2"), DstIP: net.ParseIP("fd00::3")}
	arp := func(operation uint16) *layers.ARP {
		return &layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: operation,
			SourceHwAddress: from, SourceProtAddress: []byte{10, 1, 0, 2}, DstHwAddress: to, DstProtAddress: []byte{10, 1, 0, 3}}
	}
	for _, test := range []struct {
		name   string
		layers []gopacket.SerializableLayer
		want   string
	}{
		{"arp", []gopacket.SerializableLayer{ethernet(layers.EthernetTypeARP), arp(layers.ARPRequest)}, "02:00:00:00:00:01 > 02:00:00:00:00:02 arp who has 10.1.0.3, tell 10.1.0.2, 60 bytes"},
		{"arp answer", []gopacket.SerializableLayer{ethernet(layers.EthernetTypeARP), arp(layers.ARPReply)}, "arp 10.1.0.2 is here, 60 bytes"},
		{"tcp", []gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv4), ipv4(layers.IPProtocolTCP), &layers.TCP{SrcPort: 1, DstPort: 80, FIN: true, ACK: true, DataOffset: 5, Seq: 7, Ack: 8}, gopacket.Payload("abc")},
			"10.1.0.2:1 > 10.1.0.3:80 tcp FIN+ACK seq 7 ack 8, 3 of data, 60 bytes"},
		{"fragment", []gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv4), fragment, gopacket.Payload("abcdefgh")}, "10.1.0.2 > 10.1.0.3 UDP fragment at 1480"},
		{"vlan", []gopacket.SerializableLayer{ethernet(layers.EthernetTypeDot1Q), &layers.Dot1Q{VLANIdentifier: 5, Type: 0x88cc}, gopacket.Payload("abc")}, "vlan 5"},
		{"neighbour", []gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv6), ipv6, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)},
			&layers.ICMPv6NeighborSolicitation{TargetAddress: net.ParseIP("fd00::3")}}, "fd00::2 > fd00::3 icmp who has fd00::3"},
		{"garbage", []gopacket.SerializableLayer{gopacket.Payload("abc")}, "unknown, 3 bytes"},
		{"half an IP packet", []gopacket.SerializableLayer{gopacket.Payload("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00E\x00\x00")}, "02:00:00:00:00:01 > 02:00:00:00:00:02 IPv4, 17 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			buffer := gopacket.NewSerializeBuffer()
			if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true}, test.layers...); err != nil {
				t.Fatal(err)
			}
			f := Frame{Time: time.Now(), Out: true, Ethernet: true, Data: buffer.Bytes(), Length: len(buffer.Bytes())}
			if got := f.Summary().String(); !strings.Contains(got, test.want) || !strings.Contains(got, " out ") {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestTag puts a VLAN tag where it was before the kernel took it out.
func TestTag(t *testing.T) {
	packet := append([]byte("receivSender"), 0x08, 0x00, 'E')
	tagged := Frame{Ethernet: true, Data: packet, Length: 15}
	tagged.tag(&unix.TpacketAuxdata{Status: unix.TP_STATUS_VLAN_VALID, Vlan_tci: 5})
	if want := "receivSender\x81\x00\x00\x05\x08\x00E"; string(tagged.Data) != want || tagged.Length != 19 {
		t.Errorf("%q, %d bytes", tagged.Data, tagged.Length)
	}
	for _, f := range []Frame{{Data: packet, Length: 15}, {Ethernet: true, Data: packet[:5], Length: 5}} {
		before := f.Length
		if f.tag(&unix.TpacketAuxdata{Status: unix.TP_STATUS_VLAN_VALID}); f.Length != before {
			t.Errorf("%q", f.Data)
		}
	}
}
