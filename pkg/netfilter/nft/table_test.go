package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// attached is a host with an attachment that has addresses and ports.
type attached struct {
	*netlab.Host
	conn  *Conn
	ports spec.PortNeeds
}

func newAttached(t *testing.T) attached {
	t.Helper()
	a := attached{Host: netlab.NewHost(t)}
	addLink(t, a.Host, "cni0")
	a.conn = open(t, a.Host)
	a.ports = behind("cni0", portMaps(t, "tcp/80=10.88.0.2:80", "tcp/[2001:db8::1]:443=[fd00::2]:443"))
	a.add(t, "a")
	return a
}

func (a attached) add(t *testing.T, id string) {
	t.Helper()
	a.Do(func() {
		must(t, a.conn.Add(ctx, keyOf(id), ToMasquerade(prefixes("10.88.0.2/24", "fd00::2/64", "10.99.0.1/32"))))
		must(t, a.conn.Add(ctx, keyOf(id), ToPublish(a.ports)))
	})
}

func (a attached) check() (err error) {
	a.Do(func() {
		err = errors.Join(
			a.conn.Check(keyOf("a"), ToMasquerade(prefixes("10.88.0.2/24", "fd00::2/64", "10.99.0.1/32"))),
			a.conn.Check(keyOf("a"), ToPublish(a.ports)))
	})
	return err
}

// TestSaveAndLoad has nft load what it lists.
func TestSaveAndLoad(t *testing.T) {
	t.Parallel()
	a := newAttached(t)
	saved := listing(t, a.Host)
	if golden, err := os.ReadFile("testdata/ruleset.nft"); err != nil || string(golden) != saved {
		t.Errorf("%v; not as in testdata/ruleset.nft:\n%s", err, saved)
	}
	restore(t, a.Host, saved)
	must(t, a.check())
	if got := listing(t, a.Host); got != saved {
		t.Errorf("loaded:\n%s", got)
	}
}

// TestRepair has the next ADD of anybody heal what is missing, and CHECK say so
// before.
func TestRepair(t *testing.T) {
	t.Parallel()
	a := newAttached(t)
	must(t, a.conn.Add(ctx, keyOf("b"), ToMasquerade(prefixes("10.88.1.2/24"))))
	saved := listing(t, a.Host)
	for _, tt := range []struct{ damage, check string }{
		{"flush table inet cnibox", "all its rules are missing"},
		{"flush chain inet cnibox guard_v1", "chain guard_v1 has not all"},
		{"flush chain inet cnibox dnat_v1", "chain dnat_v1 has not all"},
		{"flush chain inet cnibox subnets_v1", "chain masq_v1_10.88.0.0/24"},
		{"flush chain inet cnibox masq_v1_10.88.0.0/24", "chain masq_v1_10.88.0.0/24"},
		{"delete table inet cnibox", "table inet cnibox is missing"},
		{"flush set inet cnibox inside_v1", "cni0 is not in inside_v1"},
		{"flush map inet cnibox owners_v1", "holds [], and should hold [10.88.0.2"},
		{"delete element inet cnibox ports4_v1 { tcp . 80 }", "tcp/80 is not in ports4_v1"},
		{"delete element inet cnibox hostports6_v1 { 2001:db8::1 . tcp . 443 }", "tcp/[2001:db8::1]:443 is not in hostports6_v1"},
		{"delete element inet cnibox ports4_v1 { tcp . 80 }; add element inet cnibox ports4_v1 { tcp . 80 comment \"net/a/eth0\" : 10.88.0.9 . 80 }", "tcp/80 in ports4_v1 leads elsewhere"},
		{"add rule inet cnibox guard_v1 counter", ""},
	} {
		a.MustRun(t, "nft", tt.damage)
		if err := a.check(); (err == nil) != (tt.check == "") || err != nil && !strings.Contains(err.Error(), tt.check) {
			t.Errorf("%s: CHECK says %v", tt.damage, err)
		}
		a.add(t, "a")
		must(t, a.conn.Add(ctx, keyOf("b"), ToMasquerade(prefixes("10.88.1.2/24"))))
		if got := strings.Replace(listing(t, a.Host), "\t\tcounter packets 0 bytes 0\n", "", 1); sortedLines(got) != sortedLines(saved) {
			t.Errorf("%s: after ADD:\n%s", tt.damage, got)
		}
		must(t, a.check())
	}
}

