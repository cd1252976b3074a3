package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/test/netlab"
)

// fault is something that happens to a cluster.
type fault struct {
	name     string
	usual    bool // is tried without -long too
	isAlone  bool // the plugin reaches no majority
	isFull   bool // the cluster takes nothing new
	do, undo func(t testing.TB, c *cluster)
}

// others are the hosts on which no plugin is called.
func (c *cluster) others() []*host { return c.hosts[1:] }

func members(do func(h *host), of ...*host) {
	for _, h := range of {
		do(h)
	}
}

// It is the member that leads to which something happens, since the others take longest to get over that.
var faults = []fault{
	{name: "nothing", do: func(testing.TB, *cluster) {}, undo: func(testing.TB, *cluster) {}},
	{name: "the leader killed", usual: true,
		do:   func(t testing.TB, c *cluster) { c.leader(t).killMember() },
		undo: func(t testing.TB, c *cluster) { restart(t, c) }},
	{name: "the leader paused (SIGSTOP)",
		do:   func(t testing.TB, c *cluster) { c.leader(t).pauseMember() },
		undo: func(t testing.TB, c *cluster) { members((*host).continueMember, c.hosts...) }},
	{name: "another host cut off",
		do:   func(t testing.TB, c *cluster) { c.others()[0].cut(t) },
		undo: func(t testing.TB, c *cluster) { c.others()[0].connect(t) }},
	{name: "this host cut off, with its member", isAlone: true,
		do:   func(t testing.TB, c *cluster) { c.hosts[0].cut(t) },
		undo: func(t testing.TB, c *cluster) { c.hosts[0].connect(t) }},
	{name: "two of three members killed", isAlone: true, usual: true,
		do:   func(t testing.TB, c *cluster) { members((*host).killMember, c.others()...) },
		undo: func(t testing.TB, c *cluster) { restart(t, c) }},
	{name: "two of three members paused", isAlone: true,
		do:   func(t testing.TB, c *cluster) { members((*host).pauseMember, c.others()...) },
		undo: func(t testing.TB, c *cluster) { members((*host).continueMember, c.others()...) }},
	{name: "all members killed", isAlone: true,
		do:   func(t testing.TB, c *cluster) { members((*host).killMember, c.hosts...) },
		undo: func(t testing.TB, c *cluster) { restart(t, c) }},
	{name: "all members paused", isAlone: true,
		do:   func(t testing.TB, c *cluster) { members((*host).pauseMember, c.hosts...) },
		undo: func(t testing.TB, c *cluster) { members((*host).continueMember, c.hosts...) }},
}

// restart starts the members that were killed.
func restart(t testing.TB, c *cluster) {
	for _, h := range c.hosts {
		if h.member.ProcessState != nil {
			h.startMember(t)
		}
	}
}

// verbs are the columns of the table.
var verbs = []string{"ADD", "DEL", "CHECK", "STATUS", "GC"}

