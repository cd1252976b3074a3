package box

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// fake is a plugin that does what a test says, and notes that it was called.
type fake struct {
	called bool
	do     func(ctx context.Context, r *plugin.Request) error
}

func (f *fake) verb(ctx context.Context, r *plugin.Request) error {
	f.called = true
	if f.do == nil {
		return nil
	}
	return f.do(ctx, r)
}

func (f *fake) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	return nil, f.verb(ctx, r)
}
func (f *fake) Del(ctx context.Context, r *plugin.Request) error { return f.verb(ctx, r) }
func (f *fake) Mend(ctx context.Context, r *plugin.Request, _ *plugin.Mender) error {
	return f.verb(ctx, r)
}
func (f *fake) Status(ctx context.Context, r *plugin.Request) error { return f.verb(ctx, r) }
func (f *fake) GC(ctx context.Context, r *plugin.Request) error     { return f.verb(ctx, r) }

// run is one run of a process, and what came of it.
type run struct {
	args   []string
	env    map[string]string
	stdin  io.Reader
	plugin *fake
	log    string    // the directory of the log
	answer io.Writer // in place of stdout

	code           int
	stdout, stderr bytes.Buffer
}

func (r *run) main() {
	b := &Box{
		Help: "help text",
		Log:  r.log,
		Plugins: plugin.Table{
			{Name: "demo", Kind: plugin.Main, Summary: "Makes a demo", Plugin: r.plugin},
			{Name: "host-local", Kind: plugin.IPAM, Summary: "Hands out addresses", Plugin: r.plugin},
		},
	}
	p := Process{Args: r.args, Getenv: func(key string) string { return r.env[key] }, Stdin: r.stdin, Stdout: &r.stdout, Stderr: &r.stderr}
	if r.answer != nil {
		p.Stdout = r.answer
	}
	r.code = b.Main(p)
}

// prepare is a call of the plugin demo.
func prepare(t *testing.T, command, stdin string) *run {
	t.Helper()
	heedSignals(t)
	return &run{
		args: []string{"/opt/cni/bin/demo"}, stdin: strings.NewReader(stdin), plugin: &fake{},
		env: map[string]string{
			"CNI_COMMAND": command, "CNI_CONTAINERID": "c0ffee", "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin", "CNI_NETNS": sandboxPath(t),
		},
	}
}

// sandboxPath is the path of a namespace that is not the test's own.
func sandboxPath(t *testing.T) string {
	t.Helper()
	made := make(chan *os.File)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("unshare a network namespace (these tests must be run as root): %v", err)
		}
		file, _ := os.Open("/proc/thread-self/ns/net")
		made <- file
	}()
	file := <-made
	t.Cleanup(func() { _ = file.Close() })
	return fmt.Sprintf("/proc/self/fd/%d", file.Fd())
}

// document is an error that a run printed.
type document struct {
	CNIVersion string
	Code       uint
	Msg        string
	Details    string
}

// fails makes sure that the one document of a run is an error with a code and parts.
func (r *run) fails(t *testing.T, code uint, parts ...string) {
	t.Helper()
	var d document
	if err := json.Unmarshal(r.stdout.Bytes(), &d); err != nil || r.code != 1 || d.Code != code || r.plugin.called || r.stderr.Len() > 0 {
		t.Errorf("exit code %d, %v, called %v, printed %s%s", r.code, err, r.plugin.called, &r.stdout, &r.stderr)
	}
	for _, part := range parts {
		if !strings.Contains(d.Msg+"; "+d.Details, part) {
			t.Errorf("error %+v, want %q in it", d, part)
		}
	}
}

const config = `{"cniVersion": "1.1.0", "name": "net", "type": "demo"}`

// endless is a standard input that never ends.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += len(p)
	return len(p), nil
}

func TestStandardInputIsBounded(t *testing.T) {
	r, input := prepare(t, "ADD", ""), &endless{}
	r.stdin = input
	r.main()
	r.fails(t, 5, "longer than 16 MiB")
	if input.read > 64<<20 {
		t.Errorf("%d bytes were read", input.read)
	}
}

