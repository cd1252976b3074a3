package etcd

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/test/netlab"
)

var restoresFlag = flag.Int("restores", 1, "how often TestRestore restores etcd from a snapshot")

// snapshot has a member save what etcd has, in a file that outlives the hosts' own directories.
func (c *cluster) snapshot(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot")
	netlab.Eventually(t, func() error {
		from, err := c.client.Snapshot(context.Background())
		if err != nil {
			return err
		}
		defer from.Close()
		to, err := os.Create(path)
		if err != nil {
			return err
		}
		defer to.Close()
		_, err = io.Copy(to, from)
		return err
	})
	return path
}

// restore has all members begin anew with what a snapshot has, or with nothing if it is "". Another token gives the cluster another id.
func (c *cluster) restore(t testing.TB, snapshot, token string) {
	t.Helper()
	members((*host).killMember, c.hosts...)
	restores := []string{"env", "ETCDCTL_API=3", "etcdctl"}
	if dir := os.Getenv("CNIBOX_ETCD_DIR"); dir != "" {
		restores = []string{filepath.Join(dir, "etcdutl")} // an older one can't restore for it
	}
	for _, h := range c.hosts {
		h.MustRun(t, "rm", "-rf", "/run/etcd/data")
		if snapshot != "" {
			args := append(restores, "snapshot", "restore", snapshot, "--skip-hash-check", "--data-dir", "/run/etcd/data", "--name", h.name,
				"--initial-cluster", h.peers(), "--initial-cluster-token", token, "--initial-advertise-peer-urls", h.peer())
			h.MustRun(t, args[0], args[1:]...)
		}
	}
	for _, h := range c.hosts {
		h.startMember(t)
	}
	c.awaitHealth(t)
}

func (c *cluster) revision(t testing.TB) int64 {
	t.Helper()
	answer, err := c.client.Get(context.Background(), "/others")
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

// endWait has each host write back what it holds, and then does what the error says.
func (c *cluster) endWait(t testing.TB, n network) {
	t.Helper()
	for range 2 { // one may have to wait for what another frees
		for _, h := range c.hosts {
			_ = h.tryKeep(n)
		}
	}
	for _, h := range c.hosts {
		h.keep(t, n)
		h.refuses(t, "STATUS", "", n, 50, "etcd was restored", "cnictl leases keep", "etcdctl del "+prefix+"/"+n.name+"/restored")
	}
	c.commit(t, clientv3.OpDelete(prefix+"/"+n.name+"/restored"))
	for _, h := range c.hosts {
		h.awaitReady(t, n)
	}
}

// living is what attachments have that live.
type living struct {
	sync.Mutex
	holding
	doubles []string
}

// load attaches some containers on all hosts at once, and detaches some older ones.
func (c *cluster) load(t testing.TB, n network, l *living, round string) {
	c.each(2, func(h *host, worker int) {
		for i := range 4 {
			id := fmt.Sprintf("%s-%d-%d", round, worker, i)
			r := h.do(t, "ADD", id, n)
			if r.ExitCode != 0 {
				t.Errorf("ADD on %s: %s", h.name, r)
				continue
			}
			l.Lock()
			for _, a := range addressesOf(t, r) {
				if by := l.holding[a]; by != "" {
					l.doubles = append(l.doubles, fmt.Sprintf("%v of %s is given to %s/%s", a, by, h.name, id))
				}
				l.set(h, id, a)
			}
			l.Unlock()
			if i%2 == 1 {
				c.detach(t, h, n, l, fmt.Sprintf("%s-%d-%d", round, worker, i-1))
			}
		}
	})
}

func (c *cluster) detach(t testing.TB, h *host, n network, l *living, id string) {
	l.Lock()
	maps.DeleteFunc(l.holding, func(_ netip.Addr, by string) bool { return by == h.name+"/"+id+"/eth0" })
	l.Unlock()
	h.must(t, "DEL", id, n)
}

// TestRestore has etcd go back to an older snapshot under three hosts with containers. No address of a living container is given away, whoever calls
// first, and in the end etcd has all of them.
func TestRestore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{})
	for _, h := range c.hosts {
		h.MustRun(t, "mkdir", "-p", "/var/lib/cni/results") // as libcni does
	}
	for run := range *restoresFlag {
		n, l := network{name: fmt.Sprint("run", run), ranges: `[[{"subnet":"10.70.0.0/26"}]]`}, &living{holding: holding{}}
		c.load(t, n, l, "before")
		snapshot := c.snapshot(t)
		c.load(t, n, l, "after")
		for _, h := range c.hosts { // what etcd has again, and another host may have by now
			c.detach(t, h, n, l, "before-0-1")
		}
		c.load(t, n, l, "later")
		before := c.revision(t)
		c.restore(t, snapshot, "etcd-cluster")
		for c.revision(t) <= before { // others write as much meanwhile
			c.commit(t, clientv3.OpPut("/others", ""))
		}
		for _, h := range c.hosts {
			h.refuses(t, "ADD", "early", n, 11, "etcd was restored")
			h.must(t, "DEL", "early", n)
		}
		c.endWait(t, n)
		c.holds(t, n, l.holding)
		c.load(t, n, l, "restored")
		c.holds(t, n, l.holding)
		t.Logf("run %d: %d addresses are held by living containers, %d doubles", run, len(l.holding), len(l.doubles))
		if len(l.doubles) > 0 {
			t.Fatalf("%d doubles:\n%s", len(l.doubles), strings.Join(l.doubles, "\n"))
		}
	}
}

