package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// sends returns how many messages f sends.
func sends(table *Table, f func()) int {
	before := table.conn.Sends
	f()
	return table.conn.Sends - before
}

func TestMessageBudget(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			addLink(t, h, "cni0")
			table := open(t, h)
			tried(t, h, table, way)
			del := 3 // what is held, whose it is, delete
			if way == "expire" {
				del = 4 // … and whether it expires in time
			}
			must(t, table.AddMasquerade(ctx, keyOf("first"), prefixes("10.88.0.1/24")))
			k := keyOf("second")
			h.Do(func() {
				for _, step := range []struct {
					name string
					want int
					do   func() error
				}{
					{"add masquerade", 2, func() error { return table.AddMasquerade(ctx, k, prefixes("10.88.0.2/24")) }}, // whether it is in the way, add
					{"add port maps", 2, func() error {
						return table.AddPortMaps(ctx, k, behind("cni0", portMaps(t, "tcp/80=10.88.0.2:80", "udp/53=10.88.0.2:53")))
					}},
					{"delete masquerade", del, func() error { return table.DelMasquerade(ctx, k, nil) }},
					{"delete port maps", del, func() error { _, err := table.DelPortMaps(ctx, k, nil); return err }},
					{"delete nothing", 1, func() error { return table.DelMasquerade(ctx, k, nil) }},
				} {
					if got := sends(table, func() { must(t, step.do()) }); got != step.want {
						t.Errorf("%s: %d messages, want %d", step.name, got, step.want)
					}
				}
			})
		})
	}
}

func TestDelWithoutAdd(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	must(t, table.DelMasquerade(ctx, keyOf("a"), nil))
	delPorts(t, table, keyOf("a"))
	must(t, table.GCMasquerade(ctx, "net", nil))
	must(t, table.GCPortMaps(ctx, "net", nil))
	if got := listing(t, h); got != "" {
		t.Errorf("made a table:\n%s", got)
	}
}

// TestAddTwice adds what is there, and other things in its place.
func TestAddTwice(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	table := open(t, h)
	k := keyOf("a")
	add := func(ports ...string) {
		t.Helper()
		h.Do(func() { must(t, table.AddPortMaps(ctx, k, behind("cni0", portMaps(t, ports...)))) })
	}
	must(t, table.AddMasquerade(ctx, k, prefixes("10.88.0.2/24", "fd00::2/64")))
	add("tcp/80=10.88.0.2:80", "tcp/81=10.88.0.2:81")
	once := listing(t, h)
	must(t, table.AddMasquerade(ctx, k, prefixes("10.88.0.2/24", "fd00::2/64")))
	add("tcp/80=10.88.0.2:80", "tcp/81=10.88.0.2:81")
	if got := listing(t, h); got != once {
		t.Errorf("once:\n%s\ntwice:\n%s", once, got)
	}
	must(t, table.AddMasquerade(ctx, k, prefixes("10.88.0.3/24")))
	add("tcp/81=10.88.0.2:8181")
	got := listing(t, h)
	for _, gone := range []string{"10.88.0.2 ", "fd00::2 ", "tcp . 80 ", "0x00000001"} {
		if strings.Contains(got, "elements = { "+gone) || strings.Contains(got, "\t     "+gone) {
			t.Errorf("%q is still there:\n%s", gone, got)
		}
	}
	must(t, table.CheckMasquerade(ctx, k, prefixes("10.88.0.3/24")))
	h.Do(func() { must(t, table.CheckPortMaps(ctx, k, behind("cni0", portMaps(t, "tcp/81=10.88.0.2:8181")))) })
}

