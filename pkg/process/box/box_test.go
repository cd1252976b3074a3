package box

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// fake is a plugin that does what a test says, and keeps the request.
type fake struct {
	seen   *plugin.Request
	hadNS  bool
	result *types100.Result
	do     func(ctx context.Context, r *plugin.Request) error
}

func (f *fake) verb(ctx context.Context, r *plugin.Request) error {
	f.seen, f.hadNS = r, r.NS() != nil
	if f.do == nil {
		return nil
	}
	return f.do(ctx, r)
}

func (f *fake) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	return f.result, f.verb(ctx, r)
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
	oldest string
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
			{Name: "demo", Kind: plugin.Main, Summary: "Makes a demo", Plugin: r.plugin, Oldest: r.oldest},
			{Name: "host-local", Kind: plugin.IPAM, Summary: "Hands out addresses", Plugin: r.plugin},
		},
	}
	r.code = b.Main(Process{
		Args: r.args, Getenv: func(key string) string { return r.env[key] },
		Stdin: r.stdin, Stdout: r.to(), Stderr: &r.stderr,
	})
}

func (r *run) to() io.Writer {
	if r.answer != nil {
		return r.answer
	}
	return &r.stdout
}

// call runs the plugin demo. Each of the changes is NAME=value, or NAME for a
// variable that is not set.
func call(t *testing.T, command, stdin string, changes ...string) *run {
	t.Helper()
	r := prepare(t, command, stdin, changes...)
	r.main()
	return r
}

