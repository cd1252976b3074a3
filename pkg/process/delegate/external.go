package delegate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// A file that is being replaced can't be executed for a moment (ETXTBSY).
const (
	busyTries = 20
	busyPause = 50 * time.Millisecond
)

// stopTime is what a plugin gets to clean up in when the call is cancelled.
const stopTime = 10 * time.Second

// external is a plugin that is another program.
type external struct{ name, path string }

// Add calls ADD, and DEL if it fails: another program may hold something even then (CNI specification, section 4).
func (e external) Add(ctx context.Context, r *plugin.Request) (answer *types100.Result, err error) {
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	out, started, err := e.exec(ctx, r)
	if started {
		undo.Push("DEL of "+e.name, func(ctx context.Context) error { return e.Del(ctx, r.For(plugin.Del)) })
	}
	if err != nil {
		return nil, err
	}
	o, err := conf.Parse(out)
	if err == nil {
		answer, err = result.Parse(o, r.Version)
	}
	if err != nil {
		return nil, plugin.CodeErrorf(types.ErrDecodingFailure, "replace that plugin: on success it must print a CNI result", "plugin %s: its result can't be used: %w", e.path, err)
	}
	return answer, nil
}

func (e external) Del(ctx context.Context, r *plugin.Request) error    { return e.run(ctx, r) }
func (e external) Status(ctx context.Context, r *plugin.Request) error { return ifOlder(e.run(ctx, r)) }
func (e external) GC(ctx context.Context, r *plugin.Request) error     { return ifOlder(e.run(ctx, r)) }

// Mend calls CHECK, which is all that another program has.
func (e external) Mend(ctx context.Context, r *plugin.Request, _ *plugin.Mender) error {
	return e.run(ctx, r)
}

// ifOlder forgives a plugin that is older than the verb.
func ifOlder(err error) error {
	var refused *types.Error
	if errors.As(err, &refused) && refused.Code == types.ErrInvalidEnvironmentVariables && strings.Contains(refused.Msg, "CNI_COMMAND") {
		return nil
	}
	return err
}

func (e external) run(ctx context.Context, r *plugin.Request) error {
	_, _, err := e.exec(ctx, r)
	return err
}

// exec executes the plugin and returns what it printed, and whether it came to run at all. The error is the one that it printed, if it did so.
func (e external) exec(ctx context.Context, r *plugin.Request) (printed []byte, started bool, err error) {
	env, config := environment(r), r.Config.JSON()
	for try := 1; ; try++ {
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, e.path)
		cmd.Env = env
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // let it clean up
		cmd.WaitDelay = stopTime
		cmd.Stdin = bytes.NewReader(config)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if cmd.ProcessState != nil && cmd.ProcessState.Success() {
			return stdout.Bytes(), true, nil // what it did is done, even if the call was cancelled meanwhile
		}
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries || ctx.Err() != nil {
			return nil, cmd.Process != nil, failure(e.path, err, stdout.Bytes(), stderr.String())
		}
		time.Sleep(busyPause)
	}
}

// environment is our own (TRACEPARENT and all) with the request's verb. The other parameters are there already when a runtime
// started this process, and are not when the caller is a plugin inside some other program.
func environment(r *plugin.Request) []string {
	env := append(os.Environ(), "CNI_COMMAND="+string(r.Command))
	for _, v := range []struct{ name, value string }{
		{"CNI_CONTAINERID", r.ContainerID},
		{"CNI_NETNS", r.Netns}, // on DEL there may be none
		{"CNI_IFNAME", r.IfName},
		{"CNI_ARGS", r.Args},
		{"CNI_PATH", strings.Join(r.Path, ":")},
	} {
		if v.value != "" {
			env = append(env, v.name+"="+v.value)
		}
	}
	return env
}

// failure is the error the plugin printed, code and all, or what can be said of one that printed none.
func failure(path string, err error, stdout []byte, stderr string) error {
	if o, perr := conf.Parse(stdout); perr == nil {
		var code int
		printed := &types.Error{}
		o.Int("code", &code)
		o.String("msg", &printed.Msg)
		o.String("details", &printed.Details)
		if code <= 0 {
			code = int(types.ErrInternal)
		}
		if o.Err() == nil && printed.Msg != "" {
			printed.Code = uint(code)
			return printed
		}
	}
	said := strings.TrimSpace(stderr)
	if said == "" {
		said = "nothing"
	}
	return plugin.Errorf(fmt.Sprintf("it printed on stderr: %s", said), "plugin %s failed without a CNI error: %w", path, err)
}
