package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// passing is what lets addresses pass, behind a bridge with a policy.
func passing(ingress netfilter.Ingress, bridge, hostEnd string, addrs ...string) netfilter.Forward {
	f := netfilter.Forward{Ingress: ingress, Bridge: bridge, HostEnd: hostEnd}
	for _, a := range addrs {
		f.Addrs = append(f.Addrs, netip.MustParseAddr(a))
	}
	return f
}

// forwardListing returns the tables that forwarding uses.
func forwardListing(t testing.TB, h *netlab.Host) string {
	t.Helper()
	var out []string
	tables := h.MustRun(t, "nft", "list", "tables")
	for _, table := range []string{"inet " + ForwardTableName, "bridge cnibox"} {
		if strings.Contains(tables, "table "+table+"\n") {
			out = append(out, canonical(h.MustRun(t, "nft", append([]string{"list", "table"}, strings.Fields(table)...)...)))
		}
	}
	return strings.Join(out, "")
}

// TestForwardRuleset compares the whole ruleset with its text, which nft reads
// back as it was.
func TestForwardRuleset(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	h.Do(func() {
		must(t, table.AddForward(ctx, keyOf("open"), passing(netfilter.Open, "", "", "10.88.0.2", "fd00:88::2")))
		must(t, table.AddForward(ctx, keyOf("same"), passing(netfilter.SameBridge, "cni1", "veth1", "10.89.0.2")))
		must(t, table.AddForward(ctx, keyOf("isolated"), passing(netfilter.Isolated, "br:2", "veth2", "10.90.0.2")))
	})
	got := forwardListing(t, h)
	const file = "testdata/forward.nft"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("the ruleset is\n%s\nwant\n%s", got, want)
	}
	restore(t, h, got)
	if again := forwardListing(t, h); again != got {
		t.Errorf("after a reload it is\n%s", again)
	}
	h.Do(func() {
		must(t, table.DelForward(ctx, keyOf("same"), nil))
		must(t, table.DelForward(ctx, keyOf("isolated"), nil))
		must(t, table.DelForward(ctx, keyOf("open"), nil))
	})
	if got := forwardListing(t, h); strings.Contains(got, "elements") || strings.Contains(got, "holders") {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestForwardHolders shares what protects a bridge between its attachments.
func TestForwardHolders(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	add := func(id string, ingress netfilter.Ingress) {
		t.Helper()
		h.Do(func() { must(t, table.AddForward(ctx, keyOf(id), passing(ingress, "cni1", "veth"+id))) })
	}
	del := func(id string) {
		t.Helper()
		h.Do(func() { must(t, table.DelForward(ctx, keyOf(id), nil)) })
	}
	holds := func(when string, want ...string) {
		t.Helper()
		listing := forwardListing(t, h)
		for _, set := range []string{"protected_v1", "same_v1", "isolated_v1", "holders_v1_protected_cni1", "holders_v1_isolated_cni1"} {
			_, body, found := strings.Cut(listing, "set "+set+" {")
			body, _, _ = strings.Cut(body, "\n\t}\n")
			full := found && strings.Contains(body, `elements = { "cni1"`) || strings.HasPrefix(set, "holders") && found
			if full != slices.Contains(want, set) {
				t.Errorf("%s: set %s: %v, want it to be full: %v", when, set, full, want)
			}
		}
	}
	add("a", netfilter.SameBridge)
	add("b", netfilter.Isolated)
	add("c", netfilter.Isolated)
	all := []string{"protected_v1", "same_v1", "isolated_v1", "holders_v1_protected_cni1", "holders_v1_isolated_cni1"}
	notIsolated := []string{"protected_v1", "same_v1", "holders_v1_protected_cni1"}
	holds("with all", all...)
	del("b")
	holds("without b", all...)
	del("b")
	add("c", netfilter.SameBridge)
	holds("with c changed", notIsolated...)
	del("a")
	holds("with c", notIsolated...)
	add("c", netfilter.Open)
	holds("with c open")
	add("c", netfilter.Isolated)
	h.MustRun(t, "nft", "flush set inet cnibox-forward same_v1")
	del("c")
	holds("after someone else's flush")
	if got := forwardListing(t, h); strings.Contains(got, "elements") {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestForwardTakesOver leases an address anew before its owner's DEL.
func TestForwardTakesOver(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	h.Do(func() {
		must(t, table.AddForward(ctx, keyOf("old"), passing(netfilter.Open, "", "", "10.88.0.2", "10.88.0.3")))
		must(t, table.AddForward(ctx, keyOf("new"), passing(netfilter.Open, "", "", "10.88.0.2")))
		err := table.CheckForward(ctx, keyOf("old"), passing(netfilter.Open, "", "", "10.88.0.2", "10.88.0.3"))
		if err == nil || !strings.Contains(err.Error(), "10.88.0.2 in set pods4_v1 belongs to net/new/eth0") {
			t.Errorf("check of the old owner: %v", err)
		}
		must(t, table.DelForward(ctx, keyOf("old"), nil))
		must(t, table.CheckForward(ctx, keyOf("new"), passing(netfilter.Open, "", "", "10.88.0.2")))
		must(t, table.AddForward(ctx, keyOf("new"), passing(netfilter.Open, "", "", "10.88.0.4", "10.88.0.4")))
	})
	if got := forwardListing(t, h); strings.Contains(got, "10.88.0.2") || strings.Contains(got, "10.88.0.3") || !strings.Contains(got, "10.88.0.4") {
		t.Errorf("the new owner's address is not the only one:\n%s", got)
	}
}

// TestForwardMessages has no message to the kernel more than it takes, however
// many others there are.
func TestForwardMessages(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	plain, policy := passing(netfilter.Open, "", "", "10.88.0.2"), passing(netfilter.SameBridge, "cni1", "", "10.88.0.2")
	h.Do(func() {
		must(t, table.AddForward(ctx, keyOf("first"), passing(netfilter.SameBridge, "cni1", "", "10.88.0.1")))
		for _, step := range []struct {
			name string
			want int
			do   func() error
		}{
			{"add", 5, func() error { return table.AddForward(ctx, keyOf("a"), plain) }},  // is it isolated, hold; iptables' chains, rules of two
			{"delete", 5, func() error { return table.DelForward(ctx, keyOf("a"), nil) }}, // what is held, whose it is, can there be a trial, delete; is it isolated
			{"add with a policy", 5, func() error { return table.AddForward(ctx, keyOf("a"), policy) }},
			{"delete with a policy", 5, func() error { return table.DelForward(ctx, keyOf("a"), nil) }}, // … is it the last
			{"delete nothing", 2, func() error { return table.DelForward(ctx, keyOf("a"), nil) }},
		} {
			if got := sends(table, func() { must(t, step.do()) }); got != step.want {
				t.Errorf("%s: %d messages, want %d", step.name, got, step.want)
			}
		}
	})
}

// TestForwardManyAddresses holds more than one message asks for.
func TestForwardManyAddresses(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	var many netfilter.Forward
	for i := range 50 {
		many.Addrs = append(many.Addrs, netip.AddrFrom4([4]byte{10, 88, 0, byte(i)}))
	}
	h.Do(func() {
		must(t, table.AddForward(ctx, keyOf("a"), many))
		must(t, table.CheckForward(ctx, keyOf("a"), many))
		must(t, table.AddForward(ctx, keyOf("a"), many))
		must(t, table.DelForward(ctx, keyOf("a"), nil))
	})
	if got := forwardListing(t, h); strings.Contains(got, "elements") {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestForwardGC(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	other := plugin.Key{Network: "other", ContainerID: "a", IfName: "eth0"}
	h.Do(func() {
		must(t, table.AddForward(ctx, keyOf("a"), passing(netfilter.Isolated, "cni1", "veth1", "10.0.0.1")))
		must(t, table.AddForward(ctx, keyOf("b"), passing(netfilter.Isolated, "cni1", "veth2", "10.0.0.2")))
		must(t, table.AddForward(ctx, other, passing(netfilter.Isolated, "cni2", "veth3", "10.0.0.3")))
	})
	// A DEL killed before its last step leaves an empty group.
	h.MustRun(t, "nft", "add set inet cnibox-forward holders_v1_protected_gone { type ipv6_addr; }; add element inet cnibox-forward protected_v1 { gone }")
	h.Do(func() { must(t, table.GCForward(ctx, "net", []plugin.Key{keyOf("a")})) })
	got := forwardListing(t, h)
	for what, want := range map[string]bool{"10.0.0.1": true, "10.0.0.2": false, "10.0.0.3": true, "veth1": true, "veth2": false, "veth3": true, "cni1": true, "gone": false} {
		if strings.Contains(got, what) != want {
			t.Errorf("%s is there: %v, want %v:\n%s", what, !want, want, got)
		}
	}
	h.Do(func() {
		must(t, table.GCForward(ctx, "net", nil))
		must(t, table.GCForward(ctx, "other", nil))
	})
	if got := forwardListing(t, h); strings.Contains(got, "elements") || strings.Contains(got, "holders") {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestForwardCheck(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	f := passing(netfilter.Isolated, "cni1", "veth1", "10.88.0.2")
	for _, c := range []struct{ program, do, want string }{
		{"nft", "delete element inet cnibox-forward pods4_v1 { 10.88.0.2 }", "table inet cnibox-forward: 10.88.0.2 is not in set pods4_v1"},
		{"nft", "delete element inet cnibox-forward isolated_v1 { cni1 . cni1 }", "cni1 is not in set isolated_v1"},
		{"nft", "delete element bridge cnibox isolated_v1 { veth1 }", "table bridge cnibox: veth1 is not in set isolated_v1"},
		{"nft", "flush map inet cnibox-forward owners_v1", "net/a/eth0 has nothing in it"},
		{"nft", "flush table inet cnibox-forward", "of its"},
		{"nft", "delete table inet cnibox-forward", "table inet cnibox-forward is missing"},
		{"nft", "delete table bridge cnibox", "table bridge cnibox is missing"},
		{"iptables", "-D FORWARD 1", `missing is ["-I FORWARD 1`},
		{"iptables", "-F CNIBOX-FORWARD", `-j CNI-ADMIN" "-A CNIBOX-FORWARD`},
	} {
		h.MustRun(t, "nft", "flush", "ruleset")
		h.Do(func() {
			must(t, table.AddForward(ctx, keyOf("a"), f))
			must(t, table.CheckForward(ctx, keyOf("a"), f))
		})
		args := []string{c.do}
		if c.program != "nft" {
			args = strings.Fields(c.do)
		}
		h.MustRun(t, c.program, args...)
		h.Do(func() {
			before := forwardListing(t, h)
			err := table.CheckForward(ctx, keyOf("a"), f)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("after %q: %v; want %q", c.do, err, c.want)
			}
			if after := forwardListing(t, h); after != before {
				t.Errorf("CHECK after %q changed\n%s\nto\n%s", c.do, before, after)
			}
		})
	}
}

// TestForwardTogether has many processes, as which the kernel sees sockets, add
// and delete at once.
func TestForwardTogether(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	var wg sync.WaitGroup
	for i := range 8 {
		table := open(t, h)
		wg.Go(func() {
			h.Do(func() {
				for j := range 4 {
					k := keyOf(fmt.Sprintf("c%d-%d", i, j))
					f := passing(netfilter.Isolated, "cni1", fmt.Sprintf("veth%d-%d", i, j), fmt.Sprintf("10.88.%d.%d", i, j))
					if err := errors.Join(table.AddForward(ctx, k, f), table.CheckForward(ctx, k, f), table.DelForward(ctx, k, nil)); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
	wg.Wait()
	if got := forwardListing(t, h); strings.Contains(got, "elements") || strings.Contains(got, "holders") {
		t.Errorf("left behind:\n%s", got)
	}
	if got := h.MustRun(t, "iptables-save", "-t", "filter"); strings.Count(got, "-j CNIBOX-FORWARD") != 1 || strings.Count(got, "-j ACCEPT") != 1 {
		t.Errorf("the rules of iptables are not there once:\n%s", got)
	}
}

func TestForwardRefuses(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	for _, f := range []netfilter.Forward{
		passing(netfilter.SameBridge, "", ""),
		passing(netfilter.Isolated, "a-name-that-is-too-long", ""),
		{Addrs: []netip.Addr{netip.MustParseAddr("10.88.0.2")}, AdminChain: "no chain"},
	} {
		var e *types.Error
		h.Do(func() {
			if err := table.AddForward(ctx, keyOf("a"), f); !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || e.Details == "" {
				t.Errorf("%+v: %v", f, err)
			}
		})
	}
}
