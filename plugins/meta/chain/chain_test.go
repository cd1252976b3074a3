package chain

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// nothingValid is what a runtime sends to GC when it has no attachments.
const nothingValid = `"cni.dev/valid-attachments": [],`

func TestOrder(t *testing.T) {
	for command, want := range map[plugin.Command]string{
		plugin.Add:    "ADD a, ADD b, ADD c",
		plugin.Del:    "DEL c, DEL b, DEL a",
		plugin.Check:  "CHECK a, CHECK b, CHECK c",
		plugin.Status: "STATUS a, STATUS b, STATUS c",
		plugin.GC:     "GC a, GC b, GC c",
	} {
		l := newLab(t, "a", "b", "c")
		if _, err := l.run(t, context.Background(), command, config("1.1.0", nothingValid+`"prevResult": {},`, abc)); err != nil {
			t.Error(err)
		}
		if got := l.names(); got != want {
			t.Errorf("calls %s, want %s", got, want)
		}
	}
}

// The rest of the request is what the chain got.
func TestRequestIsPassedOn(t *testing.T) {
	l := newLab(t, "a")
	var seen *plugin.Request
	l.does["DEL a"] = func(_ context.Context, r *plugin.Request) (*types100.Result, error) {
		seen = r
		r.Announce("step")
		return nil, nil
	}
	r, err := l.request(plugin.Del, config("1.1.0", `"prevResult": {"ips": [{"address": "10.0.0.9/24"}]},`, `[{"type": "a", "mtu": "wrong"}]`))
	if err != nil {
		t.Fatal(err)
	}
	var trace []string
	r.Trace = func(step string) { trace = append(trace, step) }
	if err := (Plugin{}).Del(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	if seen.Key != r.Key || seen.Netns != r.Netns || seen.Args != r.Args || seen.Version != "1.1.0" || !cmp.Equal(seen.Path, r.Path) || len(seen.Plugins) != len(r.Plugins) {
		t.Errorf("got  %+v\nwant %+v", seen, r)
	}
	if seen.PrevResult == nil || result.Prefix(seen.PrevResult.IPs[0].Address) != prefix("10.0.0.9/24") {
		t.Errorf("previous result %+v", seen.PrevResult)
	}
	seen.Config.Int("mtu", new(int))
	if err := seen.Config.Err(); err != nil {
		t.Errorf("DEL is strict: %v", err)
	}
	if diff := cmp.Diff([]string{"a", "a: step"}, trace); diff != "" {
		t.Errorf("trace, -want +got:\n%s", diff)
	}
}

// A list of valid attachments reaches everyone, under whichever name.
func TestGCList(t *testing.T) {
	for _, key := range []string{"cni.dev/valid-attachments", "cni.dev/attachments"} {
		l := newLab(t, "a", "b", "c")
		valid := 0
		l.does["GC b"] = func(_ context.Context, r *plugin.Request) (*types100.Result, error) {
			if r.HasValid && r.Valid[0] == (plugin.Attachment{ContainerID: "c0ffee", IfName: "eth0"}) {
				valid = len(r.Valid)
			}
			return nil, nil
		}
		text := config("1.1.0", `"`+key+`": [{"containerID": "c0ffee", "ifname": "eth0"}],`, abc)
		if _, err := l.run(t, context.Background(), plugin.GC, text); err != nil || valid != 1 {
			t.Errorf("%s: %v, %d valid attachments", key, err, valid)
		}
	}
}

func TestNoResultIsAnEmptyOne(t *testing.T) {
	l := newLab(t, "a")
	l.fails("ADD a", nil)
	result, err := l.run(t, context.Background(), plugin.Add, config("1.1.0", "", `[{"type": "a"}]`))
	if err != nil || result == nil {
		t.Errorf("ADD = %v, %v", result, err)
	}
}

// What is wrong is said before anything is called.
func TestRefusals(t *testing.T) {
	tests := []struct {
		name, version, keys, list string
		code                      uint
		msg, details              string
		del                       string // what DEL calls all the same
	}{
		{"no list", "1.1.0", "", `null`, 7, `chain: "plugins" has no plugins`, `"plugins": [{"type": "bridge"`, ""},
		{"empty list", "1.1.0", "", `[]`, 7, `chain: "plugins" has no plugins`, "conflist", ""},
		{"no list but an object", "1.1.0", "", `{"type": "a"}`, 7, `chain: key "plugins": want a list of objects, got an object`, "correct", ""},
		{"an entry of another type", "1.1.0", "", `[{"type": "a"}, "b"]`, 7, `chain: key "plugins[1]": want an object, got the string "b"`, "correct", "DEL a"},
		{"no type", "1.1.0", "", `[{"type": "a"}, {"typ": "b"}]`, 7, `chain: key "plugins[1].type": want the name of a plugin, got none`, `"type"`, "DEL a"},
		{"type of another type", "1.1.0", "", `[{"type": 7}, {"type": "a"}]`, 7, `chain: key "plugins[0].type": want a string, got the number 7`, "correct", "DEL a"},
		{"a path", "1.1.0", "", `[{"type": "a"}, {"type": "../b"}]`, 7, `chain: ../b: "../b" is no plugin's name`, "CNI_PATH", "DEL a"},
		{"missing", "1.1.0", "", `[{"type": "a"}, {"type": "lost"}, {"type": "b"}]`, 7, `chain: lost: plugin lost is not in CNI_PATH`, "install it", "DEL b, DEL a"},
		{"two missing", "1.1.0", "", `[{"type": "lost"}, {"type": "gone"}, {"type": "b"}]`, 7, "chain: gone: plugin gone is not in CNI_PATH", "", "DEL b"},
		{"a chain", "1.1.0", "", `[{"type": "a"}, {"type": "chain", "plugins": [{"type": "b"}]}]`, 7, `chain: key "plugins[1].type": a chain can't be part of a chain`, "in its place", "DEL a"},
		{"too old for one", "0.3.1", "", `[{"type": "a"}, {"type": "new"}]`, 1, `chain: new: incompatible CNI versions: the configuration's cniVersion is "0.3.1"`, "0.4.0", "DEL a"},
		{"capability not declared", "1.1.0", `"capabilities": {"mac": true, "ips": false},`,
			`[{"type": "a", "capabilities": {"ips": true, "mac": true}}, {"type": "b", "capabilities": {"portMappings": true, "ips": true}}]`, 7,
			`chain: key "capabilities" lacks ips (of a), portMappings (of b), ips (of b)`, `add {"ips": true, "portMappings": true} to the "capabilities" beside "type": "chain"`, "DEL b, DEL a"},
		{"capability of another type", "1.1.0", "", `[{"type": "a", "capabilities": {"mac": 1}}]`, 7, `chain: key "plugins[0].capabilities.mac": want true or false`, "correct", "DEL a"},
		{"capabilities of another type", "1.1.0", `"capabilities": ["mac"],`, `[{"type": "a"}]`, 7, `chain: key "capabilities": want an object, got a list`, "correct", "DEL a"},
		{"runtimeConfig of another type", "1.1.0", `"runtimeConfig": 1,`, `[{"type": "a"}]`, 7, `chain: key "runtimeConfig": want an object`, "correct", "DEL a"},
	}
	for _, tt := range tests {
		for _, command := range []plugin.Command{plugin.Add, plugin.Check, plugin.Status} {
			if err := plugin.CheckVersion(tt.version, command, ""); err != nil {
				continue
			}
			t.Run(tt.name+" "+string(command), func(t *testing.T) {
				l := newLab(t, "a", "b", "new")
				l.table.Find("new").Oldest = "0.4.0"
				_, err := l.run(t, context.Background(), command, config(tt.version, tt.keys, tt.list))
				if err == nil {
					t.Fatal("no error")
				}
				e := plugin.AsError(err)
				if e.Code != tt.code || !strings.Contains(e.Msg, tt.msg) || !strings.Contains(e.Details, tt.details) {
					t.Errorf("code %d, %q, %q\nwant %d, %q, %q", e.Code, e.Msg, e.Details, tt.code, tt.msg, tt.details)
				}
				if got := l.names(); got != "" {
					t.Errorf("called all the same: %s", got)
				}
			})
		}
		t.Run(tt.name+" DEL", func(t *testing.T) {
			l := newLab(t, "a", "b", "new")
			l.table.Find("new").Oldest = "0.4.0"
			_, err := l.run(t, context.Background(), plugin.Del, config(tt.version, tt.keys, tt.list))
			if got := l.names(); got != tt.del {
				t.Errorf("calls %q, want %q", got, tt.del)
			}
			if tt.del == "" && err == nil {
				t.Error("nothing was removed, and it is a success")
			}
			if strings.Contains(tt.name, "missing") && (err == nil || !strings.Contains(err.Error(), tt.msg)) {
				t.Errorf("error %v, want %s", err, tt.msg)
			}
		})
	}
}

var failure = &types.Error{Code: types.ErrTryAgainLater, Msg: "no address left", Details: "add a range"}

// check compares an error with failure in the name of a plugin.
func check(t *testing.T, err error, msg string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	e := plugin.AsError(err)
	if e.Code != failure.Code || e.Msg != msg || e.Details != failure.Details {
		t.Errorf("error %#v\nwant code %d, %q and the details", e, failure.Code, msg)
	}
}

func TestAddRollsBack(t *testing.T) {
	const del = `"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "before"}]},`
	tests := []struct {
		name, fails, calls string
		known              int // interfaces of the result that the DELs get
	}{
		{"the first", "a", "ADD a", 0},
		{"the second", "b", "ADD a, ADD b, DEL a", 2},
		{"the last", "c", "ADD a, ADD b, ADD c, DEL b, DEL a", 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, "a", "b", "c")
			l.fails("ADD "+tt.fails, failure)
			result, err := l.run(t, context.Background(), plugin.Add, config("1.1.0", del, abc))
			check(t, err, "chain: "+tt.fails+": no address left")
			if result != nil {
				t.Errorf("result %v", result)
			}
			if got := l.names(); got != tt.calls {
				t.Errorf("calls %s, want %s", got, tt.calls)
			}
			for _, c := range l.calls {
				if !strings.HasPrefix(c.what, "DEL") {
					continue
				}
				prev, _ := c.stdin["prevResult"].(map[string]any)
				if list, _ := prev["interfaces"].([]any); len(list) != tt.known {
					t.Errorf("%s: previous result %v, want the newest, with %d interfaces", c.what, prev, tt.known)
				}
			}
		})
	}
}

