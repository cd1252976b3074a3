package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
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
	every := func(do func(plugin.Key, Wants) error) {
		t.Helper()
		h.Do(func() {
			for i, n := range all {
				must(t, do(keyOf(fmt.Sprint(i)), ToJudge(n)))
				must(t, do(keyOf(fmt.Sprint(i)), ToGuardPort(n)))
			}
		})
	}
	every(func(key plugin.Key, w Wants) error { return c.Add(ctx, key, w) })
	every(c.Check)
	restore(t, h, h.MustRun(t, "nft", "-s", "list", "ruleset"))
	every(c.Check)
	every(func(key plugin.Key, w Wants) error { _, err := c.Del(ctx, key, w.Purpose); return err })
	if left := h.MustRun(t, "nft", "list", "ruleset"); strings.Contains(left, "chain list_") || strings.Contains(left, "interval") {
		t.Errorf("after the last DEL:\n%s", left)
	}
}

// each does something with all that a container wants.
func each(h *netlab.Host, all []Wants, do func(plugin.Key, Wants) error) (err error) {
	h.Do(func() {
		for _, w := range all {
			err = errors.Join(err, do(keyOf("web"), w))
		}
	})
	return err
}

// TestEgressRulesOfOthers has CHECK see each rule in the tables of lists, and each element of a list's sets, that ADD did not make, and a repair take it
// away and touch nothing else: neither what a name has opened.
func TestEgressRulesOfOthers(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	c := open(t, h)
	n := listed(t, 2, "10.88.0.0/24:80-90 10.88.0.7 api.example:443", "10.88.0.9")
	n.Resolvers = []netip.AddrPort{netip.MustParseAddrPort("10.88.0.1:305")}
	all := []Wants{ToJudge(n), ToGuardPort(n)}
	check := func() error { return each(h, all, c.Check) }
	must(t, each(h, all, func(key plugin.Key, w Wants) error { return c.Add(ctx, key, w) }))
	h.MustRun(t, "nft", "add", "element", "inet", "cnibox-egress", listSet(nameSet(0, &ipv4), all[0].List()), `{ 192.0.2.7 timeout 1h comment "api.example" }`)
	must(t, check())
	lists := func() string { return canonical(h.MustRun(t, "nft", "-s", "list", "ruleset")) }
	before := lists()
	near, _ := n.Near()
	id := all[0].List()
	chains := strings.NewReplacer("LIST", "inet cnibox-egress "+listChain(id), "NEAR", "bridge cnibox-egress "+listChain(nearList(near).id),
		"ALLOW", "inet cnibox-egress "+listSet("allow4", id), "PORTS", "inet cnibox-egress "+listSet("portsallow4", id), "DENY", "inet cnibox-egress "+listSet("deny4", id),
		"NAMES", "inet cnibox-egress "+listSet(nameSet(0, &ipv4), id), "BESIDE", "bridge cnibox-egress "+listSet("portsallow4", nearList(near).id))
	rule := regexp.MustCompile(`\n\t\t.* # handle (\d+)\n`)
	var many []string // more than fit into one message
	for i := range 6000 {
		many = append(many, fmt.Sprintf("198.18.%d.%d", i/250, i%250))
	}
	for _, harm := range []string{
		"insert rule LIST accept", "add rule LIST counter", "insert rule inet cnibox-egress forward_v1 accept", "insert rule inet cnibox-egress judge_v1 return",
		"insert rule inet cnibox-egress prerouting_v1 ip saddr 10.88.0.2 return", "add rule inet cnibox-egress output_v1 ct label set 77", "insert rule inet cnibox-egress questions_v1 accept",
		"insert rule NEAR return", "insert rule bridge cnibox-egress forward_v1 accept", "insert rule bridge cnibox-egress sender_v1 return",
		"replace rule LIST handle FIRST ip saddr 10.88.0.0/16 return", "replace rule inet cnibox-egress judge_v1 handle FIRST return", "replace rule bridge cnibox-egress forward_v1 handle FIRST return",
		"add element ALLOW { 203.0.113.0/24 }", "add element ALLOW { 0.0.0.0/5, 128.0.0.0/1 }", "add element PORTS { 203.0.113.0/24 . tcp . 1-65535 }", "delete element DENY { 10.88.0.9 }",
		"add element NAMES { 203.0.113.9 }", `add element NAMES { 203.0.113.9 comment "api.example" }`, "add element NAMES { 203.0.113.9 timeout 1h }", "add element NAMES { " + strings.Join(many, ", ") + " }", "add element BESIDE { 203.0.113.0/24 . tcp . 1-65535 }",
	} {
		command := chains.Replace(harm)
		if chain, _, is := strings.Cut(strings.TrimPrefix(command, "replace rule "), " handle FIRST"); is {
			rules := h.MustRun(t, "nft", append([]string{"-a", "list", "chain"}, strings.Fields(chain)...)...)
			command = strings.Replace(command, "FIRST", rule.FindStringSubmatch(rules)[1], 1)
		}
		h.MustRun(t, "nft", command)
		if err := check(); err == nil || !strings.Contains(err.Error(), "besides") {
			t.Errorf("%s: CHECK says %v", command, err)
		}
		must(t, each(h, all, func(key plugin.Key, w Wants) error { return c.Repair(ctx, key, w) }))
		if err := check(); err != nil {
			t.Errorf("%s: after the repair: %v", command, err)
		}
		if after := lists(); after != before {
			t.Fatalf("%s: after the repair:\n%s\nbefore:\n%s", command, after, before)
		}
	}
	h.MustRun(t, "nft", "add chain inet cnibox-egress own; add rule inet cnibox-egress own jump judge_v1") // which no packet comes to
	must(t, check())
}

