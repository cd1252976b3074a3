package nft

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/test/netlab"
)

// ways are the outcomes of a trial that a test can go on with.
var ways = []string{"expire", "remove"}

// tried makes the trial of a host, so that what is given back expires, or is
// removed as with a kernel that can't do better.
func tried(t testing.TB, h *netlab.Host, table *Table, way string) {
	t.Helper()
	must(t, table.AddMasquerade(ctx, keyOf("trial"), prefixes("10.99.0.2/24")))
	must(t, table.DelMasquerade(ctx, keyOf("trial"), nil))
	nftables.AwaitTick(nftables.Clock())
	_, left := trial()
	if way == "remove" {
		tx := &nftables.Transaction{}
		left.Shared = true
		tx.AddElements([]nftables.Element{left})
		must(t, table.conn.Commit(tx))
	}
	if got := trialOutcome(t, table); way == "expire" && !got.expire {
		t.Skip("this kernel does not let elements expire (Linux 6.12 does): the trial found that out, as TestTrial shows")
	} else if got.try || got.expire != (way == "expire") {
		t.Fatalf("the trial says %+v", got)
	}
}

func trialOutcome(t testing.TB, table *Table) removal {
	t.Helper()
	made, left := trial()
	there, err := table.look(ctx, []nftables.Element{made, left})
	must(t, err)
	return removalBy(there[0], there[1])
}

