// Package netfilter says what an attachment can need from the host's packet
// filter, without saying how it is done: pkg/netfilter/nft does it with
// nftables, pkg/netfilter/iptables as the reference plugins do.
package netfilter

import (
	"context"
	"errors"
	"net/netip"
	"strconv"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// ErrUnavailable says that the kernel lacks what a backend needs, and so that
// nothing of that backend can be in it either.
var ErrUnavailable = errors.New("the kernel lacks a feature of netfilter")

// The three things that attachments need of the packet filter, each kept in the
// kernel by a backend. All of it is found again by the attachment's key alone.
// What a Del or GC does not find is gone, and no error; neither ever removes
// what belongs to another attachment by now. Add replaces what the attachment
// had before.
//
// Hints are what a runtime says that the attachment had. They are nil if it says
// nothing, and only matter for what the reference plugins made, which does not
// always tell whose it is.

// Masquerader makes packets from addresses leave with the host's own address
// unless they go to the address's own network or are multicast.
type Masquerader interface {
	// AddMasquerade takes over an address that another attachment held before.
	AddMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error
	DelMasquerade(ctx context.Context, key plugin.Key, hint []netip.Prefix) error
	CheckMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error
	// GCMasquerade removes what attachments of the network hold that are not
	// valid.
	GCMasquerade(ctx context.Context, network string, valid []plugin.Key) error
}

// PortMapper publishes ports of containers on the host.
type PortMapper interface {
	// AddPortMaps fails if another attachment has one of the ports, with an
	// error that names it, or takes the port over if that one is gone.
	AddPortMaps(ctx context.Context, key plugin.Key, ports PortMaps) error
	// DelPortMaps returns what it removed, as far as that is known: connections
	// that go on may have to be cut.
	DelPortMaps(ctx context.Context, key plugin.Key, hint []netip.Prefix) ([]PortMap, error)
	CheckPortMaps(ctx context.Context, key plugin.Key, ports PortMaps) error
	GCPortMaps(ctx context.Context, network string, valid []plugin.Key) error
}

// Forwarder lets containers' packets be forwarded by a host that otherwise
// drops them, and keeps containers of different networks apart.
type Forwarder interface {
	AddForward(ctx context.Context, key plugin.Key, f Forward) error
	DelForward(ctx context.Context, key plugin.Key, hint []netip.Prefix) error
	CheckForward(ctx context.Context, key plugin.Key, f Forward) error
	GCForward(ctx context.Context, network string, valid []plugin.Key) error
}

// Forward is what the forwarding of one attachment's packets needs.
type Forward struct {
	// Addrs may send packets anywhere and get answers; with nftables they may
	// also be connected to by their published ports. There may be none.
	Addrs []netip.Addr
	// AdminChain is the iptables chain of the administrator, whose rules come
	// first.
	AdminChain string

	// Ingress says who may connect to the attachment.
	Ingress Ingress
	// Bridge is the name of the host's link that the container is behind, and
	// HostEnd that of its port there; "" if there is none. They matter unless
	// Ingress is Open.
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

// PortMaps are the ports that one attachment publishes.
type PortMaps struct {
	// Maps are distinct: no two have the same protocol, host port, host
	// address and family of the container's address.
	Maps []PortMap

	// SNAT masquerades the connections whose answers would otherwise not come
	// back by the host: those that come in by Inside (the container itself, or
	// another one of the same bridge), and those from 127.0.0.0/8. It also
	// makes the kernel route the latter to Inside.
	SNAT bool

	// Networks are the container's addresses, each with the length of its
	// network's prefix. iptables' rules for SNAT go by network and not by Inside.
	Networks []netip.Prefix

	// MasqAll masquerades every connection to a published port.
	MasqAll bool

	// MarkBit is the bit of the packets' marks, from 0 to 31, by which a
	// connection that is to be masqueraded is known later on.
	MarkBit int
	// SetMarkChain is the iptables chain, of someone else's, that marks
	// connections to be masqueraded; "" to do that with MarkBit.
	SetMarkChain string

	// Conditions4 and Conditions6 are what a connection of the family has to
	// meet besides: words of iptables' or nft's language.
	Conditions4, Conditions6 []string

	// Inside is the name of the host's link towards the container, such as
	// its bridge; "" or lo if there is none, and then SNAT does nothing.
	Inside string

	// InsideShared says that other attachments may be behind Inside too, as
	// behind a bridge: what is set for the link stays when this one goes.
	InsideShared bool

	// Results is the directory of libcni's results, which say whether an
	// attachment that has one of the ports is gone.
	Results string
}

// SNATLink returns the link that SNAT is about, "" if there is no SNAT.
func (p PortMaps) SNATLink() string {
	if !p.SNAT || p.Inside == "lo" { // the guard of 127.0.0.0/8 must never be for lo
		return ""
	}
	return p.Inside
}

// PortMap makes connections to a port of the host go to a port of a container.
// It is for connections of the family of the container's address.
type PortMap struct {
	HostIP    netip.Addr // the zero Addr: any of the host's addresses
	Protocol  uint8      // IP protocol number, such as unix.IPPROTO_TCP
	HostPort  uint16
	Container netip.AddrPort
}

// String returns the host's side as people write it: tcp/8080 or
// tcp/192.0.2.1:8080.
func (m PortMap) String() string {
	port := strconv.Itoa(int(m.HostPort))
	if m.HostIP.IsValid() {
		port = netip.AddrPortFrom(m.HostIP, m.HostPort).String()
	}
	return ProtocolName(m.Protocol) + "/" + port
}

// protocols are the protocols that have ports to publish, by number.
var protocols = [...]struct {
	name   string
	number uint8
}{{"tcp", 6}, {"udp", 17}, {"sctp", 132}}

// Protocol returns the number of a protocol that has ports.
func Protocol(name string) (number uint8, ok bool) {
	for _, p := range protocols {
		if p.name == name {
			return p.number, true
		}
	}
	return 0, false
}

// ProtocolName returns the name of a protocol, its number if it has none here.
func ProtocolName(number uint8) string {
	for _, p := range protocols {
		if p.number == number {
			return p.name
		}
	}
	return strconv.Itoa(int(number))
}
