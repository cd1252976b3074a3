package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// owner is an attachment, for one use that it has of a table.
type owner struct {
	id      plugin.ID
	comment string // of its elements
}

// ownerOf returns the owner that an attachment is for a use. The comment is the key without what nft could not read back from a
// saved ruleset; no part of a key has a colon.
func ownerOf(key plugin.Key, use string) owner { return owner{key.ID(use), comment(key.String())} }

func comment(text string) string { return strings.ReplaceAll(text, `"`, ":") }

// isOf reports whether the attachment is one of a network. The name in a comment that is full may be cut.
func (o owner) isOf(network string) bool {
	return [8]byte(o.id[:8]) == plugin.NetworkHash(network) &&
		(strings.HasPrefix(o.comment, comment(network+"/")) || len(o.comment) == plugin.MaxKeyText)
}

// kind is what a record is about.
type kind uint8

const (
	kindAddress   kind = iota + 1 // a masqueraded address
	kindPort                      // a published port
	kindForwarded                 // an address whose packets are forwarded
	kindProtected                 // a bridge that other protected bridges don't reach
	kindIsolated                  // a bridge whose ports don't reach each other
	kindMAC                       // the address that a link may send from
)

// flag is more about a published port, in bits.
type flag uint8

const (
	flagSNAT    flag = 1 << iota // masquerade what comes in by the link, or from 127.0.0.0/8
	flagMasqAll                  // masquerade all connections
	flagOwnLink                  // the link is the attachment's alone
)

// record is a value of the map of owners: one thing that an attachment has. What of it does not matter to a kind is the same for all
// of that kind.
type record struct {
	kind       kind
	flags      flag
	bit        uint8      // of a published port: of the mark; defaultBit if nothing is marked
	proto      uint8      // of a published port
	conditions uint32     // of a published port: a hash of them, 0 if there are none
	link       string     // noLink if there is none
	addr       netip.Addr // of a published port the host's, unspecified for all
	port       uint16     // published; or the length of a masqueraded address's prefix

	target netip.AddrPort // of a published port; not in the map of owners but in that of ports
}

// noLink is what nft can print and read back where there is no link.
const noLink = "-"

// data returns the record as the map has it, in types that nft lists and loads: the first number is, from its lowest byte on, the
// kind, the flags, the bit and the protocol. Addresses of both families stand in an IPv6 address, and so does a MAC address.
func (r record) data() []byte {
	addr := r.addr.As16()
	first := uint32(r.kind) | uint32(r.flags)<<8 | uint32(r.bit)<<16 | uint32(r.proto)<<24
	return slices.Concat(native(first), native(r.conditions), linkKey(r.link), addr[:], portKey(r.port))
}

func parseRecord(data []byte) (record, bool) {
	if len(data) != 4+4+unix.IFNAMSIZ+16+4 {
		return record{}, false
	}
	first := binary.NativeEndian.Uint32(data)
	link, behind := data[8:8+unix.IFNAMSIZ], data[8+unix.IFNAMSIZ:]
	r := record{
		kind:       kind(first),
		flags:      flag(first >> 8),
		bit:        uint8(first >> 16),
		proto:      uint8(first >> 24),
		conditions: binary.NativeEndian.Uint32(data[4:]),
		link:       unix.ByteSliceToString(link),
		addr:       netip.AddrFrom16([16]byte(behind)).Unmap(),
		port:       binary.BigEndian.Uint16(behind[16:]),
	}
	return r, r.kind >= kindAddress && r.kind <= kindMAC
}

func (r record) String() string {
	switch r.kind {
	case kindPort:
		return r.portMap().String()
	case kindAddress, kindForwarded:
		return r.addr.String()
	}
	return r.link
}

func (r record) portMap() netfilter.PortMap {
	m := netfilter.PortMap{Protocol: r.proto, HostPort: r.port, Container: r.target}
	if r.isBound() {
		m.HostIP = r.addr
	}
	return m
}

// isBound reports whether a port is published on one address of the host.
func (r record) isBound() bool { return !r.addr.IsUnspecified() }
