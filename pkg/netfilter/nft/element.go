package nft

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
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
	there   *nftables.SetElement // what is there under its key, as look has found; nil is nothing, or something that is about to go
}

// taken is the error of an element in whose place another one is.
func (e *element) taken(t *table) error {
	if e.there.Comment != "" {
		return plugin.Errorf("one of the two containers has to be restarted, so that it gets another address or port", "table %s: %s is %s's by now", t, e.what, e.there.Comment)
	}
	kind := "set"
	if e.set.IsMap {
		kind = "map"
	}
	return plugin.Errorf(fmt.Sprintf("find it with `nft list %s %s %s`, take it away with `nft delete element`, and repeat `cnictl repair`", kind, t, e.set.Name),
		"table %s: an element for %s is in %s that no attachment has", t, e.what, e.set.Name)
}

// sharing is how long an element stays that several attachments may need.
type sharing uint8

const (
	single    sharing = iota // it has one owner, and goes with that
	common                   // it goes with the last one that has an equal record; the comment is of one of them
	permanent                // it stays
)

// newElement returns the element of a set that has the parts of a key.
func newElement(s *nftables.Set, key ...[]byte) element {
	return element{set: s, SetElement: nftables.SetElement{Key: slices.Concat(key...)}}
}

func commonElement(s *nftables.Set, key ...[]byte) element {
	e := newElement(s, key...)
	e.sharing = common
	return e
}

// id tells elements apart.
func (e element) id() string { return e.set.Name + string(e.Key) }

// isSiblings reports whether a published port is there for another interface of the owner's container. Runtimes ask for the ports of a container on
// each of its networks: the first to publish one has it, and it is enough.
func (e element) isSiblings(o owner) bool {
	if e.there == nil || e.record.kind != kindPort || e.sharing != single || e.there.Comment == o.comment {
		return false
	}
	container := plugin.ParseKey(o.keyText()).ContainerID
	return container != "" && plugin.ParseKey(owner{comment: e.there.Comment}.keyText()).ContainerID == container
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
			if e.sharing != permanent {
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
		questions[i] = t.elementQuestion(e)
	}
	answers, err := t.conn.ask(questions...)
	for i, a := range answers {
		e := &elements[i]
		e.there = nil
		found := attributes(attributes(a[unix.NFTA_SET_ELEM_LIST_ELEMENTS])[unix.NFTA_LIST_ELEM])
		if _, expires := found[unix.NFTA_SET_ELEM_EXPIRATION]; expires {
			expiring = true
		} else if a != nil {
			data := attributes(found[unix.NFTA_SET_ELEM_DATA])
			e.there = &nftables.SetElement{Key: e.Key, Val: data[unix.NFTA_DATA_VALUE], Comment: CommentIn(found[unix.NFTA_SET_ELEM_USERDATA])}
			if verdict, is := data[unix.NFTA_DATA_VERDICT]; is {
				chain := unix.ByteSliceToString(attributes(verdict)[unix.NFTA_VERDICT_CHAIN])
				e.there.Val, e.there.VerdictData = []byte(chain), &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}
			}
		}
	}
	return expiring, t.asMissing(err)
}

// elementQuestion asks for what is there under an element's key.
func (t *table) elementQuestion(e element) netlink.Message {
	key := nested(unix.NFTA_LIST_ELEM, nested(unix.NFTA_SET_ELEM_KEY, netlink.Attribute{Type: unix.NFTA_DATA_VALUE, Data: e.Key}))
	return question(unix.NFT_MSG_GETSETELEM, t.Table, textAttr(unix.NFTA_SET_ELEM_LIST_SET, e.set.Name), nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, key))
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

// replace takes elements out of their sets and puts others in, and commits the transaction.
//
// Where the kernel can, elements that nothing takes the place of expire. To remove them makes everybody who uses nf_tables wait: the
// kernel waits for all packets under way before it frees them, and whoever closes a socket of nf_tables waits with it.
func (t *table) replace(old, added []element) error {
	if len(added) == 0 && len(old) > 0 && canExpire() && !slices.ContainsFunc(old, element.holdsList) {
		send(old, time.Millisecond, t.conn.SetAddElements) // the kernel makes its next tick of the shortest timeout
		if err := t.commit(); err != nil {
			return err
		}
		if _, err := t.look(old[:1]); err != nil || old[0].there == nil {
			return err
		}
		// The kernel said that it can, and did not.
	}
	send(old, 0, t.conn.SetDeleteElements)
	send(added, 0, t.conn.SetAddElements)
	for _, e := range old {
		if !e.isList() || slices.ContainsFunc(added, func(a element) bool { return a.id() == e.id() }) {
			continue
		}
		if err := t.dropList(unix.ByteSliceToString(e.Key)); err != nil {
			return err
		}
	}
	return t.commit()
}

// holdsList reports whether a list stays in use, for the kernel, as long as the element is there. One that has expired is there until the kernel's next tick,
// which comes later the more is changed meanwhile.
func (e element) holdsList() bool {
	return e.isList() || e.record.kind == kindJudged || e.record.kind == kindNear
}

// isList reports whether it stands for a list that goes with it.
func (e element) isList() bool { return e.record.kind.isList() && e.sharing == common }

// canExpire reports whether the kernel can give a timeout to an element that is there, as Linux 6.12 and later can. Earlier ones
// answer as if they could.
func canExpire() bool {
	var kernel unix.Utsname
	_ = unix.Uname(&kernel) // can't fail
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(kernel.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 6 || major == 6 && minor >= 12)
}

// send calls a method of the library for elements of one set at a time, and not for more than fit into one attribute of 64 KiB: the
// kernel drops the rest without an error.
const atOnce = 200

func send(elements []element, timeout time.Duration, call func(*nftables.Set, []nftables.SetElement) error) {
	sets, lists := map[string]*nftables.Set{}, map[string][]nftables.SetElement{}
	for _, e := range elements {
		e.Timeout = timeout
		sets[e.set.Name] = e.set
		lists[e.set.Name] = append(lists[e.set.Name], e.SetElement)
	}
	for name, list := range lists {
		for part := range slices.Chunk(list, atOnce) {
			_ = call(sets[name], part) // fails for lists of more than 64 KiB, and for anonymous sets
		}
	}
}
