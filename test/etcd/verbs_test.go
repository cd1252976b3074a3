package etcd

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// dual is a network of both families.
func dual(name string) network {
	return network{name: name, ranges: `[[{"subnet":"10.70.0.0/24"}],[{"subnet":"fd00:70::/64"}]]`}
}

func address(text string) netip.Addr { return netip.MustParseAddr(text) }

func TestVerbs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{})
	for _, tt := range []struct {
		name string
		test func(t *testing.T, c *cluster, n network)
	}{
		{"an attachment lives", testLife},
		{"an address that is asked for", testWanted},
		{"a full pool", testFull},
		{"one free address among many", testSearch},
		{"GC", testGC},
		{"DEL by the key alone", testDelByKey},
		{"DEL while etcd is away", testDelLater},
		{"two machines of one name", testClash},
		{"two machines with one machine-id", testClones},
		{"two machines without a machine-id", testNoMachineID},
		{"a copy of a host's disk", testCopy},
		{"two attachments that note one address", testNotedTwice},
		{"36 range sets", testManySets},
		{"two machines that join by one name", testJoin},
		{"a host that is renamed", testRenamed},
		{"another prefix", testPrefix},
		{"files that can't be read", testTorn},
		{"a directory that is lost", testLost},
		{"calls that had not begun", testNotBegun},
		{"two ADDs of one attachment at once", testTwice},
		{"a container whose namespace is gone", testMadeAgain},
		{"a container id that is too long", testLongID},
		{"keep reads what is the host's own", testKeep},
	} {
		name := strings.ReplaceAll(tt.name, " ", "-")
		t.Run(tt.name, func(t *testing.T) { tt.test(t, c, dual(strings.ReplaceAll(name, "'", ""))) })
	}
}

// testLife attaches containers of all hosts, and goes through all verbs.
func testLife(t *testing.T, c *cluster, n network) {
	want := holding{}
	for _, h := range c.hosts {
		h.awaitReady(t, n)
		r := h.must(t, "ADD", "web", n)
		got := addressesOf(t, r)
		if len(got) != 2 || !got[0].Is4() || !got[1].Is6() || r.Result(t).IPs[0].Gateway.String() != "10.70.0.1" {
			t.Errorf("ADD on %s: %s", h.name, r)
		}
		want.set(h, "web", got...)
		h.must(t, "CHECK", "web", n.withMore("prevResult", r.Map(t)))
		h.refuses(t, "ADD", "web", n, 999, "duplicate allocation is not allowed", got[0].String())
		other := address("10.70.0.250")
		if other == got[0] { // it is taken at random
			other = other.Next()
		}
		h.refuses(t, "CHECK", "web", n.withMore("prevResult", map[string]any{"cniVersion": "1.1.0", "ips": []any{map[string]any{"address": other.String() + "/24"}}}),
			999, other.String())
	}
	c.holds(t, n, want)
	if len(want) != 6 {
		t.Errorf("6 addresses are %v", want)
	}
	for _, h := range c.hosts {
		h.awaitReady(t, n)
		h.must(t, "DEL", "web", n)
		h.must(t, "DEL", "web", n)
		h.refuses(t, "CHECK", "web", n.withMore("prevResult", map[string]any{"cniVersion": "1.1.0"}), 999, "Failed to find address")
	}
	c.holds(t, n, holding{})
	for _, h := range c.hosts {
		if left := h.MustRun(t, "sh", "-c", "cd /var/lib/cni/etcd/"+n.name+"; ls held open"); strings.Contains(left, "eth0") {
			t.Errorf("left on %s: %s", h.name, left)
		}
	}
}

// testMadeAgain: what an attachment had in a namespace that is gone is freed by its next ADD.
func testMadeAgain(t *testing.T, c *cluster, n network) {
	h := c.hosts[0]
	had := h.add(t, "web", n)
	h.MustRun(t, "mkdir", "-p", "/var/lib/cni/results")
	h.Feed(t, `{"kind":"cniCacheV1","networkName":"`+n.name+`","containerId":"web","ifName":"eth0","netns":"/run/netns/gone"}`, "tee", "/var/lib/cni/results/"+n.name+"-web-eth0")
	has := h.add(t, "web", n)
	if slices.Equal(has, had) {
		t.Errorf("it has %v again", has)
	}
	c.holds(t, n, holding{}.set(h, "web", has...))
}

