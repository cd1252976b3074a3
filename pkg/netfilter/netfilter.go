// Package netfilter says what an attachment can need from the host's packet
// filter, without saying how it is done: pkg/netfilter/nft does it with
// nftables, and a backend with iptables can stand beside it.
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

// Backend keeps what attachments need in the kernel. All of it is found again
// by the attachment's key alone. What a Del or GC does not find is gone, and no
// error; neither ever removes what belongs to another attachment by now.
type Backend interface {
	// Available tells whether the kernel has all that the backend needs. The
	// error is ErrUnavailable if it has not.
	Available() error

	// AddMasquerade makes packets from the addresses leave with the host's own
	// address unless they go to the address's own network or are multicast. An
	// address that another attachment held before belongs to this one now.
	AddMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error
	DelMasquerade(ctx context.Context, key plugin.Key) error
	CheckMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error
	// GCMasquerade removes what attachments of the network hold that are not
	// valid.
	GCMasquerade(ctx context.Context, network string, valid []plugin.Key) error

	// AddPortMaps publishes ports. One that another attachment has is an
	// error that names the other one.
	AddPortMaps(ctx context.Context, key plugin.Key, ports PortMaps) error
	DelPortMaps(ctx context.Context, key plugin.Key) error
	CheckPortMaps(ctx context.Context, key plugin.Key, ports PortMaps) error
	GCPortMaps(ctx context.Context, network string, valid []plugin.Key) error
}

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

	// MasqAll masquerades every connection to a published port.
	MasqAll bool

	// Inside is the name of the host's link towards the container, such as
	// its bridge; "" or lo if there is none, and then SNAT does nothing.
	Inside string

	// InsideShared says that other attachments may be behind Inside too, as
	// behind a bridge: what is set for the link stays when this one goes.
	InsideShared bool
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
