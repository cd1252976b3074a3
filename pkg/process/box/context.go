package box

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// endings returns the signals that would end the process, of those that can be caught and that the caller does not ignore (nohup).
func endings() []os.Signal {
	return slices.DeleteFunc([]os.Signal{
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGXCPU,
	}, signal.Ignored)
}

// callContext ends when the time of a call is up, or when a signal asks an ADD to end, so that it unwinds. A DEL goes on in spite of
// signals: what it does not remove, another one would have to. The other verbs have nothing to undo and just end.
func callContext(command plugin.Command, limit time.Duration) (context.Context, context.CancelFunc) {
	ending := endings()
	ctx, end := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("out of time after %v", limit))
	if len(ending) == 0 { // of none it would ignore all, and an ADD be ended by all: by the end of a child, and by those of Go's own
		return ctx, end
	}
	if command == plugin.Add || command == plugin.Del {
		signal.Ignore(ending...)
	}
	if command != plugin.Add {
		return ctx, end
	}
	ctx, cancel := context.WithCancelCause(ctx)
	return addContext{ctx, sync.OnceFunc(func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, ending...)
		go func() {
			select {
			case s := <-signals:
				cancel(fmt.Errorf("ended by signal %v", s))
			case <-ctx.Done():
			}
		}()
	})}, end
}

// addContext listens to signals from when somebody waits for its end: that brings threads to life, and an ADD that waits for nothing
// is over sooner than it could be stopped.
type addContext struct {
	context.Context
	listen func()
}

func (c addContext) Done() <-chan struct{} {
	c.listen()
	return c.Context.Done()
}
