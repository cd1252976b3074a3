package etcd

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// TestReleaseInACut: the cluster goes away after GC has listed what is held. GC waits for it once, and not for each attachment: it has begun with one alone.
func TestReleaseInACut(t *testing.T) {
	config, err := conf.Parse(fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "lan", "ipam": {"type": "etcd", "dataDir": %q,
		"etcd": {"endpoints": ["http://127.0.0.1:1"], "timeoutSeconds": 1, "host": "node1"}, "ranges": [[{"subnet": "10.0.0.0/24"}]]}}`, filepath.Join(t.TempDir(), "etcd")))
	if err != nil {
		t.Fatal(err)
	}
	s := store{&plugin.Request{Key: plugin.Key{Network: "lan"}, Config: config}}
	var list []plugin.Held
	for _, id := range []string{"one", "two", "three"} {
		list = append(list, plugin.Held{Key: plugin.Key{Network: "lan", ContainerID: id, IfName: "eth0"}})
	}
	err = s.Release(t.Context(), list)
	if code := plugin.AsError(err).Code; err == nil || code != 11 {
		t.Errorf("code %d: %v", code, err)
	}
	p, err := open(t.Context(), s.request)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if begun, err := p.Keys("lan", "open"); err != nil || len(begun) != 1 || begun[0] != list[0].Key {
		t.Errorf("begun with %v, %v", begun, err)
	}
}
