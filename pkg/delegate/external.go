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
}

// Add calls ADD. Whoever calls it calls DEL if it fails: another program may hold something even then.
func (e external) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	out, err := e.run(ctx, r)
	if err != nil {
		return nil, err
	}
	result, err := parse(out, r.Version)
	if err != nil {
		return nil, plugin.Errorf("replace that plugin: on success it must print a CNI result", "plugin %s: its result can't be used: %v", e.path, err)
	}
	return result, nil
}

func parse(out []byte, version string) (*types100.Result, error) {
	o, err := conf.Parse(out)
	if err != nil {
		return nil, err
	}
	return plugin.ParseResult(o, version)
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
	var refused *types.Error
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Code == types.ErrInvalidEnvironmentVariables && strings.Contains(refused.Msg, "CNI_COMMAND") {
		return nil
	}
	return err
}

// run executes the plugin and returns what it printed.
func (e external) run(ctx context.Context, r *plugin.Request) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	for try := 1; ; try++ {
		stdout.Reset()
		stderr.Reset()
		cmd := exec.CommandContext(ctx, e.path)
		cmd.Env = environment(r)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // let it clean up
		cmd.WaitDelay = stopTime
		cmd.Stdin = bytes.NewReader(r.Text())
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if cmd.ProcessState != nil && cmd.ProcessState.Success() {
			// What it did is done, even if the call was cancelled meanwhile.
			return stdout.Bytes(), nil
		}
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries || ctx.Err() != nil {
			return nil, e.failure(err, stdout.Bytes(), stderr.String())
		}
		time.Sleep(busyPause)
	}
}

// environment is our own (TRACEPARENT and all) with the request's verb. The
// other parameters are there already when a runtime started this process, and
// are not when the caller is a plugin inside some other program.
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

// failure is the error the plugin printed, code and all, or what can be said
// of one that printed none.
func (e external) failure(err error, stdout []byte, stderr string) error {
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
	return plugin.Errorf(fmt.Sprintf("it printed on stderr: %s", said), "plugin %s failed without a CNI error: %v", e.path, err)
}
