package reference

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/test/netlab"
)

// referenceRules is what the reference plugin makes for a container.
func referenceRules(name, hostEnd string) string {
	return strings.NewReplacer("NAME", name, "END", hostEnd).Replace(`
add table bridge nat
add chain bridge nat PREROUTING { type filter hook prerouting priority -300; policy accept; }
add chain bridge nat cni-br-iface-NAME
add chain bridge nat cni-br-iface-NAME-mac
add rule bridge nat PREROUTING iifname "END" jump cni-br-iface-NAME comment "macspoofchk-NAME"
add rule bridge nat cni-br-iface-NAME jump cni-br-iface-NAME-mac comment "macspoofchk-NAME"
add rule bridge nat cni-br-iface-NAME-mac ether saddr 02:00:00:00:00:01 return comment "macspoofchk-NAME"
add rule bridge nat cni-br-iface-NAME-mac drop comment "macspoofchk-NAME"
`)
}

func TestDelSpoofCheck(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	h.Feed(t, referenceRules("a-eth0", "veth1"), "nft", "-f", "-")
	h.Feed(t, referenceRules("b-eth0", "veth2"), "nft", "-f", "-")
	h.MustRun(t, "nft", `add rule bridge nat PREROUTING iifname "veth1" jump cni-br-iface-a-eth0 comment "macspoofchk-a-eth0"`) // a repeated ADD's
	must(t, on(t, h, func(c *nft.Conn) error {
		if !(SpoofChains{}).IsThere(c, key("net/a/eth0")) {
			t.Error("not found")
		}
		return nil
	}))
	must(t, on(t, h, func(c *nft.Conn) error { return SpoofChains{request("net/a/eth0")}.Del(ctx, c, nil) }))
	if got := h.MustRun(t, "nft", "list", "ruleset"); strings.Contains(got, "a-eth0") || strings.Count(got, "b-eth0") != 8 {
		t.Errorf("after DEL of a:\n%s", got)
	}
	must(t, on(t, h, func(c *nft.Conn) error { return SpoofChains{request("net/b/eth0")}.Del(ctx, c, nil) }))
	if got := h.MustRun(t, "nft", "list", "ruleset"); strings.Contains(got, "cni-br") {
		t.Errorf("after the last DEL:\n%s", got)
	}
}

// TestDelSpoofCheckLeavesOthers keeps what is not the reference plugin's.
func TestDelSpoofCheckLeavesOthers(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]string{
		"a rule":   "add rule bridge nat PREROUTING counter",
		"a chain":  "add chain bridge nat other",
		"a policy": "add chain bridge nat PREROUTING { policy drop; }",
		"a set":    "add set bridge nat other { type ether_addr; }",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			h.Feed(t, referenceRules("a-eth0", "veth1"), "nft", "-f", "-")
			h.Feed(t, other+"\n", "nft", "-f", "-")
			must(t, on(t, h, func(c *nft.Conn) error { return SpoofChains{request("net/a/eth0")}.Del(ctx, c, nil) }))
			if got := h.MustRun(t, "nft", "list", "ruleset"); !strings.Contains(got, "PREROUTING") || strings.Contains(got, "cni-br-iface") {
				t.Errorf("after DEL:\n%s", got)
			}
		})
	}
}

// TestGCSpoofCheck removes the chains of containers that nobody knows.
func TestGCSpoofCheck(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	for i, name := range []string{"a-eth0", "b-c-eth0", "gone-eth0"} {
		h.Feed(t, referenceRules(name, fmt.Sprintf("veth%d", i)), "nft", "-f", "-")
	}
	h.Do(func() {
		r := valid("net")
		must(t, held.GC(ctx, r, SpoofChains{r}))
		if got := h.MustRun(t, "nft", "list", "ruleset"); strings.Count(got, "chain cni-br-iface-") != 6 {
			t.Errorf("removed without libcni's cache, which alone tells what is gone:\n%s", got)
		}
		must(t, os.MkdirAll(cacheDir, 0o755))
		must(t, os.WriteFile(cacheDir+"/other-net-b-c-eth1", nil, 0o600))
		r = valid("net", "net/a/eth0")
		must(t, held.GC(ctx, r, SpoofChains{r}))
	})
	got := h.MustRun(t, "nft", "list", "ruleset")
	for name, want := range map[string]bool{"a-eth0": true, "b-c-eth0": true, "gone-eth0": false} {
		if strings.Contains(got, "cni-br-iface-"+name) != want {
			t.Errorf("%s is there: %v, want %v:\n%s", name, !want, want, got)
		}
	}
}
