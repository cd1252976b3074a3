package nft

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/localhost"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Wants is what an attachment is to have in one of our tables.
type Wants struct {
	Purpose
	records []record

	ports spec.PortNeeds // whose conditions make rules
	port  string         // of a bridge, which is to be isolated; "" for none
}

// Available reports whether the kernel has nf_tables. It asks for the table, which need not be there: to try whether the kernel has all that
// is in the table would hold up others, as a transaction that is taken back does.
func (c *Conn) Available(p Purpose) error {
	t := c.table(p.Table)
	_, err := c.ask(question(unix.NFT_MSG_GETTABLE, t.Table))
	return t.asMissing(err)
}

// Add gives an attachment what it wants, in place of what it has. What is made is found again by the attachment's key alone.
func (c *Conn) Add(ctx context.Context, key plugin.Key, w Wants) error {
	if err := tryConditions(ctx, w.ports); err != nil {
		return err
	}
	if w.port != "" {
		if err := isolate(w.port); err != nil {
			return err
		}
	}
	t, o := c.table(w.Table), ownerOf(key, w.Purpose)
	return t.change(ctx, func() error {
		if err := t.hold(o, w); err != nil {
			return err
		}
		err := t.addRules(ctx, o, w)
		if link, _ := localhostLink(w.records); link != "" && err == nil {
			err = localhost.Allow(link) // the guard is there by now
		}
		if err != nil {
			_, err2 := t.release(o)
			return final{errors.Join(err, err2)}
		}
		return nil
	})
}

// Check compares what the attachment has with what it wants, and makes sure that the table has its rules.
func (c *Conn) Check(key plugin.Key, w Wants) error {
	t, o := c.table(w.Table), ownerOf(key, w.Purpose)
	if len(w.records) > 0 {
		missing, lost, err := t.incomplete(w.records)
		switch {
		case err != nil:
			return err
		case lost:
			return t.mismatch(" is missing, or all its rules are missing, and with them what all attachments of this host had in it")
		case len(missing) > 0:
			return t.mismatch(": chain %s has not all of its rules", strings.Join(missing, ", "))
		}
	}
	records, err := t.recordsOf(o)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(records, w.records, func(r, w record) bool { r.target = w.target; return r == w }) {
		return t.mismatch(": %s holds %v, and should hold %v", o.comment, records, w.records)
	}
	wanted := t.elementsOf(o, w.records)
	if _, err := t.look(wanted); err != nil {
		return err
	}
	for _, e := range wanted {
		switch {
		case e.there == nil:
			return t.mismatch(": %s is not in %s", e.what, e.set.Name)
		case e.there.Comment != e.Comment && e.sharing == single:
			return t.mismatch(": %s in %s belongs to %s", e.what, e.set.Name, e.there.Comment)
		case !bytes.Equal(e.there.Val, e.Val):
			return t.mismatch(": %s in %s leads elsewhere", e.what, e.set.Name)
		}
	}
	if err := t.checkRules(o, w); err != nil {
		return err
	}
	if link, _ := localhostLink(w.records); link != "" {
		return localhost.Check(link)
	}
	if w.port != "" {
		return checkIsolated(w.port)
	}
	return nil
}

// Del takes back what an attachment has, and returns the published ports among it. What is not found is gone, and no error. Packets may
// match it for some milliseconds more, but for those to ports of a protocol whose connections have no end of their own: they may be cut
// when it returns.
func (c *Conn) Del(ctx context.Context, key plugin.Key, p Purpose) (maps []spec.PortMap, err error) {
	t := c.table(p.Table)
	var removed []element
	err = t.change(ctx, func() (err error) {
		removed, err = t.release(ownerOf(key, p))
		return err
	})
	for _, e := range removed {
		if e.record.kind == kindPort && e.set.IsMap && e.set != t.owners {
			e.record.target = parseTarget(e.Val)
			maps = append(maps, e.record.portMap())
		}
	}
	if err == nil && slices.ContainsFunc(maps, func(m spec.PortMap) bool { return m.Protocol != unix.IPPROTO_TCP }) {
		err = t.lookWhenExpired(removed)
	}
	return maps, err
}

