package calllog

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// full is a call that has all that a line can have.
func full() Call {
	return Call{
		Time: time.Date(2026, 11, 17, 9, 12, 1, 20_000_000, time.UTC), Took: 2345 * time.Microsecond, Verb: "ADD", Plugin: "bridge",
		Key: plugin.Key{Network: "demo", ContainerID: "c0ffee", IfName: "eth0"}, Netns: "/run/netns/web", Pod: "default/web-1", PID: 4711,
		Addresses: []string{"10.88.0.7/24", "fd00:88::7/64"},
		Interfaces: []Interface{
			{Name: "cni0", MAC: "02:00:00:00:00:01"}, {Name: "eth0", MAC: "02:00:00:00:00:02", Sandbox: "/run/netns/web"},
		},
		Error:   &types.Error{Code: 7, Msg: `key "mtu": want a whole number`, Details: "correct that key"},
		TraceID: "0af7651916cd43dd8448eb211c80319c", SpanID: "b7ad6b7169203331",
		Steps: []Step{{0, "ipam"}, {313 * time.Microsecond, `say "ä"`}},
	}
}

func TestLine(t *testing.T) {
	const want = `{"time":"2026-11-17T09:12:01.020000Z","verb":"ADD","plugin":"bridge","network":"demo","containerID":"c0ffee","ifname":"eth0",` +
		`"netns":"/run/netns/web","pod":"default/web-1","pid":4711,"durationUs":2345,"addresses":["10.88.0.7/24","fd00:88::7/64"],` +
		`"interfaces":[{"name":"cni0","mac":"02:00:00:00:00:01"},{"name":"eth0","mac":"02:00:00:00:00:02","sandbox":"/run/netns/web"}],` +
		`"error":{"code":7,"msg":"key \"mtu\": want a whole number","details":"correct that key"},` +
		`"traceID":"0af7651916cd43dd8448eb211c80319c","spanID":"b7ad6b7169203331",` +
		`"steps":[{"atUs":0,"step":"ipam"},{"atUs":313,"step":"say \"ä\""}]}` + "\n"
	c := full()
	if got := string(c.line()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	back, ok := parse([]byte(want))
	if diff := cmp.Diff(c, back); !ok || diff != "" {
		t.Errorf("read again: %v, -written +read:\n%s", ok, diff)
	}
	if text, err := json.Marshal(c); err != nil || string(text)+"\n" != want {
		t.Errorf("as JSON: %v\n%s", err, text)
	}
	// What is not there takes no room, and time is in UTC.
	short := Call{Time: time.Date(2026, 11, 17, 9, 12, 1, 999, time.FixedZone("", 7200)), Verb: "GC", Plugin: "bridge", PID: 1}
	const wantShort = `{"time":"2026-11-17T07:12:01.000000Z","verb":"GC","plugin":"bridge","pid":1,"durationUs":0}` + "\n"
	if got := string(short.line()); got != wantShort {
		t.Errorf("got  %s\nwant %s", got, wantShort)
	}
}

// A line has a length that is written at once, whatever runtimes and plugins say, and is JSON.
func TestLongLinesAreCut(t *testing.T) {
	long := func(s string) string { return strings.Repeat(s, 100_000) }
	tests := map[string]func(c *Call){
		"message": func(c *Call) { c.Error.Msg = "no addresses left: " + long("ä") },
		"all of an error": func(c *Call) {
			c.Error = &types.Error{Code: 7, Msg: "no addresses left: " + long("m"), Details: long("\x00")}
		},
		"keys": func(c *Call) {
			c.Key, c.Netns, c.Pod = plugin.Key{Network: long("n"), ContainerID: long("\x01"), IfName: long("<")}, long("\""), long("\xff")
		},
		"verb":       func(c *Call) { c.Verb = long("ADD") },
		"steps":      func(c *Call) { c.Steps = make([]Step, 10_000) },
		"long steps": func(c *Call) { c.Steps = []Step{{0, long("s")}, {0, long("\x00")}, {0, "last"}} },
		"addresses":  func(c *Call) { c.Addresses = make([]string, 10_000) },
		"interfaces": func(c *Call) { c.Interfaces = make([]Interface, 10_000) },
		"long interfaces": func(c *Call) {
			c.Interfaces = []Interface{{long("\x00"), long("\x00"), long("\x00")}, {long("\x00"), long("\x00"), long("\x00")}}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			c := full()
			c.Error.Msg = "no addresses left"
			change(&c)
			line := c.line()
			back, ok := parse(line)
			if len(line) > 4096 || line[len(line)-1] != '\n' || !json.Valid(line) || !ok {
				t.Fatalf("%d bytes, read again: %v\n%s", len(line), ok, line)
			}
			if !strings.HasPrefix(back.Error.Msg, "no addresses left") || strings.Contains(back.Error.Msg, "\ufffd") || !back.Time.Equal(c.Time) || back.Error.Code != 7 || back.TraceID != c.TraceID {
				t.Errorf("what was not long was cut, or within a character: %s", line)
			}
		})
	}
}

// Texts that are not long are whole beside one that is.
func TestOnlyLongTextsAreCut(t *testing.T) {
	c := full()
	c.Error.Msg = strings.Repeat("m", 5000)
	back, _ := parse(c.line())
	if back.Error.Msg != strings.Repeat("m", 1024)+"…" {
		t.Errorf("message of %d bytes", len(back.Error.Msg))
	}
	if diff := cmp.Diff(c, back, cmpopts.IgnoreFields(types.Error{}, "Msg")); diff != "" {
		t.Error(diff)
	}
}