func TestLateDelLeavesNewOwner(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	oldKey, newKey := keyOf("old"), keyOf("new")
	must(t, table.AddMasquerade(ctx, oldKey, prefixes("10.88.0.2/24", "10.88.0.3/24")))
	must(t, table.AddMasquerade(ctx, newKey, prefixes("10.88.0.2/24")))
	if err := table.CheckMasquerade(ctx, oldKey, prefixes("10.88.0.2/24", "10.88.0.3/24")); err == nil || !strings.Contains(err.Error(), "net/new/eth0") {
		t.Errorf("check of the old owner: %v", err)
	}
	must(t, table.DelMasquerade(ctx, oldKey, nil))
	must(t, table.CheckMasquerade(ctx, newKey, prefixes("10.88.0.2/24")))
	if got := listing(t, h); strings.Contains(got, "10.88.0.3") || strings.Contains(got, "old") {
		t.Errorf("the old owner left something:\n%s", got)
	}
	must(t, table.DelMasquerade(ctx, newKey, nil))
	if got := listing(t, h); strings.Contains(got, "elements") {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	table := open(t, h)
	add := func(id string, ports ...string) (err error) {
		h.Do(func() { err = table.AddPortMaps(ctx, keyOf(id), behind("cni0", portMaps(t, ports...))) })
		return err
	}
	must(t, add("first", "tcp/8080=10.88.0.2:80", "tcp/192.0.2.1:443=10.88.0.2:443"))
	before := listing(t, h)
	for _, c := range []struct{ port, want string }{
		{"tcp/8080=10.88.0.3:80", "host port tcp/8080 is already published by net/first/eth0"},
		{"tcp/8080=10.88.0.2:80", "host port tcp/8080 is already published by net/first/eth0"},
		{"tcp/192.0.2.1:443=10.88.0.3:443", "host port tcp/192.0.2.1:443 is already published by net/first/eth0"},
	} {
		err := add("second", "tcp/9999=10.88.0.3:80", c.port)
		var shown *types.Error
		if !errors.As(err, &shown) || shown.Msg != c.want || shown.Details == "" {
			t.Errorf("%s: %v", c.port, err)
		}
	}
	if got := listing(t, h); got != before {
		t.Errorf("changed by what failed:\n%s", got)
	}
	// The same number for another protocol, family or address is another port.
	must(t, add("second", "udp/8080=10.88.0.3:80", "tcp/8080=[fd00::3]:80", "tcp/192.0.2.1:8080=10.88.0.3:80", "tcp/443=10.88.0.3:443"))
}

func TestCheckFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	table := open(t, h)
	k := keyOf("a")
	ports := behind("cni0", portMaps(t, "tcp/80=10.88.0.2:80"))
	h.Do(func() {
		must(t, table.AddMasquerade(ctx, k, prefixes("10.88.0.2/24")))
		must(t, table.AddPortMaps(ctx, k, ports))
	})
	saved := listing(t, h)
	check := func() (err error) {
		h.Do(func() {
			err = errors.Join(table.CheckMasquerade(ctx, k, prefixes("10.88.0.2/24")), table.CheckPortMaps(ctx, k, ports))
		})
		return err
	}
	must(t, check())
	for _, c := range []struct{ do, want string }{
		{"delete element inet cnibox ports4_v2 { tcp . 80 }", "tcp/80 is not in ports4_v2"},
		{"delete element inet cnibox snat4_v2 { cni0 . tcp . 80 }", "tcp/80 is not in snat4_v2"},
		{"delete element inet cnibox inside_v2 { cni0 }", "tcp/80 is not in inside_v2"},
		{"delete element inet cnibox masq_v2_10.88.0.0/24 { 10.88.0.2 }", "10.88.0.2 is not in masq_v2_10.88.0.0/24"},
		{"flush map inet cnibox owners_v2", "should hold"},
		{"flush chain inet cnibox dnat_v2", "chain dnat_v2 has 0 of its 16 rules"},
		{"flush chain inet cnibox postrouting_v2", "postrouting_v2"},
		{"delete element inet cnibox ports4_v2 { tcp . 80 }; add element inet cnibox ports4_v2 { tcp . 80 comment \"net/a/eth0\" : 10.88.0.9 . 80 }", "tcp/80 in ports4_v2 leads elsewhere"},
		{"flush table inet cnibox", "all its rules are missing"},
		{"delete table inet cnibox", "table inet cnibox is missing"},
		{"flush ruleset", "table inet cnibox is missing"},
	} {
		h.MustRun(t, "nft", c.do)
		if err := check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("after %q: %v", c.do, err)
		}
		restore(t, h, saved)
	}
	must(t, check())
	h.Do(func() { must(t, netfilter.ForbidLocalhost("cni0")) })
	if err := check(); err == nil || !strings.Contains(err.Error(), "route_localnet") {
		t.Errorf("without route_localnet: %v", err)
	}
}

// TestDamagedTable removes what can still be found.
func TestDamagedTable(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	table := open(t, h)
	ports := behind("cni0", portMaps(t, "tcp/80=10.88.0.2:80", "tcp/81=10.88.0.2:81"))
	h.Do(func() { must(t, table.AddPortMaps(ctx, keyOf("a"), ports)) })
	h.MustRun(t, "nft", "delete element inet cnibox ports4_v2 { tcp . 80 }; delete element inet cnibox snat4_v2 { lo . tcp . 81 }")
	h.Do(func() { delPorts(t, table, keyOf("a")) })
	if got := strings.ReplaceAll(listing(t, h), guardComment, ""); strings.Contains(got, "80") && strings.Contains(got, "net/a/eth0") {
		t.Errorf("left behind:\n%s", got)
	}
	h.MustRun(t, "nft", "flush", "ruleset")
	h.Do(func() { must(t, table.AddPortMaps(ctx, keyOf("a"), ports)) })
	h.Do(func() { must(t, table.CheckPortMaps(ctx, keyOf("a"), ports)) })
}

