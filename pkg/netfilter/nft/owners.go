package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The uses that an attachment can have for the table, each with an ID of its
// own.
const (
	useMasquerade = "masquerade"
	usePortMap    = "portmap"
)

// record is a value of the map of owners: one thing that an attachment holds.
// Its elements' keys can be told from it.
//
// The key is the attachment's ID for the use and a number that counts from 0.
type record struct {
	kind       kind
	bit        uint8      // of a published port: of the mark; defaultBit if nothing is marked
	conditions uint32     // of a published port: conditions.id
	link       string     // snat: the host's link towards the container; noLink if none
	addr       netip.Addr // masqueraded; or the host's that a port is published on, unspecified for all
	proto      uint8      // of a published port
	port       uint16     // published; with a masqueraded address, its prefix length
}

// kind says what a record is about, in bits.
type kind uint8

const (
	kindAddress kind = 1 << iota // a masqueraded address
	kindPort                     // a published port
	kindSNAT                     // … that masquerades what comes in by the link, or from 127.0.0.0/8
	kindMasqAll                  // … that masquerades all connections
	kindOwnLink                  // … and the link is the attachment's alone
)

// noLink is what nft can print and read back where there is no link.
const noLink = "-"

func (r record) use() string {
	if r.kind&kindAddress != 0 {
		return useMasquerade
	}
	return usePortMap
}

// group returns the group of a published port.
func (r record) group() group {
	return group{family: familyOf(r.addr), bound: !r.addr.IsUnspecified(), bit: r.bit, conditions: r.conditions}
}

// data returns the record as the map's data. The first number is, from its
// lowest byte on, the kind, the bit and the protocol; the second one the
// conditions. Addresses of both families stand in the 16 bytes of an IPv6
// address. More than these five values nft can't print.
func (r record) data() []byte {
	first := uint32(r.kind) | uint32(r.bit)<<8 | uint32(r.proto)<<16
	addr := r.addr.As16()
	return nftables.Join(nftables.Native(first), nftables.Native(r.conditions), nftables.Link(r.link), addr[:], nftables.Port(r.port))
}

// parseRecord reads the map's data.
func parseRecord(data []byte) (record, bool) {
	if len(data) != 4+4+unix.IFNAMSIZ+16+4 {
		return record{}, false
	}
	first := binary.NativeEndian.Uint32(data)
	link, behind := data[8:8+unix.IFNAMSIZ], data[8+unix.IFNAMSIZ:]
	r := record{
		kind:       kind(first),
		bit:        uint8(first >> 8),
		proto:      uint8(first >> 16),
		conditions: binary.NativeEndian.Uint32(data[4:]),
		link:       unix.ByteSliceToString(link),
		addr:       netip.AddrFrom16([16]byte(behind)).Unmap(),
		port:       binary.BigEndian.Uint16(behind[16:]),
	}
	return r, r.bit < 32
}

// elements returns what the attachment has put into sets, without the data. The
// first of them is that with data, if there is one.
func (r record) elements() []nftables.Element {
	if r.kind&kindAddress != 0 {
		s := subnetOf(r.prefix())
		return []nftables.Element{{Set: &s.set, Key: nftables.Addr(r.addr), What: r.addr.String(), Stage: addToPart}}
	}
	g := r.group()
	sets, what, key := g.sets(), r.String(), r.portKey()
	ofGroup := addElements
	if !g.isPlain() {
		ofGroup = addToPart
	}
	out := []nftables.Element{{Set: sets.ports, Key: key, What: what, Stage: addElements}}
	add := func(s *nftables.Set, key []byte) {
		out = append(out, nftables.Element{Set: s, Key: key, What: what, Stage: ofGroup})
	}
	if sets.gate != nil {
		add(sets.gate, key)
	}
	if r.kind&kindSNAT != 0 {
		add(sets.snat, nftables.Join(nftables.Link(r.link), key))
		if r.addr.Is4() {
			add(sets.snat, nftables.Join(nftables.Link("lo"), key))
			out = append(out, nftables.Element{Set: &inside, Key: nftables.Link(r.link), Shared: r.kind&kindOwnLink == 0, What: what, Stage: addElements})
		}
	}
	if r.kind&kindMasqAll != 0 {
		add(sets.masqAll, key)
	}
	return out
}

// portKey is the key of a published port in the maps of its group.
func (r record) portKey() []byte {
	key := nftables.Join(nftables.Protocol(r.proto), nftables.Port(r.port))
	if r.group().bound {
		return nftables.Join(nftables.Addr(r.addr), key)
	}
	return key
}

