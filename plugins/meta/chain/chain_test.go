package chain

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

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

func TestNoResultIsAnEmptyOne(t *testing.T) {
	l := newLab(t, "a")
	l.fails("ADD a", nil)
	result, err := l.run(t, context.Background(), plugin.Add, config("1.1.0", "", `[{"type": "a"}]`))
	if err != nil || result == nil {
		t.Errorf("ADD = %v, %v", result, err)
	}
}

// What is wrong is said before anything is called. The rows of chain have more.
func TestRefusals(t *testing.T) {
	tests := []struct {
		name, version, keys, list string
		code                      uint
		msg, details              string
		del                       string // what DEL calls all the same
	}{
		{"no list but an object", "1.1.0", "", `{"type": "a"}`, 7, `chain: key "plugins": want a list of objects, got an object`, "correct", ""},
		{"an entry of another type", "1.1.0", "", `[{"type": "a"}, "b"]`, 7, `chain: key "plugins[1]": want an object, got the string "b"`, "correct", "DEL a"},
		{"no type", "1.1.0", "", `[{"type": "a"}, {"typ": "b"}]`, 7, `chain: key "plugins[1].type": want the name of a plugin, got none`, `"type"`, "DEL a"},
		{"type of another type", "1.1.0", "", `[{"type": 7}, {"type": "a"}]`, 7, `chain: key "plugins[0].type": want a string, got the number 7`, "correct", "DEL a"},
		{"a path", "1.1.0", "", `[{"type": "a"}, {"type": "../b"}]`, 7, `chain: ../b: "../b" is no plugin's name`, "CNI_PATH", "DEL a"},
		{"missing", "1.1.0", "", `[{"type": "a"}, {"type": "lost"}, {"type": "b"}]`, 7, `chain: lost: plugin lost is not in CNI_PATH`, "install it", "DEL b, DEL a"},
		{"two missing", "1.1.0", "", `[{"type": "lost"}, {"type": "gone"}, {"type": "b"}]`, 7, "chain: gone: plugin gone is not in CNI_PATH", "", "DEL b"},
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
				l := newLab(t, "a", "b")
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
			l := newLab(t, "a", "b")
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
