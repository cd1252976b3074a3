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
	ports spec.PortMaps
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
		must(t, a.conn.Masquerade(prefixes("10.88.0.2/24", "fd00::2/64", "10.99.0.1/32")).Add(ctx, keyOf(id)))
		must(t, a.conn.PortMaps(a.ports).Add(ctx, keyOf(id)))
	})
}

func (a attached) check() (err error) {
	a.Do(func() {
		err = errors.Join(
			a.conn.Masquerade(prefixes("10.88.0.2/24", "fd00::2/64", "10.99.0.1/32")).Check(keyOf("a")),
			a.conn.PortMaps(a.ports).Check(keyOf("a")))
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
	must(t, a.conn.Masquerade(prefixes("10.88.1.2/24")).Add(ctx, keyOf("b")))
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
		{"delete element inet cnibox ports4_v1 { tcp . 80 }; add element inet cnibox ports4_v1 { tcp . 80 comment \"net/a/eth0\" : 10.88.0.9 . 80 }", "tcp/80 in ports4_v1 leads elsewhere"},
		{"add rule inet cnibox guard_v1 counter", ""},
	} {
		a.MustRun(t, "nft", tt.damage)
		if err := a.check(); (err == nil) != (tt.check == "") || err != nil && !strings.Contains(err.Error(), tt.check) {
			t.Errorf("%s: CHECK says %v", tt.damage, err)
		}
		a.add(t, "a")
		must(t, a.conn.Masquerade(prefixes("10.88.1.2/24")).Add(ctx, keyOf("b")))
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
					err = c.Masquerade(prefixes(fmt.Sprintf("10.88.0.%d/24", i+2))).Add(ctx, keyOf(fmt.Sprint(i)))
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
			del(t, a.conn.Masquerade(nil), before)
			if got := delPorts(t, a.conn, before); len(got) != 2 {
				t.Fatalf("round %d: DEL has taken back %v", i, got)
			}
			must(t, a.conn.Masquerade(prefixes("10.88.0.2/24", "fd00::2/64", "10.99.0.1/32")).Add(ctx, now))
			must(t, a.conn.PortMaps(a.ports).Add(ctx, now))
			must(t, a.conn.PortMaps(a.ports).Check(now))
			time.Sleep(tick) // what had a timeout would be gone
			must(t, a.conn.PortMaps(a.ports).Check(now))
			must(t, a.conn.Masquerade(prefixes("10.88.0.2/24", "fd00::2/64", "10.99.0.1/32")).Check(now))
		}
	})
}

// TestLateDel leaves what has passed to another one.
func TestLateDel(t *testing.T) {
	t.Parallel()
	a := newAttached(t)
	must(t, a.conn.Masquerade(prefixes("10.88.0.2/24")).Add(ctx, keyOf("b")))
	del(t, a.conn.Masquerade(nil), keyOf("a"))
	time.Sleep(tick)
	must(t, a.conn.Masquerade(prefixes("10.88.0.2/24")).Check(keyOf("b")))
	if got := listing(t, a.Host); strings.Contains(got, "fd00::2 comment") {
		t.Errorf("left:\n%s", got)
	}
}

// TestPortTaken names the owner.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	a := newAttached(t)
	a.Do(func() {
		err := a.conn.PortMaps(a.ports).Add(ctx, keyOf("b"))
		if err == nil || !strings.Contains(err.Error(), "host port tcp/80 is already published by net/a/eth0") {
			t.Error(err)
		}
		if got := delPorts(t, a.conn, keyOf("b")); got != nil {
			t.Errorf("b had %v", got)
		}
	})
	must(t, a.check())
}

// TestCollision has two attachments with one hash.
func TestCollision(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	c := open(t, h)
	use := c.Masquerade(prefixes("10.88.0.2/24"))
	first, second := ownerOf(keyOf("a"), use.name), ownerOf(keyOf("b"), use.name)
	second.id = first.id
	must(t, use.hold(first, use.records))
	err := use.hold(second, c.Masquerade(prefixes("10.88.0.3/24")).records)
	if err == nil || !strings.Contains(err.Error(), "net/a/eth0") {
		t.Error(err)
	}
	_, err = use.release(second)
	must(t, err)
	must(t, use.Check(keyOf("a")))
}

