// Package watch turns what happens on the node into bursts of hits: things that attachments need and that somebody has taken away.
//
// It hears of it from nf_tables, rtnetlink and firewalld, and looks at the size of iptables-legacy's tables, which tell nobody. It asks for no
// lists and runs no program. A DEL takes away much, too, so a hit is one only if the link that it is about is still there, and if none of our
// plugins did it.
package watch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Kind is what a hit may concern.
type Kind int

const (
	// Filter is a hit of any attachment: the packet filter's, or a sysctl's of the host.
	Filter Kind = iota
	// Any is a hit of any attachment that a container may have brought about, such as events that were lost.
	Any
	// Link is a hit of the attachments that have a link of the host.
	Link
	// Inside is a hit of the attachments in one namespace.
	Inside
	// Ended is a namespace that has ended.
	Ended
)

// Hit is something that was taken from the node, or a namespace that has ended.
type Hit struct {
	Kind Kind
	What string // for people: "table inet cnibox was deleted", "address 10.88.0.1/16 of demo0 was deleted"
	// By is who did it, as "nft (pid 4711)", or "" if that can't be known.
	By string
	// Link is the name of the host's link, of a hit of that kind.
	Link string
	// NSID is the number that the namespace has for the host, of the kinds Inside and Ended. Of the latter it is -1 if events were lost, so that any
	// may have ended.
	NSID int
}

// Options is what the watch has to know of its node.
type Options struct {
	Plugins plugin.Table // whose processes' doings are no hits
}

// How long a burst waits for more: after the last hit, and after the first.
const quiet, longest = 50 * time.Millisecond, 300 * time.Millisecond

// Watch watches the node.
type Watch struct {
	life     context.Context
	programs programs
	links    *links // answers what has become of a link

	news chan struct{} // has an entry when something has come

	mu       sync.Mutex
	burst    *burst    // what has come since the last one was returned
	err      error     // why there is nothing more to come
	unpaired time.Time // when a veth pair was deleted
}

// Start begins to watch the node, in the network namespace of the calling thread, until ctx ends.
func Start(ctx context.Context, o Options) (*Watch, error) {
	w := &Watch{life: ctx, programs: programs{table: o.Plugins}, burst: newBurst(), news: make(chan struct{}, 1)}
	var err error
	if w.links, err = openLinks(); err != nil {
		return nil, fmt.Errorf("watch links: %w", err)
	}
	for _, start := range []func() error{w.watchLinks, w.watchNFTables, w.watchLegacy, w.watchFirewalld} {
		if err == nil {
			err = start()
		}
	}
	context.AfterFunc(ctx, w.links.close)
	return w, err
}

// Burst waits for a hit and returns it with all that follow, until nothing has come for a moment. One goroutine at a time may call it. If it
// is not called for long, what comes meanwhile is kept, in a few words if it is much.
func (w *Watch) Burst(ctx context.Context) ([]Hit, error) {
	for {
		select {
		case <-w.news:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		for {
			wait, err := w.wait()
			if err != nil {
				return nil, err
			}
			if wait <= 0 {
				break
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				w.announce()
				return nil, ctx.Err()
			}
		}
		if hits := w.popBurst().hits(w.links); len(hits) > 0 {
			return hits, nil
		}
	}
}

// wait returns for how long the burst may still go on.
func (w *Watch) wait() (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return min(time.Until(w.burst.last.Add(quiet)), time.Until(w.burst.first.Add(longest))), w.err
}

// popBurst returns what has come, and begins anew.
func (w *Watch) popBurst() *burst {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.burst
	w.burst = newBurst()
	select { // what has come while the burst was waited for
	case <-w.news:
	default:
	}
	return b
}

// announce tells Burst that something has come.
func (w *Watch) announce() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// hit notes a hit of any attachment.
func (w *Watch) hit(what, by string) { w.note(Hit{Kind: Filter, What: what, By: by}) }

func (w *Watch) note(h Hit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.burst.addFilter(h.What, h)
	w.announce()
}

// end says that a source can tell no more.
func (w *Watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && w.life.Err() == nil {
		w.err = err
	}
	w.announce()
}

// closeAtEnd closes a listener when the watch ends.
func (w *Watch) closeAtEnd(l *listener) {
	context.AfterFunc(w.life, func() { _ = l.conn.Close() })
}
