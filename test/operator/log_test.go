package operator

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

const (
	logDir  = "/var/log/cnibox"
	logFile = logDir + "/calls.jsonl"
)

// logged is what log --json prints.
type logged struct {
	Calls   []loggedCall
	Holders []struct {
		Network, ContainerID, Ifname, Pod string
		From                              time.Time
		To                                *time.Time
		Replaced                          bool
	}
	Torn int
}

type loggedCall struct {
	Time                                              time.Time
	Verb, Plugin, Network, ContainerID, Ifname, Netns string
	Pod, TraceID, SpanID                              string
	PID, DurationUs                                   int
	Addresses                                         []string
	Interfaces                                        []struct{ Name, Mac, Sandbox string }
	Error                                             *netlab.CNIError
	Steps                                             []struct{ Step string }
}

func (c loggedCall) String() string {
	text := fmt.Sprintf("%s %s %s/%s", c.Verb, c.Plugin, c.Network, c.ContainerID)
	if c.Error != nil {
		text += fmt.Sprintf(" %d", c.Error.Code)
	}
	return text
}

// log returns what is in the log.
func (o *operator) log(args ...string) (l logged) {
	o.Helper()
	printed := o.must(append([]string{"log", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(printed), &l); err != nil {
		o.Fatalf("%v\n%s", err, printed)
	}
	if l.Torn > 0 {
		o.Errorf("%d lines are torn", l.Torn)
	}
	return l
}

// expect compares the calls of a log.
func (l logged) expect(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, c := range l.Calls {
		got = append(got, c.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// broken is a call that fails before anything is done.
func broken(id string) netlab.PluginCall {
	return netlab.PluginCall{Command: "DEL", ContainerID: id, IfName: "eth0", Path: netlab.PluginDir, Config: "no JSON"}
}

// TestLog has a line of each call, with what came of it, and knows who had an address.
func TestLog(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	if code, printed := o.cnictl("log"); code != 1 || !strings.Contains(printed, "cnictl log on") {
		t.Errorf("without a log: exit code %d\n%s", code, printed)
	}
	o.attach("before")
	o.must("log", "on")
	if modes := o.host.MustRun(t, "stat", "-c", "%a %u", logDir, logFile); modes != "700 0\n600 0\n" {
		t.Errorf("modes and owners: %q", modes)
	}

	web := o.host.NewPod(t, "web")
	o.must("add", "demo", web.Path(), "--id", "web", "-p", "8080:80")
	db := o.host.NewPod(t, "db")
	if code, printed := o.cnictl("add", "demo", db.Path(), "--id", "db", "-p", "8080:80"); code != 1 {
		t.Errorf("a port twice: exit code %d\n%s", code, printed)
	}
	o.must("del", "demo", db.Path(), "--id", "db")
	o.must("check", "demo", web.Path(), "--id", "web")
	o.must("status", "demo")
	o.must("del", "demo", web.Path(), "--id", "web")
	chained := o.host.NewPod(t, "chained").Call("ADD", strings.Replace(demo, `"name": "demo",`, `"name": "demo", "type": "chain", "capabilities": {"portMappings": true},`, 1))
	chained.ContainerID, chained.Args = "chained", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1;PASSWORD=hunter2"
	chained.Env = []string{"TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	o.host.Exec(t, "chain", chained).Result(t)
	o.host.Exec(t, "bridge", broken("broken"))

	l := o.log()
	l.expect(t, "ADD bridge demo/web", "ADD tuning demo/web", "ADD portmap demo/web",
		"ADD bridge demo/db", "ADD tuning demo/db", "ADD portmap demo/db 11", "DEL portmap demo/db", "DEL tuning demo/db", "DEL bridge demo/db",
		"CHECK bridge demo/web", "CHECK tuning demo/web", "CHECK portmap demo/web",
		"DEL portmap demo/web", "DEL tuning demo/web", "DEL bridge demo/web", "ADD chain demo/chained", "DEL bridge /broken 6")
	if t.Failed() {
		t.FailNow()
	}
	add, failed, chain := l.Calls[0], l.Calls[5], l.Calls[15]
	if add.Netns != web.Path() || add.Ifname != "eth0" || add.DurationUs <= 0 || add.PID == 0 || len(add.Steps) < 3 || len(add.Interfaces) != 3 ||
		time.Since(add.Time) < 0 || time.Since(add.Time) > time.Hour || add.Pod != "" || add.TraceID != "" {
		t.Errorf("got %+v", add)
	}
	if !strings.Contains(failed.Error.Msg, "8080 is already published by demo/web/eth0") || failed.Error.Details == "" || failed.Addresses != nil {
		t.Errorf("got %+v, %v", failed, failed.Error)
	}
	if chain.Pod != "default/web-1" || chain.TraceID != "0af7651916cd43dd8448eb211c80319c" || chain.SpanID != "b7ad6b7169203331" ||
		!slices.ContainsFunc(chain.Steps, func(s struct{ Step string }) bool { return strings.HasPrefix(s.Step, "bridge: ") }) {
		t.Errorf("got %+v", chain)
	}
	if text := o.host.MustRun(t, "cat", logFile); strings.Contains(text, "hunter2") {
		t.Errorf("the log has secrets:\n%s", text)
	}

	address, _, _ := strings.Cut(add.Addresses[0], "/")
	if h := o.log(address).Holders; len(h) != 1 || h[0].ContainerID != "web" || h[0].To == nil || !h[0].From.Equal(add.Time) {
		t.Errorf("who had %s: %+v", address, h)
	}
	still, _, _ := strings.Cut(chain.Addresses[0], "/")
	if printed := o.must("log", still); !strings.Contains(printed, "has it still") || !strings.Contains(printed, "default/web-1") {
		t.Errorf("who has %s:\n%s", still, printed)
	}
	o.log("web-1").expect(t, "ADD chain demo/chained")
	o.log(add.Interfaces[1].Name, "--verb", "DEL").expect(t, "DEL portmap demo/web", "DEL tuning demo/web", "DEL bridge demo/web")
	o.log("--errors", "-n", "1").expect(t, "DEL bridge /broken 6")

	o.must("log", "off")
	o.host.Exec(t, "bridge", broken("unseen"))
	if code, printed := o.cnictl("log"); code != 0 || strings.Contains(printed, "unseen") || !strings.Contains(printed, "web") || !strings.Contains(printed, "the log is off") {
		t.Errorf("turned off: exit code %d\n%s", code, printed)
	}
	o.must("log", "on")
	if n := len(o.log().Calls); n != len(l.Calls) {
		t.Errorf("on again it has %d calls, want %d", n, len(l.Calls))
	}
}

// TestLogFollow shows each call as it comes, from several callers at once and over rotations, after which the files are small.
func TestLogFollow(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.must("log", "on", "--size", "16kB")
	o.host.Exec(t, "bridge", broken("before"))
	cmd := o.host.Command(netlab.Cnictl(t), "log", "-f", "--json")
	cmd.Env = os.Environ()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	o.host.Background(t, cmd)
	lines := bufio.NewScanner(out)
	next := func() (c loggedCall) {
		t.Helper()
		if !lines.Scan() {
			t.Fatal("nothing comes: ", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatalf("%v\n%s", err, lines.Bytes())
		}
		return c
	}
	if c := next(); c.ContainerID != "before" {
		t.Errorf("first comes %s", c)
	}
	const callers, each = 4, 40
	want := map[string]bool{}
	var wait sync.WaitGroup
	for i := range callers {
		for j := range each {
			want[fmt.Sprintf("call%d.%d", i, j)] = true
		}
		wait.Go(func() {
			for j := range each {
				o.host.Exec(t, "bridge", broken(fmt.Sprintf("call%d.%d", i, j)))
			}
		})
	}
	for len(want) > 0 {
		c := next()
		if !want[c.ContainerID] {
			t.Fatalf("comes twice, or was not called: %s", c)
		}
		delete(want, c.ContainerID)
	}
	wait.Wait()
	sizes := o.host.MustRun(t, "find", logDir, "-type", "f", "-printf", "%f %m %s\n")
	var n int64
	for line := range strings.Lines(sizes) {
		var name, mode string
		var size int64
		if _, err := fmt.Sscan(line, &name, &mode, &size); err != nil || mode != "600" || size > 20<<10 {
			t.Errorf("%s: %v", line, err)
		}
		n++
	}
	if n != 2 {
		t.Errorf("files:\n%s", sizes)
	}
	if got := len(o.log().Calls); got < each || got > callers*each {
		t.Errorf("%d calls are kept", got)
	}
}
