package contiv

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
		l.mu.Lock()
		released, isHeld := l.held[k]
		if !isHeld {
			l.held[k] = make(chan struct{})
		}
		l.mu.Unlock()
		if !isHeld {
			return nil
		}
		select {
		case <-released:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *locks) release(k plugin.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held[k])
	delete(l.held, k)
}