func testWanted(t *testing.T, c *cluster, n network) {
	n.args = "IP=10.70.0.77"
	got := c.hosts[0].add(t, "web", n)
	if got[0] != address("10.70.0.77") {
		t.Errorf("got %v", got)
	}
	c.hosts[1].refuses(t, "ADD", "other", n, 11, "10.70.0.77", "container web, interface eth0, on host node1")
	c.holds(t, n, holding{}.set(c.hosts[0], "web", got...))
	c.hosts[0].must(t, "DEL", "web", n)
	if got := c.hosts[1].add(t, "other", n); got[0] != address("10.70.0.77") {
		t.Errorf("got %v", got)
	}
}

// testFull takes all addresses of a pool.
func testFull(t *testing.T, c *cluster, n network) {
	n.ranges = `[[{"subnet":"10.70.0.0/28","rangeStart":"10.70.0.3","rangeEnd":"10.70.0.8"}]]` // 6
	want, last := holding{}, c.hosts[2]
	for _, id := range []string{"a", "b"} {
		for _, h := range c.hosts {
			want.set(h, id, h.add(t, id, n)...)
		}
	}
	if len(want) != 6 {
		t.Errorf("6 attachments have %v", want)
	}
	last.refuses(t, "ADD", "c", n, 11, "no IP addresses available in range set", "10.70.0.3-10.70.0.8", "6 addresses, all taken")
	last.must(t, "DEL", "c", n)
	c.holds(t, n, want)
	c.hosts[0].must(t, "DEL", "a", n)
	last.add(t, "c", n)
	if got := c.held(t, n); len(got) != 6 {
		t.Errorf("etcd has %v", got)
	}
}

// testSearch finds one free address among 1,021, which no random choice can be expected to hit.
func testSearch(t *testing.T, c *cluster, n network) {
	n.ranges = `[[{"subnet":"10.70.0.0/22"}]]`
	free := address("10.70.2.99")
	c.fill(t, n, address("10.70.0.2"), 1021, free)
	if got := c.hosts[1].add(t, "web", n); got[0] != free {
		t.Errorf("got %v, want %v", got, free)
	}
	c.hosts[0].refuses(t, "ADD", "other", n, 11, "1021 addresses, all taken")
}

func valid(ids ...string) []any {
	list := []any{}
	for _, id := range ids {
		list = append(list, map[string]any{"containerID": id, "ifname": "eth0"})
	}
	return list
}

// testGC frees what is not valid, of one host.
func testGC(t *testing.T, c *cluster, n network) {
	want := holding{}
	for _, h := range c.hosts {
		want.set(h, "stays", h.add(t, "stays", n)...)
	}
	h := c.hosts[0]
	h.add(t, "goes", n)
	h.must(t, "GC", "", n) // without a list nothing goes
	if got := c.held(t, n); len(got) != 8 {
		t.Errorf("etcd has %v", got)
	}
	h.must(t, "GC", "", n.withMore("cni.dev/valid-attachments", valid("stays")))
	c.holds(t, n, want)
	h.must(t, "GC", "", n.withMore("cni.dev/valid-attachments", valid()))
	if got := c.held(t, n); len(got) != 4 {
		t.Errorf("etcd has %v", got)
	}
}

// testDelByKey deletes with configurations from which much has gone since.
func testDelByKey(t *testing.T, c *cluster, n network) {
	h := c.hosts[0]
	for i, edit := range []func(network) network{
		func(n network) network { n.ranges = `[[{"subnet":"10.99.0.0/24"}]]`; return n },
		func(n network) network { n.ranges = `"none"`; return n },
		func(n network) network { return n.with("graceSeconds", "many") },
		func(n network) network { return n.with("endpoints", []string{c.hosts[2].endpoint()}) },
	} {
		h.add(t, "web", n)
		h.must(t, "DEL", "web", edit(n))
		if got := c.held(t, n); len(got) != 0 {
			t.Errorf("edit %d: etcd has %v", i, got)
		}
	}
	h.add(t, "web", n)
	r := h.must(t, "DEL", "web", n.with("endpoints", []string{}))
	if !strings.Contains(r.Stderr, "endpoints") {
		t.Errorf("DEL without endpoints says %q", r.Stderr)
	}
	got := h.add(t, "next", n)
	c.holds(t, n, holding{}.set(h, "next", got...))
}

