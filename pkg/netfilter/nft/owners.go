package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netlink"
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
	return join(native(uint32(r.kind)), linkPart(r.link), addr[:], protocolPart(r.proto), portPart(r.port))
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
func (r record) elements() []element {
	if r.kind&kindAddress != 0 {
		s := subnetOf(r.prefix())
		return []element{{set: &s.set, key: addrPart(r.addr), what: r.addr.String(), stage: addAddresses}}
	}
	bound := !r.addr.IsUnspecified()
	sets := familyOf(r.addr).published(bound)
	key := join(protocolPart(r.proto), portPart(r.port))
	if bound {
		key = join(addrPart(r.addr), key)
	}
	out := []element{{set: &sets.ports, key: key}}
	if r.kind&kindSNAT != 0 {
		out = append(out, element{set: &sets.snat, key: join(linkPart(r.link), key)})
		if r.addr.Is4() {
			out = append(out,
				element{set: &sets.snat, key: join(linkPart("lo"), key)},
				element{set: &inside, key: linkPart(r.link), shared: r.kind&kindOwnLink == 0})
		}
	}
	if r.kind&kindMasqAll != 0 {
		out = append(out, element{set: &sets.masqAll, key: key})
	}
	for i := range out {
		out[i].what = r.String()
		out[i].stage = addElements
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
func ownerElement(id plugin.ID, n int) element {
	return element{set: &owners, key: join(id[:], native(uint32(n))), what: fmt.Sprintf("entry %d", n), stage: addElements}
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
	wanted := make([]element, 0, n)
	for i := range n {
		wanted = append(wanted, ownerElement(id, start+i))
	}
	var records []record
	malformed := false
	b := &netlink.Batch{}
	get(b, unix.NFT_MSG_GETSETELEM, unix.NLM_F_ACK, "look up an attachment in "+owners.name, func() {
		elementList(b, &owners, wanted, false)
	})
	err := t.conn.Do(b, func(m netlink.Message) {
		parseElements(m, func(_, data []byte, _ string) {
			r, ok := parseRecord(data)
			malformed = malformed || !ok
			records = append(records, r)
		})
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		err = nil
	case err != nil && lacking(err):
		err = unavailable(err)
	case err == nil && malformed:
		err = plugin.Errorf("table inet %s: %s has data that is not ours", TableName, owners.name).
			WithDetails("remove the table with `nft delete table inet %s` and restart the containers", TableName)
	}
	return records, err
}

// hasRuleset tells whether the ruleset is there.
func (t *Table) hasRuleset() (bool, error) {
	b := &netlink.Batch{}
	get(b, unix.NFT_MSG_GETSET, unix.NLM_F_ACK, "look up "+owners.name, func() {
		b.String(unix.NFTA_SET_TABLE, TableName)
		b.String(unix.NFTA_SET_NAME, owners.name)
	})
	err := t.conn.Do(b, nil)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case lacking(err):
		return false, unavailable(err)
	}
	return false, err
}

// ownersOf lists the attachments of a network that hold something for a use.
func (t *Table) ownersOf(network, use string) ([]attachment, error) {
	hash := plugin.NetworkHash(network)
	var list []attachment
	err := t.list(&owners, func(key, data []byte, comment string) {
		r, ok := parseRecord(data)
		if !ok || r.use() != use || len(key) != 16+4 || [8]byte(key) != hash || binary.NativeEndian.Uint32(key[16:]) != 0 {
			return
		}
		list = append(list, attachment{id: plugin.ID(key[:16]), comment: comment})
	})
	return list, err
}

// list calls f for each element of a set. It may be called again for elements
// that it has seen, when others change the set meanwhile. A set that is not
// there is empty.
func (t *Table) list(s *set, f func(key, data []byte, comment string)) error {
	for try := 1; ; try++ {
		b := &netlink.Batch{}
		get(b, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, "list "+s.name, func() {
			b.String(unix.NFTA_SET_ELEM_LIST_TABLE, TableName)
			b.String(unix.NFTA_SET_ELEM_LIST_SET, s.name)
		})
		err := t.conn.Do(b, func(m netlink.Message) { parseElements(m, f) })
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case lacking(err):
			return unavailable(err)
		case !errors.Is(err, netlink.ErrInterrupted):
			return err
		case try == tries:
			return contended("list "+s.name, err)
		}
	}
}
