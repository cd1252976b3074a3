package hostlocal

import (
	"testing"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

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
		if c.ReadRequests(r) != nil {
			return
		}
		c.store, err = lease.NewStore(t.TempDir(), "net", "")
		if err != nil {
			t.Fatal(err)
		}
		leases, err := c.store.Allocate(t.Context(), r.Key, c.Pools)
		if err != nil {
			t.Fatalf("%s: %v", config, err)
		}
		for i, l := range leases {
			if at := c.Pools[i].Find(l.Address); at < 0 || l.Address == c.Pools[i].Ranges[at].Gateway {
				t.Fatalf("%s: got %v", config, l)
			}
		}
		if back, err := c.store.Release(t.Context(), r.Key); err != nil || len(back) != len(leases) {
			t.Fatalf("%s: gave back %v of %v: %v", config, back, leases, err)
		}
	})
}
