package nftables

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestPresenceIsOneMessage(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	h.Feed(t, "add table ip nat\nadd chain ip nat a\nadd chain ip nat b\nadd table bridge nat\n", "nft", "-f", "-")
	c := open(t, h)
	ip, ip6, bridge := Table{unix.NFPROTO_IPV4, "nat"}, Table{unix.NFPROTO_IPV6, "nat"}, Table{unix.NFPROTO_BRIDGE, "nat"}
	for _, tt := range []struct {
		name string
		ask  func() ([]bool, error)
		want []bool
	}{
		{"tables", func() ([]bool, error) { return c.HasTables(ip6, ip, Table{unix.NFPROTO_IPV4, "na"}, bridge) }, []bool{false, true, false, true}},
		{"chains", func() ([]bool, error) {
			return c.HasChains(ChainOf{ip, "a"}, ChainOf{ip6, "a"}, ChainOf{bridge, "a"}, ChainOf{ip, "c"}, ChainOf{ip, "b"})
		}, []bool{true, false, false, false, true}},
		{"nothing", func() ([]bool, error) { return c.HasTables() }, []bool{}},
	} {
		before := c.Sends
		got, err := tt.ask()
		if err != nil || !slices.Equal(got, tt.want) || c.Sends-before > 1 {
			t.Errorf("%s: %v, %v after %d messages; want %v", tt.name, got, err, c.Sends-before, tt.want)
		}
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	h.Feed(t, "add table ip nat\nadd chain ip nat a\nadd chain ip nat b\n"+
		"add rule ip nat a counter\nadd rule ip nat a counter\nadd rule ip nat b jump a\n", "nft", "-f", "-")
	c := open(t, h)
	for _, tt := range []struct {
		table  Table
		chains []string
		want   []uint32
	}{
		{Table{unix.NFPROTO_IPV4, "nat"}, []string{"a", "c", "b"}, []uint32{2 + 1, 0, 1}},
		{Table{unix.NFPROTO_IPV4, "nat"}, []string{"b", "a", "c"}, []uint32{1, 2 + 1, 0}},
		{Table{unix.NFPROTO_IPV6, "nat"}, []string{"a", "b"}, []uint32{0, 0}},
		{Table{unix.NFPROTO_IPV4, "nat"}, nil, []uint32{}},
	} {
		before := c.Sends
		got, err := c.Uses(tt.table, tt.chains...)
		if err != nil || !slices.Equal(got, tt.want) || c.Sends-before > 1 {
			t.Errorf("%s, %v: %v, %v after %d messages; want %v", tt.table, tt.chains, got, err, c.Sends-before, tt.want)
		}
	}
}