// withdrawal is the element that makes rules pass by the first of elements, the
// one without which the others do nothing.
func (r record) withdrawal() nftables.Element {
	if r.kind&kindAddress != 0 {
		s := subnetOf(r.prefix())
		return nftables.Element{Set: &s.gone, Key: nftables.Addr(r.addr), What: r.addr.String()}
	}
	return nftables.Element{Set: r.group().sets().gone, Key: r.portKey(), What: r.String()}
}

func (r record) String() string {
	if r.kind&kindAddress != 0 {
		return r.addr.String()
	}
	return r.portMap().String()
}

// portMap returns the host's side of a published port.
func (r record) portMap() netfilter.PortMap {
	m := netfilter.PortMap{Protocol: r.proto, HostPort: r.port}
	if !r.addr.IsUnspecified() {
		m.HostIP = r.addr
	}
	return m
}

// prefix returns a masqueraded address with its prefix length.
func (r record) prefix() netip.Prefix { return netip.PrefixFrom(r.addr, int(r.port)) }

// ownerElement is the n-th element of an attachment in the map of owners.
func ownerElement(id plugin.ID, n int) nftables.Element {
	return nftables.Element{Set: &owners, Key: nftables.Join(id[:], nftables.Native(uint32(n))), What: fmt.Sprintf("entry %d", n), Stage: addElements}
}

// held returns the records of an attachment. A ruleset of an earlier version
// that is found beside ours is migrated first.
func (t *Table) held(ctx context.Context, id plugin.ID) ([]record, error) {
	records, earlier, err := t.heldNow(ctx, id)
	if err != nil || !earlier {
		return records, err
	}
	if _, err := t.migrate(ctx); err != nil {
		return nil, err
	}
	records, _, err = t.heldNow(ctx, id)
	return records, err
}

// heldNow also tells whether there is a ruleset of an earlier version.
func (t *Table) heldNow(ctx context.Context, id plugin.ID) (records []record, earlier bool, err error) {
	// The kernel stops at the first entry that is not there, so that asking
	// for more than there are costs only their bytes. Most have one or two.
	const first, atOnce = 8, 32
	for n := first; ; n = atOnce {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		wanted := make([]nftables.Element, 0, n)
		for i := range n {
			wanted = append(wanted, ownerElement(id, len(records)+i))
		}
		found, earlierToo, err := t.conn.PrefixAnd(&owners1, wanted)
		if err != nil && nftables.Lacking(err) {
			err = unavailable(err)
		}
		if err != nil {
			return nil, false, err
		}
		earlier = earlier || earlierToo
		for _, f := range found {
			r, ok := parseRecord(f.Data)
			if !ok {
				return nil, false, plugin.Errorf(fmt.Sprintf("remove the table with `nft delete table inet %s` and restart the containers", TableName), "table inet %s: %s has data that is not ours", TableName, owners.Name)
			}
			records = append(records, r)
		}
		if len(found) < n {
			return records, earlier, nil
		}
	}
}

// look looks elements up by their keys, in the order given.
func (t *Table) look(ctx context.Context, elements []nftables.Element) ([]nftables.Found, error) {
	const atOnce = 256 // between two looks at the context
	out := make([]nftables.Found, 0, len(elements))
	for part := range slices.Chunk(elements, atOnce) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		found, err := t.conn.Look(part)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// ownersOf lists the attachments of a network that hold something for a use.
func (t *Table) ownersOf(ctx context.Context, network, use string) ([]attachment, error) {
	if _, err := t.migrate(ctx); err != nil {
		return nil, err
	}
	hash := plugin.NetworkHash(network)
	var list []attachment
	err := t.conn.List(&owners, func(key []byte, f nftables.Found) {
		r, ok := parseRecord(f.Data)
		if !ok || r.use() != use || len(key) != 16+4 || [8]byte(key) != hash || binary.NativeEndian.Uint32(key[16:]) != 0 {
			return
		}
		list = append(list, attachment{id: plugin.ID(key[:16]), comment: f.Comment})
	})
	return list, listErr(err)
}

// listErr makes an error out of that of a list.
func listErr(err error) error {
	switch {
	case err != nil && nftables.Lacking(err):
		return unavailable(err)
	case errors.Is(err, nftables.ErrBusy):
		return contended("list what is held", err)
	}
	return err
}

// commentOf is the comment of an attachment's elements: its key, without what
// nft could not read back from a saved ruleset. No part of a key has a colon.
func commentOf(key plugin.Key) string { return strings.ReplaceAll(key.String(), `"`, ":") }
