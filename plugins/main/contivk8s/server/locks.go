package server

import (
	"context"
	"sync"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// locks are one for each attachment that a request is about.
type locks struct {
	mu   sync.Mutex
	busy map[plugin.Key]chan struct{} // closed when it is released
}

// acquire waits for an attachment's lock until ctx ends.
func (l *locks) acquire(ctx context.Context, k plugin.Key) error {
	for {
		released := l.try(k)
		if released == nil {
			return nil
		}
		select {
		case <-released:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// try takes the lock if it is free; else it returns what is closed when that may be so.
func (l *locks) try(k plugin.Key) (released <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ended, isHeld := l.busy[k]; isHeld {
		return ended
	}
	l.busy[k] = make(chan struct{})
	return nil
}

func (l *locks) release(k plugin.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.busy[k])
	delete(l.busy, k)
}
