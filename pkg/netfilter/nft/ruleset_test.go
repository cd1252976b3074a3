package nft

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/test/netlab"
)

var update = flag.Bool("update", false, "write testdata")

// fill puts one of everything into the table.
func fill(t testing.TB, h *netlab.Host, table *Table) {
	t.Helper()
	addLink(t, h, "cni0")
	must(t, table.AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/24", "fd00:1::2/64", "10.9.0.7/32", "fd00:9::7/128", "10.77.1.2/19")))
	ports := behind("cni0", portMaps(t,
		"tcp/8080=10.88.0.2:80", "tcp/8080=[fd00:1::2]:80",
		"udp/192.0.2.1:53=10.88.0.2:5353", "sctp/[2001:db8::1]:36412=[fd00:1::2]:36412"))
	ports.MasqAll = true
	h.Do(func() { must(t, table.AddPortMaps(ctx, keyOf("a"), ports)) })
	must(t, table.AddPortMaps(ctx, keyOf("b"), netfilter.PortMaps{Maps: portMaps(t, "tcp/81=10.88.0.3:80")}))
}

func TestRulesetIsWhatNftLists(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	fill(t, h, open(t, h))
	got := listing(t, h)
	const golden = "testdata/ruleset.nft"
	if *update {
		must(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if got != string(want) {
		t.Errorf("the table is not as in %s:\n%s", golden, got)
	}
}

func TestSavedRulesetLoadsAndWorks(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	fill(t, h, table)
	long := keyOf(strings.Repeat("0123456789abcdef", 8))
	odd := keyOf("c")
	odd.IfName = `a"b;#}\`
	must(t, table.AddMasquerade(ctx, long, prefixes("10.88.0.9/24")))
	must(t, table.AddMasquerade(ctx, odd, prefixes("10.88.0.10/24")))
	saved := listing(t, h)
	restore(t, h, saved)
	if got := listing(t, h); got != saved {
		t.Errorf("after a reload:\n%s\nbefore:\n%s", got, saved)
	}
	// Elements are found by their keys, whoever put them there.
	must(t, table.CheckMasquerade(ctx, long, prefixes("10.88.0.9/24")))
	must(t, table.CheckMasquerade(ctx, odd, prefixes("10.88.0.10/24")))
	must(t, table.DelMasquerade(ctx, long, nil))
	must(t, table.DelMasquerade(ctx, odd, nil))
	must(t, table.DelMasquerade(ctx, keyOf("a"), nil))
	h.Do(func() { delPorts(t, table, keyOf("a")) })
	delPorts(t, table, keyOf("b"))
	for _, line := range strings.Split(listing(t, h), "\n") {
		if strings.Contains(line, "elements") && !strings.Contains(line, guardComment) {
			t.Errorf("left behind: %s", line)
		}
	}
	must(t, table.AddMasquerade(ctx, long, prefixes("10.88.0.9/24")))
}
