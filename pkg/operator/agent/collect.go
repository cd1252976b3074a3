package agent

import (
	"cmp"
	"context"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/agent/watch"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// Between looks for what is gone: soon after a namespace has ended, and not more often than that.
const soon, seldom = time.Second, 30 * time.Second

// gone knows since when something is seen to be gone, and when that is looked at next.
type gone struct {
	since map[string]time.Time // by attachment, or by what nobody holds
	ended chan struct{}        // has an entry if a namespace has ended since the last look
	said  said                 // of networks and attachments
}

// endings takes out of hits that namespaces have ended, which is for the collection.
func (a *Agent) endings(burst []watch.Hit) (others hits) {
	for _, h := range burst {
		if h.Kind != watch.Ended {
			others = append(others, h)
			continue
		}
		select {
		case a.gone.ended <- struct{}{}:
		default: // it is known already
		}
	}
	return others
}

// collectForEver removes what is gone: some time after a namespace has ended, and now and then.
func (a *Agent) collectForEver(ctx context.Context) {
	next, last := time.Now(), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.gone.ended:
			due := time.Now().Add(soon)
			if earliest := last.Add(seldom); due.Before(earliest) {
				due = earliest
			}
			if due.Before(next) {
				next = due
			}
		case <-time.After(time.Until(next)):
			last = time.Now()
			next = a.collect(ctx)
		}
	}
}

// collect removes what has been gone for the grace, and returns when to look again.
func (a *Agent) collect(ctx context.Context) (next time.Time) {
	a.frugal.begin()
	o := collect.Options{Options: a.Options.Options, Exec: a.Exec}
	o.Runtimes = a.Runtimes
	n := node.Read(ctx, o.Options)
	r := collect.Plan(ctx, n, o)
	now := time.Now()
	a.frugal.end(a.Every)
	next = now.Add(a.Every)
	if rest := a.frugal.next(); rest.After(next) {
		next = rest
	}
	next = earlier(next, a.renewShared(ctx, n))
	since := map[string]time.Time{}
	var due []*collect.Item
	for _, it := range r.Goes {
		name := nameOf(it)
		first, known := a.gone.since[name]
		if !known {
			first = now
		}
		since[name] = first
		if end := first.Add(a.Grace); end.After(now) {
			next = earlier(next, end)
			continue
		}
		due = append(due, it)
	}
	about := map[string]bool{}
	for _, s := range r.Stays {
		switch {
		case s.State.IsOver(): // such as one that is too young, of which the grace has begun
			since[s.Owner] = now
			if first, known := a.gone.since[s.Owner]; known {
				since[s.Owner] = first
			}
			next = earlier(next, now.Add(seldom))
		case s.Remedy() != "":
			about[s.Owner] = true
			if a.gone.said.add(s.Owner, s.Why) {
				a.Log.Info("it is not known whether it is in use, so it stays", "attachment", s.Owner, "why", s.Why, "remedy", s.Remedy())
			}
		}
	}
	a.gone.since = since
	for _, answer := range r.Runtimes {
		if answer.Error == "" {
			continue
		}
		about[answer.Socket] = true
		if a.gone.said.add(answer.Socket, answer.Error) {
			a.Log.Warn("a runtime does not answer: what it may run counts as running", "runtime", answer.Runtime, "socket", answer.Socket, "error", answer.Error)
		}
	}
	for _, s := range r.Stops {
		about[s.Network] = true
		if a.gone.said.add(s.Network, s.Why) {
			a.Log.Warn("not all that is gone can be collected", "why", s.Why, "remedy", s.Remedy)
		}
	}
	for name := range since {
		about[name] = true
	}
	a.gone.said.forget(about)
	r.Goes = due
	for _, it := range due {
		if ctx.Err() != nil {
			return next
		}
		if !a.free(context.WithoutCancel(ctx), r, it, o) {
			next = earlier(next, now.Add(seldom))
		}
	}
	r.Sweep(context.WithoutCancel(ctx), o)
	for _, it := range due {
		a.tellOf(it)
	}
	return next
}

func (a *Agent) tellOf(it *collect.Item) {
	a.record.collected(it.Outcome)
	switch it.Outcome {
	case collect.Removed:
		delete(a.gone.since, nameOf(it))
		a.Log.Info("collected", "attachment", nameOf(it), "held", len(it.Held), "why", it.Why)
	case collect.Failed:
		if a.gone.said.add(nameOf(it), it.Reason) {
			a.Log.Warn("it can't be collected, and is tried again", "attachment", nameOf(it), "error", it.Reason)
		}
	case collect.Skipped:
		a.Log.Info("left alone", "attachment", nameOf(it), "why", it.Reason)
	}
}

// nameOf returns whose an item is, or what it is if it is nobody's.
func nameOf(it *collect.Item) string {
	if it.Owner == "" && len(it.Held) > 0 {
		return cmp.Or(it.Network, "-") + " " + it.Held[0].What
	}
	return it.Owner
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
