package nft

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/test/netlab"
)

func listed(t *testing.T, i int, allow, deny string) spec.EgressNeeds {
	t.Helper()
	n := spec.EgressNeeds{HostEnd: fmt.Sprint("veth", i), OnBridge: true, MAC: [6]byte{2, 0, 0, 0, 0, byte(i)}}
	n.Addrs = prefixes(fmt.Sprintf("10.88.0.%d/24", i), fmt.Sprintf("fd00::%d/64", i))
	n.Lists.Closed = allow != "none"
	for text, to := range map[string]*[]reach.Entry{allow: &n.Lists.Allow, deny: &n.Lists.Deny} {
		for _, word := range strings.Fields(text) {
			if word == "none" {
				continue
			}
			e, err := reach.Parse(word)
			must(t, err)
			*to = append(*to, e)
		}
	}
	return n
}

// TestEgressSaveAndLoad has nft load what it lists.
func TestEgressSaveAndLoad(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	c := open(t, h)
	all := []spec.EgressNeeds{
		listed(t, 2, "10.88.0.0/24:80-90 10.20.0.0/16 [fd00::]:53/udp fd00::/64 0.0.0.0/0:443/tcp ::/0", "10.20.1.0/24 10.88.0.9:22 [fd00::9]:22"),
		listed(t, 3, "none", "169.254.169.254 fd00::/16"), listed(t, 4, "none", "none"), listed(t, 5, " ", "255.255.255.255"),
	}
	all[2].OnBridge, all[3].Lists.NoNode = false, true
	check := func() {
		t.Helper()
		for i, n := range all {
			must(t, c.Check(keyOf(fmt.Sprint(i)), ToJudge(n)))
			must(t, c.Check(keyOf(fmt.Sprint(i)), ToGuardPort(n)))
		}
	}
	h.Do(func() {
		for i, n := range all {
			must(t, c.Add(ctx, keyOf(fmt.Sprint(i)), ToJudge(n)))
			must(t, c.Add(ctx, keyOf(fmt.Sprint(i)), ToGuardPort(n)))
		}
		check()
	})
	saved := h.MustRun(t, "nft", "-s", "list", "ruleset")
	restore(t, h, saved)
	h.Do(check)
	for i := range all {
		h.Do(func() {
			_, err := c.Del(ctx, keyOf(fmt.Sprint(i)), Judging)
			must(t, err)
			_, err = c.Del(ctx, keyOf(fmt.Sprint(i)), GuardingPorts)
			must(t, err)
		})
	}
	if left := h.MustRun(t, "nft", "list", "ruleset"); strings.Contains(left, "chain list_") || strings.Contains(left, "interval") {
		t.Errorf("after the last DEL:\n%s", left)
	}
}
