package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// kind is what a record is about.
type kind uint8

const (
	kindAddress   kind = iota + 1 // a masqueraded address
	kindPort                      // a published port
	kindForwarded                 // an address whose packets are forwarded
	kindProtected                 // a bridge that other protected bridges don't reach
	kindIsolated                  // a bridge whose ports don't reach each other
	kindMAC                       // the address that a link may send from
	kindPublished                 // a bridge to whose published ports protected bridges connect

	kindChecked // a link by which only its own addresses send
	kindSource  // such an address
	kindList    // a list, which is in place of the link
	kindJudged  // an address whose packets are judged by such a list

	kindGuarded       // a port of a bridge by which only its own addresses send, and its MAC address
	kindGuardedSource // such an address
	kindNearList      // a list of what a bridge hands on, which is in place of the link
	kindNear          // a port for which there is such a list

	kindAsking // an address whose questions for names go to the resolver
)

// purpose returns what its owner has the record for.
func (k kind) purpose() Purpose {
	switch k {
	case kindAddress:
		return Masquerading
	case kindPort:
		return Publishing
	case kindMAC:
		return SpoofChecking
	case kindChecked, kindSource, kindList, kindJudged, kindAsking:
		return Judging
	case kindGuarded, kindGuardedSource, kindNearList, kindNear:
		return GuardingPorts
	}
	return Forwarding
}

// isList reports whether a record is for a list, which attachments share.
func (k kind) isList() bool { return k == kindList || k == kindNearList }

func (k kind) hasMAC() bool { return k == kindMAC || k == kindGuarded }

// flag is more about a published port, in bits.
type flag uint8

const (
	flagSNAT    flag = 1 << iota // masquerade what comes in by the link, or from 127.0.0.0/8
	flagMasqAll                  // masquerade all connections
	flagOwnLink                  // the link is the attachment's alone
)

// record is a value of the map of owners: one thing that an attachment has. A field that a kind does not use is the same in all of its
// records.
type record struct {
	kind kind
	link string // noLink if there is none
	addr netip.Addr
	mac  [6]byte
	port uint16 // published; or the length of a masqueraded address's prefix

	// Of a published port, whose addr is the host's, unspecified for all.
	flags      flag
	proto      uint8  // IP protocol number
	conditions uint32 // their hash, 0 if there are none

	target netip.AddrPort // of a published port, and of questions; not in the map of owners but in that of ports or resolvers

	list *list // what is in it, which is in no map; nil if it is not known
}

// noLink is what nft can print and read back where there is no link.
const noLink = "-"

// data returns the record as the map has it, in types that nft lists and loads: the first number is, from its lowest byte on, the
// kind, the flags and the protocol. Addresses of both families stand in an IPv6 address, and so does a MAC address.
func (r record) data() []byte {
	addr := r.addr.As16()
	if r.kind.hasMAC() {
		copy(addr[:], r.mac[:])
	}
	first := uint32(r.kind) | uint32(r.flags)<<8 | uint32(r.proto)<<16
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
		proto:      uint8(first >> 16),
		conditions: binary.NativeEndian.Uint32(data[4:]),
		link:       unix.ByteSliceToString(link),
		port:       binary.BigEndian.Uint16(behind[16:]),
	}
	if r.kind.hasMAC() {
		r.mac = [6]byte(behind)
	} else {
		r.addr = netip.AddrFrom16([16]byte(behind)).Unmap()
	}
	return r, r.kind >= kindAddress && r.kind <= kindAsking
}

func (r record) String() string {
	switch r.kind {
	case kindPort:
		return r.portMap().String()
	case kindAddress, kindForwarded, kindJudged, kindAsking:
		return r.addr.String()
	}
	return r.link
}

func (r record) portMap() spec.PortMap {
	m := spec.PortMap{Protocol: r.proto, HostPort: r.port, Container: r.target}
	if r.isBound() {
		m.HostIP = r.addr
	}
	return m
}

// isBound reports whether a port is published on one address of the host.
func (r record) isBound() bool { return !r.addr.IsUnspecified() }

// hasOwnRules reports whether a published port has rules of its own.
func (r record) hasOwnRules() bool { return r.conditions != 0 }

// entry is an owner's n-th element of the map of owners.
func (t *table) entry(o owner, n int) element {
	e := newElement(t.owners, o.id[:], native(uint32(n)))
	e.what = o.comment
	return e
}

// recordsOf returns the records of an owner, up to one that is about to go or that we can't have made. A record with another comment
// is another owner's, whose ID is the same.
func (t *table) recordsOf(o owner) (records []record, err error) {
	for atOnce := 2; ; atOnce *= 2 { // most have one
		entries := make([]element, atOnce)
		for i := range entries {
			entries[i] = t.entry(o, len(records)+i)
		}
		if _, err := t.look(entries); err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.there == nil || e.there.Comment != o.comment {
				return records, nil
			}
			r, ok := parseRecord(e.there.Val)
			if !ok {
				return records, nil
			}
			records = append(records, r)
		}
	}
}

// allRecords lists the records of all owners, without what is about to go; nil if the map of owners is not there.
func (t *table) allRecords() (map[owner][]record, error) {
	there, err := t.conn.exist(question(unix.NFT_MSG_GETSET, t.Table, textAttr(unix.NFTA_SET_NAME, t.owners.Name)))
	if err != nil || !there[0] {
		return nil, err
	}
	entries, err := t.conn.GetSetElements(t.owners)
	if err != nil {
		return nil, kernelError("list what attachments have in table "+t.String(), err)
	}
	all := map[owner][]record{}
	for _, e := range entries {
		if r, ok := parseRecord(e.Val); ok && e.Timeout == 0 && len(e.Key) == 16+4 {
			o := owner{plugin.ID(e.Key[:16]), e.Comment}
			all[o] = append(all[o], r)
		}
	}
	return all, nil
}
