package log

import (
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// now is when the calls of these tests begin; each comes a minute after the one before it.
var now = time.Date(2026, 11, 17, 9, 0, 0, 0, time.UTC)

func history() []calllog.Call {
	web := plugin.Key{Network: "demo", ContainerID: "c0ffee01", IfName: "eth0"}
	db := plugin.Key{Network: "other", ContainerID: "c0ffee02", IfName: "net1"}
	all := []calllog.Call{
		{Verb: "ADD", Key: web, Pod: "default/web-1", Addresses: []string{"10.88.0.7/24"}, Interfaces: []calllog.Interface{{Name: "veth1234", MAC: "0a:58:0a:58:00:07"}}},
		{Verb: "ADD", Key: db, Addresses: []string{"fd00:88::7/64"}},
		{Verb: "ADD", Key: db, Error: &types.Error{Code: 7}},
		{Verb: "DEL", Key: web, Pod: "default/web-1"},
		{Verb: "GC", Key: plugin.Key{Network: "demo"}},
	}
	for i := range all {
		all[i].Plugin, all[i].PID, all[i].Time = "bridge", i, now.Add(time.Duration(i)*time.Minute)
	}
	return all
}

func TestFilter(t *testing.T) {
	tests := []struct {
		name   string
		filter Filter
		want   string // the numbers of the calls
	}{
		{"all", Filter{}, "01234"},
		{"container id", Filter{Name: "c0ffee01"}, "03"},
		{"beginning of several", Filter{Name: "c0"}, "0123"},
		{"end of a container id", Filter{Name: "ffee01"}, ""},
		{"pod", Filter{Name: "web-1"}, "03"},
		{"pod and namespace", Filter{Name: "default/web-1"}, "03"},
		{"another namespace", Filter{Name: "other/web-1"}, ""},
		{"end of a pod", Filter{Name: "eb-1"}, ""},
		{"container's interface", Filter{Name: "net1"}, "12"},
		{"host end, which a DEL does not name", Filter{Name: "veth1234"}, "03"},
		{"MAC", Filter{Name: "0A:58:0a:58:00:07"}, "03"},
		{"address", Filter{Name: "10.88.0.7"}, "03"},
		{"IPv6 address", Filter{Name: "FD00:88:0::7"}, "12"},
		{"address in part", Filter{Name: "10.88.0.70"}, ""},
		{"nobody", Filter{Name: "none"}, ""},
		{"verb", Filter{Verb: "add"}, "012"},
		{"network", Filter{Network: "demo"}, "034"},
		{"errors", Filter{Errors: true}, "2"},
		{"since", Filter{Since: now.Add(3 * time.Minute)}, "34"},
		{"until", Filter{Until: now.Add(time.Minute)}, "01"},
		{"address of before", Filter{Name: "10.88.0.7", Since: now.Add(2 * time.Minute)}, "3"},
		{"all at once", Filter{Name: "c0ffee", Network: "other", Verb: "ADD", Since: now, Until: now.Add(time.Minute)}, "1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			for _, c := range tt.filter.Apply(history()) {
				got += string(rune('0' + c.PID))
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// What comes later is recognized by what came before.
func TestFilterRemembers(t *testing.T) {
	f, all := Filter{Name: "10.88.0.7"}, history()
	if got := f.Apply(all[:2]); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	if got := f.Apply(history()[3:]); len(got) != 1 || got[0].Verb != "DEL" {
		t.Errorf("got %v", got)
	}
}

func TestHolders(t *testing.T) {
	tests := []struct {
		name   string
		filter Filter
		want   int
	}{
		{"all", Filter{}, 1},
		{"another network", Filter{Network: "other"}, 0},
		{"while it had it", Filter{Since: now.Add(time.Minute), Until: now.Add(2 * time.Minute)}, 1},
		{"before", Filter{Until: now.Add(-time.Minute)}, 0},
		{"after", Filter{Since: now.Add(4 * time.Minute)}, 0},
	}
	for _, tt := range tests {
		tt.filter.Name = "10.88.0.7"
		if got := tt.filter.Holders(history()); len(got) != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
	still := Filter{Name: "fd00:88::7", Since: now.Add(time.Hour)}
	if got := still.Holders(history()); len(got) != 1 {
		t.Errorf("who has it still: %v", got)
	}
}

func TestParseTime(t *testing.T) {
	here := time.FixedZone("", 2*3600)
	at := now.In(here)
	tests := []struct{ text, want string }{
		{"2h", "2026-11-17T09:00:00+02:00"},
		{"1h30m", "2026-11-17T09:30:00+02:00"},
		{"2026-11-16", "2026-11-16T00:00:00+02:00"},
		{"2026-11-16 14:30", "2026-11-16T14:30:00+02:00"},
		{"2026-11-16 14:30:15", "2026-11-16T14:30:15+02:00"},
		{"2026-11-16T14:30:15Z", "2026-11-16T14:30:15Z"},
		{"2026-11-16T14:30:15-05:00", "2026-11-16T14:30:15-05:00"},
		{"Tuesday", ""},
		{"14:30", ""},
		{"2026-11-31", ""},
	}
	for _, tt := range tests {
		got, err := ParseTime(tt.text, at)
		if tt.want == "" {
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: got %v, %v", tt.text, got, err)
			}
			continue
		}
		if want, _ := time.Parse(time.RFC3339, tt.want); err != nil || !got.Equal(want) {
			t.Errorf("%s: got %v, %v; want %s", tt.text, got, err, tt.want)
		}
	}
}
