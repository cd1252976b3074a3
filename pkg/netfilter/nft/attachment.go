package nft

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// Wants is what an attachment is to have in one of our tables.
type Wants struct {
	Purpose
	records []record

	ports spec.PortNeeds // whose conditions make rules
	port  string         // of a bridge, which must be isolated; "" for none
}

// Available reports whether the kernel has nf_tables. It asks for the table, which need not be there: to try whether the kernel has all that
// is in the table would hold up others, as a transaction that is taken back does.
func (c *Conn) Available(p Purpose) error {
	t := c.table(p.Table)
	_, err := c.ask(question(unix.NFT_MSG_GETTABLE, t.Table))
	return t.asMissing(err)
}

// Try makes what Add makes of a table first, unless it is there: in a network namespace of its own, where nobody waits for it.
func (c *Conn) Try(p Purpose) error {
	if wrong, _, err := c.table(p.Table).incomplete(nil, false); err == nil && len(wrong) == 0 {
		return nil
	}
	return netns.InNew(func() error {
		own, err := Open()
		if err != nil {
			return err
		}
		defer own.Close()
		return own.table(p.Table).complete(nil, false)
	})
}

// Add gives an attachment what it wants, in place of what it has. The attachment's key alone is enough to find that again.
func (c *Conn) Add(ctx context.Context, key plugin.Key, w Wants) error {
	if err := prepare(ctx, w); err != nil {
		return err
	}
	t, o := c.table(w.Table), ownerOf(key, w.Purpose)
	return t.change(ctx, func() error {
		if err := t.set(o, w, false); err != nil {
			return err
		}
		err := t.addRules(ctx, o, w)
		if err == nil {
			err = allowLocalhost(w)
		}
		if err != nil {
			_, err2 := t.release(o)
			return final{errors.Join(err, err2)}
		}
		return nil
	})
}

// Repair gives an attachment what it lacks of what it wants. All that it has stays in force meanwhile, and what another attachment has by now is
// left to that, with an error. With a batch it is put back with what others lack, later.
func (c *Conn) Repair(ctx context.Context, key plugin.Key, w Wants) error {
	if err := prepare(ctx, w); err != nil || c.batch.accept(key, w) {
		return err
	}
	t, o := c.table(w.Table), ownerOf(key, w.Purpose)
	return t.change(ctx, func() error {
		err := t.set(o, w, true)
		if err == nil {
			err = t.repairRules(ctx, o, w)
		}
		if err == nil {
			err = allowLocalhost(w)
		}
		return err
	})
}

// prepare does what needs no table: it tries conditions, and isolates a port.
func prepare(ctx context.Context, w Wants) error {
	err := tryConditions(ctx, w.ports)
	if err == nil && w.port != "" {
		err = isolate(w.port)
	}
	return err
}

// allowLocalhost lets the host reach the ports by 127.0.0.1, when the guard is there.
func allowLocalhost(w Wants) error {
	link, _ := localhostLink(w.records)
	if link == "" {
		return nil
	}
	return sysctl.AllowLocalhost(link)
}

