package nft

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/expiry"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
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
	_, left := expiry.Trial(&trials, tryExpiry)
	if way == "remove" {
		tx := &nftables.Transaction{}
		left.Shared = true
		tx.AddElements([]nftables.Element{left})
		must(t, table.conn.Commit(tx))
	}
	if got := trialOutcome(t, table); way == "expire" && !got.Expire {
		t.Skip("this kernel does not let elements expire (Linux 6.12 does): the trial found that out, as TestTrial shows")
	} else if got.Try || got.Expire != (way == "expire") {
		t.Fatalf("the trial says %+v", got)
	}
}

func trialOutcome(t testing.TB, table *Table) expiry.Way {
	t.Helper()
	made, left := expiry.Trial(&trials, tryExpiry)
	there, err := table.look(ctx, []nftables.Element{made, left})
	must(t, err)
	return expiry.WayBy(there[0], there[1])
}

// TestTrial compares the outcome with what the kernel really does.
func TestTrial(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	must(t, table.AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/24")))
	if got := trialOutcome(t, table); got != (expiry.Way{Try: true}) {
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

	want := expiry.Way{Expire: expires}
	if got := trialOutcome(t, table); got != want {
		t.Errorf("the trial says %+v; the kernel is %+v", got, want)
	}
	saved := h.MustRun(t, "nft", "list table inet cnibox")
	if !strings.Contains(saved, "was told") || strings.Contains(saved, "does not let elements expire") == expires {
		t.Errorf("shown as:\n%s", saved)
	}
	restore(t, h, saved)
	if got := trialOutcome(t, table); got != want {
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

// letExpire does what a DEL does, up to what it waits for. Nothing is withdrawn,
// as if the tick came in the midst of it.
func letExpire(t testing.TB, table *Table, key plugin.Key) {
	t.Helper()
	for _, use := range []string{usePortMap, useMasquerade} {
		a := attachmentOf(key, use)
		records, err := table.held(ctx, a.id)
		must(t, err)
		elements, _, _, err := table.ownElements(ctx, a, records)
		must(t, err)
		must(t, table.conn.Commit(takeAway(expiry.Way{Expire: true}, append(elements, a.entries(records)...), nil)))
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
				letExpire(t, table, keyOf("a"))
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

// TestOpenAfterAddClosedAfterDel sends a packet as soon as each ADD and DEL has
// returned. The port goes from one attachment to the other.
func TestOpenAfterAddClosedAfterDel(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			tried(t, n.Host, n.table, way)
			n.remote.ServeTCP(t, ":80")
			n.web.ServeTCP(t, ":80")
			n.outside.ServeTCP(t, ":80")
			n.outside.MustRun(t, "ip", "route", "add", "10.1.0.0/16", "via", netlab.HostIPv4) // answers reach what is not masqueraded
			plainPorts := behind("p2p0", portMaps(t, "tcp/8080=10.2.0.2:80"))
			users := []struct {
				id, answer string
				ports      netfilter.PortMaps
			}{
				{"remote", "remote saw 192.0.2.254", plainPorts},
				{"web", "web saw 192.0.2.254", onCondition("saddr 192.0.2.0/24", behind("cni0", portMaps(t, "tcp/8080=10.1.0.2:80")))},
				{"web", "web saw 192.0.2.254", behind("cni0", portMaps(t, "tcp/192.0.2.1:8080=10.1.0.2:80"))},
				{"remote", "remote saw 192.0.2.254", withBit(14, plainPorts)},
				{"web", "web saw 192.0.2.254", behind("cni0", portMaps(t, "tcp/8080=10.1.0.2:80"))},
			}
			const target = "192.0.2.1:8080"
			n.addPorts(t, "first", users[0].ports)
			if got := ask(&n.outside.Namespace, "tcp", target); got != users[0].answer {
				t.Fatal(got)
			}
			n.Do(func() { delPorts(t, n.table, keyOf("first")) })
			for i := range 40 * len(users) {
				u := users[i%len(users)]
				n.addPorts(t, u.id, u.ports)
				if got, err := n.outside.DialTCP(target, patience); got != u.answer {
					t.Fatalf("round %d: after ADD: %q, %v", i, got, err)
				}
				n.Do(func() { delPorts(t, n.table, keyOf(u.id)) })
				if got, err := n.outside.DialTCP(target, patience); err == nil {
					t.Fatalf("round %d: after DEL: %s", i, got)
				}
			}
			for i := range 100 {
				for _, id := range []string{"a", "b"} {
					must(t, n.table.AddMasquerade(ctx, keyOf(id), prefixes("10.1.0.2/24")))
					if got, err := n.web.DialTCP("192.0.2.254:80", patience); got != "outside saw 192.0.2.1" {
						t.Fatalf("round %d: after ADD: %q, %v", i, got, err)
					}
					must(t, n.table.DelMasquerade(ctx, keyOf(id), nil))
					if got, err := n.web.DialTCP("192.0.2.254:80", patience); got != "outside saw 10.1.0.2" {
						t.Fatalf("round %d: after DEL: %q, %v", i, got, err)
					}
				}
			}
		})
	}
}

// matches tells whether a packet would find what a record is about, and whether
// its key is withdrawn, looked at in the order in which a rule does.
func matches(t testing.TB, table *Table, r record) (match, withdrawn bool) {
	t.Helper()
	element := r.elements()[0]
	left, err := table.conn.Remaining(r.withdrawal(), element)
	must(t, err)
	there, err := table.look(ctx, []nftables.Element{element})
	must(t, err)
	withdrawn = left[0] > 0
	return !withdrawn && (there[0].There || left[1] > 0), withdrawn
}

// TestManyAddAgain has many attachments give back and take what they had, all at
// once, and looks at it as soon as each ADD and DEL has returned.
func TestManyAddAgain(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	tried(t, h, open(t, h), "expire")
	var withdrawn atomic.Int32
	var wg sync.WaitGroup
	for i := range 64 {
		table := open(t, h)
		addrs := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 88, 0, byte(i + 2)}), 24)}
		ports := behind("cni0", []netfilter.PortMap{{Protocol: tcp, HostPort: uint16(8000 + i), Container: netip.AddrPortFrom(addrs[0].Addr(), 80)}})
		claims, err := portClaims(ports)
		must(t, err)
		records := recordsOf(append(claims, masqueradeClaims(addrs)...))
		wg.Go(func() {
			h.Do(func() {
				for round := range 10 {
					k := keyOf(fmt.Sprintf("c%d-%d", i, round%3))
					must(t, table.AddPortMaps(ctx, k, ports))
					must(t, table.AddMasquerade(ctx, k, addrs))
					for _, r := range records {
						if match, _ := matches(t, table, r); !match {
							t.Errorf("%v of %v does not match after ADD", r, k)
						}
					}
					must(t, table.DelMasquerade(ctx, k, nil))
					delPorts(t, table, k)
					for _, r := range records {
						match, gone := matches(t, table, r)
						if match {
							t.Errorf("%v of %v matches after DEL", r, k)
						}
						if gone {
							withdrawn.Add(1)
						}
					}
				}
			})
		})
	}
	wg.Wait()
	if withdrawn.Load() == 0 {
		t.Error("no DEL returned while its keys were withdrawn: it waits for elements to expire")
	}
}

