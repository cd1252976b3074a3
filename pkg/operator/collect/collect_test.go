package collect

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	cni "github.com/containernetworking/cni/pkg/version"

	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/node/containers"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
	"github.com/cnibox/cnibox/test/netlab"
)

// fake is a plugin, and its store, that holds what a test says.
type fake struct {
	plugin.Plugin
	held     [][]plugin.Held // at each look; the last one again
	err      error
	released *[]string // by all fakes, in order
	refuses  error
}

func (f *fake) Stores(*plugin.Request) []plugin.Store { return []plugin.Store{f} }

func (f *fake) Held(context.Context, string) (list []plugin.Held, err error) {
	if len(f.held) > 0 {
		list = f.held[0]
	}
	if len(f.held) > 1 {
		f.held = f.held[1:]
	}
	return slices.Clone(list), f.err
}

func (f *fake) Release(_ context.Context, list []plugin.Held) error {
	for _, h := range list {
		*f.released = append(*f.released, h.What)
	}
	return f.refuses
}

// calls is what libcni calls plugins with: it notes how.
type calls struct {
	*cni.PluginDecoder
	made *[]string
	do   func() error // what a plugin does
}

func (calls) FindInPath(name string, _ []string) (string, error) { return name, nil }

func (c calls) ExecPlugin(_ context.Context, path string, _ []byte, environ []string) ([]byte, error) {
	var texts []string
	for _, key := range []string{"CNI_COMMAND", "CNI_CONTAINERID"} {
		for _, pair := range environ {
			if value, ok := strings.CutPrefix(pair, key+"="); ok {
				texts = append(texts, value)
			}
		}
	}
	*c.made = append(*c.made, strings.Join(append(texts, path), " "))
	return nil, c.do()
}

// bench is a node with the network net, and two plugins: main and ipam.
type bench struct {
	*testing.T
	Options
	main, ipam *fake
	cache      string
	released   []string
	made       []string     // calls of plugins
	do         func() error // what they do
}

// TestMain gives the tests processes and namespaces of their own: a plan looks at all of the machine's.
func TestMain(m *testing.M) { netlab.Main(m) }

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{T: t, cache: filepath.Join(dir, "cache")}
	b.main, b.ipam = &fake{released: &b.released}, &fake{released: &b.released}
	b.Options.Options = node.Options{ConfDir: dir, Notes: presence.Notes(filepath.Join(dir, "notes")), Plugins: plugin.Table{{Name: "ipam", Kind: plugin.IPAM, Plugin: b.ipam}, {Name: "main", Kind: plugin.Main, Plugin: b.main}}}
	b.do = func() error { return nil }
	b.Exec = func(string) invoke.Exec { return calls{made: &b.made, do: b.do} }
	known := node.CacheDirs
	node.CacheDirs = []string{b.cache}
	t.Cleanup(func() { node.CacheDirs = known })
	b.write(dir, "10-net.conflist", `{"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "main"}]}`)
	return b
}

func (b *bench) write(dir, name, text string) {
	b.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
		b.Fatal(err)
	}
}

// old is when attachments were made that are not young.
var old = time.Now().Add(-time.Hour)

// result writes a result of libcni for an attachment whose namespace is gone.
func (b *bench) result(k plugin.Key) {
	b.Helper()
	b.write(b.cache+"/results", filepath.Base(node.PathOf("/", k)), fmt.Sprintf(`{"kind": "cniCacheV1", "containerId": %q, "ifName": %q, "networkName": %q, "netns": "/proc/0/ns/net", "config": %q, "result": {}}`,
		k.ContainerID, k.IfName, k.Network, base64.StdEncoding.EncodeToString([]byte(`{"cniVersion": "1.1.0", "name": "`+k.Network+`", "plugins": [{"type": "main"}]}`))))
	if err := os.Chtimes(node.PathOf(b.cache, k), old, old); err != nil {
		b.Fatal(err)
	}
}

// begin notes the namespace of an attachment that lives, as an ADD does first. It is our own.
func (b *bench) begin(k plugin.Key) {
	b.Helper()
	const own = "/proc/self/ns/net"
	pair := netns.NewPair(own, true)
	defer pair.Close()
	if _, err := b.Notes.Write(k, own, pair, true); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) plan() *Report {
	b.Helper()
	return Plan(b.Context(), node.Read(b.Context(), b.Options.Options), b.Options)
}

func of(id string) plugin.Key {
	return plugin.Key{Network: "net", ContainerID: id, IfName: "eth0"}
}

func address(k plugin.Key, text string, since time.Time) plugin.Held {
	return plugin.Held{Key: k, What: "address " + text, Own: lease.Lease{Address: netip.MustParseAddr(text), Owner: k}, Since: since}
}

// summary says what becomes of each attachment and thing, and how many stops there are.
func summary(r *Report) string {
	var texts []string
	for _, it := range r.Goes {
		name := it.Owner
		if name == "" {
			name = it.Held[0].What
		}
		texts = append(texts, "+"+name)
	}
	for _, s := range r.Stays {
		name := s.Owner
		if s.What != "" {
			name = s.What
		}
		texts = append(texts, "-"+name)
	}
	slices.Sort(texts)
	return fmt.Sprintf("%s stops %d", strings.Join(texts, " "), len(r.Stops))
}

func (b *bench) expect(r *Report, want string, whys ...string) {
	b.Helper()
	text, err := json.Marshal(r)
	if got := summary(r); got != want {
		b.Errorf("%s, want %s: %s", got, want, text)
	}
	for _, why := range whys {
		if err != nil || !strings.Contains(string(text), why) {
			b.Errorf("%v: %q is not in %s", err, why, text)
		}
	}
}

// podman is a runtime that says that a container runs.
func (b *bench) podman(id string) {
	b.Helper()
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "sock"))
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `[{"Id": %q, "State": "running"}]`, id) })}
	go func() { _ = server.Serve(l) }()
	b.Cleanup(func() { _ = server.Close() })
	b.Runtimes = []containers.Runtime{containers.Podman(l.Addr().String())}
}
