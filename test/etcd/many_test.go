package etcd

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestMany takes many addresses from three hosts, 8 or 32 at once on each, and gives them back.
func TestMany(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t, options{}), network{name: "lan", ranges: `[[{"subnet":"10.70.0.0/16"}]]`}
	atOnce, each := long(8, 32), long(6, 105)
	var one sync.Mutex
	want := holding{}
	c.each(atOnce, func(h *host, worker int) {
		for i := range each {
			id := fmt.Sprintf("c%d-%d", worker, i)
			r := h.do(t, "ADD", id, n)
			if r.ExitCode != 0 {
				t.Errorf("ADD of %s on %s: %s", id, h.name, r)
				return
			}
			a := addressesOf(t, r)[0]
			one.Lock()
			if by := want[a]; by != "" {
				t.Errorf("%v is %s's and %s's", a, by, id)
			}
			want.set(h, id, a)
			one.Unlock()
		}
	})
	c.holds(t, n, want)
	t.Logf("%d attachments have %d addresses", 3*atOnce*each, len(want))
	c.each(atOnce, func(h *host, worker int) {
		for i := range each {
			if r := h.do(t, "DEL", fmt.Sprintf("c%d-%d", worker, i), n); r.ExitCode != 0 || r.Stderr != "" {
				t.Errorf("DEL on %s: %s", h.name, r)
			}
		}
	})
	c.holds(t, n, holding{})
}

// TestNearlyFull takes the last addresses of a large pool from three hosts, some of them one after another, then 8 at once on
// each: all of them are had, and etcd looks into few parts of the pool for one.
func TestNearlyFull(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t, options{}), network{name: "lan", ranges: `[[{"subnet":"10.70.0.0/18"}]]`}
	var free []netip.Addr
	for i := range 60 {
		free = append(free, netip.AddrFrom4([4]byte{10, 70, byte(i + 3), byte(37 * i)}))
	}
	c.fill(t, n, address("10.70.0.2"), 16381, free...)
	var one sync.Mutex
	var got []netip.Addr
	add := func(h *host, name string) {
		r := h.do(t, "ADD", name, n)
		one.Lock()
		defer one.Unlock()
		if r.ExitCode != 0 {
			t.Errorf("ADD on %s: %s", h.name, r)
		} else {
			got = append(got, addressesOf(t, r)...)
		}
	}
	const atOnce, alone = 8, 9
	var looks []int
	for i := range alone {
		before := c.looks(t)
		add(c.hosts[0], fmt.Sprintf("alone%d", i))
		looks = append(looks, c.looks(t)-before)
	}
	slices.Sort(looks)
	usual := looks[alone/2] // some are found at once, and some looked for twice on a busy machine
	c.each(atOnce, func(h *host, worker int) {
		for i := worker; i < (len(free)-alone)/3; i += atOnce {
			add(h, fmt.Sprintf("web%d", i))
		}
	})
	t.Logf("%d of %d addresses are had, with %v looks for some", len(got), len(free), looks)
	if usual > 250 {
		t.Errorf("etcd looks %d times for an address", usual)
	}
	slices.SortFunc(got, netip.Addr.Compare)
	if !slices.Equal(got, free) {
		t.Errorf("got %v, want %v", got, free)
	}
	c.hosts[0].refuses(t, "ADD", "more", n, 11, "16381 addresses, all taken")
}

// looks is how often all members have looked for a key or a range of keys.
func (c *cluster) looks(t testing.TB) (count int) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: c.center.DialContext}}
	for _, h := range c.hosts {
		answer, err := client.Get(h.endpoint() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		found := regexp.MustCompile(`(?m)^etcd_(?:debugging_)?mvcc_range_total (\S+)`).FindSubmatch(text)
		if err != nil || found == nil {
			t.Fatalf("%s: %v, no etcd_mvcc_range_total", h.name, err)
		}
		n, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		count += int(n)
	}
	return count
}

// TestMacvlan has pods on two hosts of a LAN, each on the LAN itself, and sends packets from each to one on the other host.
func TestMacvlan(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t, options{}), network{name: "lan", ranges: `[[{"subnet":"10.71.0.0/16"}]]`}
	type pod struct {
		*netlab.Pod
		host    *host
		address netip.Addr
	}
	count, atOnce := long(10, 250), 4
	var one sync.Mutex
	pods := map[*host][]pod{}
	two := *c
	two.hosts = c.hosts[:2]
	list := func(h *host) string {
		return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"lan","plugins":[{"type":"macvlan","master":"eth0","ipam":%s}]}`, toJSON(t, h.ipam(n)))
	}
	two.each(atOnce, func(h *host, worker int) {
		for i := worker; i < count; i += atOnce {
			p := h.NewPod(t, fmt.Sprintf("%s-pod%d", h.name, i)) // a MAC address is made from the container's ID
			r, err := h.AddList(list(h), p.RuntimeConf(nil))
			if err != nil {
				t.Errorf("ADD on %s: %v", h.name, err)
				return
			}
			a, _ := netlab.Addresses(r)
			one.Lock()
			pods[h] = append(pods[h], pod{p, h, a})
			one.Unlock()
		}
	})
	if t.Failed() {
		return
	}
	want := holding{}
	for h, list := range pods {
		for _, p := range list {
			want.set(h, p.ID, p.address)
		}
	}
	c.holds(t, n, want)
	if len(want) != 2*count {
		t.Errorf("%d pods have %d addresses", 2*count, len(want))
	}
	two.each(atOnce, func(h *host, worker int) {
		other := two.hosts[1-h.index]
		for i := worker; i < count; i += atOnce {
			from, to := pods[h][i], pods[other][(i*7+3)%count]
			if err := netlab.Await(func() error { return from.Ping(to.address.String(), silence) }); err != nil {
				t.Errorf("from %v on %s to %v on %s: %v", from.address, h.name, to.address, other.name, err)
			}
		}
	})
	t.Logf("%d pods on 2 hosts reach one on the other host each", 2*count)
	two.each(atOnce, func(h *host, worker int) {
		for i := worker; i < count; i += atOnce {
			if err := h.DelList(list(h), pods[h][i].RuntimeConf(nil)); err != nil {
				t.Errorf("DEL on %s: %v", h.name, err)
			}
		}
	})
	c.holds(t, n, holding{})
}
