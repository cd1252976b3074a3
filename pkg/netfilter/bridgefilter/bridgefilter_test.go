package bridgefilter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/holding"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

var ctx = context.Background()

func keyOf(id string) plugin.Key {
	return plugin.Key{Network: "net", ContainerID: id, IfName: "eth0"}
}

func mac(last byte) [6]byte { return [6]byte{2, 0, 0, 0, 0, last} }

func open(t testing.TB, h *netlab.Host) *Table {
	t.Helper()
	var table *Table
	var err error
	h.Do(func() { table, err = Open() })
	must(t, err)
	t.Cleanup(table.Close)
	return table
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var trialElements = regexp.MustCompile(`(?s)(\tset trials_v1 \{\n\t\ttype mark \. mark\n\t\tflags timeout\n)\t\telements = \{.*?\}\n`)

// listing returns what nft lists, without the trial, which belongs to nobody.
func listing(t testing.TB, h *netlab.Host) string {
	t.Helper()
	return trialElements.ReplaceAllString(h.MustRun(t, "nft", "list", "ruleset"), "$1")
}

func TestSpoofCheck(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	must(t, table.Available())
	must(t, table.DelSpoofCheck(ctx, keyOf("a")))
	if got := listing(t, h); got != "" {
		t.Errorf("made by questions:\n%s", got)
	}
	must(t, table.AddSpoofCheck(ctx, keyOf("a"), "veth1", mac(1)))
	must(t, table.AddSpoofCheck(ctx, keyOf("b"), "veth2", mac(2)))
	must(t, table.CheckSpoofCheck(ctx, keyOf("a"), "veth1", mac(1)))
	must(t, table.Available())
	saved := listing(t, h)
	h.MustRun(t, "nft", "flush", "ruleset")
	h.Feed(t, saved, "nft", "-f", "-")
	if again := listing(t, h); again != saved {
		t.Errorf("reloaded:\n%s\nsaved:\n%s", again, saved)
	}
	if err := table.CheckSpoofCheck(ctx, keyOf("a"), "veth1", mac(9)); err == nil || !strings.Contains(err.Error(), "not what it should hold") {
		t.Errorf("another address passes the check: %v", err)
	}
	h.MustRun(t, "nft", "delete element bridge cnibox checked_v1 { veth1 }")
	if err := table.CheckSpoofCheck(ctx, keyOf("a"), "veth1", mac(1)); err == nil || !strings.Contains(err.Error(), "veth1 is not in set checked_v1") {
		t.Errorf("a missing element: %v", err)
	}
	// A new container has the host end's name, before the old one's late DEL.
	must(t, table.AddSpoofCheck(ctx, keyOf("c"), "veth2", mac(2)))
	must(t, table.DelSpoofCheck(ctx, keyOf("b")))
	must(t, table.CheckSpoofCheck(ctx, keyOf("c"), "veth2", mac(2)))
	must(t, table.GCSpoofCheck(ctx, "net", []plugin.Key{keyOf("c")}))
	if got := listing(t, h); strings.Contains(got, "veth1") || !strings.Contains(got, "veth2") {
		t.Errorf("after GC:\n%s", got)
	}
	must(t, table.GCSpoofCheck(ctx, "net", nil))
	if got := listing(t, h); strings.Contains(got, "elements") {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestUses keeps the two uses of an attachment apart.
func TestUses(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	must(t, table.AddSpoofCheck(ctx, keyOf("a"), "veth1", mac(1)))
	must(t, table.AddIsolated(ctx, keyOf("a"), "veth1"))
	must(t, table.GCSpoofCheck(ctx, "net", nil))
	must(t, table.CheckIsolated(ctx, keyOf("a"), "veth1"))
	must(t, table.AddSpoofCheck(ctx, keyOf("a"), "veth1", mac(1)))
	must(t, table.DelIsolated(ctx, keyOf("a")))
	must(t, table.CheckSpoofCheck(ctx, keyOf("a"), "veth1", mac(1)))
}

// TestAgain gives a host end to the same attachment and to another one as soon as
// DEL has returned.
func TestAgain(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table, other := open(t, h), open(t, h)
	for i := range 50 {
		k := keyOf([]string{"a", "a", "b"}[i%3])
		must(t, table.AddSpoofCheck(ctx, k, "veth1", mac(1)))
		must(t, table.AddIsolated(ctx, k, "veth1"))
		must(t, other.CheckSpoofCheck(ctx, k, "veth1", mac(1)))
		must(t, other.CheckIsolated(ctx, k, "veth1"))
		must(t, table.DelIsolated(ctx, k))
		must(t, table.DelSpoofCheck(ctx, k))
		elements := append(spoofCheck("veth1", mac(1)).Elements, isolatedPort("veth1").Elements...)
		left, err := other.held.Conn.Remaining(elements...)
		must(t, err)
		found, err := other.held.Conn.Look(elements)
		must(t, err)
		for j := range elements {
			if left[j] > 0 || found[j].There {
				t.Fatalf("round %d: set %s matches after DEL", i, elements[j].Set.Name)
			}
		}
	}
	if got := listing(t, h); strings.Contains(got, "elements") {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestTogether(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	var wg sync.WaitGroup
	for i := range 8 {
		table := open(t, h)
		wg.Go(func() {
			for j := range 4 {
				k, end := keyOf(fmt.Sprintf("c%d-%d", i, j)), fmt.Sprintf("veth%d-%d", i, j)
				if err := table.AddSpoofCheck(ctx, k, end, mac(byte(j))); err != nil {
					t.Error(err)
				}
				if err := table.CheckSpoofCheck(ctx, k, end, mac(byte(j))); err != nil {
					t.Error(err)
				}
				if err := table.DelSpoofCheck(ctx, k); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := listing(t, h); strings.Contains(got, "elements") || strings.Count(got, "@allowed_v1") != 1 {
		t.Errorf("left behind, or not one ruleset:\n%s", got)
	}
}

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

func TestReferenceDel(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	h.Feed(t, referenceRules("a-eth0", "veth1"), "nft", "-f", "-")
	h.Feed(t, referenceRules("b-eth0", "veth2"), "nft", "-f", "-")
	h.MustRun(t, "nft", `add rule bridge nat PREROUTING iifname "veth1" jump cni-br-iface-a-eth0 comment "macspoofchk-a-eth0"`) // a repeated ADD's
	must(t, table.CheckSpoofCheck(ctx, keyOf("a"), "veth1", mac(1)))
	must(t, table.DelSpoofCheck(ctx, keyOf("a")))
	if got := listing(t, h); strings.Contains(got, "a-eth0") || strings.Count(got, "b-eth0") != 8 {
		t.Errorf("after DEL of a:\n%s", got)
	}
	must(t, table.DelSpoofCheck(ctx, keyOf("b")))
	if got := listing(t, h); got != "" {
		t.Errorf("after the last DEL:\n%s", got)
	}
}

// TestReferenceLeavesOthers keeps what is not the reference plugin's.
func TestReferenceLeavesOthers(t *testing.T) {
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
			table := open(t, h)
			h.Feed(t, referenceRules("a-eth0", "veth1"), "nft", "-f", "-")
			h.Feed(t, other+"\n", "nft", "-f", "-")
			must(t, table.DelSpoofCheck(ctx, keyOf("a")))
			if got := listing(t, h); !strings.Contains(got, "PREROUTING") || strings.Contains(got, "cni-br-iface") {
				t.Errorf("after DEL:\n%s", got)
			}
		})
	}
}

// TestReferenceGC removes the chains of containers that nobody knows.
func TestReferenceGC(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	for i, name := range []string{"a-eth0", "b-c-eth0", "gone-eth0", "x-mac-eth0"} {
		h.Feed(t, referenceRules(name, fmt.Sprintf("veth%d", i)), "nft", "-f", "-")
	}
	h.Do(func() {
		must(t, table.GCSpoofCheck(ctx, "net", nil))
		if got := listing(t, h); strings.Count(got, "chain cni-br-iface-") != 8 {
			t.Errorf("removed without libcni's cache, which alone tells what is gone:\n%s", got)
		}
		must(t, os.MkdirAll(netfilter.ResultCache, 0o755))
		must(t, os.WriteFile(netfilter.ResultCache+"/other-net-b-c-eth1", nil, 0o600))
		must(t, table.GCSpoofCheck(ctx, "net", []plugin.Key{keyOf("a")}))
	})
	got := listing(t, h)
	for name, want := range map[string]bool{"a-eth0": true, "b-c-eth0": true, "gone-eth0": false, "x-mac-eth0": false} {
		if strings.Contains(got, "cni-br-iface-"+name) != want {
			t.Errorf("%s is there: %v, want %v:\n%s", name, !want, want, got)
		}
	}
}

// TestUnavailable is what a kernel without nf_tables for bridges answers.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	r := table.held.Ruleset
	// Family arp has no chains of kind nat, which is refused as they would be.
	r.Table = nftables.Table{Family: unix.NFPROTO_ARP, Name: TableName}
	r.Chains = []nftables.Chain{{Name: "c", Kind: "nat", Hook: 0}}
	r.Sets, r.Owners, r.Trials = nil, holding.OwnersSet(r.Table, "owners", nftables.TypeMark), holding.TrialsSet(r.Table, "trials")
	other := &Table{&holding.Table{Ruleset: r, Conn: table.held.Conn}}
	err := other.Available()
	shown := plugin.AsError(err)
	if !errors.Is(err, ErrUnavailable) || shown.Code != types.ErrPluginNotAvailable || !strings.Contains(shown.Details, "NF_TABLES_BRIDGE") {
		t.Errorf("%v", err)
	}
}
