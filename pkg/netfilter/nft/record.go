package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// owner is an attachment, for one use that it has of a table.
type owner struct {
	id      plugin.ID
	comment string // of its elements
}

// ownerOf returns the owner that an attachment is for a use. The comment is the key without what nft could not read back from a
// saved ruleset; no part of a key has a colon.
func ownerOf(key plugin.Key, use string) owner { return owner{key.ID(use), asComment(key.String())} }

func asComment(text string) string { return strings.ReplaceAll(text, `"`, ":") }

// keyIn reads the key in a comment, if it is not shortened and no character is replaced.
func keyIn(comment string) (key plugin.Key, ok bool) {
	parts := strings.Split(comment, "/")
	if len(parts) != 3 || strings.ContainsAny(comment, "~:") {
		return key, false
	}
	return plugin.Key{Network: parts[0], ContainerID: parts[1], IfName: parts[2]}, true
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
	kindPublished                 // a bridge to whose published ports protected bridges connect
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
	return r, r.kind >= kindAddress && r.kind <= kindPublished
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

func (r record) portMap() spec.PortMap {
	m := spec.PortMap{Protocol: r.proto, HostPort: r.port, Container: r.target}
	if r.isBound() {
		m.HostIP = r.addr
	}
	return m
}

// isBound reports whether a port is published on one address of the host.
func (r record) isBound() bool { return !r.addr.IsUnspecified() }

// element is one of a set or map, that is there for a record.
type element struct {
	nftables.SetElement
	set     *nftables.Set
	what    string // for errors: "tcp/8080"
	sharing sharing
	record  record
	there   *nftables.SetElement // what is there under its key, as look has found; nil is nothing, or something that is about to go
}

// sharing is how long an element stays that several attachments may need.
type sharing uint8

const (
	alone   sharing = iota // it has one owner, and goes with that
	common                 // it goes with the last one that has an equal record; the comment is of one of them
	forGood                // it stays
)

// newElement returns the element of a set that has the parts of a key.
func newElement(s *nftables.Set, key ...[]byte) element {
	return element{set: s, SetElement: nftables.SetElement{Key: slices.Concat(key...)}}
}

func (e element) shared(how sharing) element {
	e.sharing = how
	return e
}

// id tells elements apart.
func (e element) id() string { return e.set.Name + string(e.Key) }

// entry is an owner's n-th element of the map of owners.
func (t *table) entry(o owner, n int) element {
	e := newElement(t.owners, o.id[:], native(uint32(n)))
	e.what = o.comment
	return e
}

// elementsOf returns all elements that an owner has for records, each once.
func (t *table) elementsOf(o owner, records []record) (list []element) {
	seen := map[string]bool{}
	for n, r := range records {
		entry := t.entry(o, n)
		entry.Val = r.data()
		for _, e := range append([]element{entry}, t.elements(r)...) {
			if seen[e.id()] {
				continue
			}
			seen[e.id()] = true
			if e.sharing != forGood {
				e.Comment = o.comment
			}
			if e.what == "" {
				e.what = r.String()
			}
			e.record = r
			list = append(list, e)
		}
	}
	return list
}

// look finds out what is there of elements. expiring reports whether any is about to go.
func (t *table) look(elements []element) (expiring bool, err error) {
	questions := make([]netlink.Message, len(elements))
	for i, e := range elements {
		key := nested(unix.NFTA_LIST_ELEM, nested(unix.NFTA_SET_ELEM_KEY, netlink.Attribute{Type: unix.NFTA_DATA_VALUE, Data: e.Key}))
		questions[i] = question(unix.NFT_MSG_GETSETELEM, t.Table,
			textAttr(unix.NFTA_SET_ELEM_LIST_SET, e.set.Name), nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, key))
	}
	answers, err := t.conn.ask(questions...)
	for i, a := range answers {
		e := &elements[i]
		e.there = nil
		found := attributes(attributes(a[unix.NFTA_SET_ELEM_LIST_ELEMENTS])[unix.NFTA_LIST_ELEM])
		if _, expires := found[unix.NFTA_SET_ELEM_EXPIRATION]; expires {
			expiring = true
		} else if a != nil {
			value := attributes(found[unix.NFTA_SET_ELEM_DATA])[unix.NFTA_DATA_VALUE]
			e.there = &nftables.SetElement{Key: e.Key, Val: value, Comment: CommentIn(found[unix.NFTA_SET_ELEM_USERDATA])}
		}
	}
	return expiring, t.explain(err)
}

// lookWhenExpired is look, and waits until nothing of it is about to go.
func (t *table) lookWhenExpired(elements []element) error {
	const longest = time.Second // someone else's timeout
	for end := time.Now().Add(longest); ; time.Sleep(time.Millisecond) {
		expiring, err := t.look(elements)
		if err != nil || !expiring || time.Now().After(end) {
			return err
		}
	}
}

// held returns the records of an owner, up to one that is about to go or that we can't have made. What has another comment is another's,
// whose ID is the same.
func (t *table) held(o owner) (records []record, err error) {
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

// holdings lists the records of all owners, without what is about to go; nil if the map of owners is not there.
func (t *table) holdings() (map[owner][]record, error) {
	there, err := t.conn.there(question(unix.NFT_MSG_GETSET, t.Table, textAttr(unix.NFTA_SET_NAME, t.owners.Name)))
	if err != nil || !there[0] {
		return nil, err
	}
	entries, err := t.conn.GetSetElements(t.owners)
	if err != nil {
		return nil, explain("list what attachments have in table "+t.String(), err)
	}
	holdings := map[owner][]record{}
	for _, e := range entries {
		if r, ok := parseRecord(e.Val); ok && e.Timeout == 0 && len(e.Key) == 16+4 {
			o := owner{plugin.ID(e.Key[:16]), e.Comment}
			holdings[o] = append(holdings[o], r)
		}
	}
	return holdings, nil
}
