package holding

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/expiry"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestTrial compares the outcome with what the kernel really does.
func TestTrial(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	must(t, table.Hold(ctx, holder("a"), addresses(1)))
	if got := outcome(t, table); got != (expiry.Way{Try: true}) {
		t.Errorf("before the first DEL: %+v", got)
	}
	must(t, table.Release(ctx, holder("a")))
	leavesNothing(t, h)
	nftables.AwaitTick(nftables.Clock())

	h.MustRun(t, "nft", "add element inet lab addrs { 10.9.9.9 }")
	tx := &nftables.Transaction{}
	tx.ExpireElements(expireElements, []nftables.Element{{Set: &addrs, Key: []byte{10, 9, 9, 9}}})
	must(t, table.Conn.Commit(tx))
	nftables.AwaitTick(nftables.Clock())
	expires := !strings.Contains(listing(t, h), "10.9.9.9")
	if got := outcome(t, table); got != (expiry.Way{Expire: expires}) {
		t.Errorf("the trial says %+v; that the kernel lets elements expire is %v", got, expires)
	}
}

// TestHoldAgain gives an address to the same attachment and to another one as
// soon as DEL has returned, many times.
func TestHoldAgain(t *testing.T) {
	for _, way := range ways {
		for _, next := range []string{"a", "b"} {
			t.Run(way+"/"+next, func(t *testing.T) {
				t.Parallel()
				h := netlab.NewHost(t)
				tables := map[string]*Table{"a": open(t, h), "b": open(t, h)}
				tried(t, tables["a"], way)
				things := addresses(1, 2)
				for i := range 200 {
					id := []string{"a", next}[i%2]
					table := tables[id]
					must(t, table.Hold(ctx, holder(id), things))
					must(t, table.Check(ctx, holder(id), things))
					must(t, table.Release(ctx, holder(id)))
					if matches(t, table, things[0]) || matches(t, table, things[1]) {
						t.Fatalf("round %d: matches after DEL", i)
					}
					if err := table.Check(ctx, holder(id), things); err == nil || !strings.Contains(err.Error(), "has nothing in it") {
						t.Fatalf("CHECK finds what was given back: %v", err)
					}
				}
				leavesNothing(t, h)
			})
		}
	}
}

// TestHoldWhileExpiring has an ADD come before the DEL of the owner has returned.
func TestHoldWhileExpiring(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table, other := open(t, h), open(t, h)
	tried(t, table, "expire")
	for _, next := range []string{"a", "b"} {
		for range 50 {
			must(t, table.Hold(ctx, holder("a"), addresses(1, 2)))
			letExpire(t, table, "a")
			must(t, other.Hold(ctx, holder(next), addresses(2, 3)))
			nftables.AwaitTick(nftables.Clock())
			must(t, other.Check(ctx, holder(next), addresses(2, 3)))
			must(t, other.Release(ctx, holder(next)))
		}
	}
	leavesNothing(t, h)
}

// letExpire does what a DEL does, up to what it waits for.
func letExpire(t testing.TB, table *Table, id string) {
	t.Helper()
	expiring, err := table.release(ctx, holder(id))
	must(t, err)
	if len(expiring) == 0 {
		t.Fatal("nothing was let expire")
	}
}

// TestReleaseWhileExpiring repeats a DEL that was killed while it waited.
func TestReleaseWhileExpiring(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	tried(t, table, "expire")
	for range 50 {
		must(t, table.Hold(ctx, holder("a"), addresses(1)))
		letExpire(t, table, "a")
		must(t, table.Release(ctx, holder("a")))
		if matches(t, table, address(1)) {
			t.Fatal("matches after DEL")
		}
	}
}

// TestTwoReleasesAtOnce has two processes take the same back.
func TestTwoReleasesAtOnce(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			tables := []*Table{open(t, h), open(t, h)}
			tried(t, tables[0], way)
			for range 50 {
				must(t, tables[0].Hold(ctx, holder("a"), addresses(1, 2)))
				var wg sync.WaitGroup
				for _, table := range tables {
					wg.Go(func() {
						if err := table.Release(ctx, holder("a")); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if matches(t, tables[0], address(1)) || matches(t, tables[0], address(2)) {
					t.Fatal("matches after both DELs")
				}
			}
			leavesNothing(t, h)
		})
	}
}