// TestTickInTheMidst has the tick come between a key and its element.
func TestTickInTheMidst(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	tried(t, h, table, "expire")
	r := masqueradeClaims(prefixes("10.88.0.2/24"))[0].record
	elements, keys := r.elements(), []nftables.Element{r.withdrawal()}
	for range 20 {
		must(t, table.AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/24")))
		withdraw, expire := &nftables.Transaction{}, &nftables.Transaction{}
		withdraw.AddUntilTick(withdrawElements, keys)
		must(t, table.conn.Commit(withdraw))
		nftables.AwaitTick(nftables.Clock())
		own := elements[0]
		own.Comment = "net/a/eth0"
		expire.ExpireElements(expireElements, []nftables.Element{own})
		must(t, table.conn.Commit(expire))
		must(t, table.settle(elements, keys))
		if match, _ := matches(t, table, r); match {
			t.Error("matches after that was waited for")
		}
		must(t, table.DelMasquerade(ctx, keyOf("a"), nil))
	}
}

// TestAddInTheMidst has an ADD come right behind a DEL that took longer than a
// tick: some of its elements have expired by then and others have not.
func TestAddInTheMidst(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	table := open(t, h)
	tried(t, h, table, "expire")
	var maps []netfilter.PortMap
	for i := range 5000 {
		maps = append(maps, netfilter.PortMap{Protocol: tcp, HostPort: uint16(10000 + i), Container: netip.MustParseAddrPort("10.88.0.2:80")})
	}
	ports := behind("cni0", maps)
	claims, err := portClaims(ports)
	must(t, err)
	records, a := recordsOf(claims), attachmentOf(keyOf("a"), usePortMap)
	other := attachment{id: keyOf("b").ID(usePortMap), comment: "net/b/eth0"}
	for round := range 3 {
		h.Do(func() { must(t, table.AddPortMaps(ctx, keyOf("a"), ports)) })
		elements, _, how, err := table.ownElements(ctx, a, records)
		must(t, err)
		adds := make([]*nftables.Transaction, len(records))
		for i := range records {
			adds[i] = &nftables.Transaction{}
			adds[i].AddElements(other.elements(claims[i : i+1]))
		}
		keys := withdrawals(records, elements)
		must(t, table.conn.Commit(takeAway(how, append(elements, a.entries(records)...), keys)))
		for _, i := range []int{0, len(records) - 1} {
			if err := table.conn.Commit(adds[i]); err != nil {
				continue
			}
			if match, withdrawn := matches(t, table, records[i]); !match {
				t.Errorf("round %d: %v does not match after ADD; its key is withdrawn: %v", round, records[i], withdrawn)
			}
		}
		must(t, table.settle(elements, keys))
		h.MustRun(t, "nft", "flush map inet cnibox ports4_v2; flush set inet cnibox snat4_v2")
	}
}

// TestTwoDelsAtOnce has two processes take the same back.
func TestTwoDelsAtOnce(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	tables := []*Table{open(t, h), open(t, h)}
	tried(t, h, tables[0], "expire")
	r := masqueradeClaims(prefixes("10.88.0.2/24"))[0].record
	for range 50 {
		must(t, tables[0].AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/24")))
		var wg sync.WaitGroup
		for _, table := range tables {
			wg.Go(func() {
				if err := table.DelMasquerade(ctx, keyOf("a"), nil); err != nil {
					t.Error(err)
				}
				if match, _ := matches(t, table, r); match {
					t.Error("matches after DEL")
				}
			})
		}
		wg.Wait()
	}
	if got := listing(t, h); strings.Contains(got, "net/a/") {
		t.Errorf("left behind:\n%s", got)
	}
}

// TestRulesetWithoutGoneSets has a table from before there were any.
func TestRulesetWithoutGoneSets(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	tried(t, n.Host, n.table, "expire")
	n.web.ServeTCP(t, ":80")
	ports := behind("cni0", portMaps(t, "tcp/8080=10.1.0.2:80"))
	limited := onCondition("saddr 192.0.2.0/24", behind("cni0", portMaps(t, "tcp/8081=10.1.0.2:80")))
	n.addPorts(t, "web", ports)
	must(t, n.table.AddMasquerade(ctx, keyOf("web"), prefixes("10.1.0.2/24")))
	restore(t, n.Host, asBeforeGone(n.MustRun(t, "nft", "list", "table", "inet", TableName)))
	if got := ask(&n.outside.Namespace, "tcp", "192.0.2.1:8080"); got != "web saw 192.0.2.254" {
		t.Fatal(got)
	}
	for range 10 {
		must(t, n.table.AddMasquerade(ctx, keyOf("peer"), prefixes("10.9.0.2/24"))) // another subnet
		n.addPorts(t, "peer", limited)
		n.Do(func() {
			must(t, n.table.CheckPortMaps(ctx, keyOf("web"), ports))
			must(t, n.table.CheckMasquerade(ctx, keyOf("web"), prefixes("10.1.0.2/24")))
			must(t, n.table.CheckPortMaps(ctx, keyOf("peer"), limited))
			must(t, n.table.CheckMasquerade(ctx, keyOf("peer"), prefixes("10.9.0.2/24")))
			for _, id := range []string{"web", "peer"} {
				must(t, n.table.DelMasquerade(ctx, keyOf(id), nil))
				delPorts(t, n.table, keyOf(id))
			}
		})
		if got, err := n.outside.DialTCP("192.0.2.1:8080", patience); err == nil {
			t.Fatalf("after DEL: %s", got)
		}
		n.addPorts(t, "web", ports)
		must(t, n.table.AddMasquerade(ctx, keyOf("web"), prefixes("10.1.0.2/24")))
		if got, err := n.outside.DialTCP("192.0.2.1:8080", patience); err != nil {
			t.Fatalf("after ADD: %s, %v", got, err)
		}
	}
}

// TestThousandsExpire needs several messages for each set, and longer than a
// tick.
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
	claims, err := portClaims(behind("cni0", maps))
	must(t, err)
	ends := []record{claims[0].record, claims[n-1].record}
	long := strings.Repeat("0123456789abcdef", 8)
	for _, id := range []string{"a" + long, "b" + long} {
		h.Do(func() {
			must(t, table.AddPortMaps(ctx, keyOf(id), behind("cni0", maps)))
			for _, r := range ends {
				if match, _ := matches(t, table, r); !match {
					t.Errorf("%v does not match after ADD", r)
				}
			}
			must(t, table.CheckPortMaps(ctx, keyOf(id), behind("cni0", maps)))
			if got := delPorts(t, table, keyOf(id)); len(got) != n {
				t.Errorf("%d ports were removed, want %d", len(got), n)
			}
			for _, r := range ends {
				if match, _ := matches(t, table, r); match {
					t.Errorf("%v matches after DEL", r)
				}
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
