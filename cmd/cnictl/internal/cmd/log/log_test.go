package log

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui/uitest"
	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// logDir returns a directory in which the log is on and has some calls.
func logDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "log")
	if err := calllog.On(dir, calllog.MinSize); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "calls.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id := strings.Repeat("c0ffee", 8)
	for i, c := range []calllog.Call{
		{Verb: "ADD", Addresses: []string{"10.88.0.7/24"}, TraceID: "0af7651916cd43dd8448eb211c80319c"},
		{Verb: "CHECK", Error: &types.Error{Code: 11, Msg: strings.Repeat("long ", 100) + "\x1b[31mtail"}},
		{Verb: "DEL"},
	} {
		c.Time, c.Took, c.Plugin = time.Now().Add(time.Duration(i-10)*time.Hour), 2345*time.Microsecond, "bridge"
		c.Key, c.Netns, c.PID = plugin.Key{Network: "demo", ContainerID: id, IfName: "eth0"}, "/run/netns/web", 4711
		line, _ := json.Marshal(c)
		if _, err := f.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLogText(t *testing.T) {
	dir := logDir(t)
	tests := []struct {
		name  string
		args  []string
		lines int // with the head
		has   []string
		lacks []string
	}{
		{"all", nil, 4, []string{"  c0ffeec0ffee  ", "10.88.0.7/24", "2.3 ms", "error 11: long long", "long…", " ok"}, []string{"tail", "/run/netns/web", "\x1b"}},
		{"wide", []string{"--wide"}, 4, []string{strings.Repeat("c0ffee", 8), "long ?[31mtail", "/run/netns/web", "4711", "0af7651916cd43dd8448eb211c80319c"}, []string{"\x1b"}},
		{"the last", []string{"-n", "1"}, 2, []string{"DEL"}, []string{"ADD"}},
		{"errors", []string{"--errors"}, 2, []string{"CHECK"}, []string{"ADD"}},
		{"verb", []string{"--verb", "del"}, 2, []string{"DEL"}, nil},
		{"since", []string{"--since", "8h30m"}, 2, []string{"DEL"}, nil},
		{"none", []string{"--network", "demo", "--verb", "GC"}, 1, []string{"no such calls"}, nil},
		{"an address", []string{"10.88.0.7"}, 2, []string{"FROM", "2h0m0s", strings.Repeat("c0ffee", 8)}, []string{"CHECK", "still"}},
		{"errors of who had an address", []string{"10.88.0.7", "--errors"}, 2, []string{"CHECK"}, []string{"FROM"}},
		{"an address of nobody", []string{"10.88.0.8"}, 1, []string{"nobody had 10.88.0.8, by what the log has since"}, nil},
		{"an address at another time", []string{"10.88.0.7", "--since", "1h"}, 1, []string{"nobody had"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out := uitest.Run(New(), append([]string{"log", "--log-dir", dir}, tt.args...)...)
			if out.Code != 0 || out.Stderr != "" || strings.Count(out.Stdout, "\n") != tt.lines {
				t.Errorf("%+v", out)
			}
			uitest.AssertContains(t, out.Stdout, tt.has...)
			for _, text := range tt.lacks {
				if strings.Contains(out.Stdout, text) {
					t.Errorf("%q is there:\n%s", text, out.Stdout)
				}
			}
		})
	}
}

func TestLogErrors(t *testing.T) {
	dir, empty := logDir(t), t.TempDir()
	tests := []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no log", []string{"log", "--log-dir", empty}, 1, "cnictl log on"},
		{"a wrong time", []string{"log", "--log-dir", dir, "--since", "Tuesday"}, 2, "Tuesday"},
		{"a wrong number", []string{"log", "--log-dir", dir, "-n", "-1"}, 2, "-n -1"},
		{"too much", []string{"log", "--log-dir", dir, "a", "b"}, 2, "one argument too many"},
		{"too small", []string{"log", "on", "--size", "1k"}, 2, "16kB to 100MB"},
		{"too large", []string{"log", "on", "--size", "1G"}, 2, "16kB to 100MB"},
		{"no size", []string{"log", "on", "--size", "much"}, 2, "16kB to 100MB"},
		{"nothing to follow", []string{"log", "-f", "--log-dir", filepath.Join(empty, "none")}, 1, "cnictl log on"},
	}
	for _, tt := range tests {
		if out := uitest.Run(New(), tt.args...); out.Code != tt.code || !strings.Contains(out.Stderr, tt.says) || out.Stdout != "" {
			t.Errorf("%s: %+v", tt.name, out)
		}
	}
	if left, _ := os.ReadDir(empty); len(left) > 0 {
		t.Errorf("made %v", left)
	}
}