func TestRollbackGoesOnAfterAFailure(t *testing.T) {
	l := newLab(t, "a", "b", "c")
	l.fails("ADD c", failure)
	l.fails("DEL b", errors.New("busy"))
	_, err := l.run(t, context.Background(), plugin.Add, config("1.1.0", "", abc))
	check(t, err, "chain: c: no address left (and not everything could be undone: DEL of b: busy)")
	if got, want := l.names(), "ADD a, ADD b, ADD c, DEL b, DEL a"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
}

// Another program that fails is called with DEL too, as the specification wants it.
func TestRollbackOfAnotherProgram(t *testing.T) {
	l := newLab(t, "a", "b")
	script := `#!/bin/sh
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS" >>"${0%/*}/log"
cat >>"${0%/*}/log"
echo >>"${0%/*}/log"
test "$CNI_COMMAND" = DEL || { echo '{"code": 11, "msg": "no address left", "details": "add a range"}'; exit 1; }
`
	if err := os.WriteFile(filepath.Join(l.dir, "other"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := l.run(t, context.Background(), plugin.Add, config("1.0.0", "", `[{"type": "a"}, {"type": "other", "x": 1}, {"type": "b"}]`))
	check(t, err, "chain: other: no address left")
	if got, want := l.names(), "ADD a, DEL a"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	text, err := os.ReadFile(filepath.Join(l.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var calls []string
	for _, line := range lines {
		if !strings.HasPrefix(line, "{") && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "}") {
			calls = append(calls, line)
		}
	}
	const id = " c0ffee eth0 IgnoreUnknown=1;K8S_POD_NAME=web"
	if diff := cmp.Diff([]string{"ADD" + id, "DEL" + id}, calls); diff != "" {
		t.Errorf("calls of the other program, -want +got:\n%s", diff)
	}
	if n := strings.Count(string(text), `"x":1`); n != 2 {
		t.Errorf("its configuration reached it %d times:\n%s", n, text)
	}
}

// A call that is cancelled stops before the next plugin, and the DELs are not cancelled with it.
func TestCancelled(t *testing.T) {
	l := newLab(t, "a", "b", "c")
	ctx, cancel := context.WithCancelCause(context.Background())
	l.does["ADD b"] = func(context.Context, *plugin.Request) (*types100.Result, error) {
		cancel(errors.New("ended by signal terminated"))
		return nil, nil
	}
	for _, what := range []string{"DEL a", "DEL b"} {
		l.does[what] = func(ctx context.Context, _ *plugin.Request) (*types100.Result, error) { return nil, ctx.Err() }
	}
	_, err := l.run(t, ctx, plugin.Add, config("1.1.0", "", abc))
	e := plugin.AsError(err)
	if e.Code != types.ErrTryAgainLater || e.Msg != "chain: c: stopped before the step: c" || !strings.Contains(e.Details, "ended by signal terminated") {
		t.Errorf("error %#v", e)
	}
	if got, want := l.names(), "ADD a, ADD b, DEL b, DEL a"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
}

// Another program that was never started is not called with DEL.
func TestCancelledBeforeAnotherProgram(t *testing.T) {
	l := newLab(t, "a")
	script := "#!/bin/sh\necho $CNI_COMMAND >>\"${0%/*}/log\"\n"
	if err := os.WriteFile(filepath.Join(l.dir, "other"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	l.does["ADD a"] = func(context.Context, *plugin.Request) (*types100.Result, error) {
		cancel(errors.New("ended by signal terminated"))
		return nil, nil
	}
	if _, err := l.run(t, ctx, plugin.Add, config("1.1.0", "", `[{"type": "a"}, {"type": "other"}]`)); err == nil {
		t.Error("no error")
	}
	if got, want := l.names(), "ADD a, DEL a"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	if text, err := os.ReadFile(filepath.Join(l.dir, "log")); err == nil {
		t.Errorf("calls of the other program: %s", text)
	}
}

// A plugin that has a bug takes nothing of the others with it.
func TestPanic(t *testing.T) {
	l := newLab(t, "a", "b")
	l.does["ADD b"] = func(context.Context, *plugin.Request) (*types100.Result, error) { panic("a bug") }
	func() {
		defer func() {
			if p := recover(); p != "a bug" {
				t.Errorf("panic %v, want the plugin's", p)
			}
		}()
		_, _ = l.run(t, context.Background(), plugin.Add, config("1.1.0", "", `[{"type": "a"}, {"type": "b"}]`))
	}()
	if got, want := l.names(), "ADD a, ADD b, DEL a"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
}

// What the other verbs do when plugins fail.
func TestFailures(t *testing.T) {
	tests := []struct {
		command plugin.Command
		calls   string
		msg     string
		both    string // when another one fails too
	}{
		{plugin.Check, "CHECK a, CHECK b", "chain: b: no address left", "chain: b: no address left"},
		{plugin.Del, "DEL c, DEL b, DEL a", "chain: b: no address left", "chain: c: busy\nchain: b: no address left"},
		{plugin.Status, "STATUS a, STATUS b, STATUS c", "chain: b: no address left", "chain: b: no address left; add a range\nchain: c: busy"},
		{plugin.GC, "GC a, GC b, GC c", "chain: b: no address left", "chain: b: no address left; add a range\nchain: c: busy"},
	}
	for _, tt := range tests {
		t.Run(string(tt.command), func(t *testing.T) {
			l := newLab(t, "a", "b", "c")
			l.fails(string(tt.command)+" b", failure)
			_, err := l.run(t, context.Background(), tt.command, config("1.1.0", nothingValid+`"prevResult": {},`, abc))
			check(t, err, tt.msg)
			if got := l.names(); got != tt.calls {
				t.Errorf("calls %s, want %s", got, tt.calls)
			}
			l.fails(string(tt.command)+" c", errors.New("busy"))
			_, err = l.run(t, context.Background(), tt.command, config("1.1.0", nothingValid+`"prevResult": {},`, abc))
			if e := plugin.AsError(err); e.Code != failure.Code || e.Msg != tt.both {
				t.Errorf("error %#v\nwant code %d, %q", e, failure.Code, tt.both)
			}
		})
	}
}