// TestGuard is about plugins that are out of time, which say themselves what they were doing if they notice, and about one that panics.
func TestGuard(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	step := func(ctx context.Context, r *plugin.Request) error { <-ctx.Done(); return r.Step(ctx, "call the next") }
	for _, tt := range []struct {
		command      plugin.Command
		do           func(ctx context.Context, r *plugin.Request) error
		code         uint
		msg, details string // their beginnings
	}{
		{plugin.Add, step, 11, "stopped before the step: call the next", "out of time after 20ms; what was made is removed again"},
		{plugin.Del, step, 11, "stopped before the step: call the next", "out of time after 20ms; the call can be repeated"}, // it undoes nothing
		{plugin.Add, func(ctx context.Context, r *plugin.Request) error { <-ctx.Done(); return ctx.Err() }, 999, "context deadline exceeded", "the call was out of time after 20ms"},
		{plugin.Status, func(context.Context, *plugin.Request) error { <-block; return nil }, 50, "demo STATUS: out of time after 20ms", "a step does not end"},
		{plugin.Del, func(context.Context, *plugin.Request) error { panic("oh") }, 999, "demo DEL: bug: oh", "please report it with this trace: goroutine "},
	} {
		_, err := guard(&plugin.Request{Command: tt.command}, &plugin.Descriptor{Name: "demo", Plugin: &fake{do: tt.do}}, 20*time.Millisecond)
		if e := plugin.AsError(err); e.Code != tt.code || !strings.HasPrefix(e.Msg, tt.msg) || !strings.HasPrefix(e.Details, tt.details) {
			t.Errorf("%s: error %#v, want %d, %q, %q", tt.command, e, tt.code, tt.msg, tt.details)
		}
	}
}

func TestCalledByAPerson(t *testing.T) {
	tests := []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // regular expressions
	}{
		{"a plugin", []string{"/opt/cni/bin/demo", "--version"}, 0, `^$`, `^CNI demo plugin v1\.9\.1\+cnibox\.0\.1\.0\nCNI protocol versions supported: 0\.1\.0, .*1\.1\.0\n`},
		{"a plugin, by the box", []string{"cnibox", "host-local"}, 0, `^$`, `^CNI host-local plugin v1\.9\.1\+cnibox\.0\.1\.0\n`},
		{"the box", []string{"/usr/bin/cnibox"}, 0, `^cnibox v0\.1\.0\nhelp text\n(?s:.*)  demo +main +Makes a demo\n  host-local +ipam +Hands out addresses\n$`, `^$`},
		{"the box, for help", []string{"cnibox", "--help"}, 0, `^cnibox v0\.1\.0\nhelp text\n`, `^$`},
		{"a name that is none", []string{"cnibox", "demos"}, 1, `^$`, `^cnibox has no plugin called "demos"; call it by the name of one of its plugins, or by one that ends in "-" and such a name: demo, host-local\n$`},
		{"no arguments at all", nil, 0, `^cnibox v0\.1\.0\n`, `^$`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := prepare(t, "", "")
			r.args, r.stdin = tt.args, nil
			r.main()
			if r.code != tt.code || r.plugin.called || !regexp.MustCompile(tt.stdout).MatchString(r.stdout.String()) || !regexp.MustCompile(tt.stderr).MatchString(r.stderr.String()) {
				t.Errorf("exit code %d, called %v\nstandard output:\n%s\nstandard error:\n%s", r.code, r.plugin.called, &r.stdout, &r.stderr)
			}
		})
	}
}

func TestCalledByARuntime(t *testing.T) {
	for _, args := range [][]string{{"/opt/cni/bin/calico"}, {"/opt/cni/bin/cnibox"}, {"cnibox", "calico"}, nil} {
		for _, command := range []string{"ADD", "VERSION"} {
			r := prepare(t, command, config)
			r.args = args
			r.main()
			r.fails(t, 4, "cnibox has no plugin called ", "demo, host-local")
		}
	}
	r := prepare(t, "ADD", config)
	r.args = []string{"cnibox", "demo"}
	if r.main(); r.code != 0 || !r.plugin.called {
		t.Errorf("by the box: exit code %d, %s", r.code, &r.stdout)
	}
	r = prepare(t, "VERSION", config)
	r.answer = fullDisk{}
	if r.main(); r.code != 1 || !strings.Contains(r.stderr.String(), "no space left") {
		t.Errorf("an answer that nobody hears: exit code %d, %s", r.code, &r.stderr)
	}
	r = prepare(t, "ADD", config)
	r.env["CNI_PATH"] = ":/opt/cni/bin::/usr/lib/cni:"
	r.plugin.do = func(_ context.Context, q *plugin.Request) error {
		if want := []string{"/opt/cni/bin", "/usr/lib/cni"}; !slices.Equal(q.Path, want) {
			t.Errorf("plugins are looked for in %q, want %q: an empty entry is no directory of the runtime's", q.Path, want)
		}
		return nil
	}
	if r.main(); r.code != 0 {
		t.Errorf("exit code %d, %s", r.code, &r.stdout)
	}
}

// fullDisk is where nobody hears an answer.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }
