package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestLateHost cuts a host off for longer than the grace, so that another gets its addresses.
func TestLateHost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{})
	late, other := c.hosts[0], c.hosts[1]
	n := network{name: "lan", ranges: `[[{"subnet":"10.70.0.0/24","rangeStart":"10.70.0.2","rangeEnd":"10.70.0.5"}]]`}
	wanted := func(a string) network { w := n; w.args = "IP=" + a; return w }
	short := func(a string) network { return wanted(a).with("graceSeconds", 20) } // only until the host is cut off, however slow this machine is
	loses, keeps := late.must(t, "ADD", "loses", short("10.70.0.2")), late.must(t, "ADD", "keeps", short("10.70.0.3"))
	late.must(t, "ADD", "deleted", short("10.70.0.4"))
	late.cut(t)
	netlab.Eventually(t, func() error {
		if r := other.do(t, "ADD", "takes", wanted("10.70.0.2")); r.Error != nil {
			other.must(t, "DEL", "takes", n)
			return r.Error
		}
		return nil
	})
	netlab.Eventually(t, func() error {
		if len(c.held(t, n)) > 1 {
			return errors.New("the late host has addresses")
		}
		return nil
	})
	late.must(t, "DEL", "deleted", n.with("timeoutSeconds", 1)) // is put down
	late.connect(t)
	c.awaitHealth(t)
	late.refuses(t, "CHECK", "loses", n.withMore("prevResult", loses.Map(t)), 999, "10.70.0.2", "is held by container takes, interface eth0, on host node2")
	late.must(t, "CHECK", "keeps", n.withMore("prevResult", keeps.Map(t)))
	want := holding{}.set(other, "takes", address("10.70.0.2")).set(late, "keeps", address("10.70.0.3"))
	c.holds(t, n, want)
	c.onOneLease(t, late, n)

	// It hands out what is free, and no more.
	want.set(late, "new", late.add(t, "new", n)...).set(late, "newer", late.add(t, "newer", n)...)
	late.refuses(t, "ADD", "newest", n, 11, "all taken")
	late.must(t, "DEL", "newest", n)
	c.holds(t, n, want)
	c.onOneLease(t, late, n)
	late.must(t, "DEL", "loses", n)
	c.holds(t, n, want)
}

// onOneLease makes sure that all keys of a host hang on the lease of its name.
func (c *cluster) onOneLease(t testing.TB, h *host, n network) {
	t.Helper()
	root := prefix + "/" + n.name + "/"
	answer, err := c.client.Get(context.Background(), root, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	leases, of := map[string]int64{}, int64(0)
	for _, kv := range answer.Kvs {
		leases[string(kv.Key)] = kv.Lease
		if string(kv.Key) == root+"hosts/"+h.name {
			of = kv.Lease
		}
	}
	for a, by := range c.held(t, n) {
		if has := by[:len(h.name)] == h.name; has != (leases[root+keyOf(a)] == of) || of == 0 {
			t.Errorf("%v of %s hangs on lease %x, the host %s on %x", a, by, leases[root+keyOf(a)], h.name, of)
		}
	}
}

// TestHostRenews asks a host for its STATUS for longer than the grace. Nobody else gets its addresses.
func TestHostRenews(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{})
	h, other := c.hosts[0], c.hosts[1]
	const grace = 10 // seconds
	n := network{name: "lan", ranges: `[[{"subnet":"10.70.0.0/24"}]]`, args: "IP=10.70.0.7"}.with("graceSeconds", grace)
	renewed := time.Now() // or later
	want := holding{}.set(h, "web", h.add(t, "web", n)...)
	note := func() string { return h.MustRun(t, "cat", "/var/lib/cni/etcd/lan/host") }
	end := renewed.Add(time.Duration(long(15, 60)) * time.Second)
	for time.Now().Before(end) {
		r := other.do(t, "ADD", "other", n)
		if r.ExitCode == 0 && time.Since(renewed) < grace*time.Second {
			t.Fatalf("%s has an address that was %s's, which has renewed its lease", other.name, h.name)
		}
		other.must(t, "DEL", "other", n)
		before, was := time.Now(), note()
		h.awaitReady(t, n)
		if note() != was { // a STATUS soon after another does not renew
			renewed = before
		}
	}
	c.holds(t, n, want)
}