// TestBuiltOnce has many make the table at once.
func TestBuiltOnce(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			h.Do(func() {
				c, err := Open()
				if err == nil {
					defer c.Close()
					err = c.Add(ctx, keyOf(fmt.Sprint(i)), ToMasquerade(prefixes(fmt.Sprintf("10.88.0.%d/24", i+2))))
				}
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
	all.Wait()
	got := listing(t, h)
	if strings.Count(got, "fib daddr") != 2 || strings.Count(got, "jump masq_v1") != 1 || strings.Count(got, "comment") != 2*16 {
		t.Errorf("made:\n%s", got)
	}
}

// TestAgain gives everything back and takes it again at once, for another one too.
func TestAgain(t *testing.T) {
	t.Parallel()
	a := newAttached(t)
	a.Do(func() {
		for i := range 40 {
			before, now := keyOf("a"), keyOf([]string{"b", "a"}[i/2%2])
			if i/2%2 == 1 {
				before = keyOf("b")
			}
			if i%2 == 1 {
				before, now = now, before
				continue
			}
			del(t, a.conn, Masquerading, before)
			if got := delPorts(t, a.conn, before); len(got) != 2 {
				t.Fatalf("round %d: DEL has taken back %v", i, got)
			}
			must(t, a.conn.Add(ctx, now, ToMasquerade(prefixes("10.88.0.2/24", "fd00::2/64", "10.99.0.1/32"))))
			must(t, a.conn.Add(ctx, now, ToPublish(a.ports)))
			must(t, a.conn.Check(now, ToPublish(a.ports)))
			settle(t, a.Host) // what had a timeout would be gone
			must(t, a.conn.Check(now, ToPublish(a.ports)))
			must(t, a.conn.Check(now, ToMasquerade(prefixes("10.88.0.2/24", "fd00::2/64", "10.99.0.1/32"))))
		}
	})
}

// TestCollision has two attachments with one hash.
func TestCollision(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	c := open(t, h)
	table, wants := c.table(hostTable), ToMasquerade(prefixes("10.88.0.2/24"))
	first, second := ownerOf(keyOf("a"), Masquerading), ownerOf(keyOf("b"), Masquerading)
	second.id = first.id
	must(t, table.set(first, wants, false))
	err := table.set(second, ToMasquerade(prefixes("10.88.0.3/24")), false)
	if err == nil || !strings.Contains(err.Error(), "net/a/eth0") {
		t.Error(err)
	}
	_, err = table.release(second)
	must(t, err)
	must(t, c.Check(keyOf("a"), wants))
}

// TestWithoutCapability gets a clear error at once.
func TestWithoutCapability(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	done := make(chan error)
	go h.Do(func() {
		runtime.LockOSThread() // and never unlock it: the thread ends with its privileges
		var data [2]unix.CapUserData
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		must(t, unix.Capget(&header, &data[0]))
		data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		must(t, unix.Capset(&header, &data[0]))
		c, err := Open()
		must(t, err)
		defer c.Close()
		_, err = c.Del(ctx, keyOf("a"), Masquerading)
		done <- err
	})
	select {
	case err := <-done:
		var shown *types.Error
		if !errors.As(err, &shown) || !strings.Contains(shown.Details, "CAP_NET_ADMIN") {
			t.Error(err)
		}
	case <-time.After(netlab.Patience):
		t.Error("no answer")
	}
}

// TestConditions has rules of an attachment's own come, be missed, and go.
func TestConditions(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	c := open(t, h)
	web := behind("cni0", portMaps(t, "tcp/8080=10.1.0.2:80", "tcp/8080=[fd00:1::2]:80", "tcp/192.0.2.1:9000=10.1.0.2:80"))
	web.Conditions4, web.Conditions6 = []string{"ip", "saddr", "!=", "{ 192.0.2.254 }"}, []string{"ip6 saddr != 2001:db8:2::254"}
	h.Do(func() {
		for range 2 {
			must(t, c.Add(ctx, keyOf("web"), ToPublish(web)))
		}
		must(t, c.Check(keyOf("web"), ToPublish(web)))
		changed := web
		changed.Conditions4 = []string{"ip saddr 10.0.0.0/8"}
		if err := c.Check(keyOf("web"), ToPublish(changed)); err == nil {
			t.Error("CHECK takes other conditions for the same")
		}
	})
	saved := listing(t, h)
	h.Do(func() {
		for _, wrong := range []string{"ip saddr", "ip6 saddr fd00::1", "ip saddr 10.0.0.1; flush ruleset", "accept #"} {
			other := behind("cni0", portMaps(t, "tcp/8081=10.1.0.9:80"))
			other.Conditions4 = []string{wrong}
			var shown *types.Error
			if err := c.Add(ctx, keyOf("other"), ToPublish(other)); !errors.As(err, &shown) || shown.Code != types.ErrInvalidNetworkConfig || !strings.HasPrefix(shown.Msg, "conditionsV4: ") {
				t.Errorf("%s: %v", wrong, err)
			}
		}
	})
	if got := listing(t, h); got != saved {
		t.Errorf("what was refused has left something:\n%s", got)
	}
	h.MustRun(t, "nft", "flush", "chain", "inet", hostTable.Name, chainOptions)
	h.Do(func() {
		if err := c.Check(keyOf("web"), ToPublish(web)); err == nil || !strings.Contains(err.Error(), "of its own 8 rules") {
			t.Errorf("CHECK of flushed options: %v", err)
		}
		if got := delPorts(t, c, keyOf("web")); len(got) != 3 {
			t.Errorf("DEL: %v", got)
		}
	})
	settle(t, h)
	if got := listing(t, h); strings.Contains(got, "net/") {
		t.Errorf("left:\n%s", got)
	}
}

func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(strings.TrimSpace(lines[i]), ",")
	}
	return strings.Join(sorted(lines), "\n")
}

