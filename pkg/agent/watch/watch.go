// Package watch turns what happens on the node into bursts of hits: things that attachments need and that somebody has taken away.
package watch

import (
	"context"
)

// Kind is what a hit may concern.
type Kind int

const (
	// Filter is a hit of any attachment: the packet filter's, or a sysctl's of the host.
	Filter Kind = iota
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
	// What is for people: "table inet cnibox was deleted", "address 10.88.0.1/16 of demo0 was deleted".
	What string
	// By is who did it, as "nft (pid 4711)", or "" if that can't be known.
	By string
	// Link is the name of the host's link, of a hit of that kind.
	Link string
	// NSID is the number that the namespace has for the host, of the kinds Inside and Ended.
	NSID int
}

// Options is what the watch has to know of its node.
type Options struct{}

// Watch watches the node.
type Watch struct{}

// Start begins to watch the node that the calling goroutine's thread is on, until ctx ends.
func Start(ctx context.Context, o Options) (*Watch, error) { return &Watch{}, nil }

// Burst waits for a hit and returns it with all that follow, until nothing has come for 50 ms, or for 300 ms.
func (w *Watch) Burst(ctx context.Context) ([]Hit, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
