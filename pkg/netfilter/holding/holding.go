// Package holding keeps what attachments hold in nftables: elements of sets of
// one table, which has rules of its own that never change.
//
// The table is made by the first attachment that has something to hold. Its map
// of owners says what an attachment holds; it changes in the same transaction as
// the elements do, and is where DEL, CHECK and GC begin. So all of them take the
// attachment's key alone, and as long with one attachment as with thousands.
package holding

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Ruleset is a table for things that attachments hold.
type Ruleset struct {
	Table nftables.Table

	// Owners has, for each thing, who holds it and what it is. It exists
	// exactly if the rest of the ruleset does.
	Owners *nftables.Set
	Sets   []*nftables.Set // all but Owners, Trials and groups
	Chains []nftables.Chain

	// Trials is where it is found out whether the kernel lets elements expire.
	Trials *nftables.Set

	// Read tells what a thing is from its data in Owners.
	Read func(data []byte) (Thing, bool)

	// OfGroup tells by the name of a set which things it is the group of; nil
	// if there are no groups.
	OfGroup func(set string) (Thing, bool)

	// Need says what the kernel lacks that refuses the ruleset.
	Need string
}

// Thing is something that an attachment can hold.
type Thing struct {
	Use  string // that the holder's ID is for
	Data []byte // in Owners

	// Elements are there for this holder. An attachment that is given
	// elements which another one has takes them over. Their sets are Expiring,
	// unless there is a group.
	Elements []nftables.Element

	// Group is a set with the holders of equal things, which is there as long
	// as there is a holder, nil if that does not matter. Shared are elements
	// that are there as long as the group is.
	Group  *nftables.Set
	Shared []nftables.Element
}

// OwnersSet returns a map of owners with some types of data.
func OwnersSet(t nftables.Table, name string, data ...nftables.Type) *nftables.Set {
	return &nftables.Set{Table: t, Name: name, Key: []nftables.Type{nftables.TypeIPv6, nftables.TypeMark}, Data: data, Expiring: true}
}

// TrialsSet returns a set of trials.
func TrialsSet(t nftables.Table, name string) *nftables.Set {
	return &nftables.Set{Table: t, Name: name, Key: []nftables.Type{nftables.TypeMark, nftables.TypeMark}, Expiring: true}
}

// GroupSet returns a group.
func GroupSet(t nftables.Table, name string) *nftables.Set {
	return &nftables.Set{Table: t, Name: name, Key: []nftables.Type{nftables.TypeIPv6}}
}

// Holder is an attachment, for one use.
type Holder struct {
	ID      plugin.ID
	Comment string // of its elements
}

// HolderOf returns the holder that a key is for a use. The comment is the key
// without what nft could not read back from a saved ruleset; no part of a key
// has a colon.
func HolderOf(key plugin.Key, use string) Holder {
	return Holder{ID: key.ID(use), Comment: strings.ReplaceAll(key.String(), `"`, ":")}
}

// Table is a ruleset in one network namespace. One goroutine at a time.
type Table struct {
	Ruleset
	Conn *nftables.Conn
}

// Stages of the transactions.
const (
	makeRuleset nftables.Stage = iota + 1
	makeGroup
	removeElements
	expireElements
	addElements
	addToGroup
	tryExpiry // find out whether the kernel lets elements expire
)

// entry is the n-th element of a holder in the map of owners.
func (t *Table) entry(id plugin.ID, n int) nftables.Element {
	return nftables.Element{Set: t.Owners, Key: nftables.Join(id[:], nftables.Native(uint32(n))), What: "an entry", Stage: addElements}
}

// entries returns the holder's elements of the map of owners.
func (t *Table) entries(h Holder, things []Thing) []nftables.Element {
	out := make([]nftables.Element, 0, len(things))
	for n := range things {
		e := t.entry(h.ID, n)
		e.Data, e.Comment = things[n].Data, h.Comment
		out = append(out, e)
	}
	return out
}

// elements returns what is in the sets for the holder alone: the elements of the
// things, and its membership in groups.
func (h Holder) elements(things []Thing) []nftables.Element {
	var out []nftables.Element
	for _, thing := range things {
		for _, e := range thing.Elements {
			e.Comment, e.Stage = h.Comment, addElements
			out = append(out, e)
		}
		if thing.Group != nil {
			out = append(out, nftables.Element{Set: thing.Group, Key: h.ID[:], Comment: h.Comment, Stage: addToGroup, What: h.Comment})
		}
	}
	return nftables.BySet(nftables.Distinct(out))
}

// shared returns what is in the sets for all holders of equal things.
func shared(things []Thing) []nftables.Element {
	var out []nftables.Element
	for _, thing := range things {
		for _, e := range thing.Shared {
			e.Shared, e.Stage = true, addElements
			out = append(out, e)
		}
	}
	return nftables.BySet(nftables.Distinct(out))
}

// groups returns the groups of things, each once.
func groups(things []Thing) []*nftables.Set {
	var out []*nftables.Set
	seen := map[string]bool{}
	for _, thing := range things {
		if thing.Group != nil && !seen[thing.Group.Name] {
			seen[thing.Group.Name] = true
			out = append(out, thing.Group)
		}
	}
	return out
}

// appendTo adds the creation of the ruleset to a transaction. The map of owners
// comes first: of several processes that try at the same time one gets past it.
func (r *Ruleset) appendTo(tx *nftables.Transaction) {
	tx.CreateTable(makeRuleset, r.Table)
	tx.CreateSet(makeRuleset, r.Owners)
	tx.CreateSet(makeRuleset, r.Trials)
	for _, s := range r.Sets {
		tx.CreateSet(makeRuleset, s)
	}
	for _, c := range r.Chains {
		tx.CreateChain(makeRuleset, r.Table, c)
	}
}

// Available tries whether the kernel takes the ruleset, without leaving anything
// in it.
func (t *Table) Available() error {
	found, err := t.Conn.HasSet(t.Owners)
	if found || err != nil {
		return t.explain(nil, err)
	}
	tx := &nftables.Transaction{}
	t.appendTo(tx)
	err = t.Conn.Probe(tx)
	if nftables.Taken(err) {
		return nil // made by another process just now
	}
	return t.explain(tx, err)
}

// lacksRuleset tells whether a refusal of the kernel is for something in the
// ruleset that it does not have.
func lacksRuleset(tx *nftables.Transaction, err error) bool {
	at := nftables.Stage(0)
	if tx != nil {
		at = tx.Failed(err)
	}
	switch {
	case at == 0:
		return nftables.Lacking(err)
	case at == makeRuleset:
		return nftables.Lacking(err) || isMissing(err)
	}
	return isErrno(err, unix.EOPNOTSUPP)
}