// TestFailures calls all verbs at once at the moment at which something happens to the cluster, and makes sure that nothing is wrong when that is over.
func TestFailures(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	fmt.Fprintf(&table, "| what happens | %s |\n|---|%s\n", strings.Join(verbs, " | "), strings.Repeat("---|", len(verbs)))
	c := newCluster(t, options{})
	for _, f := range faults {
		if f.usual || *longFlag {
			f.try(t, c, &table)
		}
	}
	for _, tt := range []struct {
		fault
		options
	}{
		{fault{name: "one member's disk full", do: fillDisk, undo: func(testing.TB, *cluster) {}}, options{disk: "80m"}},
		{fault{name: "etcd's quota used up (alarm NOSPACE)", isFull: true, usual: true, do: useQuota, undo: freeQuota}, options{arguments: []string{"--quota-backend-bytes", "16777216"}}},
		{fault{name: "the members' clocks an hour apart", do: func(testing.TB, *cluster) {}, undo: func(testing.TB, *cluster) {}}, options{apart: time.Hour}},
	} {
		if !tt.usual && !*longFlag || tt.apart != 0 && !netlab.Has(t, netlab.TimeNamespace) {
			continue
		}
		tt.fault.try(t, newCluster(t, tt.options), &table)
	}
	if *longFlag {
		for name, text := range map[string]string{"this host's clock was an hour fast before": "+ 1 hour", "this host's clock was a day slow before": "- 1 day"} {
			fault{name: name, undo: func(testing.TB, *cluster) {}, do: func(t testing.TB, c *cluster) {
				c.hosts[0].MustRun(t, "sh", "-ec", `f=/var/lib/cni/etcd/lan/host; sed -i "s/\"renewed\":\"[^\"]*\"/\"renewed\":\"$(date -u -d '`+text+`' +%FT%TZ)\"/" $f; grep -q renewed $f`)
			}}.try(t, c, &table)
		}
	}
	t.Logf("what each verb did, and in what time:\n%s", &table)
	if *reportFlag != "" {
		if err := os.WriteFile(*reportFlag, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// answer is what came of a call.
type answer struct {
	verb string
	netlab.PluginResult
	took time.Duration
}

// try has the fault happen, and adds a row to the table.
func (f fault) try(t *testing.T, c *cluster, table *strings.Builder) {
	n, h := network{name: "lan", ranges: `[[{"subnet":"10.70.0.0/24"}]]`}, c.hosts[0]
	checked := h.must(t, "ADD", "checked", n)
	want := holding{}.set(h, "checked", addressesOf(t, checked)...)
	h.add(t, "deleted", n)
	h.add(t, "collected", n)
	other := c.hosts[1]
	want.set(other, "other", other.add(t, "other", n)...)
	during := n
	if f.isAlone || *reportFlag != "" { // the manual's table is about the default
		during = n.with("timeoutSeconds", 5)
	}
	f.do(t, c)
	answers := make(chan answer)
	inUse := valid("checked", "deleted", "added")
	for _, call := range []struct {
		verb, id string
		n        network
	}{
		{"ADD", "added", during}, {"DEL", "deleted", during}, {"STATUS", "", n}, {"GC", "", during.withMore("cni.dev/valid-attachments", inUse)},
		{"CHECK", "checked", during.withMore("prevResult", checked.Map(t))},
	} {
		go func() {
			start := time.Now()
			r := h.do(t, call.verb, call.id, call.n)
			answers <- answer{call.verb, r, time.Since(start)}
		}()
	}
	row := map[string]string{}
	var added *netlab.PluginResult
	for range verbs {
		a := <-answers
		row[a.verb] = a.text()
		if a.verb == "ADD" && a.ExitCode == 0 {
			added = &a.PluginResult
		}
		if a.verb == "STATUS" && !f.isAlone && !f.isFull && a.Error != nil && a.Error.Code == 50 { // it has four seconds, and a new leader may need more
			h.awaitReady(t, n)
			continue
		}
		f.judge(t, a)
	}
	if added == nil {
		h.must(t, "DEL", "added", during) // as a runtime does after an ADD that fails
	} else {
		want.set(h, "added", addressesOf(t, *added)...)
	}
	if f.isFull {
		for _, each := range c.hosts {
			each.refuses(t, "ADD", "new", n, 11, "make room in etcd")
			each.must(t, "DEL", "new", n)
		}
	}
	f.undo(t, c)
	if f.name != "one member's disk full" {
		c.awaitHealth(t)
	}
	netlab.Eventually(t, func() error { return h.tryKeep(n) })
	h.must(t, "GC", "", n.withMore("cni.dev/valid-attachments", inUse))
	h.must(t, "CHECK", "checked", n.withMore("prevResult", checked.Map(t)))
	h.add(t, "again", n)
	h.must(t, "DEL", "again", n)
	c.holds(t, n, want)
	fmt.Fprintf(table, "| %s |", f.name)
	for _, verb := range verbs {
		fmt.Fprintf(table, " %s |", row[verb])
	}
	fmt.Fprintln(table)
	for _, id := range []string{"checked", "added"} {
		h.must(t, "DEL", id, n)
	}
	other.must(t, "DEL", "other", n)
	c.holds(t, n, holding{})
}

// text is a cell of the table.
func (a answer) text() string {
	switch {
	case a.Error != nil:
		return fmt.Sprintf("code %d, %.1f s", a.Error.Code, a.took.Seconds())
	case a.verb == "DEL" && strings.Contains(a.Stderr, "etcd"):
		return fmt.Sprintf("noted, %.1f s", a.took.Seconds())
	}
	return fmt.Sprintf("done, %.1f s", a.took.Seconds())
}

// judge makes sure that the answer is what it should be.
func (f fault) judge(t testing.TB, a answer) {
	want := uint(0)
	switch {
	case (f.isAlone || f.isFull) && a.verb == "STATUS":
		want = 50
	case f.isAlone && a.verb != "DEL" || f.isFull && a.verb == "ADD":
		want = 11
	}
	switch {
	case want == 0 && a.ExitCode != 0:
		t.Errorf("%s: %s: %s", f.name, a.verb, a.PluginResult)
	case want != 0 && (a.Error == nil || a.Error.Code != want):
		t.Errorf("%s: %s: %s; want code %d", f.name, a.verb, a.PluginResult, want)
	case want == 0 && a.Stderr != "":
		if !f.isAlone {
			t.Errorf("%s: %s warns: %s", f.name, a.verb, a.Stderr)
		}
	}
}

// write writes large values until the cluster or the third member does not take them.
func write(c *cluster, until func(err error) bool) error {
	for range 200 {
		ctx, end := context.WithTimeout(context.Background(), netlab.Patience)
		_, err := c.client.Put(ctx, "/large", strings.Repeat("x", 1<<20))
		end()
		if until(err) {
			return nil
		}
	}
	return fmt.Errorf("there is still room")
}

// fillDisk fills the disk of the third member, which ends then.
func fillDisk(t testing.TB, c *cluster) {
	ended := make(chan bool)
	go func() {
		_ = c.hosts[2].member.Wait()
		close(ended)
	}()
	if err := write(c, func(error) bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// useQuota fills the database, until all members say so: the one that refuses to write raises the alarm, of which the others hear later.
func useQuota(t testing.TB, c *cluster) {
	if err := write(c, func(err error) bool { return err != nil && strings.Contains(err.Error(), "database space exceeded") }); err != nil {
		t.Fatal(err)
	}
	for _, h := range c.hosts {
		netlab.Eventually(t, func() error {
			ctx, end := context.WithTimeout(context.Background(), silence)
			defer end()
			is, err := c.client.Status(ctx, h.endpoint())
			if err == nil && !strings.Contains(strings.Join(is.Errors, " "), pb.AlarmType_NOSPACE.String()) {
				err = fmt.Errorf("%s has no alarm: %q", h.name, is.Errors)
			}
			return err
		})
	}
}

// freeQuota does what the details of the error say, until no member has an alarm: one that is behind may raise its own when others have none.
func freeQuota(t testing.TB, c *cluster) {
	ctx := context.Background()
	netlab.Eventually(t, func() error {
		answer, err := c.client.Delete(ctx, "/large")
		if err == nil {
			_, err = c.client.Compact(ctx, answer.Header.Revision, clientv3.WithCompactPhysical())
		}
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
		for _, h := range c.hosts {
			if _, err := c.client.Defragment(ctx, h.endpoint()); err != nil {
				return err
			}
		}
		if _, err := c.client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil { // all there are
			return err
		}
		for _, h := range c.hosts {
			if is, err := c.client.Status(ctx, h.endpoint()); err != nil {
				return err
			} else if len(is.Errors) > 0 {
				return fmt.Errorf("%s: %q", h.name, is.Errors)
			}
		}
		return nil
	})
}
