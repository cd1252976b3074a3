package node

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// fake is an IPAM plugin that holds what a test says, from a pool of 254 addresses.
type fake struct {
	plugin.Plugin
	held  []plugin.Held
	valid []plugin.Key // that it was told of
}

func (f *fake) Stores(r *plugin.Request) []plugin.Store {
	f.valid = r.Valid
	return []plugin.Store{f}
}

func (f *fake) Held(context.Context, string) ([]plugin.Held, error) { return f.held, nil }

func (f *fake) Release(context.Context, []plugin.Held) error { return nil }

func (f *fake) Pools(*conf.Object) ([]ranges.Pool, error) {
	subnet := netip.MustParsePrefix("10.1.0.0/24")
	return []ranges.Pool{{Ranges: []ranges.Range{{Subnet: subnet, First: netip.MustParseAddr("10.1.0.1"), Last: netip.MustParseAddr("10.1.0.254")}}}}, nil
}

func address(of plugin.Key, text string) plugin.Held {
	return plugin.Held{Key: of, What: "address " + text, Own: lease.Lease{Address: netip.MustParseAddr(text), Owner: of}, Since: time.Unix(1000, 0)}
}

// laboratory is a node with one network and one cache.
func laboratory(t *testing.T) (o Options, cache string) {
	t.Helper()
	dir := t.TempDir()
	cache = filepath.Join(dir, "cache")
	write(t, dir, "10-net.conflist", `{"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "fake", "ipam": {"type": "fake"}}]}`)
	write(t, dir, "20-torn.conflist", `{"cniVersion": "1.1`)
	known := CacheDirs
	CacheDirs = []string{cache, filepath.Join(dir, "none")}
	t.Cleanup(func() { CacheDirs = known })
	return Options{ConfDir: dir}, cache
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// cached writes a result as libcni does.
func cached(t *testing.T, cache string, k plugin.Key, netns string) {
	t.Helper()
	config := base64.StdEncoding.EncodeToString([]byte(`{"plugins": [{"type": "fake", "master": "eth7", "ingressRate": 8000, "capabilities": {"portMappings": true}}]}`))
	write(t, cache+"/results", k.Network+"-"+k.ContainerID+"-"+k.IfName, fmt.Sprintf(`{"kind": "cniCacheV1", "containerId": %q, "ifName": %q,
		"networkName": %q, "netns": %q, "config": %q, "cniArgs": [["K8S_POD_NAMESPACE", "shop"], ["K8S_POD_NAME", "web-0"]],
		"capabilityArgs": {"portMappings": [{"hostPort": 8080, "containerPort": 80}, {"containerPort": 81}], "bandwidth": {"ingressRate": 9000}},
		"result": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:09", "sandbox": %q}], "ips": [{"interface": 0, "address": "10.1.0.9/24", "gateway": "10.1.0.1"}]}}`,
		k.ContainerID, k.IfName, k.Network, netns, config, netns))
}

// TestFind is about names that are none of an attachment. The script show of test/operator has those that are.
func TestFind(t *testing.T) {
	n := &Node{Attachments: []*Attachment{{Network: "net", ContainerID: "gone", IfName: "eth0", Owner: "net/gone/eth0",
		Ports: []Port{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}}}}}
	for name, by := range map[string]string{"gon": "container", "go": "", "8080/tcp": "port", "tcp/8080": "port", "8080/udp": "", "10.1.0.99": "", "0": "", "": ""} {
		found := ""
		for _, m := range n.Find(name) {
			found = m.By
		}
		if found != by {
			t.Errorf("%q: found by %q, want %q", name, found, by)
		}
	}
}

func TestNewerResultCounts(t *testing.T) {
	o, cache := laboratory(t)
	k := plugin.Key{Network: "net", ContainerID: "twice", IfName: "eth0"}
	second := filepath.Join(filepath.Dir(cache), "second")
	cached(t, cache, k, "/run/netns/old")
	cached(t, second, k, "/run/netns/new")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(PathOf(cache, k), old, old); err != nil {
		t.Fatal(err)
	}
	o.CacheDirs = []string{second + "/"}
	a := Read(t.Context(), o).Attachment(k)
	if a == nil || a.Netns != "/run/netns/new" || len(a.Others) != 1 {
		t.Errorf("%+v", a)
	}
}

// TestUnreadIsOfTheSecondLook: a file that was written while plugins were asked is read.
func TestUnreadIsOfTheSecondLook(t *testing.T) {
	o, cache := laboratory(t)
	k := plugin.Key{Network: "net", ContainerID: "new", IfName: "eth0"}
	file := k.Network + "-" + k.ContainerID + "-" + k.IfName
	write(t, cache+"/results", file, `{"kind": "cniCac`)
	store := &slow{fake: fake{held: []plugin.Held{address(k, "10.1.0.9")}}, meanwhile: func() { cached(t, cache, k, "/proc/0/ns/net") }}
	o.Plugins = plugin.Table{{Name: "fake", Kind: plugin.IPAM, Plugin: store}}
	n := Read(t.Context(), o)
	if a := n.Attachment(k); a == nil || a.Result == nil {
		t.Errorf("%+v", a)
	}
	for _, u := range n.Unread {
		if u.What == filepath.Join(cache, "results", file) {
			t.Error(u)
		}
	}
}

