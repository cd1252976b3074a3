package box

import (
	"context"
	"fmt"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
	"github.com/cnibox/cnibox/pkg/process/detach"
	"github.com/cnibox/cnibox/pkg/process/request"
	"github.com/cnibox/cnibox/pkg/result"
)

// limit is how long a verb may take. An ADD may wait for a DHCP server; a STATUS is asked without a deadline by runtimes that ask
// often.
func limit(c plugin.Command) time.Duration {
	switch c {
	case plugin.Add:
		return 4 * time.Minute
	case plugin.Status:
		return 5 * time.Second
	case plugin.GC:
		return 5 * time.Minute
	default:
		return time.Minute
	}
}

// call serves one CNI call, which the log has a line of if it is on, and returns the exit code.
func (b *Box) call(p Process, row *plugin.Descriptor) int {
	// A pipe that nobody reads is an error of who writes, who can undo what was done.
	signal.Ignore(syscall.SIGPIPE)
	if p.Getenv("CNI_COMMAND") == string(plugin.Version) {
		return exitCode(answer(p, append(result.PrintVersions(row.Oldest), '\n')))
	}
	log := calllog.Begin(b.Log)
	r, version, err := b.request(p, row)
	if err != nil {
		log.End(row.Name, r, nil, fail(p, version, err), p.Getenv("TRACEPARENT"))
		return 1
	}
	made, err := serve(p, row, r, version, log)
	log.End(row.Name, r, made, err, p.Getenv("TRACEPARENT"))
	return exitCode(err)
}

// serve does what a request asks for, and answers: with the result, or with the error that it returns.
func serve(p Process, row *plugin.Descriptor, r *plugin.Request, version string, log *calllog.Log) (made *types100.Result, err error) {
	r.Pair = netns.NewPair(r.Netns, isTrue(p.Getenv("CNI_NETNS_OVERRIDE")))
	defer r.Close()
	// IPAM plugins never enter it: whoever calls them may not even see it.
	if row.Kind != plugin.IPAM && (r.Command == plugin.Add || r.Command == plugin.Check) {
		if err := r.Pair.Err(); err != nil {
			return nil, fail(p, version, err)
		}
	}
	if err := request.NeedPrevResult(r, *row); err != nil {
		return nil, fail(p, version, err)
	}
	r.Trace = tracer(p, row.Name, log)
	r.Warn = func(text string) {
		fmt.Fprintln(p.Stderr, row.Name+":", text)
		log.Step("warning: " + text)
	}
	deleter := detach.New(p.Getenv("CNIBOX_DETACH"), r.Trace)
	defer deleter.Close()
	r.Deleter = deleter
	made, err = guard(r, row, limit(r.Command))
	if err != nil {
		return nil, fail(p, version, err)
	}
	if r.Command != plugin.Add {
		return nil, nil
	}
	if err := answer(p, result.Print(made, version)); err != nil { // the runtime knows nothing of what was made
		r = r.For(plugin.Del)
		r.PrevResult = made
		if _, failed := guard(r, row, limit(plugin.Del)); failed != nil {
			fmt.Fprintln(p.Stderr, "take back what was made:", failed)
			err = fmt.Errorf("%w; take back what was made: %w", err, failed)
		}
		return nil, err
	}
	return made, nil
}

func isTrue(text string) bool { return text == "1" || strings.EqualFold(text, "true") }

// answer prints the one document of a call that succeeded.
func answer(p Process, document []byte) error {
	_, err := p.Stdout.Write(document)
	if err != nil {
		err = fmt.Errorf("write the answer to standard output: %w", err)
		fmt.Fprintln(p.Stderr, err)
	}
	return err
}

func exitCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// guard runs the verb in a context that ends with the call's time or a signal.
func guard(r *plugin.Request, row *plugin.Descriptor, limit time.Duration) (result *types100.Result, err error) {
	ctx, end := callContext(r.Command, limit)
	defer end()
	if r.Command == plugin.Del && row.Kind != plugin.IPAM {
		presence.DefaultNotes.BeginDel(ctx, r.Key)
	}
	if r.Command == plugin.Status {
		err = status(ctx, r, row)
	} else {
		result, err = perform(ctx, r, row)
	}
	if stopped := context.Cause(ctx); stopped != nil && err != nil {
		e := plugin.AsError(err)
		if e.Details == "" {
			e.Details = fmt.Sprintf("the call was %v; it can be repeated", stopped)
		}
		err = e
	}
	return result, err
}

// status does not wait for a STATUS that goes on when its context has ended: runtimes ask for it without a deadline of their own.
func status(ctx context.Context, r *plugin.Request, row *plugin.Descriptor) error {
	done := make(chan error, 1)
	go func() {
		_, err := perform(ctx, r, row)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return types.NewError(types.ErrPluginNotAvailable, fmt.Sprintf("%s %s: %v", row.Name, r.Command, context.Cause(ctx)),
			"a step does not end; repeat the call, and see CNIBOX_TRACE=1 for which")
	}
}

// perform calls the verb. A panic is an error like any other, with where it happened.
func perform(ctx context.Context, r *plugin.Request, row *plugin.Descriptor) (result *types100.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = nil, plugin.Errorf("please report it with this trace: "+firstFrames(string(debug.Stack())), "%s %s: bug: %v", row.Name, r.Command, p)
		}
	}()
	return request.Serve(ctx, row.Plugin, r)
}

// firstFrames cuts a stack trace to what an error document can carry.
func firstFrames(stack string) string {
	const most = 24
	lines := strings.Split(stack, "\n")
	return strings.Join(lines[:min(len(lines), most)], "\n")
}

// tracer prints each step with the time since the start to stderr when CNIBOX_TRACE is set, and notes it for the log when that is on.
func tracer(p Process, name string, log *calllog.Log) func(string) {
	if p.Getenv("CNIBOX_TRACE") == "" {
		if log == nil {
			return nil
		}
		return log.Step
	}
	start := time.Now()
	return func(step string) {
		fmt.Fprintf(p.Stderr, "%s +%dus %s\n", name, time.Since(start).Microseconds(), step)
		log.Step(step)
	}
}
