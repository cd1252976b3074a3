package held

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// list is a store that forgets what is released.
type list []plugin.Held

func (l *list) Held(context.Context, string) ([]plugin.Held, error) { return slices.Clone(*l), nil }

func (l *list) Release(_ context.Context, released []plugin.Held) error {
	for _, r := range released {
		for i, h := range *l {
			if h.What == r.What {
				*l = append((*l)[:i:i], (*l)[i+1:]...)
				break
			}
		}
	}
	return nil
}

func TestGC(t *testing.T) {
	cache := t.TempDir()
	if err := os.WriteFile(filepath.Join(cache, "other-elsewhere-eth0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	live, dead := plugin.Key{Network: "net", ContainerID: "live", IfName: "eth0"}, plugin.Key{Network: "net", ContainerID: "dead", IfName: "eth0"}
	held := map[string]struct {
		plugin.Held
		stays string // with and without libcni's results
	}{
		"valid":                                    {plugin.Held{Key: live}, "both"},
		"stale":                                    {plugin.Held{Key: dead}, "none"},
		"valid, by the key's text":                 {plugin.Held{Key: plugin.Key{Network: "net"}, Owner: live.String()}, "both"},
		"stale, by the key's text":                 {plugin.Held{Key: plugin.Key{Network: "net"}, Owner: dead.String()}, "none"},
		"another interface of a valid container":   {plugin.Held{Key: plugin.Key{Network: "net", ContainerID: "live", IfName: "eth1"}}, "none"},
		"a valid container's":                      {plugin.Held{Key: plugin.Key{Network: "net", ContainerID: "live"}}, "both"},
		"a stale container's":                      {plugin.Held{Key: plugin.Key{Network: "net", ContainerID: "dead"}}, "none"},
		"nobody's":                                 {plugin.Held{Key: plugin.Key{Network: "net"}}, "none"},
		"another network's":                        {plugin.Held{Key: plugin.Key{Network: "other", ContainerID: "dead", IfName: "eth0"}}, "both"},
		"network unknown, of a valid container":    {plugin.Held{Key: plugin.Key{ContainerID: "live", IfName: "eth0"}}, "both"},
		"network unknown, of a stale container":    {plugin.Held{Key: plugin.Key{ContainerID: "dead", IfName: "eth0"}}, "without"},
		"network unknown, of another network":      {plugin.Held{Key: plugin.Key{ContainerID: "elsewhere", IfName: "eth0"}}, "both"},
		"network unknown, of stale containers":     {plugin.Held{MayBe: []string{"dead", "gone"}}, "without"},
		"network unknown, of one that is valid":    {plugin.Held{MayBe: []string{"dead", "live"}}, "both"},
		"network unknown, of one of another":       {plugin.Held{MayBe: []string{"dead", "elsewhere"}}, "both"},
		"nothing known but that it is not a valid": {plugin.Held{Owner: "cut~0123456789abcdef/eth0"}, "both"},
	}
	for _, results := range []string{"with", "without", "with unreadable"} {
		var store list
		for what, h := range held {
			h.What = what
			store = append(store, h.Held)
		}
		r := &plugin.Request{Key: plugin.Key{Network: "net"}, Valid: []plugin.Key{{Network: "net", ContainerID: "live", IfName: "eth0"}}, Results: cache}
		switch results {
		case "without":
			r.Results += "/none"
		case "with unreadable":
			r.Results += "/other-elsewhere-eth0" // a file
		}
		if err := GC(t.Context(), r, &store); (err != nil) != (results == "with unreadable") {
			t.Fatal(err)
		}
		left := map[string]bool{}
		for _, h := range store {
			left[h.What] = true
		}
		for what, h := range held {
			if stays := h.stays == "both" || h.stays == "without" && results != "with"; stays != left[what] {
				t.Errorf("%s results: %s: left %v, want %v", results, what, left[what], stays)
			}
		}
	}
}

func TestAlias(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, k := range []plugin.Key{
		{Network: "net", ContainerID: "id", IfName: "eth0"}, {Network: "net", ContainerID: long, IfName: "eth~0"},
		{Network: "net", ContainerID: long + long, IfName: "eth0"}, {Network: long + long, ContainerID: "id", IfName: "eth0"},
	} {
		l := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Alias: Alias(k)}}
		if owner := OwnerOf(l); owner != k.String() {
			t.Errorf("%v: %q", k, owner)
		}
		if _, hash := readAlias(l); len(k.String()) == plugin.MaxKeyText && hash != networkHash(k.Network) {
			t.Errorf("%v: the network's hash is %q", k, hash)
		}
	}
	if owner := OwnerOf(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Alias: "uplink"}}); owner != "" {
		t.Errorf("an alias of somebody else: %q", owner)
	}
}
