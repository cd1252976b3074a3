package upgrade

import (
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// origin is a version of the reference plugins with one of its backends.
type origin struct {
	name    string
	dir     func(testing.TB) string
	backend string // what the plugins' configuration calls it; "" if the version knows no other
	flavour string // of iptables, which firewall always needs
}

// The reference plugins: the newest, and Debian's.
var origins = []origin{
	{"1.9.1-nftables", netlab.Reference, "nftables", "nft"},
	{"1.9.1-iptables-nft", netlab.Reference, "iptables", "nft"},
	{"1.9.1-iptables-legacy", netlab.Reference, "iptables", "legacy"},
	{"1.1.1-iptables-nft", netlab.Debian, "", "nft"},
	{"1.1.1-iptables-legacy", netlab.Debian, "", "legacy"},
}

// usesIPTables tells whether all that the origin makes is in iptables.
func (o origin) usesIPTables() bool { return o.backend != "nftables" }

// checks tells whether the origin's CHECK works for such an attachment. That of
// portmap 1.1.1 looks for the rules of each family in the other one too, and so
// does not find its own.
func (o origin) checks(a *attachment) bool { return o.backend != "" || a.port == 0 }

// forEach runs a subtest for each origin that is wanted; with -short without
// iptables-legacy.
func forEach(t *testing.T, wanted func(origin) bool, run func(t *testing.T, o origin)) {
	for _, o := range origins {
		if !wanted(o) || testing.Short() && o.flavour == "legacy" {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			run(t, o)
		})
	}
}

func all(origin) bool { return true }