// testDelLater deletes while no member can be reached. The next call delivers it.
func testDelLater(t *testing.T, c *cluster, n network) {
	h := c.hosts[0]
	before := h.add(t, "web", n)
	nowhere := n.with("endpoints", []string{"http://172.31.8.99:2379"}).with("timeoutSeconds", 1)
	h.refuses(t, "ADD", "other", nowhere, 11, "no member of the etcd cluster answers at http://172.31.8.99:2379")
	h.refuses(t, "STATUS", "", nowhere, 50, "no member of the etcd cluster answers at http://172.31.8.99:2379")
	h.refuses(t, "CHECK", "web", nowhere.withMore("prevResult", map[string]any{"cniVersion": "1.1.0"}), 11, "no member of the etcd cluster answers")
	h.refuses(t, "GC", "", nowhere.withMore("cni.dev/valid-attachments", valid()), 11, "no member of the etcd cluster answers")
	h.must(t, "DEL", "other", nowhere)
	h.must(t, "DEL", "web", nowhere)
	c.holds(t, n, holding{}.set(h, "web", before...))
	h.refuses(t, "ADD", "web", nowhere, 11)
	got := h.add(t, "web", n) // what was put down is of the attachment before
	c.holds(t, n, holding{}.set(h, "web", got...))
}

// testClash has a machine use a name that another has.
func testClash(t *testing.T, c *cluster, n network) {
	h, other := c.hosts[0], c.hosts[1]
	want := holding{}.set(h, "web", h.add(t, "web", n)...)
	as := n.with("host", h.name)
	words := []string{`another machine is called "node1"`, "ipam.etcd.host"}
	other.refuses(t, "ADD", "other", as, 7, words...)
	other.refuses(t, "STATUS", "", as, 50, words...)
	other.refuses(t, "GC", "", as.withMore("cni.dev/valid-attachments", valid()), 7, words...)
	other.must(t, "DEL", "other", as)
	c.holds(t, n, want)
	want.set(other, "other", other.add(t, "other", n)...)
	c.holds(t, n, want)
}

// testClones has two machines of one name and machine-id. The one that comes later is refused at its first call.
func testClones(t *testing.T, c *cluster, n network) {
	testSameID(t, c, n, "00000000000000000000000000000001")
}

func testNoMachineID(t *testing.T, c *cluster, n network) { testSameID(t, c, n, "") }

func testSameID(t *testing.T, c *cluster, n network, id string) {
	h, other := c.hosts[0], c.hosts[1]
	for _, each := range c.hosts[:2] {
		own := each.MustRun(t, "cat", "/etc/machine-id")
		each.Feed(t, id, "sh", "-c", "cat >/etc/machine-id")
		defer each.Feed(t, own, "sh", "-c", "cat >/etc/machine-id")
	}
	want := holding{}.set(h, "web", h.add(t, "web", n)...)
	as, words := n.with("host", h.name), []string{`another machine is called "node1"`, "its number is", "ipam.etcd.host"}
	other.refuses(t, "GC", "", as.withMore("cni.dev/valid-attachments", valid()), 7, words...)
	other.refuses(t, "ADD", "other", as, 7, words...)
	other.refuses(t, "STATUS", "", as, 50, words...)
	other.must(t, "DEL", "other", as)
	c.holds(t, n, want)
	h.awaitReady(t, n)
	h.must(t, "DEL", "web", n)
}

// testCopy has another machine start with all files of a host. As soon as it has written in etcd the first one is refused.
func testCopy(t *testing.T, c *cluster, n network) {
	h, other := c.hosts[0], c.hosts[1]
	n = n.with("host", "copied")
	own := other.MustRun(t, "cat", "/etc/machine-id")
	other.Feed(t, h.MustRun(t, "cat", "/etc/machine-id"), "sh", "-c", "cat >/etc/machine-id")
	defer other.Feed(t, own, "sh", "-c", "cat >/etc/machine-id")
	h.must(t, "ADD", "web", n)
	other.Feed(t, h.MustRun(t, "sh", "-c", "cd /var/lib/cni && tar c etcd-host etcd/'"+n.name+"' | base64"), "sh", "-c", "cd /var/lib/cni && cp etcd-host /run/own-number; base64 -d | tar x")
	defer other.MustRun(t, "sh", "-c", "cat /run/own-number >/var/lib/cni/etcd-host")
	other.MustRun(t, "sh", "-c", "echo other >/run/boot && mount --bind /run/boot /proc/sys/kernel/random/boot_id")
	defer other.MustRun(t, "umount", "/proc/sys/kernel/random/boot_id")
	other.must(t, "ADD", "of-copy", n)
	words := []string{"a copy of this host's disk", "ipam.etcd.host", "/var/lib/cni/etcd-host"}
	h.refuses(t, "ADD", "next", n, 7, words...)
	h.refuses(t, "GC", "", n.withMore("cni.dev/valid-attachments", valid("web")), 7, words...)
	h.must(t, "DEL", "next", n)
}