// TestChainsOfOthers: chains with a number that do nothing are no other version, of which CHECK would say that all is well. A repair puts back what is gone,
// also sets that no rule looks into.
func TestChainsOfOthers(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	c := open(t, h)
	w := ToJudge(listed(t, 2, "10.20.0.0/16", "none"))
	h.Do(func() {
		must(t, c.Add(ctx, keyOf("web"), w))
		for _, name := range []string{"judge_v2", "judge_v0", "judge_v1x", "judge_v-3", "judge_v99999999999999999999"} {
			h.MustRun(t, "nft", "add", "chain", "inet", "cnibox-egress", name)
		}
		must(t, c.Check(keyOf("web"), w))
		for _, tt := range []struct{ harm, says string }{
			{"flush chain inet cnibox-egress judge_v1", "chain judge_v1 lacks"}, {"flush table inet cnibox-egress; add rule inet cnibox-egress judge_v-3 drop", "is missing or dormant"},
			{"add rule inet cnibox-egress judge_v2 drop; add table inet cnibox-egress { flags dormant; }", "is missing or dormant"}, {"flush chain inet cnibox-egress judge_v1", "chain judge_v1 lacks"},
			{"delete map inet cnibox-egress owners_v1", "holds []"}, {"delete set inet cnibox-egress lists_v1", "is not in lists_v1"},
		} {
			h.MustRun(t, "nft", tt.harm)
			if err := c.Check(keyOf("web"), w); err == nil || errors.Is(err, ErrOther) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: CHECK says %v", tt.harm, err)
			}
			must(t, c.Repair(ctx, keyOf("web"), w))
			if err := c.Check(keyOf("web"), w); err != nil {
				t.Errorf("%s: after the repair: %v", tt.harm, err)
			}
		}
		h.MustRun(t, "nft", "flush table inet cnibox-egress; add rule inet cnibox-egress judge_v2 drop")
		if err := c.Check(keyOf("web"), w); !errors.Is(err, ErrOther) {
			t.Errorf("rules of another version: CHECK says %v", err)
		}
	})
}
