package iptables

import (
	"context"
	"sync"
	"time"
)

// Listings are what CHECK reads of the whole host, kept for a second, for whoever checks many attachments in a row. Nil keeps nothing.
type Listings struct {
	mu      sync.Mutex        // also held while a listing is read, which others wait for who need it too
	tables  map[string]*table // by program and name
	there   map[string]bool   // whether nf_tables, or iptables-legacy, has a table at all
	owned   []rule
	isKnown bool // owned is
	at      time.Time
}

// listingTime is for how long they will do.
const listingTime = time.Second

// lock locks what is not too old.
func (l *Listings) lock() {
	l.mu.Lock()
	if time.Since(l.at) > listingTime {
		l.tables, l.there, l.owned, l.isKnown, l.at = map[string]*table{}, map[string]bool{}, nil, false, time.Now()
	}
}

// forget forgets what is kept, since something has changed.
func (l *Listings) forget() {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.at = time.Time{}
	}
}

// read reads a table, or takes what is kept.
func (l *Listings) read(ctx context.Context, t *table) error {
	if l == nil {
		return t.read(ctx)
	}
	l.lock()
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

// readOwned is readOwned, or takes what is kept.
func (l *Listings) readOwned() (owned []rule, err error) {
	if l == nil {
		return readOwned()
	}
	l.lock()
	defer l.mu.Unlock()
	if !l.isKnown {
		if l.owned, err = readOwned(); err != nil {
			return nil, err
		}
		l.isKnown = true
	}
	return l.owned, nil
}

// has reports whether a table is there, by a look or by what is kept.
func (l *Listings) has(table string, look func() bool) bool {
	l.lock()
	defer l.mu.Unlock()
	there, isKnown := l.there[table]
	if !isKnown {
		there = look()
		l.there[table] = there
	}
	return there
}