// TestManyHoldAgain has many attachments give back and take what they had, all at
// once, from the first DEL on, which makes the trial.
func TestManyHoldAgain(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	var wg sync.WaitGroup
	for i := range 64 {
		table := open(t, h)
		wg.Go(func() {
			for round := range 10 {
				who, things := holder(fmt.Sprintf("c%d-%d", i, round%3)), addresses(uint32(2*i), uint32(2*i+1))
				if err := table.Hold(ctx, who, things); err != nil {
					t.Error(err)
				}
				if err := table.Check(ctx, who, things); err != nil {
					t.Error(err)
				}
				if err := table.Release(ctx, who); err != nil {
					t.Error(err)
				}
				if matches(t, table, things[0]) || matches(t, table, things[1]) {
					t.Errorf("%s: matches after DEL", who.Comment)
				}
			}
		})
	}
	wg.Wait()
	leavesNothing(t, h)
}

// TestGroups has the last holder alone remove what is shared, at once.
func TestGroups(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			table := open(t, h)
			tried(t, table, way)
			for range 20 {
				must(t, table.Hold(ctx, holder("a"), []Thing{address(1), number(7)}))
				must(t, table.Hold(ctx, holder("b"), []Thing{address(2), number(7), number(8)}))
				must(t, table.Release(ctx, holder("a")))
				if matches(t, table, address(1)) {
					t.Error("matches after DEL")
				}
				must(t, table.Check(ctx, holder("b"), []Thing{address(2), number(7), number(8)}))
				must(t, table.Release(ctx, holder("b")))
				if matches(t, table, address(2)) {
					t.Error("matches after DEL")
				}
				leavesNothing(t, h)
			}
		})
	}
}

// TestOtherThings has attachments hold other things than before, with a group and
// without.
func TestOtherThings(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	try(t, table)
	for _, things := range [][]Thing{addresses(1), {address(1), number(7)}, {number(8)}, addresses(2, 3), nil, {number(7)}, addresses(3)} {
		must(t, table.Hold(ctx, holder("a"), things))
		must(t, table.Check(ctx, holder("a"), things))
		if got := listing(t, h); len(things) == 0 && strings.Contains(got, "elements") {
			t.Errorf("nothing is to be held:\n%s", got)
		}
	}
	must(t, table.Release(ctx, holder("a")))
	leavesNothing(t, h)
}

// TestLateRelease leaves what has passed to another one, and nothing else.
func TestLateRelease(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			table := open(t, h)
			tried(t, table, way)
			must(t, table.Hold(ctx, holder("old"), addresses(1, 2)))
			must(t, table.Hold(ctx, holder("new"), addresses(1)))
			must(t, table.Release(ctx, holder("old")))
			if matches(t, table, address(2)) {
				t.Error("matches after DEL")
			}
			nftables.AwaitTick(nftables.Clock())
			must(t, table.Check(ctx, holder("new"), addresses(1)))
			must(t, table.Hold(ctx, holder("newer"), addresses(1)))
			must(t, table.Release(ctx, holder("new"))) // has nothing but its entry
			nftables.AwaitTick(nftables.Clock())
			must(t, table.Check(ctx, holder("newer"), addresses(1)))
			must(t, table.Release(ctx, holder("newer")))
			leavesNothing(t, h)
		})
	}
}

// TestCollect takes all that attachments have that are not valid.
func TestCollect(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			table := open(t, h)
			tried(t, table, way)
			for i := range uint32(100) {
				must(t, table.Hold(ctx, holder(fmt.Sprint("c", i)), []Thing{address(i), number(i % 2)}[:1+i%2]))
			}
			must(t, table.Collect(ctx, "net", use, nil))
			for i := range uint32(100) {
				if matches(t, table, address(i)) {
					t.Errorf("address %d matches after GC", i)
				}
			}
			leavesNothing(t, h)
			for range 20 {
				must(t, table.Hold(ctx, holder("a"), addresses(1)))
				must(t, table.Hold(ctx, holder("b"), addresses(2)))
				must(t, table.Collect(ctx, "net", use, nil))
				if matches(t, table, address(1)) || matches(t, table, address(2)) {
					t.Fatal("matches after GC")
				}
			}
		})
	}
}

// beforeTrials makes a listing what there was before elements expired.
func beforeTrials(text string) string { return withoutTimeouts(trialsSet.ReplaceAllString(text, "")) }

func withoutTimeouts(text string) string { return strings.ReplaceAll(text, "\t\tflags timeout\n", "") }

var trialsSet = regexp.MustCompile(`(?s)\tset trials \{.*?\n\t\}\n\n`)

