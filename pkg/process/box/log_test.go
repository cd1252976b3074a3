package box

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Each call leaves a line that says what is known of it, also one that fails before its plugin is called.
func TestLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if err := calllog.On(dir, calllog.DefaultSize); err != nil {
		t.Fatal(err)
	}
	step := func(ctx context.Context, r *plugin.Request) error {
		r.Warn("the MTU stays")
		return r.Step(ctx, "make the link")
	}
	fails := func(context.Context, *plugin.Request) error { return errors.New("no luck") }
	whole := plugin.Key{Network: "net", ContainerID: "c0ffee", IfName: "eth0"}
	noNetwork := plugin.Key{ContainerID: "c0ffee", IfName: "eth0"}
	tests := []struct {
		name, command, stdin string
		changes              []string
		do                   func(context.Context, *plugin.Request) error
		unheard              bool
		key                  plugin.Key
		err                  string // the beginning of its message
		steps                []string
	}{
		{name: "ADD", command: "ADD", stdin: config, do: step, key: whole, steps: []string{"warning: the MTU stays", "make the link"}},
		{name: "traced", command: "CHECK", stdin: config, changes: []string{"CNIBOX_TRACE=1"}, do: step, key: whole, steps: []string{"warning: the MTU stays", "make the link"}},
		{name: "DEL", command: "DEL", stdin: config, key: whole},
		{name: "GC", command: "GC", stdin: `{"cniVersion": "1.1.0", "name": "net"}`, key: plugin.Key{Network: "net"}},
		{name: "the plugin fails", command: "ADD", stdin: config, do: fails, key: whole, err: "no luck"},
		{name: "STATUS fails", command: "STATUS", stdin: config, do: fails, key: plugin.Key{Network: "net"}, err: "no luck"},
		{name: "nobody hears it", command: "ADD", stdin: config, unheard: true, key: whole, err: "write the answer to standard output: no space left"},
		{name: "no netns", command: "ADD", stdin: config, changes: []string{"CNI_NETNS=/none"}, key: whole, err: "CNI_NETNS: "},
		{name: "no prevResult", command: "CHECK", stdin: config + " ", key: whole, err: "required prevResult missing"},
		{name: "a wrong configuration", command: "ADD", stdin: `{"cniVersion": "7", "name": "net"}`, key: whole, err: "incompatible"},
		{name: "no JSON", command: "DEL", stdin: "x", key: noNetwork, err: "the configuration on standard input is "},
		{name: "no container id", command: "ADD", stdin: config, changes: []string{"CNI_CONTAINERID"}, key: plugin.Key{IfName: "eth0"}, err: "required env variables"},
		{name: "an unknown verb", command: "ATTACH", stdin: config, err: "unknown CNI_COMMAND: ATTACH"},
	}
	n := 0
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := prepare(t, tt.command, tt.stdin, append(tt.changes, "TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")...)
			r.plugin.do, r.log = tt.do, dir
			r.plugin.result = &types100.Result{IPs: []*types100.IPConfig{{Address: net.IPNet{IP: net.IPv4(10, 88, 0, 7), Mask: net.CIDRMask(24, 32)}}}}
			if tt.unheard {
				r.answer = fullDisk{}
			}
			r.main()
			all, torn, err := calllog.Read(dir)
			if n++; err != nil || torn > 0 || len(all) != n {
				t.Fatalf("%d calls, %d torn, %v; want %d", len(all), torn, err, n)
			}
			c := all[n-1]
			if c.Verb != tt.command || c.Plugin != "demo" || c.Key != tt.key || c.TraceID == "" || c.SpanID == "" {
				t.Errorf("got %+v", c)
			}
			if failed := c.Error != nil; failed != (tt.err != "") || failed && !strings.HasPrefix(c.Error.Msg, tt.err) || failed != (r.code == 1) {
				t.Errorf("error %v, exit code %d", c.Error, r.code)
			}
			if made := c.Addresses != nil; made != (tt.command == "ADD" && tt.err == "") {
				t.Errorf("addresses %v", c.Addresses)
			}
			var steps []string
			for _, s := range c.Steps {
				steps = append(steps, s.Text)
			}
			if !slices.Equal(steps, tt.steps) {
				t.Errorf("steps %q, want %q", steps, tt.steps)
			}
		})
	}
	for _, command := range []string{"VERSION", "STATUS"} {
		r := prepare(t, command, config)
		r.log = dir
		r.main()
		if all, _, _ := calllog.Read(dir); len(all) != n || r.code != 0 {
			t.Errorf("%s: exit code %d, and a line of it is in the log", command, r.code)
		}
	}
}

// What is not taken back when nobody hears of it stands in the line.
func TestLogOfWhatIsNotTakenBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if err := calllog.On(dir, calllog.DefaultSize); err != nil {
		t.Fatal(err)
	}
	r := prepare(t, "ADD", config)
	r.log, r.answer = dir, fullDisk{}
	r.plugin.do = func(_ context.Context, q *plugin.Request) error {
		if q.Command == plugin.Del {
			return errors.New("the link stays")
		}
		return nil
	}
	r.main()
	all, _, err := calllog.Read(dir)
	if err != nil || len(all) != 1 || all[0].Verb != "ADD" || all[0].Error == nil || !strings.Contains(all[0].Error.Msg, "take back what was made: the link stays") {
		t.Errorf("%v, %+v", err, all)
	}
}
