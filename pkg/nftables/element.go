package nftables

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// Element is an element of a set or map.
type Element struct {
	Set     *Set
	Key     []byte
	Data    []byte // of maps
	Comment string // at most MaxComment bytes

	// Shared elements may be there already; others must not.
	Shared bool
	Stage  Stage  // of the message that adds it
	What   string // for errors: "tcp/8080"
}

// MaxComment is the length in bytes of the longest comment that nft reads back
// from a saved ruleset.
const MaxComment = 128

// maxList is the length of the list of elements that a message gets. The
// attribute could be of 64 KiB; a longer one is cut off without an error.
const maxList = 60 << 10

// AddElements adds elements. Those for one set in a row share a message. One
// that is there is EEXIST, or EBUSY if it has other data. So is one that is
// about to expire, which lookups do not find any more: it is worth another try
// after the next tick.
func (tx *Transaction) AddElements(elements []Element) {
	split(elements, func(list []Element) {
		first := &list[0]
		flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
		if first.Shared {
			flags = unix.NLM_F_CREATE
		}
		tx.add(unix.NFT_MSG_NEWSETELEM, flags, first.Set.Table.Family, first.Stage, "add to "+describeList(list), func(b *netlink.Batch) {
			elementList(b, first.Set, list, whole)
		})
	})
}

// RemoveElements removes elements. One that is not there is ENOENT.
func (tx *Transaction) RemoveElements(at Stage, elements []Element) {
	split(elements, func(list []Element) {
		first := &list[0]
		tx.add(unix.NFT_MSG_DELSETELEM, 0, first.Set.Table.Family, at, "remove from "+describeList(list), func(b *netlink.Batch) {
			elementList(b, first.Set, list, keys)
		})
	})
}

// ExpireElements gives elements a timeout that ends with the kernel's next tick
// (see AwaitTick). They match until then, and are listed no more. They must be
// there with the same data: one that is not is made, for that long; one with
// other data is EBUSY. Before Linux 6.12 this is no error and does nothing.
//
// The kernel frees what has expired by itself. Until then it stands in the way of
// later elements with the same key: from 16 on, each one makes the kernel rebuild
// the set's hash table, and is EBUSY when that is under way.
//
// After RemoveElements it first waits
// for all packets under way, and whoever closes a socket of nfnetlink meanwhile
// waits with it, the next to commit with that one: 14 ms (Linux 6.18, 2 CPUs).
func (tx *Transaction) ExpireElements(at Stage, elements []Element) {
	split(elements, func(list []Element) {
		first := &list[0]
		tx.add(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, first.Set.Table.Family, at, "let expire in "+describeList(list), func(b *netlink.Batch) {
			elementList(b, first.Set, list, expiring)
		})
	})
}

func describeList(list []Element) string {
	s := list[0].Set.Name + ": " + list[0].What
	if len(list) > 1 {
		s += " and more"
	}
	return s
}

// split calls message for as many elements at a time as one message takes.
func split(elements []Element, message func([]Element)) {
	for len(elements) > 0 {
		n := run(elements)
		message(elements[:n])
		elements = elements[n:]
	}
}

// run returns how many of the elements go into one message.
func run(elements []Element) int {
	const overhead = 64 // of attributes and padding, at most
	first := &elements[0]
	size := 0
	for i := range elements {
		e := &elements[i]
		size += len(e.Key) + len(e.Data) + len(e.Comment) + overhead
		if e.Set.Name != first.Set.Name || e.Set.Table != first.Set.Table || e.Shared != first.Shared || i > 0 && size > maxList {
			return i
		}
	}
	return len(elements)
}

// extent says what a message holds of its elements.
type extent int

const (
	keys     extent = iota
	whole           // all that there is to them
	expiring        // all, and a timeout
)

// elementList appends what a message about elements holds.
func elementList(b *netlink.Batch, s *Set, list []Element, what extent) {
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table.Name)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
		for i := range list {
			e := &list[i]
			b.Nest(unix.NFTA_LIST_ELEM, func() {
				dataValue(b, unix.NFTA_SET_ELEM_KEY, e.Key)
				if what == keys {
					return
				}
				if e.Data != nil {
					dataValue(b, unix.NFTA_SET_ELEM_DATA, e.Data)
				}
				if what == expiring {
					b.BE64(unix.NFTA_SET_ELEM_TIMEOUT, shortestTimeout)
				}
				if e.Comment != "" {
					b.Bytes(unix.NFTA_SET_ELEM_USERDATA, commentData(e.Comment))
				}
			})
		}
	})
}

// shortestTimeout is in milliseconds. The kernel counts it in ticks, rounded up
// to one, and the one that comes next is the first.
const shortestTimeout = 1

