package nft

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// together returns a connection that leaves to a batch what it repairs.
func together(t *testing.T, h *netlab.Host) (*Conn, *Batch) {
	t.Helper()
	c := open(t, h)
	batch := NewBatch()
	c.Join(batch)
	return c, batch
}

// TestBatch has several attachments get back what a flush took from all, in one transaction for each table.
func TestBatch(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	c, batch := together(t, h)
	policy := func(addr string) spec.ForwardNeeds {
		return spec.ForwardNeeds{Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Ingress: spec.SameBridge, Bridge: "cni0"}
	}
	all := []struct {
		key   plugin.Key
		wants Wants
	}{
		{keyOf("first"), ToMasquerade(prefixes("10.88.0.2/24", "fd00::2/64"))},
		{keyOf("first"), ToPublish(behind("cni0", portMaps(t, "tcp/8080=10.88.0.2:80")))},
		{keyOf("first"), ToForward(policy("10.88.0.2"))},
		{keyOf("second"), ToMasquerade(prefixes("10.89.0.2/24"))},
		{keyOf("second"), ToPublish(behind("cni0", portMaps(t, "tcp/8081=10.89.0.2:80", "tcp/8082=10.89.0.2:81")))},
		{keyOf("second"), ToForward(policy("10.89.0.2"))}, // with elements that are the first one's, too
	}
	h.Do(func() {
		for _, a := range all {
			must(t, open(t, h).Add(ctx, a.key, a.wants))
		}
	})
	list := func() string { // in no order: sets come in the order in which they were made
		return sortedLines(canonical(h.MustRun(t, "sh", "-c", "nft list table inet cnibox; nft list table inet cnibox-forward")))
	}
	before := list()
	h.MustRun(t, "sh", "-c", "nft flush ruleset; echo 0 >/proc/sys/net/ipv4/conf/cni0/route_localnet")
	h.Do(func() {
		for _, a := range slices.Backward(all) {
			if err := c.Check(a.key, a.wants); err == nil || !strings.Contains(err.Error(), "is missing or dormant, or all its rules are missing") {
				t.Errorf("CHECK of %v: %v", a.key, err)
			}
			must(t, c.Repair(ctx, a.key, a.wants))
		}
	})
	if text := h.MustRun(t, "nft", "list", "ruleset"); text != "" {
		t.Errorf("before Commit:\n%s", text)
	}
	changes := monitored(t, h, func() {
		h.Do(func() { must(t, batch.Commit(ctx, map[plugin.Key]int{keyOf("first"): 1, keyOf("second"): 2})) })
	})
	if n := strings.Count(changes, "# new generation") - strings.Count(changes, "(nft)"); n > 4 { // a table is made, then filled
		t.Errorf("%d transactions:\n%s", n, changes)
	}
	if after := list(); after != before {
		t.Errorf("after Commit:\n%s\nbefore:\n%s", after, before)
	}
	h.Do(func() {
		for _, a := range all {
			must(t, open(t, h).Check(a.key, a.wants))
		}
	})
}

// TestBatchTakesNot has what takes more than elements put back at once.
func TestBatchTakesNot(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	plain := open(t, h)
	c, _ := together(t, h)
	conditional := behind("cni0", portMaps(t, "tcp/8080=10.88.0.2:80"))
	conditional.Conditions4 = []string{"ip", "saddr", "192.0.2.0/24"}
	h.Do(func() {
		for name, wants := range map[string]Wants{"udp": ToPublish(behind("cni0", portMaps(t, "udp/53=10.88.0.3:53"))), "conditions": ToPublish(conditional)} {
			must(t, c.Repair(ctx, keyOf(name), wants))
			must(t, plain.Check(keyOf(name), wants))
		}
	})
}

// TestBatchLooksOnce: those who share a batch look once at what all have in common, rule by rule.
func TestBatchLooksOnce(t *testing.T) {
	h := netlab.NewHost(t)
	c := open(t, h)
	one, other := ToJudge(listed(t, 2, "10.20.0.0/16", "")), ToJudge(listed(t, 3, "10.20.0.0/16", ""))
	h.Do(func() {
		must(t, c.Add(ctx, keyOf("one"), one))
		must(t, c.Add(ctx, keyOf("other"), other))
		c.Join(NewBatch())
		first := allocations(t, func() error { return c.Check(keyOf("one"), one) })
		next := allocations(t, func() error { return c.Check(keyOf("other"), other) })
		t.Logf("%d, then %d", first, next)
		if next > first*2/3 {
			t.Errorf("the first CHECK does %d, and the next one %d", first, next)
		}
		h.MustRun(t, "nft", "insert rule inet cnibox-egress judge_v1 accept")
		if c.Check(keyOf("one"), one) == nil {
			t.Error("one rule too many is not seen any more")
		}
	})
}
