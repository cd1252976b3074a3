package nft

import (
	"bytes"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// element is an element of a set or map.
type element struct {
	set     *set
	key     []byte
	data    []byte // of maps
	comment string // the owner's

	// shared elements belong to nobody: to add one that is there is no error,
	// and who goes leaves it.
	shared bool
	// stage is addAddresses for those of a subnet.
	stage stage
	what  string // for errors: "tcp/8080"
}

// maxList is the length of the list of elements that a message gets. The
// attribute could be of 64 KiB; a longer one is cut off without an error.
const maxList = 60 << 10

// appendElements adds messages that add or remove elements to a transaction.
// Elements for one set in a row share one.
func appendElements(tx *transaction, typ uint16, elements []element) {
	for len(elements) > 0 {
		n := run(elements)
		list := elements[:n]
		elements = elements[n:]
		first := &list[0]
		op, flags, at := "add to ", uint16(unix.NLM_F_CREATE|unix.NLM_F_EXCL), first.stage
		switch {
		case typ == unix.NFT_MSG_DELSETELEM:
			op, flags, at = "remove from ", 0, removeElements
		case first.shared:
			flags = unix.NLM_F_CREATE
		}
		op += first.set.name + ": " + first.what
		if n > 1 {
			op += " and more"
		}
		tx.add(typ, flags, at, op, func(b *netlink.Batch) {
			elementList(b, first.set, list, typ == unix.NFT_MSG_NEWSETELEM)
		})
	}
}

// run returns how many of the elements go into one message.
func run(elements []element) int {
	const overhead = 64 // of attributes and padding, at most
	first := &elements[0]
	size := 0
	for i := range elements {
		e := &elements[i]
		size += len(e.key) + len(e.data) + len(e.comment) + overhead
		if e.set.name != first.set.name || e.shared != first.shared || i > 0 && size > maxList {
			return i
		}
	}
	return len(elements)
}

// elementList appends what a message about elements holds; whole says that it
// is more than their keys.
func elementList(b *netlink.Batch, s *set, list []element, whole bool) {
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, TableName)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, s.name)
	b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
		for i := range list {
			e := &list[i]
			b.Nest(unix.NFTA_LIST_ELEM, func() {
				dataValue(b, unix.NFTA_SET_ELEM_KEY, e.key)
				if !whole {
					return
				}
				if e.data != nil {
					dataValue(b, unix.NFTA_SET_ELEM_DATA, e.data)
				}
				b.Bytes(unix.NFTA_SET_ELEM_USERDATA, commentData(e.comment))
			})
		}
	})
}

// commentData is an element's comment as nft keeps it (libnftnl's udata.h).
func commentData(comment string) []byte {
	const typeComment = 0
	out := append([]byte{typeComment, byte(len(comment) + 1)}, comment...)
	return append(out, 0)
}

// commentOf is the comment of an attachment's elements: its key, without what
// nft could not read back from a saved ruleset. No part of a key has a colon.
func commentOf(key plugin.Key) string { return strings.ReplaceAll(key.String(), `"`, ":") }

// parseElements calls f for each element of an answer. What it gets is only
// valid until it returns.
func parseElements(m netlink.Message, f func(key, data []byte, comment string)) {
	list := netlink.Attr(attributes(m), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	netlink.Attrs(list, func(_ uint16, e []byte) {
		key := netlink.Attr(netlink.Attr(e, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE)
		data := netlink.Attr(netlink.Attr(e, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VALUE)
		f(key, data, parseComment(netlink.Attr(e, unix.NFTA_SET_ELEM_USERDATA)))
	})
}

// parseComment finds the comment in an element's user data, a sequence of type,
// length and value.
func parseComment(userData []byte) string {
	for len(userData) >= 2 {
		n := int(userData[1])
		if 2+n > len(userData) {
			return ""
		}
		if userData[0] == 0 {
			return strings.TrimRight(string(userData[2:2+n]), "\x00")
		}
		userData = userData[2+n:]
	}
	return ""
}

// found is an element as it stands in the kernel.
type found struct {
	there   bool
	data    []byte
	comment string
}

// look looks elements up by their keys, in the order given.
func (t *Table) look(elements []element) ([]found, error) {
	const atOnce = 32 // answers that surely fit into the socket's buffer
	out := make([]found, len(elements))
	for start := 0; start < len(elements); start += atOnce {
		part := elements[start:min(start+atOnce, len(elements))]
		b := &netlink.Batch{}
		for i := range part {
			e := part[i : i+1]
			get(b, unix.NFT_MSG_GETSETELEM, unix.NLM_F_ACK, "look up "+e[0].what+" in "+e[0].set.name, func() {
				elementList(b, e[0].set, e, false)
			})
		}
		err := t.conn.Do(b, func(m netlink.Message) {
			parseElements(m, func(_, data []byte, comment string) {
				out[start+m.Index] = found{there: true, data: bytes.Clone(data), comment: comment}
			})
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
	}
	return out, nil
}

// distinct drops elements that are there already.
func distinct(elements []element) []element {
	type id struct{ set, key string }
	seen := make(map[id]bool, len(elements))
	var out []element
	for _, e := range elements {
		k := id{e.set.name, string(e.key)}
		if !seen[k] {
			seen[k] = true
			out = append(out, e)
		}
	}
	return out
}