func prepare(t *testing.T, command, stdin string, changes ...string) *run {
	t.Helper()
	heedSignals(t)
	if head, isObject := strings.CutSuffix(stdin, "}"); isObject && command == "CHECK" && !strings.Contains(stdin, "prevResult") {
		stdin = head + `, "prevResult": {}}` // without which there is nothing to be checked
	}
	r := &run{
		args: []string{"/opt/cni/bin/demo"}, stdin: strings.NewReader(stdin), plugin: &fake{},
		env: map[string]string{
			"CNI_COMMAND": command, "CNI_CONTAINERID": "c0ffee", "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin", "CNI_NETNS": sandboxPath(t),
		},
	}
	for _, change := range changes {
		name, value, set := strings.Cut(change, "=")
		delete(r.env, name)
		if set {
			r.env[name] = value
		}
	}
	return r
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

// document is the error that the run printed, which must be its only output.
type document struct {
	CNIVersion string
	Code       uint
	Msg        string
	Details    string
}

func (r *run) failure(t *testing.T) document {
	t.Helper()
	if r.code != 1 {
		t.Errorf("exit code %d, want 1", r.code)
	}
	var d document
	dec := json.NewDecoder(bytes.NewReader(r.stdout.Bytes()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		t.Fatalf("standard output is no CNI error: %v\n%s", err, &r.stdout)
	}
	if dec.More() {
		t.Errorf("more than one document:\n%s", &r.stdout)
	}
	if r.stderr.Len() > 0 {
		t.Errorf("standard error: %s", &r.stderr)
	}
	if d.CNIVersion == "" || d.Code == 0 || d.Msg == "" {
		t.Errorf("incomplete error %+v", d)
	}
	return d
}

func (r *run) success(t *testing.T) {
	t.Helper()
	if r.code != 0 {
		t.Errorf("exit code %d:\n%s%s", r.code, &r.stdout, &r.stderr)
	}
	if r.plugin.seen == nil {
		t.Fatal("the plugin was not called")
	}
}

const config = `{"cniVersion": "1.1.0", "name": "net", "type": "demo"}`

// Nothing of a call that is wrong reaches the plugin, and the one document says what is wrong and what to do. Most ways to be wrong are
// rows of the contract; these are the rest.
func TestRefusals(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name           string
		command, stdin string
		changes        []string
		code           uint
		msg            string // a regular expression
	}{
		{"wrong id before missing ones", "ADD", config, []string{"CNI_CONTAINERID=/", "CNI_IFNAME"}, 4, `^CNI_CONTAINERID is "/": `},

		{"nested too deep", "ADD", `{"a":` + strings.Repeat("[", 1<<20), nil, 6, `^the configuration on standard input is not valid JSON`},
		{"prevResult of a wrong type", "ADD", `{"cniVersion": "1.0.0", "name": "net", "prevResult": []}`, nil, 7, `key "prevResult": want an object, got a list$`},
		{"prevResult of an unknown version", "ADD", `{"cniVersion": "1.0.0", "name": "net", "prevResult": {"cniVersion": "7"}}`, nil, 7,
			`key "prevResult.cniVersion": unknown CNI version "7"$`},
		{"bad prevResult", "CHECK", `{"cniVersion": "1.0.0", "name": "net", "prevResult": {"ips": [{"address": "x"}]}}`, nil, 7,
			`key "prevResult.ips\[0\].address": want an address with prefix length, such as .*, got "x"$`},

		{"GC list of a wrong type", "GC", `{"cniVersion": "1.1.0", "name": "net", "cni.dev/valid-attachments": {}}`, nil, 7,
			`key "cni.dev/valid-attachments": want a list of objects, got an object$`},
		{"GC entry of a wrong type", "GC", `{"cniVersion": "1.1.0", "name": "net", "cni.dev/valid-attachments": ["c0ffee"]}`, nil, 7,
			`key "cni.dev/valid-attachments\[0\]": want an object, got the string "c0ffee"$`},
		{"GC entry with a wrong id", "GC", `{"cniVersion": "1.1.0", "name": "net", "cni.dev/valid-attachments": [{"containerID": 7, "ifname": "eth0"}]}`, nil, 7,
			`key "cni.dev/valid-attachments\[0\].containerID": want a string, got the number 7$`},
		{"GC entry without an interface", "GC", `{"cniVersion": "1.1.0", "name": "net", "cni.dev/attachments": [{"containerID": "a"}]}`, nil, 7,
			`key "cni.dev/attachments\[0\].ifname": want the attachment's interface name, got none$`},

		{"no netns, override", "ADD", config, []string{"CNI_NETNS=" + plain, "CNI_NETNS_OVERRIDE=1"}, 8, `no network namespace there`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := call(t, tt.command, tt.stdin, tt.changes...)
			d := r.failure(t)
			if d.Code != tt.code || !regexp.MustCompile(tt.msg).MatchString(d.Msg) {
				t.Errorf("code %d, %q\nwant %d, %s", d.Code, d.Msg, tt.code, tt.msg)
			}
			if d.Details == "" {
				t.Errorf("the error says nothing of what to do: %s", d.Msg)
			}
			if r.plugin.seen != nil {
				t.Error("the plugin was called")
			}
		})
	}
}

// An error document names the configuration's version as soon as it is known.
func TestErrorsNameTheVersion(t *testing.T) {
	tests := []struct {
		name, stdin, want string
		changes           []string
	}{
		{"not known yet", `{"cniVersion": "0.4.0", "name": "net"}`, "1.1.0", []string{"CNI_IFNAME"}},
		{"no JSON", `x`, "1.1.0", nil},
		{"none given", `{}`, "0.1.0", nil},
		{"no name", `{"cniVersion": "0.4.0"}`, "0.4.0", nil},
		{"too old", `{"cniVersion": "0.3.0", "name": "net"}`, "0.3.0", nil},
		{"unknown", `{"cniVersion": "7", "name": "net"}`, "1.1.0", nil},
		{"no netns", `{"cniVersion": "0.4.0", "name": "net"}`, "0.4.0", []string{"CNI_NETNS=/none"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := prepare(t, "ADD", tt.stdin, tt.changes...)
			r.oldest = "0.3.1"
			r.main()
			if d := r.failure(t); d.CNIVersion != tt.want {
				t.Errorf("cniVersion %s, want %s (%s)", d.CNIVersion, tt.want, d.Msg)
			}
		})
	}
}

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
	r := prepare(t, "ADD", "")
	input := &endless{}
	r.stdin = input
	r.main()
	if d := r.failure(t); d.Code != 5 || !strings.Contains(d.Msg, "longer than 16 MiB") {
		t.Errorf("error %+v", d)
	}
	if input.read > 64<<20 {
		t.Errorf("%d bytes were read", input.read)
	}
}