// TestTrial compares the outcome with what the kernel really does.
func TestTrial(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	must(t, table.AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/24")))
	if got := trialOutcome(t, table); got != (removal{try: true}) {
		t.Errorf("before the first DEL: %+v", got)
	}
	h.MustRun(t, "nft", `add element inet cnibox trials_v2 { 0x1 . 0x0 comment "another kernel", 0x1 . 0x1 comment "another kernel" }`)
	must(t, table.DelMasquerade(ctx, keyOf("a"), nil))
	nftables.AwaitTick(nftables.Clock())

	h.MustRun(t, "nft", "add table inet probe; add set inet probe s { type mark; flags timeout; }; add element inet probe s { 1 }")
	probe := nftables.Element{Set: &nftables.Set{Table: nftables.Table{Family: unix.NFPROTO_INET, Name: "probe"}, Name: "s"}, Key: nftables.Native(1)}
	tx := &nftables.Transaction{}
	tx.ExpireElements(expireElements, []nftables.Element{probe})
	must(t, table.conn.Commit(tx))
	nftables.AwaitTick(nftables.Clock())
	expires := !strings.Contains(h.MustRun(t, "nft", "list set inet probe s"), "elements")

	if got, want := trialOutcome(t, table), (removal{expire: expires}); got != want {
		t.Errorf("the trial says %+v; the kernel is %+v", got, want)
	}
	saved := h.MustRun(t, "nft", "list table inet cnibox")
	if !strings.Contains(saved, "was told") || strings.Contains(saved, "does not let elements expire") == expires {
		t.Errorf("shown as:\n%s", saved)
	}
	restore(t, h, saved)
	if got := trialOutcome(t, table); got != (removal{expire: expires}) {
		t.Errorf("after a reload: %+v", got)
	}
}

// TestAddAgain gives a port and an address to the same attachment and to another
// one as soon as DEL has returned, many times.
func TestAddAgain(t *testing.T) {
	for _, way := range ways {
		for _, next := range []string{"a", "b"} {
			t.Run(way+"/"+next, func(t *testing.T) {
				t.Parallel()
				h := netlab.NewHost(t)
				addLink(t, h, "cni0")
				tables := map[string]*Table{"a": open(t, h), "b": open(t, h)}
				tried(t, h, tables["a"], way)
				holder := "a"
				for range 200 {
					addr := prefixes(map[string]string{"a": "10.88.0.2/24", "b": "10.88.0.3/24"}[holder])
					target := addr[0].Addr().String()
					ports := behind("cni0", portMaps(t, "tcp/80="+target+":80", "udp/192.0.2.1:53="+target+":53"))
					table, k := tables[holder], keyOf(holder)
					h.Do(func() {
						must(t, table.AddPortMaps(ctx, k, ports))
						must(t, table.AddMasquerade(ctx, k, prefixes("10.88.0.9/24")))
						must(t, table.CheckPortMaps(ctx, k, ports))
						must(t, table.CheckMasquerade(ctx, k, prefixes("10.88.0.9/24")))
						if got := delPorts(t, table, k); len(got) != 2 {
							t.Fatalf("DEL removed %v", got)
						}
						must(t, table.DelMasquerade(ctx, k, nil))
						if err := table.CheckPortMaps(ctx, k, ports); err == nil {
							t.Fatal("CHECK finds what was given back")
						}
					})
					if holder == next {
						holder = "a"
					} else {
						holder = next
					}
				}
				if got := listing(t, h); strings.Contains(got, "net/") {
					t.Errorf("left behind:\n%s", got)
				}
			})
		}
	}
}

// TestAddWhileExpiring has an ADD come before the DEL of the port's owner has
// returned.
func TestAddWhileExpiring(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	table, other := open(t, h), open(t, h)
	tried(t, h, table, "expire")
	ports := func(target string) netfilter.PortMaps {
		return behind("cni0", portMaps(t, "tcp/80="+target+":80", "tcp/81="+target+":80"))
	}
	for _, next := range []string{"a", "b"} {
		for range 50 {
			h.Do(func() {
				must(t, table.AddPortMaps(ctx, keyOf("a"), ports("10.88.0.2")))
				must(t, table.AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.9/24")))
				for _, use := range []string{usePortMap, useMasquerade} {
					_, err := table.release(ctx, attachmentOf(keyOf("a"), use))
					must(t, err)
				}
				must(t, other.AddPortMaps(ctx, keyOf(next), ports("10.88.0.3")))
				must(t, other.AddMasquerade(ctx, keyOf(next), prefixes("10.88.0.9/24")))
				nftables.AwaitTick(nftables.Clock())
				must(t, other.CheckPortMaps(ctx, keyOf(next), ports("10.88.0.3")))
				must(t, other.CheckMasquerade(ctx, keyOf(next), prefixes("10.88.0.9/24")))
				delPorts(t, other, keyOf(next))
				must(t, other.DelMasquerade(ctx, keyOf(next), nil))
			})
		}
	}
}

// TestExpiredPortIsClosed sends a packet as soon as DEL has returned.
func TestExpiredPortIsClosed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	tried(t, n.Host, n.table, "expire")
	n.remote.ServeTCP(t, ":80")
	n.addPorts(t, "a", behind("p2p0", portMaps(t, "tcp/8080=10.2.0.2:80")))
	if got := ask(&n.outside.Namespace, "tcp", "192.0.2.1:8080"); !strings.HasPrefix(got, "remote saw") {
		t.Fatal(got)
	}
	n.Do(func() { delPorts(t, n.table, keyOf("a")) })
	for i := range 50 {
		n.addPorts(t, "a", behind("p2p0", portMaps(t, "tcp/8080=10.2.0.2:80")))
		if _, err := n.outside.DialTCP("192.0.2.1:8080", patience); err != nil {
			t.Fatalf("round %d: after ADD: %v", i, err)
		}
		n.Do(func() { delPorts(t, n.table, keyOf("a")) })
		if got, err := n.outside.DialTCP("192.0.2.1:8080", patience); err == nil {
			t.Fatalf("round %d: after DEL: %s", i, got)
		}
	}
}

// TestThousandsExpire needs several messages for each set.
func TestThousandsExpire(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	table := open(t, h)
	tried(t, h, table, "expire")
	const n = 5000
	var maps []netfilter.PortMap
	for i := range n {
		maps = append(maps, netfilter.PortMap{Protocol: tcp, HostPort: uint16(10000 + i), Container: netip.MustParseAddrPort("10.88.0.2:80")})
	}
	long := strings.Repeat("0123456789abcdef", 8)
	for _, id := range []string{"a" + long, "b" + long} {
		h.Do(func() {
			must(t, table.AddPortMaps(ctx, keyOf(id), behind("cni0", maps)))
			must(t, table.CheckPortMaps(ctx, keyOf(id), behind("cni0", maps)))
			if got := delPorts(t, table, keyOf(id)); len(got) != n {
				t.Errorf("%d ports were removed, want %d", len(got), n)
			}
		})
		for _, s := range []*nftables.Set{&owners, &ipv4.all.ports, &ipv4.all.snat} {
			if got := count(t, table, s); got != 0 {
				t.Errorf("%s has %d elements left", s.Name, got)
			}
		}
	}
}

// TestSavedWhileExpiring loads what was listed before it had expired.
func TestSavedWhileExpiring(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	tried(t, h, table, "expire")
	must(t, table.AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/24")))
	saved := h.MustRun(t, "nft", "list table inet cnibox")
	restore(t, h, strings.ReplaceAll(saved, ` comment "net/a/eth0"`, ` timeout 4ms expires 4ms comment "net/a/eth0"`))
	nftables.AwaitTick(nftables.Clock())
	must(t, table.AddMasquerade(ctx, keyOf("b"), prefixes("10.88.0.2/24")))
	if got := listing(t, h); strings.Contains(got, "net/a/") {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestSetsThatCannotExpire has a ruleset whose sets lost the flag.
func TestSetsThatCannotExpire(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	tried(t, h, table, "expire")
	must(t, table.AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/24")))
	must(t, table.AddMasquerade(ctx, keyOf("b"), prefixes("10.88.0.3/24")))
	saved := h.MustRun(t, "nft", "list table inet cnibox")
	restore(t, h, strings.ReplaceAll(saved, "\t\tflags timeout\n", ""))
	must(t, table.DelMasquerade(ctx, keyOf("a"), nil)) // the trial is there
	h.MustRun(t, "nft", "flush set inet cnibox trials_v2")
	must(t, table.DelMasquerade(ctx, keyOf("b"), nil)) // is not
	if got := listing(t, h); strings.Contains(got, "net/") {
		t.Errorf("left behind:\n%s", got)
	}
}

// BenchmarkDel takes a port and an address away with a socket of its own, as a
// process does. While it does another one commits too; what that one waits each
// time is in others-ms.
func BenchmarkDel(b *testing.B) {
	for _, way := range ways {
		b.Run(way, func(b *testing.B) {
			h := netlab.NewHost(b)
			tried(b, h, open(b, h), way)
			writer := newWriter(b, h)
			ports := netfilter.PortMaps{Maps: portMaps(b, "tcp/80=10.88.0.2:80")}
			var del, closing time.Duration
			h.Do(func() {
				for b.Loop() {
					table, err := Open()
					must(b, err)
					must(b, table.AddPortMaps(ctx, keyOf("a"), ports))
					start := time.Now()
					delPorts(b, table, keyOf("a"))
					deleted := time.Now()
					table.Close()
					del += deleted.Sub(start)
					closing += time.Since(deleted)
				}
			})
			b.ReportMetric(del.Seconds()*1e3/float64(b.N), "del-ms")
			b.ReportMetric(closing.Seconds()*1e3/float64(b.N), "close-ms")
			b.ReportMetric(writer.stop().Seconds()*1e3, "others-ms")
		})
	}
}

// writer commits all the time, with a socket of its own.
type writer struct {
	done    chan struct{}
	average chan time.Duration
}

func newWriter(b *testing.B, h *netlab.Host) *writer {
	w := &writer{make(chan struct{}), make(chan time.Duration)}
	table := open(b, h)
	element := nftables.Element{Set: &trials, Key: nftables.Join(nftables.Native(1), nftables.Native(1)), Shared: true}
	go func() {
		var sum time.Duration
		for n := time.Duration(1); ; n++ {
			tx := &nftables.Transaction{}
			tx.AddElements([]nftables.Element{element})
			start := time.Now()
			if err := table.conn.Commit(tx); err != nil {
				b.Error(err)
			}
			sum += time.Since(start)
			select {
			case <-w.done:
				w.average <- sum / n
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return w
}

// stop returns how long the writer waited for a commit, on average.
func (w *writer) stop() time.Duration {
	close(w.done)
	return <-w.average
}
