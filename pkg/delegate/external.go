package delegate

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// A file that is being replaced can't be executed for a moment (ETXTBSY).
const (
	busyTries = 20
	busyPause = 50 * time.Millisecond
)

// stopTime is what a plugin gets to clean up in when the call is cancelled.
const stopTime = 10 * time.Second

// external is a plugin that is another program.
type external struct {
	path string
	name string
}

func (e external) Add(ctx context.Context, r *plugin.Request) (*plugin.Result, error) {
	out, err := e.run(ctx, r)
	if err != nil {
		return nil, err
	}
	o, err := conf.Parse(out)
	if err != nil {
		return nil, plugin.Errorf("plugin %s: its result is %v", e.path, err).WithDetails("replace that plugin: on success it must print a CNI result")
	}
	result, err := plugin.ParseResult(o, r.Version)
	if err != nil {
		return nil, plugin.Errorf("plugin %s: its result can't be read: %v", e.path, err).WithDetails("replace that plugin: on success it must print a CNI result")
	}
	return result, nil
}

func (e external) Del(ctx context.Context, r *plugin.Request) error   { return e.only(e.run(ctx, r)) }
func (e external) Check(ctx context.Context, r *plugin.Request) error { return e.only(e.run(ctx, r)) }
func (e external) Status(ctx context.Context, r *plugin.Request) error {
	return e.newVerb(e.run(ctx, r))
}
func (e external) GC(ctx context.Context, r *plugin.Request) error { return e.newVerb(e.run(ctx, r)) }

func (external) only(_ []byte, err error) error { return err }

// newVerb forgives a plugin that is older than the verb.
func (external) newVerb(_ []byte, err error) error {
	var refused *plugin.Error
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Code == plugin.CodeInvalidEnvironment && strings.Contains(refused.Msg, "CNI_COMMAND") {
		return nil
	}
	return err
}

// run executes the plugin with our environment (TRACEPARENT and all) and the
// request's verb, and returns what it printed.
func (e external) run(ctx context.Context, r *plugin.Request) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	for try := 1; ; try++ {
		stdout.Reset()
		stderr.Reset()
		cmd := exec.CommandContext(ctx, e.path)
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+string(r.Command))
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // let it clean up
		cmd.WaitDelay = stopTime
		cmd.Stdin = bytes.NewReader(r.Stdin)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if err == nil {
			return stdout.Bytes(), nil
		}
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries || ctx.Err() != nil {
			return nil, e.failure(err, stdout.Bytes(), stderr.String())
		}
		time.Sleep(busyPause)
	}
}

// failure is the error the plugin printed, code and all, or what can be said
// of one that printed none.
func (e external) failure(err error, stdout []byte, stderr string) error {
	if o, perr := conf.Parse(stdout); perr == nil {
		var code int
		printed := &plugin.Error{}
		o.Int("code", &code)
		o.String("msg", &printed.Msg)
		o.String("details", &printed.Details)
		if o.Err() == nil && printed.Msg != "" {
			printed.Code = plugin.Code(code)
			return printed
		}
	}
	said := strings.TrimSpace(stderr)
	if said == "" {
		said = "nothing"
	}
	return plugin.Errorf("plugin %s failed without a CNI error: %v", e.path, err).WithDetails("it printed on stderr: %s", said)
}
