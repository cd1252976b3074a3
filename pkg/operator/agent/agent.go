// Package agent is what outlives a call of a plugin: it puts back what somebody takes from attachments, as soon as that happens, and removes
// what is left of containers that have ended. It does what `cnictl repair` and `cnictl gc` do, by the same functions, and tells by its socket
// what it did.
//
// Kernel and files are the only truth. The agent keeps nothing of them from one time to the next but for who was mended lately, what it has
// said, and since when something is known to be gone. Nothing waits for it: a node without an agent works as ever.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/cnibox/cnibox/pkg/operator/agent/resolver"
	"github.com/cnibox/cnibox/pkg/operator/agent/socket"
	"github.com/cnibox/cnibox/pkg/operator/agent/watch"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/node/containers"
)

// Options say what an agent works on.
type Options struct {
	node.Options
	Exec     func(cacheDir string) invoke.Exec // calls plugins
	Runtimes []containers.Runtime              // are asked what they run before something is removed

	Dir   string        // of the agent's lock and socket
	Grace time.Duration // for how long something has to be gone before it is removed
	Every time.Duration // how often all is looked at, for what no event tells of

	API     API    // contiv's; nil is none
	Contiv  string // the socket at which it is served
	Network string // that containers are attached to by it

	DNS bool // the questions of containers for names are answered

	Metrics string // a TCP address at which the metrics are served, too; "" is none

	Log *slog.Logger
}

// Defaults of Options.
const (
	DefaultDir   = "/run/cnibox-agent"
	DefaultGrace = time.Minute
	DefaultEvery = 5 * time.Minute
)

// stopTime is how long what is under way has to end when the agent is told to stop.
const stopTime = 10 * time.Second

// Agent is one that runs.
type Agent struct {
	Options
	life     context.Context // ends when the agent is told to stop
	record   record
	places   chan struct{} // a place for each look at the host that is under way
	inside   chan struct{} // one for each look into containers, which may take long
	later    chan struct{} // has an entry while a look at all is put off
	calm     calm
	patience patience
	thrift   thrift // with looks at everything
	frugal   thrift // with looks for what is gone
	said     said
	left     said // what is missing of attachments and left alone
	gone     gone
	renewals renewals
	figures  figures
	api      *contivAPI         // nil if it is not served
	names    *resolver.Resolver // nil if names are not answered
	work     sync.WaitGroup     // what is under way
}

// mends is how many repairs there may be at once: what is hit while one waits for calls to end is looked at meanwhile.
const mends = 2

// Run is an agent, until ctx ends.
func Run(ctx context.Context, o Options) error {
	told := ctx
	ctx, stop := context.WithCancel(told) // also if the watch fails
	defer stop()
	a := &Agent{Options: o, life: ctx, places: make(chan struct{}, mends), inside: make(chan struct{}, mends), later: make(chan struct{}, 1), gone: gone{ended: make(chan struct{}, 1)}}
	a.figures.gather = a.gatherNode
	a.record.begin()
	passed := socket.FromSystemd()
	claim, err := socket.Own(a.socket())
	if err != nil {
		return err
	}
	defer claim.Close()
	if o.DNS {
		if a.names, err = resolver.Start(ctx, o.Log); err != nil {
			return err
		}
	}
	if a.api, err = a.beginContiv(); err != nil {
		return err
	}
	defer a.api.close()
	metrics, err := a.listenForMetrics(ctx)
	if err != nil {
		return err
	}
	w, err := watch.Start(ctx, watch.Options{Plugins: o.Plugins})
	if err != nil {
		return err
	}
	a.api.replay(ctx)
	a.lookFirst(ctx)
	listener, err := claim.Listen(passed, "agent")
	if err != nil {
		return err
	}
	if err := a.api.listen(passed); err != nil {
		return err
	}
	for _, name := range passed.Close() {
		a.Log.Warn("systemd passes a socket that is not asked for", "name", name)
	}
	ended, apiEnded := a.serve(ctx, listener, a.handler()), a.serveContiv(ctx, a.api)
	a.serveMetrics(ctx, metrics)
	a.notify("READY=1")
	a.Log.Info("ready", "socket", a.socket(), "grace", o.Grace, "every", o.Every)
	a.work.Go(func() { a.collectForEver(ctx) })
	err = a.watchForEver(ctx, w)
	a.notify("STOPPING=1")
	stop()
	a.finish(ended, apiEnded)
	if told.Err() != nil {
		a.Log.Info("stopped")
		return nil
	}
	return err
}

// longestFirstLook is how long the agent's clients wait for its first look at most.
const longestFirstLook = 30 * time.Second

// lookFirst puts back what was taken while no agent ran. It goes on in the background if that takes long: one container must not keep the agent from
// serving the others.
func (a *Agent) lookFirst(ctx context.Context) {
	a.places <- struct{}{}
	done := make(chan struct{})
	a.work.Go(func() {
		defer close(done)
		a.mend(ctx, hits{{Kind: watch.Filter, What: start}})
	})
	select {
	case <-done:
	case <-time.After(longestFirstLook):
		a.Log.Warn("the first look at everything takes long, and goes on", "after", longestFirstLook)
	case <-ctx.Done():
	}
}

// finish waits for what is under way.
func (a *Agent) finish(servers ...<-chan struct{}) {
	done := make(chan struct{})
	go func() {
		a.work.Wait()
		for _, ended := range servers {
			<-ended
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopTime):
		a.Log.Warn("what was under way has not ended, and is left to the next start")
	}
}

// watchForEver has mended what is hit, and looks at all now and then.
func (a *Agent) watchForEver(ctx context.Context, w *watch.Watch) error {
	look, waiting := time.Now().Add(a.Every), hits{}
	for {
		wake := look
		if len(waiting) > 0 {
			wake = earlier(look, a.patience.end())
		}
		until, stop := context.WithDeadline(ctx, wake)
		burst, err := w.Burst(until)
		stop()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		waiting = waiting.with(a.endings(burst))
		switch next := a.thrift.next(); {
		case time.Now().Before(look):
		case time.Now().Before(next):
			look = earlier(next, time.Now().Add(a.Every))
		default:
			waiting = hits{{Kind: watch.Filter, What: everything}}
			look = time.Now().Add(a.Every)
		}
		if len(waiting) == 0 || !waiting.isUrgent() && time.Now().Before(a.patience.end()) {
			continue
		}
		a.startMend(ctx, waiting)
		waiting = nil
	}
}
