package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
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

// record is a value of owners_v1: one thing that an attachment holds. Its
// elements' keys can be told from it.
//
// The key is the attachment's ID for the use and a number that counts from 0.
type record struct {
	kind  kind
	link  string     // snat: the host's link towards the container; noLink if none
	addr  netip.Addr // masqueraded; or the host's that a port is published on, unspecified for all
	proto uint8      // of a published port
	port  uint16     // published; with a masqueraded address, its prefix length
}

// kind says what a record is about, in bits.
type kind uint32

const (
	kindAddress kind = 1 << iota // a masqueraded address
	kindPort                     // a published port
	kindSNAT                     // … that masquerades what comes in by the link, or from 127.0.0.0/8
	kindMasqAll                  // … that masquerades all connections
	kindOwnLink                  // … and the link is the attachment's alone
)

// What nft can print and read back where there is no link and no protocol.
const (
	noLink     = "-"
	noProtocol = 255
)

func (r record) use() string {
	if r.kind&kindAddress != 0 {
		return useMasquerade
	}
	return usePortMap
}

// data returns the record as the map's data. Addresses of both families stand
// in the 16 bytes of an IPv6 address.
func (r record) data() []byte {
	addr := r.addr.As16()
	return nftables.Join(nftables.Native(uint32(r.kind)), nftables.Link(r.link), addr[:], nftables.Protocol(r.proto), nftables.Port(r.port))
}

// parseRecord reads the map's data.
func parseRecord(data []byte) (record, bool) {
	if len(data) != 4+unix.IFNAMSIZ+16+4+4 {
		return record{}, false
	}
	link, data4 := data[4:4+unix.IFNAMSIZ], data[4+unix.IFNAMSIZ:]
	addr := netip.AddrFrom16([16]byte(data4))
	return record{
		kind:  kind(binary.NativeEndian.Uint32(data)),
		link:  unix.ByteSliceToString(link),
		addr:  addr.Unmap(),
		proto: data4[16],
		port:  binary.BigEndian.Uint16(data4[20:]),
	}, true
}

// elements returns what the attachment has put into sets, without the data.
func (r record) elements() []nftables.Element {
	if r.kind&kindAddress != 0 {
		s := subnetOf(r.prefix())
		return []nftables.Element{{Set: &s.set, Key: nftables.Addr(r.addr), What: r.addr.String(), Stage: addAddresses}}
	}
	bound := !r.addr.IsUnspecified()
	sets := familyOf(r.addr).published(bound)
	key := nftables.Join(nftables.Protocol(r.proto), nftables.Port(r.port))
	if bound {
		key = nftables.Join(nftables.Addr(r.addr), key)
	}
	out := []nftables.Element{{Set: &sets.ports, Key: key}}
	if r.kind&kindSNAT != 0 {
		out = append(out, nftables.Element{Set: &sets.snat, Key: nftables.Join(nftables.Link(r.link), key)})
		if r.addr.Is4() {
			out = append(out,
				nftables.Element{Set: &sets.snat, Key: nftables.Join(nftables.Link("lo"), key)},
				nftables.Element{Set: &inside, Key: nftables.Link(r.link), Shared: r.kind&kindOwnLink == 0})
		}
	}
	if r.kind&kindMasqAll != 0 {
		out = append(out, nftables.Element{Set: &sets.masqAll, Key: key})
	}
	for i := range out {
		out[i].What = r.String()
		out[i].Stage = addElements
	}
	return out
}

func (r record) String() string {
	if r.kind&kindAddress != 0 {
		return r.addr.String()
	}
	m := netfilter.PortMap{Protocol: r.proto, HostPort: r.port}
	if !r.addr.IsUnspecified() {
		m.HostIP = r.addr
	}
	return m.String()
}

// ownerElement is the n-th element of owners_v1 of an attachment.
func ownerElement(id plugin.ID, n int) nftables.Element {
	return nftables.Element{Set: &owners, Key: nftables.Join(id[:], nftables.Native(uint32(n))), What: fmt.Sprintf("entry %d", n), Stage: addElements}
}

// held returns the records of an attachment.
func (t *Table) held(id plugin.ID) ([]record, error) {
	// The kernel stops at the first entry that is not there, so that asking
	// for more than there are costs only their bytes. Most have one or two.
	const first, atOnce = 8, 32
	var records []record
	for n := first; ; n = atOnce {
		more, err := t.heldFrom(id, len(records), n)
		records = append(records, more...)
		if err != nil || len(more) < n {
			return records, err
		}
	}
}

func (t *Table) heldFrom(id plugin.ID, start, n int) ([]record, error) {
	wanted := make([]nftables.Element, 0, n)
	for i := range n {
		wanted = append(wanted, ownerElement(id, start+i))
	}
	found, err := t.conn.Prefix(wanted)
	if err != nil && nftables.Lacking(err) {
		return nil, unavailable(err)
	}
	var records []record
	for _, f := range found {
		r, ok := parseRecord(f.Data)
		if !ok {
			return nil, plugin.Errorf("table inet %s: %s has data that is not ours", TableName, owners.Name).
				WithDetails("remove the table with `nft delete table inet %s` and restart the containers", TableName)
		}
		records = append(records, r)
	}
	return records, err
}

// ownersOf lists the attachments of a network that hold something for a use.
func (t *Table) ownersOf(network, use string) ([]attachment, error) {
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