// TestResultThatChanges: a result that is written anew while plugins are asked is read again.
func TestResultThatChanges(t *testing.T) {
	o, cache := laboratory(t)
	k := plugin.Key{Network: "net", ContainerID: "again", IfName: "eth0"}
	cached(t, cache, k, "/run/netns/old")
	store := &slow{fake: fake{held: []plugin.Held{address(k, "10.1.0.9")}}, meanwhile: func() { cached(t, cache, k, "/run/netns/newer") }}
	o.Plugins = plugin.Table{{Name: "fake", Kind: plugin.IPAM, Plugin: store}}
	if a := Read(t.Context(), o).Attachment(k); a.Netns != "/run/netns/newer" {
		t.Errorf("%+v", a)
	}
}

func TestLimits(t *testing.T) {
	for want, l := range map[string]Limits{
		"receives at most 8 Mbit/s, sends at most 1.5 kbit/s": {8e6, 1500}, "sends at most 2.25 Gbit/s": {0, 2250e6}, "receives at most 12 bit/s": {IngressRate: 12}, "": {},
	} {
		if got := l.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// slow is a fake in which something happens while it is asked.
type slow struct {
	fake
	meanwhile func()
}

func (s *slow) Stores(*plugin.Request) []plugin.Store { return []plugin.Store{s} }

func (s *slow) Held(ctx context.Context, network string) ([]plugin.Held, error) {
	s.meanwhile()
	return s.fake.Held(ctx, network)
}

// TestKeysOfWhatIsHeld: a key that was cut is known in full when something else says it, and plugins are told of whom libcni has results.
func TestKeysOfWhatIsHeld(t *testing.T) {
	o, cache := laboratory(t)
	known, long := plugin.Key{Network: "net", ContainerID: "known", IfName: "eth0"}, plugin.Key{Network: "net", ContainerID: strings.Repeat("id", 80), IfName: "eth0"}
	cached(t, cache, known, "/proc/0/ns/net")
	store := &fake{held: []plugin.Held{{Owner: long.String(), What: "link"}, address(long, "10.1.0.9")}}
	o.Plugins = plugin.Table{{Name: "fake", Kind: plugin.IPAM, Plugin: store}}
	n := Read(t.Context(), o)
	if a := n.Attachment(long); a == nil || a.Key() != long || len(a.Held) != 2 {
		t.Errorf("%+v", a)
	}
	if !slices.Contains(store.valid, known) {
		t.Errorf("plugins are told of %v", store.valid)
	}
	if !slices.Contains(n.Stores, plugin.Store(store)) {
		t.Error("the store is not listed")
	}
}

// TestHolder: what several plugins list is held by the one that the attachment has.
func TestHolder(t *testing.T) {
	o, cache := laboratory(t)
	k := plugin.Key{Network: "net", ContainerID: "id", IfName: "eth0"}
	cached(t, cache, k, "/proc/0/ns/net")
	store := &fake{held: []plugin.Held{address(k, "10.1.0.9")}}
	o.Plugins = plugin.Table{{Name: "first", Kind: plugin.IPAM, Plugin: store}, {Name: "fake", Kind: plugin.IPAM, Plugin: store}}
	if held := Read(t.Context(), o).Attachment(k).Held; len(held) != 1 || held[0].Plugin != "fake" {
		t.Errorf("%+v", held)
	}
}

// libcni before 1.2, which containerd 1.6 and podman 4 have, does not write down where the network namespace is.
func TestResultOfOldLibcni(t *testing.T) {
	o, cache := laboratory(t)
	k := plugin.Key{Network: "net", ContainerID: "old", IfName: "eth0"}
	cached(t, cache, k, "/proc/0/ns/net")
	path := PathOf(cache, k)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cache+"/results", filepath.Base(path), strings.Replace(string(text), `"netns": "/proc/0/ns/net"`, `"other": ""`, 1))
	if a := Read(t.Context(), o).Attachment(k); a.Netns != "/proc/0/ns/net" || a.State != Gone {
		t.Errorf("%+v", a)
	}
}

func TestPool(t *testing.T) {
	for used, want := range map[uint64]string{0: "ok", 79: "ok", 80: "weak", 94: "weak", 95: "bad", 100: "bad"} {
		if p := (&Pool{Size: 100, Used: used}); p.Level() != want || p.Percent() != int(used) {
			t.Errorf("%d of 100: %s, %d percent", used, p.Level(), p.Percent())
		}
	}
	for size, want := range map[uint64]string{253: "253", 1<<48 - 2: "2^48", math.MaxUint64: "2^64"} {
		if p := (&Pool{Size: size}); p.SizeText() != want {
			t.Errorf("%d: %s", size, p.SizeText())
		}
	}
	if p := (&Pool{}); p.Level() != "bad" {
		t.Error("a pool without addresses has some")
	}
}
