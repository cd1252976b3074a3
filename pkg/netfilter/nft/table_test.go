package nft

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

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
	a.Do(func() { a.add(t, "a") })
	return a
}

func (a attached) masquerade() Wants {
	return ToMasquerade(prefixes("10.88.0.2/24", "fd00::2/64", "10.99.0.1/32"))
}

func (a attached) add(t *testing.T, id string) {
	t.Helper()
	must(t, a.conn.Add(ctx, keyOf(id), a.masquerade()))
	must(t, a.conn.Add(ctx, keyOf(id), ToPublish(a.ports)))
}

func (a attached) check(id string) (err error) {
	a.Do(func() {
		err = errors.Join(a.conn.Check(keyOf(id), a.masquerade()), a.conn.Check(keyOf(id), ToPublish(a.ports)))
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
	must(t, a.check("a"))
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
		if err := a.check("a"); (err == nil) != (tt.check == "") || err != nil && !strings.Contains(err.Error(), tt.check) {
			t.Errorf("%s: CHECK says %v", tt.damage, err)
		}
		a.Do(func() { a.add(t, "a") })
		must(t, a.conn.Add(ctx, keyOf("b"), ToMasquerade(prefixes("10.88.1.2/24"))))
		if got := strings.Replace(listing(t, a.Host), "\t\tcounter packets 0 bytes 0\n", "", 1); sortedLines(got) != sortedLines(saved) {
			t.Errorf("%s: after ADD:\n%s", tt.damage, got)
		}
		must(t, a.check("a"))
	}
}

// TestAgain gives everything back and takes it again at once, for another one too.
func TestAgain(t *testing.T) {
	t.Parallel()
	a, last := newAttached(t), "a"
	for _, id := range strings.Fields("b b a a b b a b a a") {
		a.Do(func() {
			del(t, a.conn, Masquerading, keyOf(last))
			if got := delPorts(t, a.conn, keyOf(last)); len(got) != 2 {
				t.Errorf("DEL has taken back %v", got)
			}
			a.add(t, id)
		})
		must(t, a.check(id))
		settle(t, a.Host) // what had a timeout would be gone
		must(t, a.check(id))
		last = id
	}
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

// TestProtectionOfLongNames has what protects a bridge stay as long as somebody wants it. Names that are cut do not say who does.
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
	policy.Ingress = spec.Open
	must(t, c.Add(ctx, keyOf(long+"b"), ToForward(policy)))
	settle(t, h)
	if got := h.MustRun(t, "nft", "list", "table", "inet", "cnibox-forward"); strings.Contains(got, `"cni0"`) {
		t.Errorf("left:\n%s", got)
	}
}

// TestLacking has a kernel without netfilter over netlink: nothing is there, and nothing can be made. Without rights an error says which.
func TestLacking(t *testing.T) {
	t.Parallel()
	c, wants := &Conn{lacking: unix.EPROTONOSUPPORT}, ToMasquerade(prefixes("10.88.0.2/24"))
	if there, err := c.HasTables(wants.Table); err != nil || there[0] {
		t.Error(there, err)
	}
	for name, err := range map[string]error{"STATUS": c.Available(Masquerading), "ADD": c.Add(ctx, keyOf("a"), wants), "CHECK": c.Check(keyOf("a"), wants)} {
		if !plugin.IsMissingFeature(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := (&Conn{lacking: unix.EPERM}).Del(ctx, keyOf("a"), Masquerading)
	if e := plugin.AsError(err); !strings.Contains(e.Details, "CAP_NET_ADMIN") {
		t.Errorf("%+v", e)
	}
}

// TestUnused: the guard of a link that is gone is left over, unless it expires by itself: a DEL has just let it go. So is a subnet without addresses,
// also when rules of another version lead to it, beside ours or alone.
func TestUnused(t *testing.T) {
	t.Parallel()
	a := newAttached(t)
	a.Do(func() {
		for _, network := range []string{"10.77.0", "10.78.0"} {
			must(t, a.conn.Add(ctx, keyOf(network), ToMasquerade(prefixes(network+".2/24"))))
			a.MustRun(t, "nft", fmt.Sprintf("add chain inet cnibox subnets_v2; add rule inet cnibox subnets_v2 jump masq_v1_%s.0/24", network))
			del(t, a.conn, Masquerading, keyOf(network))
		}
		settle(t, a.Host)
		a.MustRun(t, "nft", "flush chain inet cnibox subnets_v1; add rule inet cnibox subnets_v1 jump masq_v1_10.77.0.0/24")
		a.MustRun(t, "nft", "add", "element", "inet", hostTable.Name, insideSet, `{ "gone0", "ends0" timeout 1h }`)
		must(t, gc(Masquerading, "other"))
	})
	if got := listing(t, a.Host); strings.Contains(got, "gone0") || !strings.Contains(got, "ends0") || strings.Contains(got, "masq_v1_10.7") || !strings.Contains(got, "masq_v1_10.88") {
		t.Errorf("left:\n%s", got)
	}
}