func TestRequest(t *testing.T) {
	const text = `{"cniVersion": "0.4.0", "name": "net", "type": "demo", "mtu": 1400, "prevResult": {"interfaces": [{"name": "eth0"}]}}`
	for _, command := range []string{"ADD", "DEL", "CHECK"} {
		t.Run(command, func(t *testing.T) {
			r := call(t, command, text, "CNI_ARGS=A=b", "CNI_PATH=:/opt/cni/bin::/usr/lib/cni:")
			r.success(t)
			got := r.plugin.seen
			if string(got.Command) != command || got.Key != (plugin.Key{Network: "net", ContainerID: "c0ffee", IfName: "eth0"}) ||
				got.Netns != r.env["CNI_NETNS"] || got.Args != "A=b" || got.Version != "0.4.0" || string(got.Config.JSON()) != strings.ReplaceAll(text, " ", "") ||
				got.HasValid || got.Valid != nil || got.Trace != nil {
				t.Errorf("request %+v", got)
			}
			if want := []string{"/opt/cni/bin", "/usr/lib/cni"}; !slices.Equal(got.Path, want) {
				t.Errorf("Path = %q, want %q", got.Path, want)
			}
			if len(got.PrevResult.Interfaces) != 1 || got.PrevResult.Interfaces[0].Name != "eth0" {
				t.Errorf("PrevResult = %+v", got.PrevResult)
			}
			if got.Plugins.Find("host-local") == nil {
				t.Error("the request knows no other plugins")
			}
			got.Config.String("mtu", new(string))
			if strict := got.Config.Err() != nil; strict != (command != "DEL") {
				t.Errorf("the configuration is strict: %v", strict)
			}
		})
	}
}

func TestResults(t *testing.T) {
	for dir, want := range map[string]string{"": "/var/lib/cni/results", "/run/other": "/run/other/results"} {
		for _, command := range []string{"ADD", "DEL", "GC"} {
			r := call(t, command, `{"cniVersion": "1.1.0", "name": "net", "type": "demo", "cni.dev/valid-attachments": []}`, "CNIBOX_CACHE_DIR="+dir)
			r.success(t)
			if got := r.plugin.seen.Results; got != want {
				t.Errorf("%s with CNIBOX_CACHE_DIR=%s: %q, want %q", command, dir, got, want)
			}
		}
	}
}

func TestRequestWithLittle(t *testing.T) {
	r := call(t, "ADD", `{"NAME": "net"}`)
	r.success(t)
	if got := r.plugin.seen; got.Version != "0.1.0" || got.Network != "net" || got.PrevResult != nil || got.Args != "" {
		t.Errorf("request %+v", got)
	}
	if r := call(t, "ADD", `{"cniVersion": "", "name": "net"}`); r.plugin.seen.Version != "0.1.0" {
		t.Errorf("empty version became %q", r.plugin.seen.Version)
	}
	if r := call(t, "ADD", `{"name": "net", "prevResult": null}`); r.plugin.seen.PrevResult != nil {
		t.Errorf("null became %v", r.plugin.seen.PrevResult)
	}
}

