package netfilter

import (
	"context"
	"time"

	"github.com/cnibox/cnibox/pkg/nftables"
)

// What a Del has nftables let expire matches until the kernel's next tick, and
// the Del waits for that. Of several in a row each would wait for a tick of its
// own, and whoever has other things to do could do them meanwhile.

// overlap is what the context of such a caller has.
type overlap struct{}

type pending struct {
	any   bool
	since time.Duration // on nftables.Clock
}

// Overlap returns a context under which Dels do not wait, but leave that to
// Settle. Within another one it is the same one.
func Overlap(ctx context.Context) context.Context {
	if ctx.Value(overlap{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, overlap{}, &pending{})
}

// Settle waits until nothing matches any more that was removed under a context
// of Overlap.
func Settle(ctx context.Context) {
	if p, ok := ctx.Value(overlap{}).(*pending); ok && p.any {
		nftables.AwaitTick(p.since)
		p.any = false
	}
}

// Expiring waits until what was let expire just now does not match any more, or
// leaves that to Settle.
func Expiring(ctx context.Context) {
	since := nftables.Clock()
	if p, ok := ctx.Value(overlap{}).(*pending); ok {
		p.any, p.since = true, since
		return
	}
	nftables.AwaitTick(since)
}
