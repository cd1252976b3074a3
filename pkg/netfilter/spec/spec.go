// Package spec says what an attachment can need from the host's packet filter, without saying how it is done: pkg/netfilter/nft
// does it with nftables, pkg/netfilter/iptables as the reference plugins do, and pkg/netfilter chooses.
package spec

import (
	"net/netip"
	"strconv"
)

// ForwardNeeds is what the forwarding of one attachment's packets needs.
type ForwardNeeds struct {
	// Addrs may send packets anywhere and get answers; with nftables they may also be connected to by their published ports. There may
	// be none.
	Addrs []netip.Addr
	// AdminChain is the iptables chain of the administrator, whose rules come first.
	AdminChain string

	// Ingress says who may connect to the attachment. With Published, everybody may connect to its published ports.
	Ingress   Ingress
	Published bool
	// Bridge is the name of the host's link that the container is behind, and HostEnd that of its port there; "" if there is none. They
	// matter unless Ingress is Open.
	Bridge, HostEnd string
}

// Ingress is a policy for packets to a container from other containers.
type Ingress int

// The policies. Bridges that have one of the latter two are protected.
const (
	Open       Ingress = iota // all packets pass
	SameBridge                // none between two protected bridges
	Isolated                  // the same, and none between the ports of the bridge
)

// PortNeeds are the ports that one attachment publishes.
type PortNeeds struct {
	// Maps are distinct: no two have the same protocol, host port, host address and family of the container's address.
	Maps []PortMap

	// SNAT masquerades the connections whose answers would otherwise not come back by the host: those that come in by Inside (the
	// container itself, or another one of the same bridge), and those from 127.0.0.0/8. It also makes the kernel route the latter to
	// Inside.
	SNAT bool
	// MasqAll masquerades every connection to a published port.
	MasqAll bool
	// Networks are the container's addresses, each with the length of its network's prefix. iptables' rules for SNAT go by network and
	// not by Inside.
	Networks []netip.Prefix

	// MarkBit is the bit of the packets' marks, from 0 to 31, by which a connection that must be masqueraded is known later on.
	MarkBit int
	// SetMarkChain is the iptables chain, of someone else's, that marks connections to be masqueraded; "" to do that with MarkBit.
	SetMarkChain string
	// Conditions4 and Conditions6 are what a connection of the family has to meet besides: words of iptables' or nft's language.
	Conditions4, Conditions6 []string

	// Inside is the name of the host's link towards the container, such as its bridge, never lo; "" if there is none, and then SNAT does
	// nothing. InsideShared says that other attachments may be behind it too: what is set for the link stays when this one goes.
	Inside       string
	InsideShared bool

	// Results is the directory of libcni's results, which say whether an attachment that has one of the ports is gone.
	Results string
}

// SNATLink returns the link that SNAT is about, "" if there is no SNAT.
func (p PortNeeds) SNATLink() string {
	if !p.SNAT {
		return ""
	}
	return p.Inside
}

// PortMap makes connections to a port of the host go to a port of a container. It is for connections of the family of the container's
// address.
type PortMap struct {
	HostIP    netip.Addr // the zero Addr: any of the host's addresses
	Protocol  uint8      // IP protocol number, such as unix.IPPROTO_TCP
	HostPort  uint16
	Container netip.AddrPort
}

// String returns the host's side as people write it: tcp/8080 or tcp/192.0.2.1:8080.
func (m PortMap) String() string {
	port := strconv.Itoa(int(m.HostPort))
	if m.HostIP.IsValid() {
		port = netip.AddrPortFrom(m.HostIP, m.HostPort).String()
	}
	return ProtocolName(m.Protocol) + "/" + port
}

// protocols are the protocols that have ports to publish.
var protocols = map[string]uint8{"tcp": 6, "udp": 17, "sctp": 132}

// Protocol returns the number of a protocol that has ports.
func Protocol(name string) (number uint8, ok bool) {
	number, ok = protocols[name]
	return number, ok
}

// ProtocolName returns the name of a protocol, its number if it has none here.
func ProtocolName(number uint8) string {
	for name, n := range protocols {
		if n == number {
			return name
		}
	}
	return strconv.Itoa(int(number))
}