// TestGC removes what is not valid, and then what is for nobody.
func TestGC(t *testing.T) {
	t.Parallel()
	a := newAttached(t)
	other := plugin.Key{Network: "other", ContainerID: "a", IfName: "eth0"}
	a.Do(func() {
		must(t, a.conn.Masquerade(prefixes("10.88.1.2/24")).Add(ctx, other))
		must(t, a.conn.PortMaps(behind("cni0", portMaps(t, "tcp/81=10.88.0.3:80"))).Add(ctx, keyOf("b")))
		must(t, a.conn.PortMaps(spec.PortMaps{}).GC(ctx, "net", []plugin.Key{keyOf("a")}))
		must(t, a.conn.Masquerade(nil).GC(ctx, "net", []plugin.Key{keyOf("a")}))
		must(t, a.check())
		must(t, a.conn.Masquerade(nil).GC(ctx, "net", nil))
		must(t, a.conn.PortMaps(spec.PortMaps{}).GC(ctx, "net", nil))
		a.MustRun(t, "ip", "link", "del", "cni0")
		must(t, a.conn.PortMaps(spec.PortMaps{}).GC(ctx, "net", nil))
		must(t, a.conn.Masquerade(prefixes("10.88.1.2/24")).Check(other))
		del(t, a.conn.Masquerade(nil), other)
		must(t, a.conn.Masquerade(nil).GC(ctx, "any", nil))
	})
	time.Sleep(tick)
	if got := listing(t, a.Host); strings.Contains(got, "elements") || strings.Contains(got, "masq_v1") {
		t.Errorf("left:\n%s", got)
	}
}

// TestMany publishes as many ports at once as one message does not hold.
func TestMany(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	c := open(t, h)
	var ports spec.PortMaps
	for i := range 10000 {
		ports.Maps = append(ports.Maps, portMap(t, fmt.Sprintf("tcp/%d=10.88.0.2:80", 10000+i)))
	}
	ports = behind("cni0", ports.Maps)
	long := plugin.Key{Network: strings.Repeat("n", 40), ContainerID: strings.Repeat("c", 80), IfName: "eth0"}
	h.Do(func() {
		start := time.Now()
		must(t, c.PortMaps(ports).Add(ctx, long))
		t.Log("ADD", time.Since(start))
		must(t, c.PortMaps(ports).Check(long))
		t.Log("CHECK", time.Since(start))
		if got := len(delPorts(t, c, long)); got != 10000 {
			t.Errorf("DEL has taken back %d", got)
		}
		t.Log("DEL", time.Since(start))
	})
	time.Sleep(50 * time.Millisecond)
	if got := listing(t, h); strings.Contains(got, "tcp") && strings.Contains(got, " . 10000") {
		t.Errorf("left:\n%.2000s", got)
	}
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
		_, err = c.Masquerade(nil).Del(ctx, keyOf("a"))
		done <- err
	})
	select {
	case err := <-done:
		var shown *types.Error
		if !errors.As(err, &shown) || !strings.Contains(shown.Details, "CAP_NET_ADMIN") {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("no answer")
	}
}