// commentData is an element's or rule's comment as nft keeps it (libnftnl's
// udata.h).
func commentData(comment string) []byte {
	const typeComment = 0
	out := append([]byte{typeComment, byte(len(comment) + 1)}, comment...)
	return append(out, 0)
}

// parseElements calls f for each element of an answer, without those that are
// about to expire. What it gets is only valid until it returns.
func parseElements(m netlink.Message, f func(key []byte, e Found)) {
	list := netlink.Attr(attributes(m), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	netlink.Attrs(list, func(_ uint16, e []byte) {
		if netlink.Attr(e, unix.NFTA_SET_ELEM_EXPIRATION) != nil {
			return
		}
		data := netlink.Attr(e, unix.NFTA_SET_ELEM_DATA)
		f(netlink.Attr(netlink.Attr(e, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE), Found{
			There:   true,
			Data:    netlink.Attr(data, unix.NFTA_DATA_VALUE),
			Comment: parseComment(netlink.Attr(e, unix.NFTA_SET_ELEM_USERDATA)),
		})
	})
}

// parseComment finds the comment in user data, a sequence of type, length and
// value.
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

// Found is an element as it stands in the kernel.
type Found struct {
	There   bool
	Data    []byte
	Comment string
}

// Look looks elements up by their keys, in the order given.
func (c *Conn) Look(elements []Element) ([]Found, error) {
	const atOnce = 32 // answers that surely fit into the socket's buffer
	out := make([]Found, len(elements))
	for start := 0; start < len(elements); start += atOnce {
		part := elements[start:min(start+atOnce, len(elements))]
		b := &netlink.Batch{}
		for i := range part {
			e := part[i : i+1]
			get(b, e[0].Set.Table.Family, unix.NFT_MSG_GETSETELEM, unix.NLM_F_ACK, "look up "+describeList(e), func() {
				elementList(b, e[0].Set, e, keys)
			})
		}
		err := c.Do(b, func(m netlink.Message) {
			parseElements(m, func(_ []byte, f Found) {
				f.Data = bytes.Clone(f.Data)
				out[start+m.Index] = f
			})
		})
		if err != nil && !notThere(err) {
			return nil, err
		}
	}
	return out, nil
}

// Prefix looks elements of one set up by their keys and returns those up to the
// first that is not there: the kernel stops at it, so that asking for more than
// there are costs only their bytes.
func (c *Conn) Prefix(elements []Element) ([]Found, error) {
	list, _, err := c.PrefixAnd(nil, elements)
	return list, err
}

// PrefixAnd is Prefix, and tells with the same message to the kernel whether
// another set is there.
func (c *Conn) PrefixAnd(other *Set, elements []Element) (list []Found, there bool, err error) {
	s := elements[0].Set
	b := &netlink.Batch{}
	get(b, s.Table.Family, unix.NFT_MSG_GETSETELEM, unix.NLM_F_ACK, "look up "+describeList(elements), func() {
		elementList(b, s, elements, keys)
	})
	if other != nil {
		getSet(b, other)
	}
	err = c.Do(b, func(m netlink.Message) {
		if m.Index == 1 {
			there = true
			return
		}
		parseElements(m, func(_ []byte, f Found) {
			f.Data = bytes.Clone(f.Data)
			list = append(list, f)
		})
	})
	if notThere(err) {
		err = nil
	}
	return list, there, err
}

// List calls f for each element of a set; key and data are only valid until it
// returns. It may be called again for elements that it has seen, when others
// change the set meanwhile. A set that is not there is empty.
func (c *Conn) List(s *Set, f func(key []byte, e Found)) error {
	return c.dump(s.Table.Family, unix.NFT_MSG_GETSETELEM, "list "+s.Name, func(b *netlink.Batch) {
		b.String(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table.Name)
		b.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	}, func(m netlink.Message) { parseElements(m, f) })
}

// BySet puts elements of one set together, so that they go in one message.
func BySet(elements []Element) []Element {
	slices.SortStableFunc(elements, func(x, y Element) int { return strings.Compare(x.Set.Name, y.Set.Name) })
	return elements
}

// ID tells elements apart: those with the same ID are the same one.
func (e *Element) ID() string { return e.Set.Name + " " + string(e.Key) }

// Distinct drops elements that are there already.
func Distinct(elements []Element) []Element {
	seen := make(map[string]bool, len(elements))
	var out []Element
	for _, e := range elements {
		if id := e.ID(); !seen[id] {
			seen[id] = true
			out = append(out, e)
		}
	}
	return out
}

// Taken tells whether the kernel refused to create something because it is
// there. An element of a map that is there with other data is EBUSY.
func Taken(err error) bool { return errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) }

func notThere(err error) bool { return errors.Is(err, unix.ENOENT) }
