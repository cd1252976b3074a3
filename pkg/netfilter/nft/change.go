package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/expiry"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// claim is what an attachment is to hold: a record, and the data of the first
// of its elements.
type claim struct {
	record     record
	data       []byte
	conditions conditions // whose id the record has
}

// attachment is whose elements are changed or compared.
type attachment struct {
	id      plugin.ID
	comment string
}

func attachmentOf(key plugin.Key, use string) attachment {
	return attachment{id: key.ID(use), comment: commentOf(key)}
}

// guardComment is the comment of elements of the inside set that belong to
// nobody.
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

// entries returns the attachment's elements of the map of owners.
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
// tries, which is one message to the kernel and one before it; what can be
// missing or in the way is looked at when the kernel says so.
func (t *Table) hold(ctx context.Context, a attachment, claims []claim) error {
	t.awaitExpiry(claims)
	entries, elements, parts := a.entries(recordsOf(claims)), a.elements(claims), partsOf(claims)
	var obsolete []nftables.Element
	var create []part
	build, looked := false, false
	var last error
	for range nftables.Tries {
		if err := ctx.Err(); err != nil {
			return err
		}
		tx := &nftables.Transaction{}
		if build {
			appendRuleset(tx)
		}
		for i := range create {
			create[i].appendTo(tx)
		}
		tx.RemoveElements(removeElements, obsolete)
		tx.AddElements(entries)
		tx.AddElements(elements)
		last = t.conn.Commit(tx)
		var err error
		missing, taken := errors.Is(last, unix.ENOENT), nftables.Taken(last)
		switch at := tx.Failed(last); {
		case last == nil:
			return nil
		case at == addElements && missing, at == makePart && missing && !build:
			build, err = t.mustBuild(ctx)
			create = parts
			if err == nil && !build {
				create, err = t.missing(parts)
			}
		case at == makeRuleset && taken: // by another process, with the same
			build = false
			create, err = t.missing(parts)
		case at == makePart && taken, at == addToPart && missing:
			create, err = t.missing(parts)
		case taken, at == removeElements && missing:
			since := nftables.Clock()
			obsolete, err = t.obsolete(ctx, a, elements)
			if err == nil && taken && (looked || len(obsolete) == 0) {
				// What is in the way can't be looked up: it is about to expire,
				// and its key, if withdrawn, not later than it.
				nftables.AwaitTick(since)
			}
			looked = true
		default:
			return explain(tx, last)
		}
		if err != nil {
			return err
		}
	}
	return contended("change what "+a.comment+" holds in table inet "+TableName, last)
}

// mustBuild tells whether the ruleset is to be made: it is not there, and was
// not made just now out of one of an earlier version.
func (t *Table) mustBuild(ctx context.Context) (bool, error) {
	migrated, err := t.migrate(ctx)
	if migrated || err != nil {
		return false, err
	}
	found, err := t.conn.HasSet(&owners)
	return !found, err
}

// obsolete returns what must go so that the wanted elements can be added: what
// the attachment holds already, and what another one was given before and never
// gave back, such as a masqueraded address that has been leased anew. A
// published port is only taken away from an owner that is gone; otherwise that
// is an error.
func (t *Table) obsolete(ctx context.Context, a attachment, wanted []nftables.Element) ([]nftables.Element, error) {
	records, err := t.held(ctx, a.id)
	if err != nil {
		return nil, err
	}
	candidates := nftables.Distinct(append(wanted[:len(wanted):len(wanted)], elementsOf(records)...))
	there, err := t.look(ctx, candidates)
	if err != nil {
		return nil, err
	}
	out := a.entries(records)
	released := map[string]bool{}
	for i, c := range candidates {
		f := there[i]
		own, asked := f.Comment == a.comment, i < len(wanted)
		if !f.There || c.Shared || !own && !asked {
			continue
		}
		out = append(out, c)
		if own || c.Set.Data == nil || released[f.Comment] {
			continue
		}
		released[f.Comment] = true
		theirs, err := t.leftBy(ctx, f.Comment, c.What)
		if err != nil {
			return nil, err
		}
		out = append(out, theirs...)
	}
	return nftables.BySet(nftables.Distinct(out)), nil
}

