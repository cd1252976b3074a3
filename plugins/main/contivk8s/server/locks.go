package server

import (
	"context"
	"sync"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// locks are one for each attachment that a request is about.
type locks struct {
	mu   sync.Mutex
	held map[plugin.Key]chan struct{} // closed when it is released
}

// take waits for an attachment's lock until ctx ends.
func (l *locks) take(ctx context.Context, k plugin.Key) error {
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
	if held, isHeld := l.held[k]; isHeld {
		return held
	}
	l.held[k] = make(chan struct{})
	return nil
}

func (l *locks) release(k plugin.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held[k])
	delete(l.held, k)
}
