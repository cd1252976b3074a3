package collect

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
)

func TestPlanAsksRuntimes(t *testing.T) {
	b := newBench(t)
	b.result(of("gone"))
	b.result(of("runs"))
	b.ipam.held = [][]plugin.Held{{address(of("lost"), "10.1.0.9", old)}}
	b.expect(b.plan(), "+net/gone/eth0 +net/runs/eth0 -net/lost/eth0 stops 0", "libcni has no result of its last ADD")
	b.AllValid = true
	b.expect(b.plan(), "+net/gone/eth0 +net/lost/eth0 +net/runs/eth0 stops 0")
	b.main.held = [][]plugin.Held{{{Key: of("ageless"), What: "rule"}}} // which may be an ADD under way
	b.expect(b.plan(), "+net/gone/eth0 +net/lost/eth0 +net/runs/eth0 -net/ageless/eth0 stops 0")
	b.main.held = nil
	b.podman("lost")
	b.expect(b.plan(), "+net/gone/eth0 +net/runs/eth0 -net/lost/eth0 stops 0", "podman says that it runs")
	b.podman("runs")
	b.Valid = []types.GCAttachment{{ContainerID: "lost", IfName: "eth0"}}
	b.expect(b.plan(), "+net/gone/eth0 -net/lost/eth0 -net/runs/eth0 stops 0")
}

func TestPlanStopsWhereNotAllIsKnown(t *testing.T) {
	for name, breaks := range map[string]func(b *bench){
		"a store": func(b *bench) { b.main.err = errors.New("it is not whole") },
		"a cache": func(b *bench) {
			dir := filepath.Join(b.TempDir(), "second")
			b.write(dir, "results", "no directory")
			b.CacheDirs = []string{dir}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.result(of("gone"))
			b.expect(b.plan(), "+net/gone/eth0 stops 0")
			breaks(b)
			b.expect(b.plan(), "-net/gone/eth0 stops 1", "it is not known what is in use")
			b.Network = "net"
			b.expect(b.plan(), "-net/gone/eth0 stops 1")
		})
	}
}

// What changes while it is read is no reason to stop.
func TestPlanWhileThingsChange(t *testing.T) {
	b := newBench(t)
	b.result(of("gone"))
	b.ipam.held = [][]plugin.Held{{address(of("deleted"), "10.1.0.9", old)}, nil}
	b.expect(b.plan(), "+net/gone/eth0 stops 0")
	b.main.held = [][]plugin.Held{{{Key: of("a"), What: "rule"}}, {{Key: of("added"), What: "rule"}}}
	b.expect(b.plan(), "+net/gone/eth0 -net/added/eth0 stops 0")
}

// notes is a store of which others have removed what it has made.
type notes struct{ *fake }

func (n *notes) Stores(*plugin.Request) []plugin.Store { return []plugin.Store{n} }

func (n *notes) IsNote(_ context.Context, h plugin.Held) (bool, error) {
	if h.Key.ContainerID == "unread" {
		return false, errors.New("it can't be read")
	}
	return h.What == "note", nil
}

// What has notes alone is not in use.
func TestPlanOfNotes(t *testing.T) {
	b := newBench(t)
	b.Plugins[1].Plugin = &notes{b.main}
	b.main.held = [][]plugin.Held{{{Key: of("gone"), What: "note"}, {Key: of("used"), What: "note"}, {Key: of("there"), What: "note"}, {Key: of("there"), What: "rule"},
		{Key: of("unread"), What: "note"}}}
	b.ipam.held = [][]plugin.Held{{address(of("used"), "10.1.0.9", old)}}
	b.expect(b.plan(), "+net/gone/eth0 -net/there/eth0 -net/unread/eth0 -net/used/eth0 stops 0")
	b.ipam.held, b.main.held = nil, [][]plugin.Held{{{Key: of("gone"), What: "note"}}}
	b.expect(b.plan(), "+net/gone/eth0 stops 0", "others have removed what it had")
}

// A long key is cut, and may not say all of the network's name.
func TestPlanOfCutKeys(t *testing.T) {
	long := strings.Repeat("n", 120)
	b := newBench(t)
	b.result(of("gone"))
	b.result(plugin.Key{Network: long, ContainerID: "gone", IfName: "eth0"})
	b.result(plugin.Key{Network: long + "x", ContainerID: "gone", IfName: "eth0"})
	k := plugin.Key{Network: long, ContainerID: strings.Repeat("c", 60), IfName: "eth0"}
	b.main.held = [][]plugin.Held{{{Owner: k.String(), What: "rule"}}}
	r := b.plan()
	if len(r.Goes) != 3 || len(r.Stops) != 0 {
		t.Error(summary(r))
	}
	b.Network = "net"
	b.expect(b.plan(), "+net/gone/eth0 stops 0")
	b.Network, b.Valid = long, []types.GCAttachment{{ContainerID: k.ContainerID, IfName: "eth0"}}
	if r := b.plan(); len(r.Goes) != 1 || r.Goes[0].Network != long || len(r.Stops) != 0 {
		t.Error(summary(r))
	}
}

func TestPlanOfWhatDoesNotSayWhose(t *testing.T) {
	b := newBench(t)
	b.ipam.held = [][]plugin.Held{{address(plugin.Key{Network: "net"}, "10.1.0.8", old), address(plugin.Key{Network: "net"}, "10.1.0.9", time.Now())}}
	b.main.held = [][]plugin.Held{{{Key: plugin.Key{ContainerID: "old"}, What: "port"}, {MayBe: []string{"one", "one_two"}, What: "backup"}, {Key: plugin.Key{Network: "other"}, What: "guard"}}}
	b.expect(b.plan(), "+address 10.1.0.8 +guard -address 10.1.0.9 -backup -port stops 0", "no cache has a result of its container", "and not a minute old: an ADD may be under way")
	b.AllValid, b.Valid = true, []types.GCAttachment{{ContainerID: "another", IfName: "eth0"}} // how old they are is not known
	b.expect(b.plan(), "+address 10.1.0.8 +guard -address 10.1.0.9 -backup -port stops 0")
	b.Valid = nil
	b.expect(b.plan(), "+address 10.1.0.8 +backup +guard +port -address 10.1.0.9 stops 0")
	b.Network = "net"
	b.expect(b.plan(), "+address 10.1.0.8 -address 10.1.0.9 stops 0")
}