// Check compares what the attachment has with what it wants, and makes sure that the table has its rules.
func (c *Conn) Check(key plugin.Key, w Wants) error {
	t, o := c.table(w.Table), ownerOf(key, w.Purpose)
	if len(w.records) > 0 {
		known := c.batch.foundOf(w.Table)
		wrong, isLost, err := []string(nil), known == lost, error(nil)
		if !isLost {
			wrong, isLost, err = t.incomplete(w.records, known != asMade)
		}
		if err != nil {
			return err
		}
		if isLost {
			c.batch.note(w.Table, lost)
		}
		switch {
		case (isLost || isLater && len(wrong) > 0) && t.hasOther():
			return plugin.Errorf(OtherRemedy, "table %s has %w", t, ErrOther)
		case isLost:
			return t.mismatch(" is missing or dormant, or all its rules are missing, and with them what all attachments of this host had in it")
		case len(wrong) > 0 && t.isExact():
			return t.mismatch(": chain %s lacks some of its rules, or has others besides", strings.Join(wrong, ", "))
		case len(wrong) > 0:
			return t.mismatch(": chain %s has not all of its rules", strings.Join(wrong, ", "))
		}
		c.batch.note(w.Table, asMade)
	}
	records, err := t.recordsOf(o)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(records, w.records, sameRecord) {
		if len(records) > 0 && !slices.Equal(listsOf(records), listsOf(w.records)) {
			return plugin.Errorf(OtherRemedy+"; if the network was edited since ADD, start the container again",
				"%s has other lists than its network by now, or %w", key, ErrOther)
		}
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
		case e.isSiblings(o):
		case e.there.Comment != e.Comment && e.sharing == single:
			return t.mismatch(": %s in %s belongs to %s", e.what, e.set.Name, cmp.Or(e.there.Comment, "no attachment"))
		case !bytes.Equal(e.there.Val, e.Val):
			return t.mismatch(": %s in %s leads elsewhere", e.what, e.set.Name)
		}
	}
	if err := t.checkRules(o, w); err != nil {
		return err
	}
	broken, err := t.brokenLists(w.records, true)
	if err == nil && len(broken) > 0 {
		err = t.mismatch(": chain %s or its sets lack something, or have something else besides", listChain(broken[0].id))
	}
	if err != nil {
		return err
	}
	if link, _ := localhostLink(w.records); link != "" {
		return sysctl.CheckLocalhost(link)
	}
	if w.port != "" {
		return checkIsolated(w.port)
	}
	return nil
}

// listsOf returns what the lists of records are called.
func listsOf(records []record) (names []string) {
	for _, r := range records {
		if r.kind.isList() {
			names = append(names, r.link)
		}
	}
	return names
}

// sameRecord compares what the map of owners says with what is wanted: it does not have the target.
func sameRecord(is, want record) bool {
	is.target, is.list = want.target, want.list
	return is == want
}

// Del takes back what an attachment has, and returns the published ports among it. A missing thing is gone, and no error. Packets may
// match the rest for some milliseconds more, but for those to ports of a protocol whose connections have no end of their own: they may be cut
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

// set gives an owner what it wants, in place of what it has. A thing that another owner was given and never gave back, such as an
// address that has been leased anew, is taken away from that owner; a published port only if that owner is gone. A repair takes nothing away, and
// keeps what is right.
func (t *table) set(o owner, w Wants, repairs bool) error {
	if len(w.records) > 0 {
		if err := t.complete(w.records, repairs); err != nil {
			return err
		}
	}
	has, err := t.recordsOf(o)
	if err != nil {
		return err
	}
	going := map[owner][]record{} // what the owner has, if that is not what it wants: it goes in the same transaction
	keeps := repairs && len(has) <= len(w.records) && slices.EqualFunc(has, w.records[:len(has)], sameRecord)
	if !keeps && len(has) > 0 {
		going[o] = has
	}
	obsolete, missing, err := t.leaving(going)
	if err != nil {
		return err
	}
	wanted := t.elementsOf(o, w.records)
	if err := t.lookWhenExpired(wanted); err != nil {
		return err
	}
	leaves := map[string]bool{} // whether it goes, or stays in the name of another
	for _, e := range obsolete {
		leaves[e.id()] = true
	}
	for _, e := range missing {
		leaves[e.id()] = false
	}
	for _, e := range wanted {
		isOwn := e.there != nil && e.there.Comment == o.comment
		goes, is := leaves[e.id()]
		switch {
		case goes:
			missing = append(missing, e)
			continue
		case is, e.isSiblings(o), e.there != nil && e.sharing != single || keeps && isOwn && bytes.Equal(e.there.Val, e.Val):
			continue
		case repairs && e.there != nil && !isOwn:
			return final{e.taken(t)}
		}
		if e.there != nil && e.set.IsMap && !isOwn && e.record.kind != kindNear {
			removed, err := t.releaseGone(e, w.ports.Results)
			if err != nil {
				return err
			}
			if len(removed) > 0 {
				return t.set(o, w, repairs)
			}
		}
		if e.there != nil {
			obsolete = append(obsolete, e)
		}
		missing = append(missing, e)
	}
	err = t.mendLists(w.records, repairs)
	if err == nil && repairs { // a packet that is under way in between would see a new list as it was before
		err = t.commit()
	}
	if err != nil {
		return err
	}
	return t.replaceOf(going, obsolete, missing)
}
