package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// claim is what an attachment is to hold: a record, and the data of the first
// of its elements.
type claim struct {
	record record
	data   []byte
}

// attachment is whose elements are changed or compared.
type attachment struct {
	id      plugin.ID
	comment string
}

func attachmentOf(key plugin.Key, use string) attachment {
	return attachment{id: key.ID(use), comment: commentOf(key)}
}

// guardComment is the comment of elements of inside_v1 that belong to nobody.
const guardComment = "keeps 127.0.0.0/8 to the host while route_localnet is set"

// elements returns the elements of the attachment's claims.
func (a attachment) elements(claims []claim) []nftables.Element {
	var all []nftables.Element
	for _, c := range claims {
		list := c.record.elements()
		list[0].Data = c.data
		for i := range list {
			list[i].Comment = a.comment
			if list[i].Shared {
				list[i].Comment = guardComment
			}
		}
		all = append(all, list...)
	}
	return nftables.BySet(nftables.Distinct(all))
}

// entries returns the attachment's elements of owners_v1.
func (a attachment) entries(records []record) []nftables.Element {
	out := make([]nftables.Element, 0, len(records))
	for n, r := range records {
		e := ownerElement(a.id, n)
		e.Data, e.Comment = r.data(), a.comment
		out = append(out, e)
	}
	return out
}

func recordsOf(claims []claim) []record {
	out := make([]record, 0, len(claims))
	for _, c := range claims {
		out = append(out, c.record)
	}
	return out
}

// elementsOf returns the elements of records, each once.
func elementsOf(records []record) []nftables.Element {
	var all []nftables.Element
	for _, r := range records {
		all = append(all, r.elements()...)
	}
	return nftables.BySet(nftables.Distinct(all))
}

// hold gives the attachment what it claims, in place of what it held. It just
// nftables.Tries, which is one message to the kernel; what can be missing or in the way
// is looked at when the kernel says so.
func (t *Table) hold(ctx context.Context, a attachment, claims []claim) error {
	entries, elements := a.entries(recordsOf(claims)), a.elements(claims)
	var obsolete []nftables.Element
	newRuleset, newSubnets := false, false
	var last error
	for range nftables.Tries {
		if err := ctx.Err(); err != nil {
			return err
		}
		tx := &nftables.Transaction{}
		if newRuleset {
			appendRuleset(tx)
		}
		if newSubnets {
			appendSubnets(tx, claims)
		}
		tx.RemoveElements(removeElements, obsolete)
		tx.AddElements(entries)
		tx.AddElements(elements)
		last = t.conn.Commit(tx)
		missing, taken := errors.Is(last, unix.ENOENT), nftables.Taken(last)
		switch at := tx.Failed(last); {
		case last == nil:
			return nil
		case at == addElements && missing:
			newRuleset, newSubnets = true, true
		case at == addAddresses && missing:
			newSubnets = true
		case at == makeRuleset && taken: // by another process, with the same
			newRuleset = false
		case at == makeSubnet && taken:
			newSubnets = false
		case taken, at == removeElements && missing:
			var err error
			if obsolete, err = t.obsolete(a, elements); err != nil {
				return err
			}
		default:
			return explain(tx, last)
		}
	}
	return contended("change what "+a.comment+" holds in table inet "+TableName, last)
}

func appendSubnets(tx *nftables.Transaction, claims []claim) {
	done := map[string]bool{}
	for _, c := range claims {
		if c.record.kind&kindAddress == 0 {
			continue
		}
		s := subnetOf(c.record.prefix())
		if !done[s.set.Name] {
			done[s.set.Name] = true
			s.appendTo(tx)
		}
	}
}

// obsolete returns what must go so that the wanted elements can be added: what
// the attachment holds already, and what another one was given before and never
// gave back, such as a masqueraded address that has been leased anew. A
// published port is not taken away from its owner: that is an error.
func (t *Table) obsolete(a attachment, wanted []nftables.Element) ([]nftables.Element, error) {
	records, err := t.held(a.id)
	if err != nil {
		return nil, err
	}
	candidates := nftables.Distinct(append(wanted[:len(wanted):len(wanted)], elementsOf(records)...))
	there, err := t.conn.Look(candidates)
	if err != nil {
		return nil, err
	}
	var out []nftables.Element
	for i, c := range candidates {
		f := there[i]
		own, asked := f.Comment == a.comment, i < len(wanted)
		switch {
		case !f.There, c.Shared, !own && !asked:
		case !own && c.Set.Data != nil:
			return nil, portTaken(c.What, f.Comment)
		default:
			out = append(out, c)
		}
	}
	return append(nftables.BySet(out), a.entries(records)...), nil
}

func portTaken(port, owner string) error {
	if owner == "" {
		owner = "something that left no name"
	}
	return plugin.Errorf("host port %s is already published by %s", port, owner).
		WithDetails("publish another port of the host, or stop that container (network/container/interface); " +
			"if it is gone, the network's GC frees the port")
}

// release removes what the attachment holds, except what has passed to another
// one.
func (t *Table) release(ctx context.Context, a attachment) error {
	var last error
	for range nftables.Tries {
		if err := ctx.Err(); err != nil {
			return err
		}
		records, err := t.held(a.id)
		if err != nil || len(records) == 0 {
			return err
		}
		elements := elementsOf(records)
		there, err := t.conn.Look(elements)
		if err != nil {
			return err
		}
		if err := forbidLocalhost(records); err != nil {
			return err
		}
		var own []nftables.Element
		for i, e := range elements {
			if there[i].There && there[i].Comment == a.comment && !e.Shared {
				own = append(own, e)
			}
		}
		tx := &nftables.Transaction{}
		tx.RemoveElements(removeElements, own)
		tx.RemoveElements(removeElements, a.entries(records))
		last = t.conn.Commit(tx)
		if !errors.Is(last, unix.ENOENT) {
			return explain(tx, last)
		}
		// Another process released some of it: look again.
	}
	return contended("remove what "+a.comment+" holds in table inet "+TableName, last)
}

// forbidLocalhost undoes route_localnet of a link that nobody else is behind,
// before the guard for it goes.
func forbidLocalhost(records []record) error {
	done := map[string]bool{}
	for _, r := range records {
		if r.kind&kindOwnLink == 0 || !r.addr.Is4() || done[r.link] {
			continue
		}
		done[r.link] = true
		if err := netfilter.ForbidLocalhost(r.link); err != nil {
			return err
		}
	}
	return nil
}

// check compares what the attachment holds with what it claims.
func (t *Table) check(a attachment, claims []claim) error {
	records, err := t.held(a.id)
	if err != nil {
		return err
	}
	if want := recordsOf(claims); !slices.Equal(records, want) {
		return mismatch("%s holds %v, and should hold %v", a.comment, records, want)
	}
	elements := a.elements(claims)
	there, err := t.conn.Look(elements)
	if err != nil {
		return err
	}
	for i, e := range elements {
		f := there[i]
		switch {
		case !f.There:
			return mismatch("%s is not in %s", e.What, e.Set.Name)
		case f.Comment != e.Comment && !e.Shared:
			return mismatch("%s in %s belongs to %s", e.What, e.Set.Name, f.Comment)
		case !bytes.Equal(f.Data, e.Data):
			return mismatch("%s in %s leads elsewhere", e.What, e.Set.Name)
		}
	}
	return nil
}

func mismatch(format string, args ...any) error {
	return plugin.Errorf("table inet %s: %s", TableName, fmt.Sprintf(format, args...)).
		WithDetails("something changed it after ADD: restart the container; see `nft list table inet %s`", TableName)
}