// TestOptions publishes ports with conditions and with another bit of the mark.
func TestOptions(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.MustRun(t, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0")
	n.web.ServeTCP(t, ":80")
	n.peer.ServeTCP(t, ":80")
	web := behind("cni0", portMaps(t, "tcp/8080=10.1.0.2:80", "tcp/8080=[fd00:1::2]:80", "tcp/192.0.2.1:9000=10.1.0.2:80"))
	web.Conditions4, web.Conditions6 = []string{"ip", "saddr", "!=", "{ 192.0.2.254 }"}, []string{"ip6 saddr != 2001:db8:2::254"}
	web.MarkBit = 14
	peer := behind("cni0", portMaps(t, "tcp/8080=10.1.0.3:80", "tcp/8080=[fd00:1::3]:80", "tcp/8081=10.1.0.3:80"))
	peer.MarkBit = 15
	n.addPorts(t, "web", web)
	n.addPorts(t, "web", web)
	n.addPorts(t, "peer", peer)
	for _, c := range []struct {
		from         *netlab.Namespace
		target, want string
	}{
		{&n.outside.Namespace, "192.0.2.1:8080", "peer saw 192.0.2.254"},
		{&n.outside.Namespace, "[2001:db8:2::1]:8080", "peer saw 2001:db8:2::254"},
		{&n.Namespace, "192.0.2.1:8080", "web saw 192.0.2.1"},
		{&n.Namespace, "192.0.2.1:9000", "web saw 192.0.2.1"},
		{&n.Namespace, "127.0.0.1:8080", "web saw 10.1.0.1"},
		{&n.web.Namespace, "192.0.2.1:8080", "web saw 10.1.0.1"},
		{&n.peer.Namespace, "10.1.0.1:8081", "peer saw 10.1.0.1"},
		{&n.remote.Namespace, "[2001:db8:2::1]:8080", "web saw fd00:2::2"},
	} {
		if got := ask(c.from, "tcp", c.target); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.from.Name(), c.target, got, c.want)
		}
	}
	saved := listing(t, n.Host)
	n.Do(func() {
		must(t, n.table.PortMaps(web).Check(keyOf("web")))
		must(t, n.table.PortMaps(peer).Check(keyOf("peer")))
		changed := web
		changed.Conditions4 = []string{"ip saddr 10.0.0.0/8"}
		if err := n.table.PortMaps(changed).Check(keyOf("web")); err == nil {
			t.Error("CHECK takes other conditions for the same")
		}
		taken := behind("cni0", portMaps(t, "tcp/8080=10.1.0.9:80"))
		taken.Conditions4 = []string{"ip saddr 10.0.0.0/8"}
		if err := n.table.PortMaps(taken).Add(ctx, keyOf("other")); err == nil || !strings.Contains(err.Error(), "already published by net/web/eth0") {
			t.Error(err)
		}
		for _, wrong := range []string{"ip saddr", "ip6 saddr fd00::1", "ip saddr 10.0.0.1; flush ruleset", "accept #"} {
			taken.Conditions4 = []string{wrong}
			var shown *types.Error
			if err := n.table.PortMaps(taken).Add(ctx, keyOf("other")); !errors.As(err, &shown) || shown.Code != types.ErrInvalidNetworkConfig || !strings.HasPrefix(shown.Msg, "conditionsV4: ") {
				t.Errorf("%s: %v", wrong, err)
			}
		}
	})
	if got := listing(t, n.Host); got != saved {
		t.Errorf("what was refused has left something:\n%s", got)
	}
	n.MustRun(t, "nft", "flush", "chain", "inet", HostTable.Name, chainOptions)
	n.Do(func() {
		if err := n.table.PortMaps(web).Check(keyOf("web")); err == nil || !strings.Contains(err.Error(), "of its own 9 rules") {
			t.Errorf("CHECK of flushed options: %v", err)
		}
		for _, id := range []string{"web", "peer"} {
			if got := delPorts(t, n.table, keyOf(id)); len(got) != 3 {
				t.Errorf("DEL of %s: %v", id, got)
			}
		}
	})
	time.Sleep(tick)
	if got := listing(t, n.Host); strings.Contains(got, "net/") {
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
		time.Sleep(tick)
		return h.MustRun(t, "nft", "list", "table", "inet", "cnibox-forward")
	}
	policy := func(ingress spec.Ingress, addr string) spec.Forward {
		return spec.Forward{Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Ingress: ingress, Bridge: "cni0"}
	}
	must(t, c.Forward(spec.Forward{}).Available())
	must(t, c.Forward(policy(spec.Isolated, "10.88.0.2")).Add(ctx, keyOf("a")))
	must(t, c.Forward(policy(spec.SameBridge, "10.88.0.3")).Add(ctx, keyOf("b")))
	must(t, c.Forward(policy(spec.Open, "fd00::4")).Add(ctx, keyOf("c")))
	must(t, c.Forward(policy(spec.Isolated, "10.88.0.2")).Check(keyOf("a")))
	del(t, c.Forward(spec.Forward{}), keyOf("a"))
	if got := list(); strings.Contains(got, "10.88.0.2") || strings.Count(got, `{ "cni0" . "cni0" comment "net/b/eth0" }`) != 1 || !strings.Contains(got, `{ "cni0" comment "net/b/eth0" }`) {
		t.Errorf("after the first DEL:\n%s", got)
	}
	must(t, c.Forward(policy(spec.Open, "10.88.0.3")).Add(ctx, keyOf("b")))
	if got := list(); strings.Contains(got, `{ "cni0"`) || !strings.Contains(got, "{ 10.88.0.3 comment") {
		t.Errorf("after a change of policy:\n%s", got)
	}
	must(t, c.Forward(spec.Forward{}).GC(ctx, "net", []plugin.Key{keyOf("c")}))
	if got := list(); strings.Contains(got, "10.88") || !strings.Contains(got, "fd00::4") {
		t.Errorf("after GC:\n%s", got)
	}
	h.MustRun(t, "nft", "flush", "table", "inet", "cnibox-forward")
	if err := c.Forward(policy(spec.Open, "fd00::4")).Check(keyOf("c")); err == nil || !strings.Contains(err.Error(), "all its rules are missing") {
		t.Error(err)
	}
}

