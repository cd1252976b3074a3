package hostlocal

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

func TestParseResolvConf(t *testing.T) {
	got := parseResolvConf(`# comment
; another
nameserver 192.0.2.1
   nameserver	192.0.2.2 ignored
nameserver
domain one.example
domain two.example
search a.example b.example
search c.example
options ndots:5
options edns0 trust-ad
#nameserver 192.0.2.3
sortlist 10.0.0.0`)
	want := types.DNS{
		Nameservers: []string{"192.0.2.1", "192.0.2.2"}, Domain: "two.example",
		Search: []string{"a.example", "b.example", "c.example"}, Options: []string{"ndots:5", "edns0", "trust-ad"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// What is left of ranges is each address of theirs that is not excluded, once.
func TestWithout(t *testing.T) {
	subnet := netip.MustParsePrefix("10.1.2.0/27")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		first, last := rng.IntN(32), rng.IntN(32)
		left := []lease.Range{{Subnet: subnet, First: address(min(first, last)), Last: address(max(first, last))}}
		var excluded []netip.Prefix
		for range rng.IntN(4) {
			excluded = append(excluded, netip.PrefixFrom(address(rng.IntN(32)), 27+rng.IntN(6)).Masked())
			left = without(left, excluded[len(excluded)-1])
		}
		for i := range 32 {
			a, want, got := address(i), 0, 0
			if i >= min(first, last) && i <= max(first, last) && !slices.ContainsFunc(excluded, func(p netip.Prefix) bool { return p.Contains(a) }) {
				want = 1
			}
			for _, r := range left {
				if r.Contains(a) {
					got++
				}
			}
			if got != want {
				t.Fatalf("%s without %v is %v: %s is in it %d times, want %d", subnet, excluded, left, a, got, want)
			}
		}
	}
}

// address returns the ith address of 10.1.2.0/24.
func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 2, byte(i)}) }

// Whatever the configuration: no panic; an error names no address as taken, and
// what ADD took, DEL gives back.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		`{"ipam": {"subnet": "10.1.2.0/24"}}`,
		`{"ipam": {"ranges": [[{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.5", "rangeEnd": "10.1.2.9", "gateway": "10.1.2.254"}], [{"subnet": "fd00::/64"}]]}}`,
		`{"ipam": {"ranges": [[]], "routes": [{"dst": "0.0.0.0/0"}]}, "runtimeConfig": {"ips": ["10.1.2.3"], "ipRanges": [[{"subnet": "10.2.0.0/16"}]]}, "args": {"cni": {"ips": []}}}`,
		`{"ipam": {"subnet": "255.255.255.252/30"}}`,
		`{"ipam": {"subnet": "255.255.255.254/31", "exclude": ["255.255.255.255"]}}`,
		`{"ipam": {"subnet": "0.0.0.0/30", "exclude": ["0.0.0.0/31"]}}`,
		`{"ipam": {"ranges": [[{"subnet": "fd00::/127", "exclude": ["fd00::"]}, {"subnet": "fd00::7/128", "gateway": "fe80::1"}]]}}`,
		`{"ipam": {"subnet": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126"}}`,
	} {
		f.Add(s, "IP=10.1.2.7")
	}
	f.Fuzz(func(t *testing.T, config, args string) {
		o, err := conf.Parse([]byte(config))
		if err != nil {
			return
		}
		r := &plugin.Request{Command: plugin.Add, Key: plugin.Key{Network: "net", ContainerID: "c1", IfName: "eth0"}, Args: args, Version: "1.1.0", Config: o}
		c, err := load(r)
		if err != nil {
			_ = result.PrintError(plugin.AsError(err), "1.1.0")
			return
		}
		if c.readRequests(r) != nil {
			return
		}
		c.store, err = lease.NewStore(t.TempDir(), "net", "")
		if err != nil {
			t.Fatal(err)
		}
		leases, err := c.store.Allocate(t.Context(), r.Key, c.pools)
		if err != nil {
			t.Fatalf("%s: %v", config, err)
		}
		for i, l := range leases {
			if at := c.pools[i].Find(l.Address); at < 0 || l.Address == c.pools[i].Ranges[at].Gateway {
				t.Fatalf("%s: got %v", config, l)
			}
		}
		if back, err := c.store.Release(t.Context(), r.Key); err != nil || len(back) != len(leases) {
			t.Fatalf("%s: gave back %v of %v: %v", config, back, leases, err)
		}
	})
}
