package box

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// grace is what a plugin gets, after its time is up or a signal came, to undo
// what it did.
const grace = 20 * time.Second

// limit is how long a verb may take. An ADD may wait for a DHCP server; a
// STATUS is asked without a deadline by runtimes that ask often.
func limit(c plugin.Command) time.Duration {
	switch c {
	case plugin.Add:
		return 4 * time.Minute
	case plugin.Status:
		return 2 * time.Second
	case plugin.GC:
		return 5 * time.Minute
	default:
		return time.Minute
	}
}

// call serves one CNI call and returns the exit code.
func (b *Box) call(p Process, row *plugin.Descriptor) int {
	if p.Getenv("CNI_COMMAND") == string(plugin.Version) {
		_, _ = p.Stdout.Write(append(plugin.VersionJSON(row.Oldest), '\n'))
		return 0
	}
	r, version, err := b.request(p, row)
	if err != nil {
		return fail(p, version, err)
	}
	r.Trace = tracer(p, row.Name)
	result, err := guard(r, row)
	if err != nil {
		return fail(p, version, err)
	}
	if r.Command != plugin.Add {
		return 0
	}
	if _, err := p.Stdout.Write(append(result.JSON(version), '\n')); err != nil {
		fmt.Fprintln(p.Stderr, "write the result:", err)
		return 1
	}
	return 0
}

// outcome is what came of a plugin's verb.
type outcome struct {
	result *plugin.Result
	err    error
}

// guard runs the verb with a deadline and signals turned into a cancelled
// context, and does not wait for ever for a verb that ignores both.
func guard(r *plugin.Request, row *plugin.Descriptor) (*plugin.Result, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	timer := time.NewTimer(limit(r.Command))
	defer timer.Stop()

	done := make(chan outcome, 1)
	go func() { done <- perform(ctx, r, row) }()

	// A DEL goes on: what it does not remove would have to be removed by the
	// next one.
	interrupt := signals
	if r.Command == plugin.Del {
		interrupt = nil
	}
	var stopped error
	select {
	case out := <-done:
		return out.result, out.err
	case s := <-interrupt:
		stopped = fmt.Errorf("ended by signal %v", s)
	case <-timer.C:
		stopped = fmt.Errorf("out of time after %v", limit(r.Command))
	}
	cancel(stopped)
	wait := grace
	if r.Command == plugin.Status {
		wait = 0
	}
	select {
	case out := <-done:
		return out.result, out.err
	case <-time.After(wait):
		return nil, plugin.Errorf("%s %s: %v", row.Name, r.Command, stopped).WithDetails("a step does not end; repeat the call, and see CNIBOX_TRACE=1 for which")
	}
}

// perform calls the verb. A panic is an error like any other, with where it
// happened.
func perform(ctx context.Context, r *plugin.Request, row *plugin.Descriptor) (out outcome) {
	defer func() {
		if p := recover(); p != nil {
			out = outcome{err: plugin.Errorf("%s %s: bug: %v", row.Name, r.Command, p).
				WithDetails("please report it with this trace: %s", firstFrames(string(debug.Stack())))}
		}
	}()
	switch r.Command {
	case plugin.Add:
		out.result, out.err = row.Plugin.Add(ctx, r)
		if out.err == nil && out.result == nil {
			out.result = &plugin.Result{}
		}
	case plugin.Del:
		out.err = row.Plugin.Del(ctx, r)
	case plugin.Check:
		out.err = row.Plugin.Check(ctx, r)
	case plugin.Status:
		out.err = row.Plugin.Status(ctx, r)
	case plugin.GC:
		if r.HasValid {
			out.err = row.Plugin.GC(ctx, r)
		}
	}
	return out
}

// firstFrames cuts a stack trace to what an error document can carry.
func firstFrames(stack string) string {
	const most = 24
	lines := strings.Split(stack, "\n")
	return strings.Join(lines[:min(len(lines), most)], "\n")
}

// tracer prints each step with the time since the start to stderr when
// CNIBOX_TRACE is set.
func tracer(p Process, name string) func(string) {
	if p.Getenv("CNIBOX_TRACE") == "" {
		return nil
	}
	start := time.Now()
	return func(step string) {
		fmt.Fprintf(p.Stderr, "%s +%dus %s\n", name, time.Since(start).Microseconds(), step)
	}
}