func TestDelTakesAnyNamespaceForGone(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const own = "CNI_NETNS=/proc/thread-self/ns/net"
	tests := []struct {
		name    string
		changes []string
		gone    bool
	}{
		{"alive", nil, false},
		{"not set", []string{"CNI_NETNS"}, true},
		{"empty", []string{"CNI_NETNS="}, true},
		{"missing", []string{"CNI_NETNS=/run/netns/none"}, true},
		{"plain file", []string{"CNI_NETNS=" + plain}, true},
		{"path too long", []string{"CNI_NETNS=/" + strings.Repeat("x", 5000)}, true},
		{"our own", []string{own}, true},
		{"our own, override", []string{own, "CNI_NETNS_OVERRIDE=1"}, false},
		{"missing, override", []string{"CNI_NETNS=/run/netns/none", "CNI_NETNS_OVERRIDE=true"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := call(t, "DEL", config, tt.changes...)
			r.success(t)
			if gone := !r.plugin.hadNS; gone != tt.gone {
				t.Errorf("NS of %q: gone is %v", r.plugin.seen.Netns, gone)
			}
			if r.stdout.Len() > 0 {
				t.Errorf("printed %q", &r.stdout)
			}
		})
	}
}

func TestDelToleratesTheConfiguration(t *testing.T) {
	tests := map[string]string{
		"prevResult of a wrong type":  `{"cniVersion": "1.0.0", "name": "net", "prevResult": "x"}`,
		"prevResult of a new version": `{"cniVersion": "1.0.0", "name": "net", "prevResult": {"cniVersion": "7", "ips": 1}}`,
		"ipam of a wrong type":        `{"cniVersion": "1.0.0", "name": "net", "ipam": "x", "mtu": "y"}`,
		"a list that is none":         `{"cniVersion": "1.0.0", "name": "net", "cni.dev/valid-attachments": 1}`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			r := prepare(t, "DEL", text)
			r.plugin.do = func(_ context.Context, q *plugin.Request) error {
				q.Config.Object("ipam").String("type", new(string))
				q.Config.Int("mtu", new(int))
				return q.Config.Err()
			}
			r.main()
			r.success(t)
		})
	}
	r := call(t, "DEL", `{"cniVersion": "1.0.0", "name": "net", "prevResult": {"ips": [{"address": "x"}, {"address": "10.0.0.2/24"}]}}`)
	r.success(t)
	if p := r.plugin.seen.PrevResult; p == nil || len(p.IPs) != 1 {
		t.Errorf("PrevResult = %+v, want what can be read of it", p)
	}
}

