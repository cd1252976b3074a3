package nft

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// part is a part of a key that nft knows by what it stands for in a packet (typeof), and not by a type: it can print and load no other rule
// that looks up what it has no word for. The library can't make such sets.
type part struct {
	value
	kind   uint32 // of nft's types
	typeof []byte
}

// userData is an attribute of nft's notes on a set: numbers have 4 bytes, in the host's order.
func userData(kind byte, values ...[]byte) []byte {
	content := slices.Concat(values...)
	return append([]byte{kind, byte(len(content))}, content...)
}

// typeof is the note on an expression, by nft's number of its kind.
func typeof(kind uint32, values ...[]byte) []byte {
	return slices.Concat(userData(0, native(kind)), userData(1, values...))
}

// The kinds of expressions, and of types.
const (
	payloadExpr, metaExpr, concatExpr    = 7, 9, 13
	integerType, ip4Type, ip6Type        = 4, 7, 8
	linkType                             = 41
	transportHeader, inLinkOf            = 3, 6
	ip4Header, ip4Src, ip6Header, ip6Src = 12, 11, 13, 8
)

// source is where a packet comes from.
func (f *family) source() part {
	if f == &ipv4 {
		return part{f.src(), ip4Type, typeof(payloadExpr, userData(0, native(ip4Header)), userData(1, native(ip4Src)))}
	}
	return part{f.src(), ip6Type, typeof(payloadExpr, userData(0, native(ip6Header)), userData(1, native(ip6Src)))}
}

func inLinkPart() part {
	return part{inLink(), linkType, typeof(metaExpr, userData(0, native(inLinkOf)))}
}

// raw is an address at an offset, in bytes, of what is behind the IP header.
func (f *family) raw(offset uint32) part {
	note := typeof(payloadExpr, userData(0, native(0)), userData(1, native(0)), userData(2, native(transportHeader)),
		userData(3, native(8*offset)), userData(4, native(8*f.addr.Bytes)))
	return part{payload(2, offset, f.addr), integerType, note}
}

// newTyped adds a set of such keys to the table.
func (t *table) newTyped(name string, key ...part) *nftables.Set {
	var values []value
	for _, p := range key {
		values = append(values, p.value)
	}
	s := t.newSet(name, values...)
	t.typed = append(t.typed, typed{s, key})
	return s
}

type typed struct {
	*nftables.Set
	key []part
}

// addTyped makes the table, and these sets of it.
func (t *table) addTyped() error {
	if len(t.typed) == 0 {
		return nil
	}
	made := []netlink.Message{question(unix.NFT_MSG_NEWTABLE, t.Table)}
	for i, s := range t.typed {
		var kind uint32
		var notes []byte
		for n, p := range s.key {
			kind = kind<<6 | p.kind
			notes = append(notes, userData(byte(n), p.typeof)...)
		}
		number := func(attribute uint16, n uint32) netlink.Attribute {
			return netlink.Attribute{Type: attribute, Data: binary.BigEndian.AppendUint32(nil, n)}
		}
		note := slices.Concat(userData(0, native(0)), userData(3, typeof(concatExpr, notes)))
		made = append(made, question(unix.NFT_MSG_NEWSET, t.Table, textAttr(unix.NFTA_SET_NAME, s.Name), number(unix.NFTA_SET_FLAGS, unix.NFT_SET_TIMEOUT),
			number(unix.NFTA_SET_KEY_TYPE, kind), number(unix.NFTA_SET_KEY_LEN, s.KeyType.Bytes), number(unix.NFTA_SET_ID, uint32(i+1)),
			netlink.Attribute{Type: unix.NFTA_SET_USERDATA, Data: note}))
	}
	for i := range made {
		made[i].Header.Flags |= netlink.Acknowledge | netlink.Create
	}
	end := netlink.Message{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_END, Flags: netlink.Request}, Data: []byte{0, 0, 0, unix.NFNL_SUBSYS_NFTABLES}}
	begin := end
	begin.Header.Type = unix.NFNL_MSG_BATCH_BEGIN
	if _, err := t.conn.socket.SendMessages(slices.Concat([]netlink.Message{begin}, made, []netlink.Message{end})); err != nil {
		return kernelError("make table "+t.String(), err)
	}
	var errs error
	for range made {
		if _, err := t.conn.socket.Receive(); err != nil {
			errs = errors.Join(errs, err)
			if errors.Is(err, unix.EPERM) {
				break // of several messages one is answered
			}
		}
	}
	return t.asMissing(kernelError("make table "+t.String(), errs))
}
