package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// owner is an attachment, for one use that it has of a table.
type owner struct {
	id      plugin.ID
	comment string // of its elements
}

// ownerOf returns the owner that an attachment is for a use. The comment is the
// key without what nft could not read back from a saved ruleset; no part of a key
// has a colon.
func ownerOf(key plugin.Key, use string) owner {
	return owner{id: key.ID(use), comment: comment(key.String())}
}

func comment(text string) string { return strings.ReplaceAll(text, `"`, ":") }

// The uses of an attachment.
const (
	useMasquerade = "masquerade"
	usePortMap    = "portmap"
	useForward    = "forward"
	useSpoofCheck = "spoof check"
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
)

func (k kind) use() string {
	switch k {
	case kindAddress:
		return useMasquerade
	case kindPort:
		return usePortMap
	case kindMAC:
		return useSpoofCheck
	}
	return useForward
}

// flag is more about a published port, in bits.
type flag uint8

const (
	flagSNAT    flag = 1 << iota // masquerade what comes in by the link, or from 127.0.0.0/8
	flagMasqAll                  // masquerade all connections
	flagOwnLink                  // the link is the attachment's alone
)

// record is a value of the map of owners: one thing that an attachment has. What
// of it does not matter to a kind is the same for all of that kind.
type record struct {
	kind       kind
	flags      flag
	bit        uint8      // of a published port: of the mark; defaultBit if nothing is marked
	proto      uint8      // of a published port
	conditions uint32     // of a published port: a hash of them, 0 if there are none
	link       string     // noLink if there is none
	addr       netip.Addr // of a published port the host's, unspecified for all
	port       uint16     // published; or the length of a masqueraded address's prefix
}

// noLink is what nft can print and read back where there is no link.
const noLink = "-"

// data returns the record as the map has it, in types that nft lists and loads:
// the first number is, from its lowest byte on, the kind, the flags, the bit and
// the protocol. Addresses of both families stand in an IPv6 address, and so does
// a MAC address.
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

// portMap returns the host's side of a published port.
func (r record) portMap() netfilter.PortMap {
	m := netfilter.PortMap{Protocol: r.proto, HostPort: r.port}
	if !r.addr.IsUnspecified() {
		m.HostIP = r.addr
	}
	return m
}

// claim is what an attachment is to have: a record, and the data of the first of
// its elements.
type claim struct {
	record record
	data   []byte
}

func recordsOf(claims []claim) []record {
	records := make([]record, len(claims))
	for i, c := range claims {
		records[i] = c.record
	}
	return records
}

// element is an element of a set or map.
type element struct {
	set       *nftables.Set
	key, data []byte
	comment   string
	what      string // for errors: "tcp/8080"
	sharing   sharing
}

// sharing is how long an element stays that several attachments may need.
type sharing uint8

const (
	alone   sharing = iota // it has one owner, and goes with that
	common                 // it goes with the last one that has an equal record
	forGood                // it stays
)

// found is what is there under an element's key.
type found struct {
	there    bool
	expiring bool // about to go
	data     []byte
	comment  string
}

// isGone reports whether nothing stays there.
func (f found) isGone() bool { return !f.there || f.expiring }

// look looks elements up by their keys, in the order given.
func (t *table) look(elements []element) ([]found, error) {
	questions := make([]question, 0, len(elements))
	for _, e := range elements {
		key := nested(unix.NFTA_LIST_ELEM, nested(unix.NFTA_SET_ELEM_KEY, netlink.Attribute{Type: unix.NFTA_DATA_VALUE, Data: e.key}))
		questions = append(questions, question{unix.NFT_MSG_GETSETELEM, t.table.Family, []netlink.Attribute{
			textAttr(unix.NFTA_SET_ELEM_LIST_TABLE, t.table.Name),
			textAttr(unix.NFTA_SET_ELEM_LIST_SET, e.set.Name),
			nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, key),
		}})
	}
	answers, err := t.conn.ask(questions)
	if err != nil {
		return nil, t.explain(err)
	}
	out := make([]found, len(elements))
	for i, a := range answers {
		if a != nil && err == nil {
			out[i], err = parseFound(a)
		}
	}
	return out, err
}

func nested(number uint16, inside netlink.Attribute) netlink.Attribute {
	data, _ := netlink.MarshalAttributes([]netlink.Attribute{inside}) // refuses lengths of 64 KiB only
	return netlink.Attribute{Type: number | unix.NLA_F_NESTED, Data: data}
}

func parseFound(answer []byte) (found, error) {
	f := found{there: true}
	var err error
	inside := func(data []byte, each func(uint16, []byte)) { err = errors.Join(err, attributes(data, each)) }
	inside(answer, func(number uint16, list []byte) {
		if number != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		inside(list, func(_ uint16, element []byte) {
			inside(element, func(number uint16, v []byte) {
				switch number {
				case unix.NFTA_SET_ELEM_DATA:
					inside(v, func(_ uint16, data []byte) { f.data = data })
				case unix.NFTA_SET_ELEM_EXPIRATION:
					f.expiring = true
				case unix.NFTA_SET_ELEM_USERDATA:
					f.comment = commentIn(v)
				}
			})
		})
	})
	return f, err
}

// commentIn reads the comment in the user data of a rule or an element, in which
// it has the same number.
func commentIn(userData []byte) string {
	text, _ := userdata.GetString(userData, userdata.TypeComment)
	return text
}

// entry is an owner's n-th element of the map of owners.
func (t *table) entry(o owner, n int) element {
	return element{set: t.owners, key: append(o.id[:len(o.id):len(o.id)], native(uint32(n))...), comment: o.comment, what: o.comment}
}

// held returns the records of an owner, without those that are about to go.
// What has another comment is another's, whose ID is the same.
func (t *table) held(o owner) ([]record, error) {
	var records []record
	for atOnce := 2; ; atOnce *= 2 { // most have one
		entries := make([]element, atOnce)
		for i := range entries {
			entries[i] = t.entry(o, len(records)+i)
		}
		there, err := t.look(entries)
		if err != nil {
			return nil, err
		}
		for _, f := range there {
			r, ok := parseRecord(f.data)
			if f.isGone() || f.comment != o.comment {
				return records, nil
			}
			if !ok {
				return nil, plugin.Errorf(fmt.Sprintf("remove the table with `nft delete table %s` and restart the containers", t), "table %s: %s has data that is not ours", t, t.owners.Name)
			}
			records = append(records, r)
		}
	}
}

// holding is a record and its owner.
type holding struct {
	owner
	record record
	first  bool // of the owner's
}

// holdings lists what all owners have, without what is about to go.
func (t *table) holdings() ([]holding, error) {
	entries, err := t.conn.GetSetElements(t.owners)
	if err != nil {
		return nil, explain("list what attachments have in table "+t.String(), err)
	}
	var list []holding
	for _, e := range entries {
		r, ok := parseRecord(e.Val)
		if !ok || e.Timeout != 0 || len(e.Key) != 16+4 {
			continue
		}
		list = append(list, holding{
			owner:  owner{id: plugin.ID(e.Key[:16]), comment: e.Comment},
			record: r,
			first:  binary.NativeEndian.Uint32(e.Key[16:]) == 0,
		})
	}
	return list, nil
}