// testNotedTwice has a host write back what it holds, of which two attachments have one address. The first has it, and the host goes on.
func testNotedTwice(t *testing.T, c *cluster, n network) {
	h, dir := c.hosts[0], "/var/lib/cni/etcd/"+n.name
	h.add(t, "a", n)
	h.MustRun(t, "sh", "-ec", "cd "+dir+"; cp held/a:eth0 held/b:eth0; rm host")
	c.revoke(t, h, n)
	h.keep(t, n)
	want := holding{}
	for a := range c.held(t, n) {
		want.set(h, "a", a)
	}
	c.holds(t, n, want.set(h, "next", h.add(t, "next", n)...))
	h.must(t, "DEL", "b", n)
	c.holds(t, n, want)
}

// revoke ends the lease of a host, as the page says for one that is gone for good.
func (c *cluster) revoke(t testing.TB, h *host, n network) {
	t.Helper()
	ctx := context.Background()
	answer, err := c.client.Get(ctx, prefix+"/"+n.name+"/hosts/"+h.name)
	if err == nil {
		_, err = c.client.Revoke(ctx, clientv3.LeaseID(answer.Kvs[0].Lease))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// testManySets has more range sets than fit into a transaction with as many tries as usual.
func testManySets(t *testing.T, c *cluster, n network) {
	var sets []string
	for i := range 36 {
		sets = append(sets, fmt.Sprintf(`[{"subnet":"10.71.%d.0/24"}]`, i))
	}
	n.ranges = "[" + strings.Join(sets, ",") + "]"
	got := c.hosts[0].add(t, "web", n)
	if len(got) != 36 {
		t.Errorf("got %v", got)
	}
	c.holds(t, n, holding{}.set(c.hosts[0], "web", got...))
	c.revoke(t, c.hosts[0], n)
	c.hosts[0].MustRun(t, "rm", "/var/lib/cni/etcd/"+n.name+"/host")
	c.hosts[0].keep(t, n)
	c.holds(t, n, holding{}.set(c.hosts[0], "web", got...))
	c.hosts[0].must(t, "DEL", "web", n)
	c.holds(t, n, holding{})
}

// testJoin has two machines use one name for the first time, at once. One of them gets it.
func testJoin(t *testing.T, c *cluster, n network) {
	as, failed := n.with("host", "one"), make(chan bool)
	for _, h := range c.hosts[:2] {
		go func() { failed <- h.do(t, "ADD", "of-"+h.name, as).ExitCode != 0 }()
	}
	if a, b := <-failed, <-failed; a == b {
		t.Errorf("both fail: %v", a)
	}
	if got := c.held(t, n); len(got) != 2 {
		t.Errorf("etcd has %v", got)
	}
}

// testRenamed has a host get another name while it has something, and again when it has nothing.
func testRenamed(t *testing.T, c *cluster, n network) {
	h, renamed := c.hosts[0], n.with("host", "renamed")
	r := h.must(t, "ADD", "web", n)
	want := holding{}.set(h, "web", addressesOf(t, r)...)
	h.must(t, "CHECK", "web", renamed.withMore("prevResult", r.Map(t)))
	want.set(h, "next", h.add(t, "next", renamed)...)
	c.holds(t, n, want)
	h.must(t, "DEL", "next", renamed)
	h.must(t, "DEL", "web", renamed.with("endpoints", []string{})) // is put down
	h.must(t, "DEL", "web", renamed)
	c.holds(t, n, holding{})
	r = h.must(t, "ADD", "web", renamed)
	h.must(t, "CHECK", "web", renamed.withMore("prevResult", r.Map(t)))
	for a, by := range c.held(t, n) {
		if by != "renamed/web/eth0" {
			t.Errorf("%v is held by %s", a, by)
		}
	}
}

// testPrefix has two networks of one name below two prefixes, as clusters are called that share an etcd.
func testPrefix(t *testing.T, c *cluster, n network) {
	n.args = "IP=10.70.0.7"
	h, other := c.hosts[0], c.hosts[1]
	want := holding{}.set(h, "web", h.add(t, "web", n)...)
	if got := other.add(t, "web", n.with("prefix", "/elsewhere/cni")); got[0] != address("10.70.0.7") {
		t.Errorf("got %v", got)
	}
	c.holds(t, n, want)
	other.must(t, "DEL", "web", n.with("prefix", "/elsewhere/cni"))
	c.holds(t, n, want)
}

// testTorn has files that somebody has written something else into.
func testTorn(t *testing.T, c *cluster, n network) {
	h, dir := c.hosts[0], "/var/lib/cni/etcd/"+n.name
	h.add(t, "web", n)
	want := holding{}.set(h, "stays", h.add(t, "stays", n)...)
	h.MustRun(t, "sh", "-c", "echo '{' >"+dir+"/held/web:eth0; echo '{' >"+dir+"/host; echo >"+dir+"/open/.x; mkdir "+dir+"/held/x:y")
	want.set(h, "next", h.add(t, "next", n)...)
	h.awaitReady(t, n)
	h.must(t, "DEL", "web", n)
	c.holds(t, n, want)
	h.MustRun(t, "rm", "-r", dir+"/held/x:y", dir+"/open/.x")
}

// testLost has a host lose what it has noted, as `kubeadm reset` does. An attachment that is still there keeps its addresses, and others are
// collected.
func testLost(t *testing.T, c *cluster, n network) {
	h := c.hosts[0]
	h.add(t, "goes", n)
	want := holding{}.set(c.hosts[1], "other", c.hosts[1].add(t, "other", n)...)
	stays := h.add(t, "stays", n)
	h.MustRun(t, "rm", "-r", "/var/lib/cni/etcd", "/run/cnibox")
	h.awaitReady(t, n)
	if got := h.add(t, "stays", n); got[0] != stays[0] || got[1] != stays[1] {
		t.Errorf("got %v, want %v as before", got, stays)
	}
	h.must(t, "GC", "", n.withMore("cni.dev/valid-attachments", valid("stays")))
	c.holds(t, n, want.set(h, "stays", stays...))
}

// testNotBegun has what calls leave that are killed before they change anything. It is no reason to free what the attachment has.
func testNotBegun(t *testing.T, c *cluster, n network) {
	h, open := c.hosts[0], "/var/lib/cni/etcd/"+n.name+"/open/"
	want := holding{}.set(h, "web", h.add(t, "web", n)...)
	h.MustRun(t, "sh", "-ec", "umask 077; >"+open+"web:eth0")
	want.set(h, "next", h.add(t, "next", n)...)
	c.holds(t, n, want)
	h.MustRun(t, "sh", "-ec", "umask 077; >"+open+"web:eth0")
	h.refuses(t, "ADD", "web", n, 999, "duplicate allocation")
	h.keep(t, n)
	c.holds(t, n, want)
	if left := h.MustRun(t, "ls", open); left != "" {
		t.Errorf("left: %s", left)
	}
}

// testTwice calls ADD of the same attachment side by side: one gets addresses, and keeps them.
func testTwice(t *testing.T, c *cluster, n network) {
	h, answers := c.hosts[0], make(chan []netip.Addr)
	const calls = 4
	for range calls {
		go func() {
			r := h.do(t, "ADD", "web", n)
			if r.ExitCode != 0 {
				answers <- nil
				return
			}
			answers <- addressesOf(t, r)
		}()
	}
	var got [][]netip.Addr
	for range calls {
		if a := <-answers; a != nil {
			got = append(got, a)
		}
	}
	if len(got) != 1 {
		t.Fatalf("%d ADDs succeed: %v", len(got), got)
	}
	c.holds(t, n, holding{}.set(h, "web", got[0]...))
}

// testLongID has a container whose id is too long for the name of a file.
func testLongID(t *testing.T, c *cluster, n network) {
	h, long := c.hosts[0], strings.Repeat("c", 251)
	h.refuses(t, "ADD", long, n, 7, "use a shorter container id")
	h.must(t, "DEL", long, n)
	c.holds(t, n, holding{})
	long = long[:235]
	c.holds(t, n, holding{}.set(h, long, h.add(t, long, n)...))
	h.must(t, "DEL", long, n)
	c.holds(t, n, holding{})
}

// testKeep has a host keep what it has, beside others that have more.
func testKeep(t *testing.T, c *cluster, n network) {
	for _, h := range c.hosts {
		h.add(t, "web", n)
	}
	report, err := c.hosts[0].askKeep(n)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Hosts) != 1 || report.Hosts[0].Name != c.hosts[0].name || len(report.Held) != 2 || len(report.Pools) != 0 {
		t.Errorf("keep reads %+v", report)
	}
}