// hold gives an owner what it wants, in place of what it has. What another owner was given and never gave back, such as an address
// that has been leased anew, is taken away from that; a published port only if that owner is gone.
func (t *table) hold(o owner, w Wants) error {
	if len(w.records) > 0 {
		if err := t.complete(w.records); err != nil {
			return err
		}
	}
	if _, err := t.release(o); err != nil {
		return err
	}
	wanted := t.elementsOf(o, w.records)
	if err := t.lookWhenExpired(wanted); err != nil {
		return err
	}
	var missing, obsolete []element
	for _, e := range wanted {
		if e.there != nil && e.sharing != single {
			continue
		}
		if e.there != nil && e.set.IsMap && e.there.Comment != o.comment {
			removed, err := t.releaseGone(e, w.ports.Results)
			if err != nil {
				return err
			}
			if len(removed) > 0 {
				return t.hold(o, w)
			}
		}
		if e.there != nil {
			obsolete = append(obsolete, e)
		}
		missing = append(missing, e)
	}
	return t.replace(obsolete, missing)
}

// release takes away what an owner has.
func (t *table) release(o owner) (removed []element, err error) {
	records, err := t.recordsOf(o)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	return t.releaseAll(map[owner][]record{o: records})
}

// releaseAll takes away what owners have, in one transaction, except what has passed to others, and what they have in common with others
// that still need it. Elements may match until the kernel's next tick: lookWhenExpired waits for that.
func (t *table) releaseAll(going map[owner][]record) (removed []element, err error) {
	var errs []error
	for o, records := range going {
		if link, own := localhostLink(records); own { // before the guard goes
			if err := localhost.Forbid(link); err != nil {
				errs = append(errs, err)
				delete(going, o)
			}
		}
	}
	if len(going) == 0 {
		return nil, errors.Join(errs...)
	}
	var list, kept []element
	seen := map[string]bool{} // of what owners have in common
	for o, records := range going {
		for _, e := range t.elementsOf(o, records) {
			if e.sharing == single || !seen[e.id()] {
				list = append(list, e)
			}
			seen[e.id()] = e.sharing != single
		}
	}
	if _, err := t.look(list); err != nil {
		return nil, err
	}
	needed := needs{table: t, going: going}
	for _, e := range list {
		if e.there == nil || e.sharing == permanent || e.sharing == single && e.there.Comment != e.Comment {
			continue
		}
		if e.sharing == common {
			other, err := needed.by(e)
			if err != nil {
				return nil, err
			}
			if other != "" && other == e.there.Comment {
				continue
			}
			if other != "" {
				named := e
				named.Comment = other
				kept = append(kept, named)
			}
		}
		e.SetElement = *e.there
		removed = append(removed, e)
	}
	rules, err := t.rulesOf(going)
	if err != nil || len(removed) == 0 {
		return nil, errors.Join(append(errs, err)...)
	}
	t.conn.DeleteRules(rules)
	return removed, errors.Join(append(errs, t.replace(removed, kept))...)
}

// needs finds out who else needs an element that several owners have in common, as they have in the table for forwarding. The element's
// comment is of one that does. So a list of all is only needed when that one goes, or when its name is a shortened one.
type needs struct {
	table *table
	going map[owner][]record
	all   map[owner][]record // nil if it is to be listed
}

// by returns the comment of an owner that needs an element and does not go, "" if there is none.
func (n *needs) by(e element) (comment string, err error) {
	named := owner{comment: e.there.Comment}
	if key := plugin.ParseKey(named.keyText()); key.ContainerID != "" {
		named = ownerOf(key, e.record.kind.purpose())
		if _, goes := n.going[named]; !goes {
			records, err := n.table.recordsOf(named)
			if err != nil || slices.Contains(records, e.record) {
				return named.comment, err
			}
		}
	}
	if n.all == nil {
		if n.all, err = n.table.allRecords(); err != nil {
			return "", err
		}
	}
	for o, records := range n.all { // in no order, so that it is rarely the next one to go
		if _, goes := n.going[o]; !goes && slices.Contains(records, e.record) {
			return o.comment, nil
		}
	}
	return "", nil
}
