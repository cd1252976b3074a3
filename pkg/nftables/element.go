package nftables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

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
		flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
		if list[0].Shared {
			flags = unix.NLM_F_CREATE
		}
		tx.newElements(list[0].Stage, flags, "add to ", list, 0)
	})
}

// AddUntilTick adds elements that match from the commit to the kernel's next tick
// (see ExpireElements). One that is there is EEXIST.
//
// The timeout that an element is added with counts from when the kernel reads the
// message, and one that it is given later on from the commit. So the first one is
// replaced before it matters; it is not for ever since a list that is made just
// between the two may be saved and loaded.
func (tx *Transaction) AddUntilTick(at Stage, elements []Element) {
	split(elements, func(list []Element) {
		tx.newElements(at, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add until the next tick to ", list, replacedTimeout)
	})
	tx.ExpireElements(at, elements)
}

// RemoveElements removes elements. One that is not there is ENOENT.
func (tx *Transaction) RemoveElements(at Stage, elements []Element) {
	split(elements, func(list []Element) {
		first := &list[0]
		tx.add(unix.NFT_MSG_DELSETELEM, 0, first.Set.Table.Family, at, "remove from "+describeList(list), func(b *netlink.Batch) {
			elementList(b, first.Set, list, func(*Element) {})
		})
	})
}

// ExpireElements gives elements a timeout that ends with the kernel's next tick
// (see AwaitTick). They match until then, and are listed no more. They must be
// there with the same data: one that is not is made, for that long; one with
// other data is EBUSY. Before Linux 6.12 this is no error and does nothing.
//
// The commit goes through a transaction in its order and counts each one's time
// from when it gets to it: what comes later never expires earlier, and expires at
// the same tick unless one comes in the midst of it.
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
		tx.newElements(at, unix.NLM_F_CREATE, "let expire in ", list, shortestTimeout)
	})
}

// newElements adds a message with all that there is to elements of one set.
func (tx *Transaction) newElements(at Stage, flags uint16, op string, list []Element, timeout time.Duration) {
	s := list[0].Set
	tx.add(unix.NFT_MSG_NEWSETELEM, flags, s.Table.Family, at, op+describeList(list), func(b *netlink.Batch) {
		elementList(b, s, list, func(e *Element) {
			if e.Data != nil {
				dataValue(b, unix.NFTA_SET_ELEM_DATA, e.Data)
			}
			if timeout != 0 {
				b.BE64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(timeout.Milliseconds()))
			}
			if e.Comment != "" {
				b.Bytes(unix.NFTA_SET_ELEM_USERDATA, commentData(e.Comment))
			}
		})
	})
}

const (
	// shortestTimeout is rounded up to a tick by the kernel, and the one that
	// comes next is the first.
	shortestTimeout = time.Millisecond
	replacedTimeout = time.Minute
)

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

// elementList appends what a message about elements holds: their keys, and what
// more appends.
func elementList(b *netlink.Batch, s *Set, list []Element, more func(e *Element)) {
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table.Name)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
		for i := range list {
			b.Nest(unix.NFTA_LIST_ELEM, func() {
				dataValue(b, unix.NFTA_SET_ELEM_KEY, list[i].Key)
				more(&list[i])
			})
		}
	})
}

// getElements appends a question for elements of one set. Each one that is there
// is an answer of its own: only of a single one it is known to be the last.
func getElements(b *netlink.Batch, list []Element) {
	s := list[0].Set
	flags := uint16(0)
	if len(list) > 1 {
		flags = unix.NLM_F_ACK
	}
	get(b, s.Table.Family, unix.NFT_MSG_GETSETELEM, flags, "look up "+describeList(list), func() {
		elementList(b, s, list, func(*Element) {})
	})
}

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
			getElements(b, part[i:i+1])
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
// there are costs only their bytes. expiring tells whether some are about to
// expire, which count as not there.
func (c *Conn) Prefix(elements []Element) (list []Found, expiring bool, err error) {
	b := &netlink.Batch{}
	getElements(b, elements)
	err = c.Do(b, func(m netlink.Message) {
		list = appendFound(list, m)
		expiring = expiring || parseExpiration(m) > 0
	})
	if notThere(err) {
		err = nil
	}
	return list, expiring, err
}

// PrefixAnd is Prefix, and tells with the same message to the kernel whether
// another set is there.
func (c *Conn) PrefixAnd(other *Set, elements []Element) (list []Found, there bool, err error) {
	b := &netlink.Batch{}
	getElements(b, elements)
	getSet(b, other)
	err = c.Do(b, func(m netlink.Message) {
		if m.Index == 1 {
			there = true
			return
		}
		list = appendFound(list, m)
	})
	if notThere(err) {
		err = nil
	}
	return list, there, err
}

func appendFound(list []Found, m netlink.Message) []Found {
	parseElements(m, func(_ []byte, f Found) {
		f.Data = bytes.Clone(f.Data)
		list = append(list, f)
	})
	return list
}

// Remaining returns how long elements are there yet, in the order given: 0 for
// one that is not there, or stays. The order is that in which they are looked at.
func (c *Conn) Remaining(elements ...Element) ([]time.Duration, error) {
	out := make([]time.Duration, len(elements))
	b := &netlink.Batch{}
	for i := range elements {
		getElements(b, elements[i:i+1])
	}
	err := c.Do(b, func(m netlink.Message) { out[m.Index] = parseExpiration(m) })
	if notThere(err) {
		err = nil
	}
	return out, err
}

// parseExpiration returns the time that an answer's only element has left.
func parseExpiration(m netlink.Message) time.Duration {
	element := netlink.Attr(netlink.Attr(attributes(m), unix.NFTA_SET_ELEM_LIST_ELEMENTS), unix.NFTA_LIST_ELEM)
	left := netlink.Attr(element, unix.NFTA_SET_ELEM_EXPIRATION)
	if len(left) != 8 {
		return 0
	}
	return time.Duration(binary.BigEndian.Uint64(left)) * time.Millisecond
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