func TestGC(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	for _, link := range []string{"cni0", "cni1"} {
		addLink(t, h, link)
	}
	other := plugin.Key{Network: "other", ContainerID: "a", IfName: "eth0"}
	h.Do(func() {
		for i, k := range []plugin.Key{keyOf("a"), keyOf("b"), other} {
			addr := netip.AddrFrom4([4]byte{10, byte(i), 0, 2})
			must(t, table.AddMasquerade(ctx, k, []netip.Prefix{netip.PrefixFrom(addr, 24)}))
			m := netfilter.PortMap{Protocol: tcp, HostPort: uint16(8000 + i), Container: netip.AddrPortFrom(addr, 80)}
			must(t, table.AddPortMaps(ctx, k, behind(fmt.Sprintf("cni%d", i%2), []netfilter.PortMap{m})))
		}
	})
	h.MustRun(t, "ip", "link", "delete", "cni1")

	must(t, table.GCMasquerade(ctx, "net", []plugin.Key{keyOf("a")}))
	got := listing(t, h)
	for _, want := range []string{"masq_v2_10.0.0.0/24", "masq_v2_10.2.0.0/24", "tcp . 8001", `"cni1"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is gone:\n%s", want, got)
		}
	}
	if strings.Contains(got, "10.1.0.0") {
		t.Errorf("the empty subnet is still there:\n%s", got)
	}
	h.Do(func() { must(t, table.GCPortMaps(ctx, "net", []plugin.Key{keyOf("a")})) })
	got = listing(t, h)
	if strings.Contains(got, "net/b/") || strings.Contains(got, `"cni1"`) {
		t.Errorf("b or its link is still there:\n%s", got)
	}
	h.Do(func() {
		must(t, table.GCMasquerade(ctx, "net", nil))
		must(t, table.GCPortMaps(ctx, "net", nil))
	})
	got = listing(t, h)
	if strings.Contains(got, "net/a/") || !strings.Contains(got, "other/a/") {
		t.Errorf("an empty list must take all of the network and nothing else:\n%s", got)
	}
	must(t, table.GCMasquerade(ctx, "other", nil))
	must(t, table.GCPortMaps(ctx, "other", nil))
	if got := listing(t, h); strings.Contains(strings.ReplaceAll(got, guardComment, ""), "comment") {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestManyBuildersMakeOneRuleset has several sockets, each of which is a
// process to the kernel, build the ruleset at once.
func TestManyBuildersMakeOneRuleset(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	golden, err := os.ReadFile("testdata/ruleset.nft")
	must(t, err)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 8 {
		table := open(t, h)
		wg.Go(func() {
			<-start
			for j := range 3 {
				addr := netip.AddrFrom4([4]byte{10, byte(j), 0, byte(i + 2)})
				k := keyOf(fmt.Sprintf("c%d-%d", i, j))
				if err := table.AddMasquerade(ctx, k, []netip.Prefix{netip.PrefixFrom(addr, 24)}); err != nil {
					t.Error(err)
				}
				m := netfilter.PortMap{Protocol: tcp, HostPort: uint16(8000 + 8*i + j), Container: netip.AddrPortFrom(addr, 80)}
				if err := table.AddPortMaps(ctx, k, netfilter.PortMaps{Maps: []netfilter.PortMap{m}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	close(start)
	wg.Wait()
	got := listing(t, h)
	for _, line := range strings.Split(string(golden), "\n") {
		if strings.Contains(line, "@") && !strings.Contains(line, "@masq_") && strings.Count(got, line) != 1 {
			t.Errorf("%d times: %s", strings.Count(got, line), line)
		}
	}
	for j := range 3 {
		if rule := fmt.Sprintf("@masq_v2_10.%d.0.0/24", j); strings.Count(got, rule) != 1 {
			t.Errorf("%d rules with %s", strings.Count(got, rule), rule)
		}
	}
	if n := strings.Count(got, "ports4_v2 {"); n != 4 { // on all addresses and on one, without conditions and with
		t.Errorf("%d maps of ports", n)
	}
	if n := strings.Count(got, `comment "net/c`); n != 8*3*(1+1+1+1) { // two entries of owners, an address, a port
		t.Errorf("%d elements", n)
	}
}