// release takes away what the attachment holds, except what has passed to another
// one, and returns it.
func (t *Table) release(ctx context.Context, a attachment) ([]claim, error) {
	refused, neverWithdraw := expiry.Way{}, false
	var last error
	for range nftables.Tries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		records, err := t.held(ctx, a.id)
		if err != nil || len(records) == 0 {
			return nil, err
		}
		elements, data, way, err := t.ownElements(ctx, a, records)
		if err != nil {
			return nil, err
		}
		if err := forbidLocalhost(records); err != nil {
			return nil, err
		}
		way = way.Except(refused)
		var keys []nftables.Element
		if way.Expire && !neverWithdraw {
			keys = withdrawals(records, elements)
		}
		n := len(elements)
		tx := takeAway(way, append(elements, a.entries(records)...), keys)
		last = t.conn.Commit(tx)
		switch at := tx.Failed(last); {
		case last == nil && way.Expire && n > 0:
			return released(records, data), t.settle(elements[:n], keys)
		case last == nil:
			return released(records, data), nil
		case at == withdrawElements:
			// Another process withdraws them too, or there is no such set: the
			// ruleset is from before there were any.
			neverWithdraw = true
		case at == expireElements:
			refused.Expire = true // whatever it is that the kernel refuses
		case at == tryExpiry:
			refused.Try = !nftables.Taken(last) // or else another process has just tried
		case !errors.Is(last, unix.ENOENT):
			return nil, explain(tx, last)
		}
		// Another process released some of it, or took it over: look again.
	}
	return nil, contended("remove what "+a.comment+" holds in table inet "+TableName, last)
}

// ownElements returns the elements of records that are there and still belong
// to the attachment, the data of those that have some, by keys of elements, and
// the way to take them away.
func (t *Table) ownElements(ctx context.Context, a attachment, records []record) ([]nftables.Element, map[string][]byte, expiry.Way, error) {
	elements := elementsOf(records)
	n := len(elements)
	made, left := expiry.Trial(&trials, tryExpiry)
	there, err := t.look(ctx, append(elements, made, left))
	if err != nil {
		return nil, nil, expiry.Way{}, err
	}
	data := map[string][]byte{}
	var own []nftables.Element
	for i, e := range elements {
		if !there[i].There || there[i].Comment != a.comment || e.Shared {
			continue
		}
		if e.Set.Data != nil {
			e.Data = there[i].Data
			data[e.ID()] = e.Data
		}
		e.Comment = a.comment
		own = append(own, e)
	}
	return own, data, expiry.WayBy(there[n], there[n+1]), nil
}

// released returns the published ports among records whose elements had data.
func released(records []record, data map[string][]byte) []claim {
	var out []claim
	for _, r := range records {
		if r.kind&kindPort == 0 {
			continue
		}
		if d, ok := data[r.elements()[0].ID()]; ok {
			out = append(out, claim{record: r, data: d})
		}
	}
	return out
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
func (t *Table) check(ctx context.Context, a attachment, claims []claim) error {
	records, err := t.held(ctx, a.id)
	if err != nil {
		return err
	}
	if len(records) == 0 && len(claims) > 0 {
		if found, err := t.conn.HasTable(table); err != nil || !found {
			return errors.Join(err, tableMissing())
		}
	}
	if want := recordsOf(claims); !slices.Equal(records, want) {
		return mismatch("%s holds %v, and should hold %v", a.comment, records, want)
	}
	elements := a.elements(claims)
	there, err := t.look(ctx, elements)
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

func tableMissing() error {
	return plugin.Errorf(fmt.Sprintf("`nft flush ruleset` (a reload of nftables.service does that) or `nft delete table inet %s` took it: "+
		"restart the containers; the next ADD makes the table again", TableName), "table inet %s is missing, and with it all that attachments of this host had published and masqueraded", TableName)
}

func mismatch(format string, args ...any) error {
	return plugin.Errorf(fmt.Sprintf("something changed it after ADD: restart the container; see `nft list table inet %s`", TableName), "table inet %s: %s", TableName, fmt.Sprintf(format, args...))
}