// TestProtection has what protects a bridge go with the last attachment that wants it.
func TestProtection(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	c := open(t, h)
	list := func() string {
		settle(t, h)
		return h.MustRun(t, "nft", "list", "table", "inet", "cnibox-forward")
	}
	policy := func(ingress spec.Ingress, addr string) spec.ForwardNeeds {
		return spec.ForwardNeeds{Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Ingress: ingress, Bridge: "cni0"}
	}
	must(t, c.Available(Forwarding))
	must(t, c.Add(ctx, keyOf("a"), ToForward(policy(spec.Isolated, "10.88.0.2"))))
	must(t, c.Add(ctx, keyOf("b"), ToForward(policy(spec.SameBridge, "10.88.0.3"))))
	must(t, c.Add(ctx, keyOf("c"), ToForward(policy(spec.Open, "fd00::4"))))
	must(t, c.Check(keyOf("a"), ToForward(policy(spec.Isolated, "10.88.0.2"))))
	del(t, c, Forwarding, keyOf("a"))
	if got := list(); strings.Contains(got, "10.88.0.2") || strings.Count(got, `{ "cni0" . "cni0" comment "net/b/eth0" }`) != 1 || !strings.Contains(got, `{ "cni0" comment "net/b/eth0" }`) {
		t.Errorf("after the first DEL:\n%s", got)
	}
	must(t, c.Add(ctx, keyOf("b"), ToForward(policy(spec.Open, "10.88.0.3"))))
	if got := list(); strings.Contains(got, `{ "cni0"`) || !strings.Contains(got, "{ 10.88.0.3 comment") {
		t.Errorf("after a change of policy:\n%s", got)
	}
	h.Do(func() { must(t, gc(Forwarding, "net", keyOf("c"))) })
	if got := list(); strings.Contains(got, "10.88") || !strings.Contains(got, "fd00::4") {
		t.Errorf("after GC:\n%s", got)
	}
	h.MustRun(t, "nft", "flush", "table", "inet", "cnibox-forward")
	if err := c.Check(keyOf("c"), ToForward(policy(spec.Open, "fd00::4"))); err == nil || !strings.Contains(err.Error(), "all its rules are missing") {
		t.Error(err)
	}
}