// TestThousandsOfPorts needs several messages and a large send buffer.
func TestThousandsOfPorts(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	table := open(t, h)
	const n = 5000
	var maps []netfilter.PortMap
	for i := range n {
		maps = append(maps, netfilter.PortMap{
			Protocol: tcp, HostPort: uint16(10000 + i), Container: netip.AddrPortFrom(netip.MustParseAddr("10.88.0.2"), uint16(1+i)),
		})
	}
	k := keyOf(strings.Repeat("0123456789abcdef", 8)) // the longest comment
	ports := behind("cni0", maps)
	h.Do(func() {
		must(t, table.AddPortMaps(ctx, k, ports))
		must(t, table.CheckPortMaps(ctx, k, ports))
	})
	for s, want := range map[*nftables.Set]int{&owners: n, &ipv4.all.ports: n, &ipv4.all.snat: 2 * n} {
		if got := count(t, table, s); got != want {
			t.Errorf("%s has %d elements, want %d", s.Name, got, want)
		}
	}
	h.Do(func() { must(t, table.AddPortMaps(ctx, k, ports)) })
	var removed []string
	h.Do(func() { removed = delPorts(t, table, k) })
	if len(removed) != n {
		t.Errorf("%d ports were removed, want %d", len(removed), n)
	}
	for _, s := range []*nftables.Set{&owners, &ipv4.all.ports, &ipv4.all.snat} {
		if got := count(t, table, s); got != 0 {
			t.Errorf("%s has %d elements left", s.Name, got)
		}
	}
}

func count(t testing.TB, table *Table, s *nftables.Set) int {
	t.Helper()
	n := 0
	must(t, table.conn.List(s, func([]byte, nftables.Found) { n++ }))
	return n
}

func TestAvailableLeavesNothing(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	must(t, table.Available())
	if got := listing(t, h); got != "" {
		t.Errorf("made a table:\n%s", got)
	}
	must(t, table.AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/24")))
	must(t, table.Available())
}

func TestUnavailableError(t *testing.T) {
	err := unavailable(unix.EOPNOTSUPP)
	shown := plugin.AsError(fmt.Errorf("bridge: %w", err))
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, unix.EOPNOTSUPP) || shown.Code != types.ErrPluginNotAvailable || shown.Details == "" {
		t.Errorf("%#v is shown as %#v", err, shown)
	}
}

// TestOwnLink is about a link that belongs to one attachment: what is set for
// it goes with the attachment.
func TestOwnLink(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "veth0")
	table := open(t, h)
	ports := behind("veth0", portMaps(t, "tcp/80=10.88.0.2:80", "tcp/80=[fd00::2]:80"))
	ports.InsideShared = false
	h.Do(func() {
		must(t, table.AddPortMaps(ctx, keyOf("a"), ports))
		must(t, table.CheckPortMaps(ctx, keyOf("a"), ports))
		delPorts(t, table, keyOf("a"))
		if allowed, err := netfilter.LocalhostAllowed("veth0"); err != nil || allowed {
			t.Errorf("route_localnet is %v, %v after the attachment is gone", allowed, err)
		}
		ports.Inside = "gone0"
		if err := table.AddPortMaps(ctx, keyOf("a"), ports); err == nil {
			t.Error("a link that is not there was no error")
		}
	})
	if got := listing(t, h); strings.Contains(got, "comment") {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestCancelledContext stops a long change between two messages, and leaves what
// was there.
func TestCancelledContext(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	table := open(t, h)
	var texts []string
	for i := range 600 {
		texts = append(texts, fmt.Sprintf("tcp/%d=10.88.0.2:80", 10000+i))
	}
	ports := behind("cni0", portMaps(t, texts...))
	h.Do(func() { must(t, table.AddPortMaps(ctx, keyOf("a"), ports)) })
	for name, do := range map[string]func(context.Context) error{
		"ADD":   func(ctx context.Context) error { return table.AddPortMaps(ctx, keyOf("a"), ports) },
		"CHECK": func(ctx context.Context) error { return table.CheckPortMaps(ctx, keyOf("a"), ports) },
		"DEL":   func(ctx context.Context) error { _, err := table.DelPortMaps(ctx, keyOf("a"), nil); return err },
	} {
		late := &lateCancel{Context: ctx, after: 4}
		sent := sends(table, func() {
			h.Do(func() {
				if err := do(late); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
			})
		})
		if sent == 0 || sent > 40 {
			t.Errorf("%s: %d messages before it stopped", name, sent)
		}
	}
	h.Do(func() { must(t, table.CheckPortMaps(ctx, keyOf("a"), ports)) })
}

// lateCancel is cancelled after it has been asked a number of times.
type lateCancel struct {
	context.Context
	after int
}

func (c *lateCancel) Err() error {
	if c.after--; c.after < 0 {
		return context.Canceled
	}
	return nil
}
