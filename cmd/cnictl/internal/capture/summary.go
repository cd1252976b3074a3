package capture

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Summary is what a packet is, in short. The texts are what the sender wrote.
type Summary struct {
	Time        time.Time `json:"time"`
	Direction   string    `json:"direction"` // in or out, as the link sees it
	Source      string    `json:"source"`
	Destination string    `json:"destination"`
	Protocol    string    `json:"protocol"`
	Info        string    `json:"info,omitempty"`
	Length      int       `json:"length"` // on the link
}

// String is the summary as a line.
func (s Summary) String() string {
	line := fmt.Sprintf("%s %-3s %s > %s %s", s.Time.Format("15:04:05.000000"), s.Direction, s.Source, s.Destination, s.Protocol)
	if s.Info != "" {
		line += " " + s.Info
	}
	return fmt.Sprintf("%s, %d bytes", line, s.Length)
}

// Summary says what a packet is.
func (f Frame) Summary() Summary {
	s := Summary{Time: f.Time, Direction: "in", Protocol: "unknown", Length: f.Length}
	if f.Out {
		s.Direction = "out"
	}
	for _, layer := range f.Packet().Layers() {
		s.add(layer)
	}
	return s
}

// add takes what a header says. Headers come from the outside in, so that the last ones count.
func (s *Summary) add(layer gopacket.Layer) {
	switch l := layer.(type) {
	case *layers.Ethernet:
		s.Source, s.Destination, s.Protocol = l.SrcMAC.String(), l.DstMAC.String(), l.EthernetType.String()
	case *layers.Dot1Q:
		s.Protocol, s.Info = l.Type.String(), fmt.Sprintf("vlan %d", l.VLANIdentifier)
	case *layers.ARP:
		s.arp(l)
	case *layers.IPv4:
		if l.SrcIP == nil {
			return // it is too short
		}
		s.Source, s.Destination, s.Protocol = l.SrcIP.String(), l.DstIP.String(), l.Protocol.String()
		if l.FragOffset != 0 || l.Flags&layers.IPv4MoreFragments != 0 {
			s.Info = fmt.Sprintf("fragment at %d", int(l.FragOffset)*8)
		}
	case *layers.IPv6:
		if l.SrcIP == nil {
			return
		}
		s.Source, s.Destination, s.Protocol = l.SrcIP.String(), l.DstIP.String(), l.NextHeader.String()
	case *layers.TCP:
		s.ports("tcp", uint16(l.SrcPort), uint16(l.DstPort))
		s.Info = strings.TrimSpace(fmt.Sprintf("%s seq %d ack %d, %d of data", flags(l), l.Seq, l.Ack, len(l.Payload)))
	case *layers.UDP:
		s.ports("udp", uint16(l.SrcPort), uint16(l.DstPort))
		s.Info = fmt.Sprintf("%d of data", len(l.Payload))
	case *layers.SCTP:
		s.ports("sctp", uint16(l.SrcPort), uint16(l.DstPort))
	case *layers.DNS:
		s.dns(l)
	case *layers.ICMPv4:
		s.Protocol, s.Info = "icmp", l.TypeCode.String()
	case *layers.ICMPv6:
		s.Protocol, s.Info = "icmp", l.TypeCode.String()
	case *layers.ICMPv6NeighborSolicitation:
		s.Info = fmt.Sprintf("who has %s", l.TargetAddress)
	case *layers.ICMPv6NeighborAdvertisement:
		s.Info = fmt.Sprintf("%s is here", l.TargetAddress)
	}
}

func (s *Summary) ports(protocol string, from, to uint16) {
	s.Protocol = protocol
	if a, err := netip.ParseAddr(s.Source); err == nil {
		s.Source = netip.AddrPortFrom(a, from).String()
	}
	if a, err := netip.ParseAddr(s.Destination); err == nil {
		s.Destination = netip.AddrPortFrom(a, to).String()
	}
}

func (s *Summary) arp(l *layers.ARP) {
	from, _ := netip.AddrFromSlice(l.SourceProtAddress)
	to, _ := netip.AddrFromSlice(l.DstProtAddress)
	s.Protocol, s.Info = "arp", fmt.Sprintf("who has %s, tell %s", to, from)
	if l.Operation == layers.ARPReply {
		s.Info = fmt.Sprintf("%s is here", from)
	}
}

func (s *Summary) dns(l *layers.DNS) {
	s.Info = "dns"
	for _, q := range l.Questions {
		s.Info += fmt.Sprintf(" %s %s", q.Type, q.Name)
	}
	if l.QR {
		s.Info += fmt.Sprintf(": %s, %d answers", l.ResponseCode, len(l.Answers))
	}
}

func flags(l *layers.TCP) string {
	var set []string
	for _, flag := range []struct {
		set  bool
		name string
	}{{l.SYN, "SYN"}, {l.FIN, "FIN"}, {l.RST, "RST"}, {l.PSH, "PSH"}, {l.ACK, "ACK"}, {l.URG, "URG"}} {
		if flag.set {
			set = append(set, flag.name)
		}
	}
	return strings.Join(set, "+")
}