// TestProtectionOfLongNames is TestProtection for names that are cut, which do not say who needs an element.
func TestProtectionOfLongNames(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	c := open(t, h)
	policy := spec.ForwardNeeds{Ingress: spec.SameBridge, Bridge: "cni0"}
	long := strings.Repeat("0123456789abcdef", 8)
	must(t, c.Add(ctx, keyOf(long+"a"), ToForward(policy)))
	must(t, c.Add(ctx, keyOf(long+"b"), ToForward(policy)))
	del(t, c, Forwarding, keyOf(long+"a")) // whose name the elements have
	must(t, c.Check(keyOf(long+"b"), ToForward(policy)))
	del(t, c, Forwarding, keyOf(long+"b"))
	settle(t, h)
	if got := h.MustRun(t, "nft", "list", "table", "inet", "cnibox-forward"); strings.Contains(got, `"cni0"`) {
		t.Errorf("left:\n%s", got)
	}
}

// TestLacking has a kernel without netfilter over netlink: nothing is there, and nothing can be made.
func TestLacking(t *testing.T) {
	t.Parallel()
	c := &Conn{lacking: unix.EPROTONOSUPPORT}
	defer c.Close()
	wants := ToMasquerade(prefixes("10.88.0.2/24"))
	if there, err := c.HasTables(wants.Table); err != nil || there[0] {
		t.Error(there, err)
	}
	for name, err := range map[string]error{"STATUS": c.Available(Masquerading), "ADD": c.Add(ctx, keyOf("a"), wants), "CHECK": c.Check(keyOf("a"), wants)} {
		if !plugin.IsMissingFeature(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnused: the guard of a link that is gone is left over, unless it expires by itself: a DEL has just let it go.
func TestUnused(t *testing.T) {
	t.Parallel()
	a := newAttached(t)
	a.MustRun(t, "nft", "add", "element", "inet", hostTable.Name, insideSet, `{ "gone0", "ends0" timeout 1h }`)
	a.Do(func() {
		list, err := Unused{}.Held(ctx, "net")
		must(t, err)
		if len(list) != 1 || list[0].What != "guard of link gone0, which is gone" {
			t.Errorf("%+v", list)
		}
		must(t, Unused{}.Release(ctx, list))
	})
	if got := listing(t, a.Host); strings.Contains(got, "gone0") || !strings.Contains(got, "ends0") {
		t.Errorf("left:\n%s", got)
	}
}

// TestUnusedSubnets: a subnet without addresses goes, also when rules of another version lead to it, beside ours or alone.
func TestUnusedSubnets(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	c := open(t, h)
	h.Do(func() {
		for _, network := range []string{"10.88.0", "10.89.0"} {
			must(t, c.Add(ctx, keyOf(network), ToMasquerade(prefixes(network+".2/24"))))
			h.MustRun(t, "nft", fmt.Sprintf("add chain inet cnibox subnets_v2; add rule inet cnibox subnets_v2 jump masq_v1_%s.0/24", network))
			del(t, c, Masquerading, keyOf(network))
		}
		settle(t, h)
		h.MustRun(t, "nft", "flush chain inet cnibox subnets_v1; add rule inet cnibox subnets_v1 jump masq_v1_10.88.0.0/24")
		must(t, gc(Masquerading, "net"))
	})
	if got := listing(t, h); strings.Contains(got, "masq_v1") {
		t.Errorf("left:\n%s", got)
	}
}