// TestSetsThatCannotExpire has tables whose sets have no timeouts: one from before
// there were trials, and one that lost the flag, with a trial and without.
func TestSetsThatCannotExpire(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(saved string) string{
		"before trials":  beforeTrials,
		"after a trial":  withoutTimeouts,
		"before a trial": func(saved string) string { return withoutTimeouts(trialElements.ReplaceAllString(saved, "$1")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			table := open(t, h)
			try(t, table)
			must(t, table.Hold(ctx, holder("a"), addresses(1, 2)))
			must(t, table.Hold(ctx, holder("b"), []Thing{address(3), number(7)}))
			restore(t, h, change(h.MustRun(t, "nft", "list ruleset")))
			must(t, table.Available())
			for range 2 {
				must(t, table.Check(ctx, holder("a"), addresses(1, 2)))
				for _, id := range []string{"a", "b"} {
					must(t, table.Release(ctx, holder(id)))
				}
				if got := listing(t, h); strings.Contains(got, "net/") || strings.Contains(got, groupPrefix) {
					t.Errorf("left behind:\n%s", got)
				}
				must(t, table.Hold(ctx, holder("a"), addresses(1, 2)))
			}
		})
	}
}

// TestMessages has no message to the kernel more than it takes.
func TestMessages(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	tried(t, table, "remove")
	for _, step := range []struct {
		name string
		want int
		do   func() error
	}{
		{"hold", 1, func() error { return table.Hold(ctx, holder("a"), addresses(1, 2)) }},
		{"release", 3, func() error { return table.Release(ctx, holder("a")) }}, // what is held, whose it is, remove
		{"release nothing", 1, func() error { return table.Release(ctx, holder("a")) }},
		{"hold with a group", 3, func() error { return table.Hold(ctx, holder("a"), []Thing{number(7)}) }}, // … is the group there, make it
		{"release with a group", 4, func() error { return table.Release(ctx, holder("a")) }},               // … is it the last
	} {
		before := table.Conn.Sends
		must(t, step.do())
		if got := table.Conn.Sends - before; got != step.want {
			t.Errorf("%s: %d messages, want %d", step.name, got, step.want)
		}
	}
}

// TestMessagesOfExpiry has two more, to look whether it is over, before it waits
// and after that; and none for what is known to be in vain.
func TestMessagesOfExpiry(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	tried(t, table, "expire")
	release := func(what string, least, most int) {
		t.Helper()
		before := table.Conn.Sends
		must(t, table.Release(ctx, holder("a")))
		if got := table.Conn.Sends - before; got < least || got > most {
			t.Errorf("%s: %d messages, want %d to %d", what, got, least, most)
		}
	}
	must(t, table.Hold(ctx, holder("a"), addresses(1, 2)))
	release("release", 4, 5) // only one more if the tick came at once
	must(t, table.Hold(ctx, holder("a"), []Thing{address(1), number(7)}))
	release("release with a group", 4, 4)
	must(t, table.Hold(ctx, holder("a"), addresses(1, 2)))
	restore(t, h, beforeTrials(h.MustRun(t, "nft", "list ruleset")))
	release("release from a table without trials", 4, 4) // asks whether there can be one
}

// BenchmarkRelease takes an address away with a socket of its own, as a process
// does, while another one commits all the time; what that one waits each time is
// in others-ms.
func BenchmarkRelease(b *testing.B) {
	for _, way := range ways {
		b.Run(way, func(b *testing.B) {
			h := netlab.NewHost(b)
			tried(b, open(b, h), way)
			done, average := make(chan struct{}), make(chan time.Duration)
			go func(table *Table) {
				var sum time.Duration
				for n := time.Duration(1); ; n++ {
					tx := &nftables.Transaction{}
					tx.AddElements([]nftables.Element{{Set: &common, Key: nftables.Native(1), Shared: true}})
					start := time.Now()
					if err := table.Conn.Commit(tx); err != nil {
						b.Error(err)
					}
					sum += time.Since(start)
					select {
					case <-done:
						average <- sum / n
						return
					case <-time.After(2 * time.Millisecond):
					}
				}
			}(open(b, h))
			var release, closing time.Duration
			for b.Loop() {
				table := &Table{Ruleset: ruleset(), Conn: dial(b, h)}
				must(b, table.Hold(ctx, holder("a"), addresses(1)))
				start := time.Now()
				must(b, table.Release(ctx, holder("a")))
				released := time.Now()
				table.Conn.Close()
				release += released.Sub(start)
				closing += time.Since(released)
			}
			close(done)
			b.ReportMetric(release.Seconds()*1e3/float64(b.N), "del-ms")
			b.ReportMetric(closing.Seconds()*1e3/float64(b.N), "close-ms")
			b.ReportMetric((<-average).Seconds()*1e3, "others-ms")
		})
	}
}