func TestLogJSON(t *testing.T) {
	dir := logDir(t)
	if err := os.Symlink("/none", filepath.Join(dir, "calls.jsonl.1")); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "calls.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("{\"time\":\"torn\n"); err != nil {
		t.Fatal(err)
	}
	out := uitest.Run(New(), "log", "--log-dir", dir, "10.88.0.7", "--json")
	var document struct {
		Calls []struct {
			Verb, ContainerID, Ifname string
			DurationUs                int
			Error                     *types.Error
		}
		Holders []struct {
			Network, ContainerID string
			From, To             time.Time
		}
		Torn       int
		Unreadable []string
	}
	if err := json.Unmarshal([]byte(out.Stdout), &document); err != nil || out.Code != 1 || out.Stderr != "" {
		t.Fatalf("%v, %+v", err, out)
	}
	if len(document.Calls) != 3 || document.Calls[0].Verb != "ADD" || document.Calls[0].DurationUs != 2345 || document.Calls[0].Ifname != "eth0" ||
		document.Calls[1].Error.Code != 11 || document.Torn != 1 || len(document.Unreadable) != 1 || len(document.Holders) != 1 {
		t.Fatalf("got %s", out.Stdout)
	}
	if h := document.Holders[0]; h.Network != "demo" || h.To.Sub(h.From).Round(time.Minute) != 2*time.Hour {
		t.Errorf("got %+v", h)
	}
	out = uitest.Run(New(), "log", "--log-dir", dir)
	if out.Code != 1 || strings.Count(out.Stdout, "\n") != 4 {
		t.Errorf("%+v", out)
	}
	uitest.AssertContains(t, out.Stderr, "torn, as by a full disk: 1 line", "calls.jsonl.1")
}

func TestLogSwitch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	for _, step := range []struct {
		cmd  *cobra.Command
		args []string
		says string
	}{
		{newLogStatus(dir), nil, "the log is off"},
		{newLogOn(dir), nil, "calls.jsonl, of 10 MB at most"},
		{newLogOn(dir), []string{"--size", "20MB"}, "of 20 MB at most"},
		{newLogStatus(dir), []string{"--json"}, `"limit": 20000000`},
		{newLogOff(dir), nil, "the log is off"},
		{newLogStatus(dir), []string{"--json"}, `"on": false`},
	} {
		var out bytes.Buffer
		step.cmd.SetArgs(append([]string{}, step.args...))
		step.cmd.SetOut(&out)
		if err := step.cmd.Execute(); err != nil || !strings.Contains(out.String(), step.says) {
			t.Errorf("%s %v: %v\n%s", step.cmd.Use, step.args, err, &out)
		}
	}
	if out := uitest.Run(New(), "log", "--log-dir", dir); out.Code != 0 || !strings.Contains(out.Stderr, "the log is off") {
		t.Errorf("%+v", out)
	}
}

func TestStreamed(t *testing.T) {
	c := calllog.Call{Verb: "ADD", Plugin: "bridge", Key: plugin.Key{Network: "demo", ContainerID: "web", IfName: "eth0"}, Addresses: []string{"10.88.0.7/24"}}
	d := c
	d.Pod, d.Plugin, d.Error = "default/a-pod-with-a-long-name", "tuning", &types.Error{Code: 7, Msg: "no"}
	for _, wide := range []bool{false, true} {
		one, two := streamed(&c, wide), streamed(&d, wide)
		if strings.Index(one, "demo") != strings.Index(two, "demo") || !strings.HasSuffix(one, "  10.88.0.7/24") || !strings.HasSuffix(two, "  error 7: no") {
			t.Errorf("\n%s\n%s", one, two)
		}
	}
}

func TestPrintHolders(t *testing.T) {
	from := time.Now().Add(-time.Hour)
	to := from.Add(time.Minute)
	var out bytes.Buffer
	printHolders(&out, netip.MustParseAddr("10.88.0.7"), []addressHolder{{ContainerID: "a", From: from, To: &to, Replaced: true}, {ContainerID: "b\x1b", From: to}}, from)
	for _, text := range []string{moment(to) + " (no DEL)", "1m0s", "has it still", "59m0s", "b?"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("%q is missing:\n%s", text, &out)
		}
	}
}

func TestCompleteLogged(t *testing.T) {
	dir := logDir(t)
	id := strings.Repeat("c0ffee", 8)
	for _, c := range []struct{ begin, want string }{{"", "10.88.0.7\t" + id + "\n" + id + "\tdemo\n:4\n"}, {"10", "10.88.0.7\t" + id + "\n:4\n"}, {"x", ":4\n"}} {
		if out := uitest.Run(New(), "__complete", "log", "--log-dir", dir, c.begin); !strings.HasSuffix(out.Stdout, c.want) {
			t.Errorf("%q: got %q, want %q", c.begin, out.Stdout, c.want)
		}
	}
}