func TestGCList(t *testing.T) {
	const a, b = `{"containerID": "a", "ifname": "eth0"}`, `{"containerID": "b", "ifname": "net1"}`
	tests := []struct {
		name, keys string
		called     bool
		want       []plugin.Key
	}{
		{"absent", ``, false, nil},
		{"null", `, "cni.dev/valid-attachments": null, "cni.dev/attachments": null`, false, nil},
		{"empty", `, "cni.dev/valid-attachments": []`, true, nil},
		{"two", `, "cni.dev/valid-attachments": [` + a + `, ` + b + `]`, true, []plugin.Key{{Network: "net", ContainerID: "a", IfName: "eth0"}, {Network: "net", ContainerID: "b", IfName: "net1"}}},
		{"old key", `, "cni.dev/attachments": [` + a + `]`, true, []plugin.Key{{Network: "net", ContainerID: "a", IfName: "eth0"}}},
		{"old key, new one null", `, "cni.dev/valid-attachments": null, "cni.dev/attachments": [` + b + `]`, true, []plugin.Key{{Network: "net", ContainerID: "b", IfName: "net1"}}},
		{"both", `, "cni.dev/attachments": [` + a + `, ` + b + `], "cni.dev/valid-attachments": [` + b + `]`, true, []plugin.Key{{Network: "net", ContainerID: "b", IfName: "net1"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := call(t, "GC", `{"cniVersion": "1.1.0", "name": "net"`+tt.keys+`}`)
			if r.code != 0 || r.stdout.Len() > 0 {
				t.Errorf("exit code %d, printed %q", r.code, &r.stdout)
			}
			if called := r.plugin.seen != nil; called != tt.called {
				t.Fatalf("the plugin was called: %v, want %v", called, tt.called)
			}
			if tt.called && (!r.plugin.seen.HasValid || cmp.Diff(tt.want, r.plugin.seen.Valid) != "") {
				t.Errorf("valid %v %v, want %v", r.plugin.seen.HasValid, r.plugin.seen.Valid, tt.want)
			}
		})
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A runtime that can't be told of a success takes it for a failure. Of ADD that is a row of the contract.
func TestVersionNobodyHears(t *testing.T) {
	r := prepare(t, "VERSION", config)
	b := &Box{Plugins: plugin.Table{{Name: "demo", Plugin: r.plugin}}}
	code := b.Main(Process{Args: r.args, Getenv: func(k string) string { return r.env[k] }, Stdin: r.stdin, Stdout: fullDisk{}, Stderr: &r.stderr})
	if code != 1 || !strings.Contains(r.stderr.String(), "no space left") {
		t.Errorf("exit code %d, standard error %q", code, &r.stderr)
	}
}

func TestPluginPanics(t *testing.T) {
	tests := map[string]func(){
		//lint:ignore SA5000 the bug is the test
		"nil map": func() { var m map[string]int; m["a"] = 1 },
	}
	for name, bug := range tests {
		t.Run(name, func(t *testing.T) {
			r := prepare(t, "DEL", config)
			r.plugin.do = func(context.Context, *plugin.Request) error { bug(); return nil }
			r.main()
			d := r.failure(t)
			if d.Code != 999 || !strings.HasPrefix(d.Msg, "demo DEL: bug: ") || !strings.Contains(d.Msg+d.Details, "box_test.go:") {
				t.Errorf("error %+v", d)
			}
		})
	}
}

func TestStatusIsBounded(t *testing.T) {
	r := prepare(t, "STATUS", config)
	block := make(chan struct{})
	defer close(block)
	r.plugin.do = func(context.Context, *plugin.Request) error { <-block; return nil }
	r.main()
	d := r.failure(t)
	if d.Code != 50 || d.Msg != "demo STATUS: out of time after 5s" || d.Details == "" {
		t.Errorf("error %+v", d)
	}
}

// A plugin that notices that its time is up says itself what it was doing.
func TestDeadlineReachesThePlugin(t *testing.T) {
	tests := []struct {
		name    string
		command plugin.Command
		do      func(ctx context.Context, r *plugin.Request) error
		msg     string
		details string
	}{
		{"by Step", plugin.Add, func(ctx context.Context, r *plugin.Request) error { <-ctx.Done(); return r.Step(ctx, "make the link") },
			"stopped before the step: make the link", "out of time after 20ms; what was made is removed again"},
		{"by Step of DEL, which undoes nothing", plugin.Del, func(ctx context.Context, r *plugin.Request) error { <-ctx.Done(); return r.Step(ctx, "call the next") },
			"stopped before the step: call the next", "out of time after 20ms; the call can be repeated"},
		{"by the context", plugin.Add, func(ctx context.Context, r *plugin.Request) error { <-ctx.Done(); return ctx.Err() },
			"context deadline exceeded", "the call was out of time after 20ms"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &fake{do: tt.do}
			row := &plugin.Descriptor{Name: "demo", Plugin: p}
			_, err := guard(&plugin.Request{Command: tt.command}, row, 20*time.Millisecond)
			e := plugin.AsError(err)
			if e.Msg != tt.msg || !strings.HasPrefix(e.Details, tt.details) {
				t.Errorf("error %+v", e)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []plugin.Command{plugin.Add, plugin.Del, plugin.Check, plugin.Status, plugin.GC} {
		if d := limit(c); d <= 0 || d > 5*time.Minute {
			t.Errorf("%s may take %v", c, d)
		}
	}
	if d := limit(plugin.Status); d > 5*time.Second {
		t.Errorf("STATUS may take %v", d)
	}
}

func TestTrace(t *testing.T) {
	r := prepare(t, "ADD", config, "CNIBOX_TRACE=1")
	r.plugin.do = func(ctx context.Context, q *plugin.Request) error { return q.Step(ctx, "make the link") }
	r.main()
	r.success(t)
	if !regexp.MustCompile(`^demo \+\d+us make the link\n$`).MatchString(r.stderr.String()) {
		t.Errorf("traced %q", &r.stderr)
	}
	if !json.Valid(r.stdout.Bytes()) {
		t.Errorf("printed %q", &r.stdout)
	}
}

func TestWarn(t *testing.T) {
	r := prepare(t, "DEL", config)
	r.plugin.do = func(_ context.Context, q *plugin.Request) error {
		q.Warn("the MTU stays")
		return nil
	}
	r.main()
	if r.code != 0 || r.stdout.Len() > 0 || r.stderr.String() != "demo: the MTU stays\n" {
		t.Errorf("exit code %d, printed %q and %q", r.code, &r.stdout, &r.stderr)
	}
}

func TestCalledByAPerson(t *testing.T) {
	tests := []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // regular expressions
	}{
		{"a plugin", []string{"/opt/cni/bin/demo"}, 0, `^$`, `^CNI demo plugin v1\.9\.1\+cnibox\.0\.1\.0\nCNI protocol versions supported: 0\.1\.0, .*1\.1\.0\n`},
		{"a plugin, by the box", []string{"cnibox", "host-local"}, 0, `^$`, `^CNI host-local plugin v1\.9\.1\+cnibox\.0\.1\.0\n`},
		{"a plugin with arguments", []string{"demo", "--version"}, 0, `^$`, `^CNI demo plugin v1\.9\.1`},
		{"the box", []string{"/usr/bin/cnibox"}, 0, `^cnibox v0\.1\.0\nhelp text\n(?s:.*)  demo +main +Makes a demo\n  host-local +ipam +Hands out addresses\n$`, `^$`},
		{"the box, for help", []string{"cnibox", "--help"}, 0, `^cnibox v0\.1\.0\nhelp text\n`, `^$`},
		{"a name that is none", []string{"cnibox", "demos"}, 1, `^$`, `^cnibox has no plugin called "demos"; call it by the name of one of its plugins, or by one that ends in "-" and such a name: demo, host-local\n$`},
		{"another name for a plugin", []string{"/opt/cni/bin/buildkit-cni-host-local"}, 0, `^$`, `^CNI host-local plugin v1\.9\.1`},
		{"another name for a plugin, by the box", []string{"cnibox", "cnv-demo"}, 0, `^$`, `^CNI demo plugin v1\.9\.1`},
		{"no arguments at all", nil, 0, `^cnibox v0\.1\.0\n`, `^$`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := prepare(t, "", "", "CNI_COMMAND")
			r.args, r.stdin = tt.args, nil
			r.main()
			if r.code != tt.code {
				t.Errorf("exit code %d, want %d", r.code, tt.code)
			}
			if !regexp.MustCompile(tt.stdout).MatchString(r.stdout.String()) || !regexp.MustCompile(tt.stderr).MatchString(r.stderr.String()) {
				t.Errorf("standard output:\n%s\nstandard error:\n%s", &r.stdout, &r.stderr)
			}
			if r.plugin.seen != nil {
				t.Error("the plugin was called")
			}
		})
	}
}

func TestUnknownPluginIsCalled(t *testing.T) {
	for _, args := range [][]string{{"/opt/cni/bin/calico"}, {"/opt/cni/bin/cnibox"}, {"cnibox", "calico"}, nil} {
		for _, command := range []string{"ADD", "DEL", "VERSION"} {
			r := prepare(t, command, config)
			r.args = args
			r.main()
			d := r.failure(t)
			if d.Code != 4 || !strings.HasPrefix(d.Msg, "cnibox has no plugin called ") || !strings.Contains(d.Details, "demo, host-local") {
				t.Errorf("%q %s: error %+v", args, command, d)
			}
		}
	}
}

func TestCalledByTheBox(t *testing.T) {
	r := prepare(t, "ADD", config)
	r.args = []string{"cnibox", "demo"}
	r.main()
	r.success(t)
}
