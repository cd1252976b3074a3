package iptables

import (
	"context"
	"time"
)

// listings are what CHECK reads of the whole host, kept for a while. They are for one goroutine.
type listings struct {
	tables  map[string]*table // by program and name
	owned   []rule
	isKnown bool // owned is
	at      time.Time
}

// listingTime is for how long they will do.
const listingTime = time.Second

type listingsKey struct{}

// KeepListings returns a context in which CHECK takes listings that are not older than a second, for who checks many attachments in a row.
// Changes are made from new ones.
func KeepListings(ctx context.Context) context.Context {
	return context.WithValue(ctx, listingsKey{}, &listings{})
}

// kept returns what is kept, nil if nothing is to be.
func kept(ctx context.Context) *listings {
	l, _ := ctx.Value(listingsKey{}).(*listings)
	if l != nil && time.Since(l.at) > listingTime {
		*l = listings{tables: map[string]*table{}, at: time.Now()}
	}
	return l
}

// forgetListings forgets what is kept, since something changes.
func forgetListings(ctx context.Context) {
	if l := kept(ctx); l != nil {
		l.at = time.Time{}
	}
}

// readListing is read, or takes what is kept.
func (t *table) readListing(ctx context.Context) error {
	l := kept(ctx)
	if l == nil {
		return t.read(ctx)
	}
	id := t.restore + " " + t.name
	if l.tables[id] == nil {
		if err := t.read(ctx); err != nil {
			return err
		}
		listed := *t
		l.tables[id] = &listed
	}
	*t = *l.tables[id]
	return nil
}

// listOwned is readOwned, or takes what is kept.
func listOwned(ctx context.Context) (owned []rule, err error) {
	l := kept(ctx)
	switch {
	case l == nil:
		return readOwned()
	case !l.isKnown:
		if l.owned, err = readOwned(); err != nil {
			return nil, err
		}
		l.isKnown = true
	}
	return l.owned, nil
}
