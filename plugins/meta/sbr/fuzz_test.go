package sbr

import (
	"net/netip"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// FuzzConfig makes sure that no configuration panics, and that what comes of one can be asked of the kernel.
func FuzzConfig(f *testing.F) {
	f.Add(`{"gateways":["10.1.0.1","fd00::1"],"addSourceHints":true}`)
	f.Add(`{"gateways":["::ffff:10.1.0.1","fe80::1%eth0","0.0.0.0"],"table":4294967295}`)
	f.Add(`{"table":0,"gateways":null}`)
	result := &types100.Result{IPs: []*types100.IPConfig{
		{Address: result.IPNet(netip.MustParsePrefix("10.1.0.2/24")), Gateway: []byte{10, 1, 0, 9}},
		{Address: result.IPNet(netip.MustParsePrefix("fd00::2/64"))},
	}}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := conf.Parse([]byte(text))
		if err != nil {
			return
		}
		c, err := parse(&plugin.Request{Key: plugin.Key{Network: "net", ContainerID: "id", IfName: "eth0"}, Config: o, PrevResult: result})
		if err != nil {
			return
		}
		for _, s := range c.sources {
			if s.table < 1 || s.table > 1<<32-1 {
				t.Errorf("%q: table %d", text, s.table)
			}
			if s.gateway.IsValid() && (s.gateway.Is4() != s.prefix.Addr().Is4() || s.gateway.IsUnspecified() || s.gateway.Zone() != "") {
				t.Errorf("%q: gateway %s for %s", text, s.gateway, s.prefix)
			}
		}
	})
}

// TestOwnTables makes sure that attachments have tables of their own, all in the range that is for them.
func TestOwnTables(t *testing.T) {
	web := plugin.Key{Network: "net", ContainerID: "web", IfName: "eth0"}
	second, other := web, web
	second.IfName, other.Network = "net1", "other"
	for _, k := range []plugin.Key{web, second, other} {
		for _, i := range []int{0, 1, tables - 1} {
			table := ownTable(k, i)
			if table < firstOwnTable || table >= 2*firstOwnTable || !isOwnTable(k, table) {
				t.Errorf("%v has the table %d as its %d-th", k, table, i)
			}
			if k != web && isOwnTable(web, table) {
				t.Errorf("%v and %v share table %d", k, web, table)
			}
		}
		if isOwnTable(k, ownTable(k, 0)-1) || isOwnTable(k, ownTable(k, tables-1)+1) {
			t.Errorf("%v has more than %d tables", k, tables)
		}
	}
}