// TestRestoredAsAnotherCluster has a host ask first that has done nothing since the snapshot: it knows by the cluster's id.
func TestRestoredAsAnotherCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{})
	n := network{name: "lan", ranges: `[[{"subnet":"10.70.0.0/24","rangeStart":"10.70.0.2","rangeEnd":"10.70.0.3"}]]`}
	idle, busy := c.hosts[0], c.hosts[1]
	want := holding{}.set(idle, "web", idle.add(t, "web", n)...)
	c.hosts[2].awaitReady(t, n)
	snapshot := c.snapshot(t)
	want.set(busy, "web", busy.add(t, "web", n)...)
	c.restore(t, snapshot, "another")
	idle.refuses(t, "ADD", "next", n, 11, "etcd was restored")
	idle.must(t, "DEL", "next", n)
	c.hosts[2].refuses(t, "ADD", "new", n, 11, "etcd was restored") // which has never had an address
	c.hosts[2].must(t, "DEL", "new", n)
	busy.keep(t, n)
	c.holds(t, n, want)
}

// TestMadeAnew has etcd lose all it had.
func TestMadeAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{})
	n, want := dual("lan"), holding{}
	for _, h := range c.hosts {
		want.set(h, "web", h.add(t, "web", n)...)
	}
	c.restore(t, "", "")
	c.hosts[0].refuses(t, "ADD", "next", n, 11, "etcd was restored from an older snapshot or made anew")
	c.hosts[0].must(t, "DEL", "next", n)
	c.endWait(t, n)
	c.holds(t, n, want)
	want.set(c.hosts[0], "next", c.hosts[0].add(t, "next", n)...)
	c.holds(t, n, want)
}

// TestRestoredInItsName has a host ask first that has taken nothing since the snapshot, or never had an address. The cluster's id is the same, so that it knows
// by etcd's log.
func TestRestoredInItsName(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"idle", "new"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, options{})
			n := network{name: "lan", ranges: `[[{"subnet":"10.70.0.0/24","rangeStart":"10.70.0.2","rangeEnd":"10.70.0.3"}]]`}
			idle, busy := c.hosts[0], c.hosts[1]
			want := holding{}.set(idle, "web", idle.add(t, "web", n)...)
			for range 40 {
				c.commit(t, clientv3.OpPut("/others", ""))
			}
			snapshot := c.snapshot(t)
			want.set(busy, "web", busy.add(t, "web", n)...)
			c.restore(t, snapshot, "etcd-cluster")
			asks := idle
			if first == "new" {
				asks = c.hosts[2]
			}
			asks.refuses(t, "ADD", "next", n, 11, "etcd was restored")
			asks.must(t, "DEL", "next", n)
			c.endWait(t, n)
			c.holds(t, n, want)
			busy.must(t, "DEL", "web", n)
			asks.add(t, "next", n) // a restore is noticed once
			other := network{name: "other", ranges: n.ranges}
			asks.add(t, "web", other) // and is no matter of a network that is made later
			busy.add(t, "web", other)
		})
	}
}
