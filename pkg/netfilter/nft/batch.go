package nft

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// Batch is what many attachments are to have, for one transaction: whoever flushes a table takes from it what all of them had.
type Batch struct {
	mu     sync.Mutex
	tables map[nftables.Table]found // that were looked at
	wants  []batched
}

// found is what there was of a table's chains.
type found int

const (
	notLookedAt found = iota
	lost              // nothing
	asMade            // their rules, and nothing else
)

type batched struct {
	key plugin.Key
	Wants
}

// NewBatch returns an empty one.
func NewBatch() *Batch { return &Batch{tables: map[nftables.Table]found{}} }

// Join has the connection's Repair leave to Commit what can be put back with what others lack. Its CHECK takes the batch's word for what
// all have in common, and does not ask again. Nil is no batch.
func (c *Conn) Join(b *Batch) { c.batch = b }

func (b *Batch) foundOf(t nftables.Table) found {
	if b == nil {
		return notLookedAt
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tables[t]
}

func (b *Batch) note(t nftables.Table, is found) {
	if b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.tables[t] = is
	}
}

// accept reports whether it has taken what an attachment wants. It leaves rules that are for one attachment, and ports of protocols whose
// connections have no end, which must be cut as soon as the ports are there.
func (b *Batch) accept(key plugin.Key, w Wants) bool {
	if b == nil || slices.ContainsFunc(w.records, func(r record) bool {
		return r.hasOwnRules() || r.kind == kindPort && r.proto != unix.IPPROTO_TCP
	}) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wants = append(b.wants, batched{key, w})
	return true
}

// Commit puts back what was taken, each table's in one transaction, in the order of keys. It leaves out whoever is not in the order, has
// something else there, or whose place another attachment has by now: Repair alone says what is in the way.
func (b *Batch) Commit(ctx context.Context, order map[plugin.Key]int) error {
	b.mu.Lock()
	wants := slices.DeleteFunc(b.wants, func(w batched) bool { _, is := order[w.key]; return !is })
	b.wants = nil
	b.mu.Unlock()
	if len(wants) == 0 {
		return nil
	}
	slices.SortStableFunc(wants, func(x, y batched) int { return cmp.Compare(order[x.key], order[y.key]) })
	c, err := Open()
	if err != nil {
		return err
	}
	defer c.Close()
	var errs []error
	for _, which := range []nftables.Table{hostTable, forwardTable, bridgeTable, judgeTable, guardTable} {
		list := slices.DeleteFunc(slices.Clone(wants), func(w batched) bool { return w.Table != which })
		if len(list) > 0 {
			t := c.table(which)
			errs = append(errs, t.change(ctx, func() error { return t.fill(list) }))
		}
	}
	return errors.Join(errs...)
}

// fill gives owners what they want, unless it is there or in somebody's way.
func (t *table) fill(list []batched) error {
	var records []record
	var wanted []element
	ends := make([]int, len(list)) // of each owner's part of wanted
	for i, b := range list {
		records = append(records, b.records...)
		wanted = append(wanted, t.elementsOf(ownerOf(b.key, b.Purpose), b.records)...)
		ends[i] = len(wanted)
	}
	if err := t.complete(records, true); err != nil {
		return err
	}
	if err := t.lookWhenExpired(wanted); err != nil {
		return err
	}
	var missing []element
	links, taken, begin := map[string]bool{}, map[string]bool{}, 0
	for i, b := range list {
		own := wanted[begin:ends[i]]
		begin = ends[i]
		lacks, ok := lackingOf(own, taken)
		if !ok {
			continue
		}
		for _, e := range lacks {
			taken[e.id()] = true
		}
		missing = append(missing, lacks...)
		if link, _ := localhostLink(b.records); link != "" {
			links[link] = true
		}
	}
	if err := t.mendLists(records, true); err != nil {
		return err
	}
	if err := t.replace(nil, missing); err != nil {
		return err
	}
	var errs []error
	for link := range links {
		errs = append(errs, sysctl.AllowLocalhost(link))
	}
	return errors.Join(errs...)
}

// lackingOf returns the elements of one owner that are not there, nor taken by others that come with it. ok is false if one is there that is
// different or another's.
func lackingOf(own []element, taken map[string]bool) (lacks []element, ok bool) {
	for _, e := range own {
		switch {
		case e.there == nil && !taken[e.id()]:
			lacks = append(lacks, e)
		case e.sharing != single:
		case e.there == nil || e.there.Comment != e.Comment || !bytes.Equal(e.there.Val, e.Val):
			return nil, false
		}
	}
	return lacks, true
}
