package calllog

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Log is the log while a call is under way. A nil one is off.
type Log struct {
	dir   string
	began time.Time

	lock  sync.Mutex // a STATUS that is given up may go on with its steps
	steps []Step
}

// Begin begins a call, whose line will be in the log of a directory. It is nil if the log is off, which one system call tells; "" is no log.
func Begin(dir string) *Log {
	if dir == "" || unix.Access(filepath.Join(dir, current), unix.F_OK) != nil {
		return nil
	}
	return &Log{dir: dir, began: time.Now()}
}

// Step notes what the plugin is about to do.
func (l *Log) Step(text string) {
	if l == nil {
		return
	}
	at := time.Since(l.began)
	l.lock.Lock()
	defer l.lock.Unlock()
	l.steps = append(l.steps, Step{at, text})
}

// End writes the line of a call: of the plugin called name, what is known of the request, and what came of it. A line that can't be written is
// left out: a call has better things to do. A STATUS that succeeds has no line: runtimes ask every few seconds, and after some days there
// would be nothing else in the log.
func (l *Log) End(name string, r *plugin.Request, made *types100.Result, err error, traceparent string) {
	if l == nil || err == nil && r.Command == plugin.Status {
		return
	}
	c := Call{
		Time: l.began, Took: time.Since(l.began), Verb: string(r.Command), Plugin: name, Key: r.Key, Netns: r.Netns, Pod: pod(r.Args), PID: os.Getpid(),
	}
	switch {
	case err != nil:
		c.Error = plugin.AsError(err)
	case made != nil:
		for _, ip := range made.IPs {
			c.Addresses = append(c.Addresses, ip.Address.String())
		}
		for _, i := range made.Interfaces {
			c.Interfaces = append(c.Interfaces, Interface{i.Name, i.Mac, i.Sandbox})
		}
	}
	c.TraceID, c.SpanID = parseTraceparent(traceparent)
	l.lock.Lock()
	c.Steps = l.steps
	l.lock.Unlock()
	_ = add(l.dir, c.line())
}

// pod returns the pod that Kubernetes names in CNI_ARGS. The rest of them may be secret.
func pod(args string) string {
	const namespace, name = "K8S_POD_NAMESPACE", "K8S_POD_NAME"
	values, err := plugin.Arguments(args+";IgnoreUnknown=1", namespace, name)
	if err != nil || values[name] == "" {
		return ""
	}
	return values[namespace] + "/" + values[name]
}
