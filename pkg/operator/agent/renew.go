package agent

import (
	"context"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// keepEvery is how often etcd is told that this host is there. Of a short grace it is a twentieth.
const renewEvery = time.Hour

// renewals knows when etcd is told next of each network.
type renewals struct {
	next map[string]time.Time
	said said
}

// renewShared renews what this host holds in etcd of each network whose addresses are there, and frees what could not be freed before: at the start, then
// now and then, and soon after a DEL that did not reach etcd. It returns when to do so next.
func (a *Agent) renewShared(ctx context.Context, n *node.Node) (next time.Time) {
	next = time.Now().Add(renewEvery)
	due, about := map[string]time.Time{}, map[string]bool{}
	for _, s := range n.Shared() {
		name := s.Name()
		due[name], about[name] = a.renewals.next[name], true
		if ctx.Err() == nil && (time.Now().After(due[name]) || hasOpen(ctx, s)) {
			due[name] = a.keepOne(ctx, s)
		}
		next = earlier(next, due[name])
	}
	a.renewals.next = due
	a.renewals.said.forget(about)
	return next
}

// hasOpen reports whether there is something that etcd may not know to be free.
func hasOpen(ctx context.Context, s shared.Store) bool {
	addresses, _ := s.Held(ctx, "")
	return slices.ContainsFunc(addresses, func(h plugin.Held) bool {
		own, ok := h.Own.(shared.Held)
		return ok && !own.Address.IsValid()
	})
}

func (a *Agent) keepOne(ctx context.Context, s shared.Store) (next time.Time) {
	r, err := s.Renew(ctx)
	if err != nil {
		if ctx.Err() == nil && a.renewals.said.add(s.Name(), err.Error()) {
			a.Log.Warn("etcd can't be told that this host is there, which is tried again", "network", s.Name(), "error", err)
		}
		return time.Now().Add(seldom)
	}
	if a.renewals.said.drop(s.Name()) {
		a.Log.Info("etcd knows again that this host is there", "network", s.Name())
	}
	every := renewEvery
	for _, h := range r.Hosts {
		if h.Name == r.Host {
			every = min(every, max(soon, time.Duration(h.Grace)*time.Second/20))
		}
	}
	return time.Now().Add(every)
}
