package nft

import (
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// element is one of a set or map, that is there for a record.
type element struct {
	nftables.SetElement
	set     *nftables.Set
	what    string // for errors: "tcp/8080"
	sharing sharing
	record  record
}

// sharing is how long an element stays that several attachments may need.
type sharing uint8

const (
	alone   sharing = iota // it has one owner, and goes with that
	common                 // it goes with the last one that has an equal record
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
			if e.sharing == alone {
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

// look looks elements up by their keys, in the order given: nil is what is not there, or is about to go. expiring reports whether any
// is about to go.
func (t *table) look(elements []element) (list []*nftables.SetElement, expiring bool, err error) {
	questions := make([]netlink.Message, len(elements))
	for i, e := range elements {
		key := nested(unix.NFTA_LIST_ELEM, nested(unix.NFTA_SET_ELEM_KEY, netlink.Attribute{Type: unix.NFTA_DATA_VALUE, Data: e.Key}))
		questions[i] = question(unix.NFT_MSG_GETSETELEM, t.Table,
			textAttr(unix.NFTA_SET_ELEM_LIST_SET, e.set.Name), nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, key))
	}
	answers, err := t.conn.ask(questions...)
	if err != nil {
		return nil, false, t.explain(err)
	}
	list = make([]*nftables.SetElement, len(elements))
	for i, a := range answers {
		found := attributes(attributes(a[unix.NFTA_SET_ELEM_LIST_ELEMENTS])[unix.NFTA_LIST_ELEM])
		if _, expires := found[unix.NFTA_SET_ELEM_EXPIRATION]; expires {
			expiring = true
		} else if a != nil {
			value := attributes(found[unix.NFTA_SET_ELEM_DATA])[unix.NFTA_DATA_VALUE]
			list[i] = &nftables.SetElement{Key: elements[i].Key, Val: value, Comment: CommentIn(found[unix.NFTA_SET_ELEM_USERDATA])}
		}
	}
	return list, expiring, nil
}

// lookWhenExpired is look, and waits until nothing of it is about to go.
func (t *table) lookWhenExpired(elements []element) ([]*nftables.SetElement, error) {
	const longest = time.Second // someone else's timeout
	for end := time.Now().Add(longest); ; time.Sleep(time.Millisecond) {
		there, expiring, err := t.look(elements)
		if err != nil || !expiring || time.Now().After(end) {
			return there, err
		}
	}
}

// held returns the records of an owner, without those that are about to go. What has another comment is another's, whose ID is the
// same.
func (t *table) held(o owner) (records []record, err error) {
	for atOnce := 2; ; atOnce *= 2 { // most have one
		entries := make([]element, atOnce)
		for i := range entries {
			entries[i] = t.entry(o, len(records)+i)
		}
		there, _, err := t.look(entries)
		if err != nil {
			return nil, err
		}
		for _, f := range there {
			if f == nil || f.Comment != o.comment {
				return records, nil
			}
			r, ok := parseRecord(f.Val)
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
