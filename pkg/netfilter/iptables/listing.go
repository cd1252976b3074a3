package iptables

import (
	"context"
	"sync"
	"time"
)

// listings are what CHECK reads of the whole host, kept for a while.
type listings struct {
	mu      sync.Mutex        // also held while a listing is read, which others wait for who need it too
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

// kept returns what is kept, locked; nil if nothing is to be.
func kept(ctx context.Context) *listings {
	l, _ := ctx.Value(listingsKey{}).(*listings)
	if l == nil {
		return nil
	}
	l.mu.Lock()
	if time.Since(l.at) > listingTime {
		l.tables, l.owned, l.isKnown, l.at = map[string]*table{}, nil, false, time.Now()
	}
	return l
}

// forgetListings forgets what is kept, since something has changed.
func forgetListings(ctx context.Context) {
	if l := kept(ctx); l != nil {
		l.at = time.Time{}
		l.mu.Unlock()
	}
}

// readListing is read, or takes what is kept.
func (t *table) readListing(ctx context.Context) error {
	l := kept(ctx)
	if l == nil {
		return t.read(ctx)
	}
	defer l.mu.Unlock()
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
	if l == nil {
		return readOwned()
	}
	defer l.mu.Unlock()
	if !l.isKnown {
		if l.owned, err = readOwned(); err != nil {
			return nil, err
		}
		l.isKnown = true
	}
	return l.owned, nil
}
