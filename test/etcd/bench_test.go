package etcd

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// BenchmarkAdd measures an ADD against how many addresses of a /16 are taken, and how many hosts add at once; and one of host-local beside it.
func BenchmarkAdd(b *testing.B) {
	c := newCluster(b, options{})
	count := 20
	fills := []int{0, 1000}
	if *longFlag {
		count, fills = 100, []int{0, 10000, 60000}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| taken of 65,533 | etcd, 1 host | etcd, 3 hosts at once | host-local |\n|---|---|---|---|\n")
	for _, taken := range fills {
		n, first := network{name: fmt.Sprint("taken-", taken), ranges: `[[{"subnet":"10.70.0.0/16"}]]`}, address("10.70.0.2")
		c.fill(b, n, first, taken)
		h := c.hosts[0]
		fillHostLocal(b, h, n, first, taken)
		one := measure(b, c.hosts[:1], count, func(h *host) netlab.PluginCall { return h.call("ADD", "", n) }, "etcd")
		three := measure(b, c.hosts, count, func(h *host) netlab.PluginCall { return h.call("ADD", "", n) }, "etcd")
		local := measure(b, c.hosts[:1], count, func(h *host) netlab.PluginCall {
			call := h.call("ADD", "", n)
			call.Config.(map[string]any)["ipam"] = map[string]any{"type": "host-local", "ranges": []any{[]any{map[string]any{"subnet": "10.70.0.0/16"}}}}
			return call
		}, "host-local")
		fmt.Fprintf(&table, "| %d | %s | %s | %s |\n", taken, one, three, local)
	}
	b.Logf("an ADD of the IPAM plugin, median (of nine in ten) of %d on each host:\n%s", count, &table)
	if *reportFlag != "" {
		if err := os.WriteFile(*reportFlag, []byte(table.String()), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// measure has hosts add and delete, each one container after the other, and says how long an ADD takes.
func measure(b *testing.B, hosts []*host, count int, call func(h *host) netlab.PluginCall, name string) string {
	var one sync.Mutex
	var times []time.Duration
	some := cluster{hosts: hosts}
	some.each(1, func(h *host, _ int) {
		for i := range count {
			add := call(h)
			add.ContainerID = fmt.Sprintf("%s-%d", name, i)
			start := time.Now()
			r := h.Exec(b, name, add)
			took := time.Since(start)
			if r.ExitCode != 0 {
				b.Errorf("%s: %s", name, r)
				return
			}
			one.Lock()
			times = append(times, took)
			one.Unlock()
			add.Command = "DEL"
			h.Exec(b, name, add)
		}
	})
	if len(times) == 0 {
		return "none"
	}
	slices.Sort(times)
	milliseconds := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("%.1f ms (%.1f)", milliseconds(times[len(times)/2]), milliseconds(times[len(times)*9/10]))
}

// fillHostLocal has host-local's leases of as many addresses.
func fillHostLocal(b *testing.B, h *host, n network, first netip.Addr, count int) {
	var last netip.Addr
	dir := "/var/lib/cni/networks/" + n.name
	h.Do(func() {
		err := os.MkdirAll(dir, 0o755)
		for a := first; err == nil && count > 0; a, count = a.Next(), count-1 {
			last, err = a, os.WriteFile(dir+"/"+a.String(), []byte("c"+a.String()+"\r\neth0"), 0o600)
		}
		if err == nil && last.IsValid() {
			err = os.WriteFile(dir+"/last_reserved_ip.0", []byte(last.String()), 0o600)
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}