// TestProtectionWithoutName is TestProtection for elements of earlier versions, which name nobody.
func TestProtectionWithoutName(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	c := open(t, h)
	policy := spec.Forward{Ingress: spec.SameBridge, Bridge: "cni0"}
	must(t, c.Forward(policy).Add(ctx, keyOf("a")))
	must(t, c.Forward(policy).Add(ctx, keyOf("b")))
	for _, verb := range []string{"delete", "add"} {
		h.MustRun(t, "nft", verb, "element", "inet", "cnibox-forward", "protected_v1", `{ "cni0" }`)
	}
	del(t, c.Forward(spec.Forward{}), keyOf("b"))
	must(t, c.Forward(policy).Check(keyOf("a")))
	for _, verb := range []string{"delete", "add"} {
		h.MustRun(t, "nft", verb, "element", "inet", "cnibox-forward", "protected_v1", `{ "cni0" }`)
	}
	del(t, c.Forward(spec.Forward{}), keyOf("a"))
	time.Sleep(tick)
	if got := h.MustRun(t, "nft", "list", "table", "inet", "cnibox-forward"); strings.Contains(got, `"cni0"`) {
		t.Errorf("left:\n%s", got)
	}
}

func TestSpoofCheck(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	c := open(t, h)
	mac := [6]byte{2, 0, 0, 0, 0, 1}
	must(t, c.SpoofCheck("", mac).Available())
	must(t, c.SpoofCheck("veth1", mac).Add(ctx, keyOf("a")))
	must(t, c.SpoofCheck("veth1", mac).Check(keyOf("a")))
	if got := h.MustRun(t, "nft", "list", "table", "bridge", "cnibox"); !strings.Contains(got, `{ "veth1" . 02:00:00:00:00:01 comment "net/a/eth0" }`) ||
		!strings.Contains(got, "iifname . ether saddr @allowed_v1 accept\n\t\tiifname @checked_v1 drop") {
		t.Errorf("made:\n%s", got)
	}
	del(t, c.SpoofCheck("", [6]byte{}), keyOf("a"))
	time.Sleep(tick)
	if got := h.MustRun(t, "nft", "list", "table", "bridge", "cnibox"); strings.Contains(got, "elements") {
		t.Errorf("left:\n%s", got)
	}
}

// TestLacking has a kernel without netfilter over netlink: nothing is there, and nothing can be made.
func TestLacking(t *testing.T) {
	t.Parallel()
	c := &Conn{lacking: unix.EPROTONOSUPPORT}
	defer c.Close()
	use := c.Masquerade(prefixes("10.88.0.2/24"))
	if there, err := c.HasTables(use.Table); err != nil || there[0] {
		t.Error(there, err)
	}
	for name, err := range map[string]error{"STATUS": use.Available(), "ADD": use.Add(ctx, keyOf("a")), "CHECK": use.Check(keyOf("a"))} {
		var shown *types.Error
		if !errors.As(err, new(Unavailable)) || !errors.As(err, &shown) || shown.Code != types.ErrPluginNotAvailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}
