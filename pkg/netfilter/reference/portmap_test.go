package reference

import (
	"testing"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestDelPortMaps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		before, then []string // containers that have rules; none: no tables
		hint         []string
		cache        []string
		noCache      bool
	}{
		{name: "the last one, addresses known", before: []string{"1=2"}, hint: []string{"10.88.0.2/24", "fd00::2/64"}},
		{name: "addresses known, another attachment", before: []string{"1=2", "1=3"}, hint: []string{"10.88.0.2/24", "fd00::2/64"}, then: []string{"1=3"}},
		{name: "addresses known, another container", before: []string{"2=2", "1=3"}, hint: []string{"10.88.0.2/24", "fd00::2/64"}, then: []string{"2=2", "1=3"}},
		{name: "addresses not known, own entry", before: []string{"1=2", "2=3"}, cache: []string{"a/1/eth0", "a/2/eth0"}, then: []string{"2=3"}},
		{name: "addresses not known, no entry", before: []string{"1=2", "2=3"}, cache: []string{"b/2/eth0"}, then: []string{"2=3"}},
		{name: "addresses not known, no cache", before: []string{"1=2", "2=3"}, noCache: true, then: []string{"2=3"}},
		{name: "addresses not known, another network", before: []string{"1=2"}, cache: []string{"a/1/eth0", "b/1/eth0"}, then: []string{"1=2"}},
		{name: "addresses not known, another interface", before: []string{"1=2"}, cache: []string{"a/1/eth0", "a/1/eth1"}, then: []string{"1=2"}},
		{name: "a name that looks like it", before: []string{"1=2"}, cache: []string{"a-1-b/3/eth0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			load(t, h, published(tt.before...))
			h.Do(func() {
				if !tt.noCache {
					cached(t, tt.cache...)
				}
				must(t, PortRules{request("a/1/eth0")}.Del(ctx, conn(t), prefixes(tt.hint...)))
			})
			same(t, h, published(tt.then...))
		})
	}
}

func TestGCPortMaps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                string
		before, valid, then []string
		cache               []string
		noCache             bool
	}{
		{name: "all", before: []string{"1=2", "2=3"}},
		{name: "a valid one", before: []string{"1=2", "2=3"}, valid: []string{"a/2/eth0"}, then: []string{"2=3"}},
		{name: "attached to another network", before: []string{"1=2", "2=3"}, cache: []string{"b/1/eth0"}, then: []string{"1=2"}},
		{name: "no cache", before: []string{"1=2"}, noCache: true, then: []string{"1=2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			load(t, h, published(tt.before...))
			h.Do(func() {
				if !tt.noCache {
					cached(t, tt.cache...)
				}
				r := valid("a", tt.valid...)
				must(t, held.GC(ctx, r, PortRules{r}))
			})
			same(t, h, published(tt.then...))
		})
	}
}

// TestUnreadableEntry: what can't be read may be about the container.
func TestUnreadableEntry(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"torn": `{"kind":"cniC`, "old": `{"cniVersion":"0.4.0"}`, "empty": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			load(t, h, published("1=2"))
			h.Do(func() {
				cached(t)
				write(t, "b-1-eth0", text)
				must(t, PortRules{request("a/1/eth0")}.Del(ctx, conn(t), nil))
			})
			same(t, h, published("1=2"))
		})
	}
}

// TestForeignPortRulesStay: what is not of portmap's form is somebody else's.
func TestForeignPortRulesStay(t *testing.T) {
	t.Parallel()
	const foreign = `table ip cni_hostport { chain hostports { tcp dport 81 accept comment "1"; tcp dport 82 dnat to 10.88.0.2:80; }` + "\n}"
	h := netlab.NewHost(t)
	load(t, h, published("1=2")+foreign)
	h.Do(func() {
		cached(t)
		r := valid("a")
		must(t, held.GC(ctx, r, PortRules{r}))
	})
	same(t, h, published()+foreign)
}

// TestIncompleteTables: without snat there is no chain for it, and without IPv6 no table.
func TestIncompleteTables(t *testing.T) {
	t.Parallel()
	const empty = "table ip cni_hostport { chain hostports { }\n}"
	h := netlab.NewHost(t)
	load(t, h, empty)
	h.MustRun(t, "nft", "add", "rule", "ip", "cni_hostport", "hostports", "tcp", "dport", "80", "dnat", "to", "10.88.0.2:80", "comment", `"1"`)
	h.MustRun(t, "nft", "add", "table", "bridge", "nat")
	h.Do(func() {
		must(t, PortRules{request("a/1/eth0")}.Del(ctx, conn(t), prefixes("10.88.0.2/24")))
		must(t, SpoofChains{request("a/1/eth0")}.Del(ctx, conn(t), nil))
	})
	same(t, h, empty+"\ntable bridge nat { }")
}
