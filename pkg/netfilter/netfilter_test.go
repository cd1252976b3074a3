package netfilter

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

var (
	key  = plugin.Key{Network: "net", ContainerID: "cid", IfName: "eth0"}
	hint = []netip.Prefix{netip.MustParsePrefix("10.88.0.2/16"), netip.MustParsePrefix("fd00::2/64")}
)

// held is what DELs take back.
var held = map[string][]Feature{
	"masquerade": {Masquerade(nil)},
	"bridge":     {Masquerade(nil), SpoofCheck("", [6]byte{})},
	"port maps":  {PortMaps(spec.PortNeeds{})},
	"forward":    {Forward{}.Feature()},
}

func del(things []Feature) error {
	return Del(context.Background(), &plugin.Request{Key: key}, hint, things...)
}

func TestLook(t *testing.T) {
	t.Parallel()
	things := []Feature{Masquerade(nil), PortMaps(spec.PortNeeds{}), Forward{}.Feature(), SpoofCheck("", [6]byte{})}
	groups := map[string][]nftables.Table{
		"reference masquerade": reference.MasqueradeRules{}.Tables(), "reference ports": reference.PortRules{}.Tables(),
		"nat": iptables.Masquerading.Tables(), "filter": iptables.Forwarding.Tables(),
		"reference bridge": reference.SpoofChains{}.Tables(), "bridge": {{Family: nftables.TableFamilyBridge, Name: "cnibox"}},
		"host": {{Family: nftables.TableFamilyINet, Name: "cnibox"}}, "forward": {{Family: nftables.TableFamilyINet, Name: "cnibox-forward"}},
	}
	for _, tt := range []struct{ table, group string }{
		{"", ""},
		{"inet cni_plugins_masquerade", "reference masquerade"},
		{"ip cni_hostport", "reference ports"}, {"ip6 cni_hostport", "reference ports"},
		{"ip nat", "nat"}, {"ip6 nat", "nat"},
		{"ip filter", "filter"}, {"ip6 filter", "filter"},
		{"bridge cnibox", "bridge"}, {"bridge nat", "reference bridge"},
		{"inet cnibox", "host"}, {"inet cnibox-forward", "forward"},
		{"inet nat", ""}, {"bridge filter", ""},
	} {
		t.Run(tt.table, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			if tt.table != "" {
				h.MustRun(t, "nft", "add", "table", tt.table)
			}
			h.Do(func() {
				conn, err := nft.Open()
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				h := host{conn: conn, there: map[nftables.Table]bool{}}
				if err := h.look(things); err != nil {
					t.Error(err)
				}
				for name, tables := range groups {
					if got := h.has(tables...); got != (name == tt.group) {
						t.Errorf("%s: %v", name, got)
					}
				}
			})
		})
	}
}

// TestDelMakesNothing wants a host on which nothing was ever made to stay so: to
// ask for a table of iptables-legacy in the obvious way creates it.
func TestDelMakesNothing(t *testing.T) {
	t.Parallel()
	for name, things := range held {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			do(t, h, things)
			h.Do(func() {
				for _, file := range []string{"ip_tables_names", "ip6_tables_names"} {
					if text, _ := os.ReadFile("/proc/thread-self/net/" + file); len(text) > 0 {
						t.Errorf("%s: %q", file, text)
					}
				}
				if _, err := os.Stat("/run/cnibox/iptables.owners"); err == nil {
					t.Error("records are kept from now on")
				}
			})
			if text := h.MustRun(t, "nft", "list", "ruleset"); text != "" {
				t.Errorf("nftables:\n%s", text)
			}
		})
	}
}

// TestDelFindsForeignRules has DELs remove what no record tells, of either flavour
// and family.
func TestDelFindsForeignRules(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy"} {
		for _, name := range []string{"masquerade", "bridge", "port maps", "forward"} {
			t.Run(program+" "+name, func(t *testing.T) {
				t.Parallel()
				h := netlab.NewHost(t)
				table, rules := foreign(name, hint[strings.Count(program, "6")].Addr())
				h.Feed(t, rules, program+"-restore")
				do(t, h, held[name])
				if text := h.MustRun(t, program, "-t", table, "-S"); strings.Contains(text, "cid") || strings.Contains(text, "10.88.0.2") || strings.Contains(text, "fd00::2") {
					t.Errorf("left:\n%s", text)
				}
			})
		}
	}
}

// foreign is what the reference plugins make.
func foreign(name string, addr netip.Addr) (table, rules string) {
	sum := sha512.Sum512([]byte("netcid"))
	hash := hex.EncodeToString(sum[:])
	const comment = `-m comment --comment "name: \"net\" id: \"cid\""`
	own := netip.PrefixFrom(addr, addr.BitLen())
	switch name {
	case "forward":
		return "filter", fmt.Sprintf("*filter\n-N CNI-FORWARD\n-A FORWARD -j CNI-FORWARD\n"+
			"-A CNI-FORWARD -d %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A CNI-FORWARD -s %s -j ACCEPT\nCOMMIT\n", own, own)
	case "port maps":
		chain := ("CNI-DN-" + hash)[:28]
		return "nat", fmt.Sprintf("*nat\n-N CNI-HOSTPORT-DNAT\n-N %s\n-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n"+
			"-A %s -p tcp -m tcp --dport 8080 -j DNAT --to-destination %s\n"+
			"-A CNI-HOSTPORT-DNAT -p tcp %s -m multiport --dports 8080 -j %s\nCOMMIT\n", chain, chain, netip.AddrPortFrom(addr, 80), comment, chain)
	}
	chain := ("CNI-" + hash)[:28]
	return "nat", fmt.Sprintf("*nat\n-N %s\n-A %s -d %s %s -j ACCEPT\n-A POSTROUTING -s %s %s -j %s\nCOMMIT\n", chain, chain, own, comment, own, comment, chain)
}

func do(t *testing.T, h *netlab.Host, things []Feature) {
	h.Do(func() {
		if err := del(things); err != nil {
			t.Error(err)
		}
	})
}

// TestCheckNamesWhatIsMissing wants the error of CHECK to be of the backend that has what is left, whatever the configuration prefers.
func TestCheckNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	m, r := Masquerade(hint), &plugin.Request{Key: key}
	wish := func(backend string) Wish { return Wish{Key: "ipMasqBackend", Value: backend} }
	h.Do(func() {
		if err := m.Add(context.Background(), wish(IPTables), r); err != nil {
			t.Fatal(err)
		}
		if err := m.Check(context.Background(), wish(""), r); err != nil {
			t.Error(err)
		}
	})
	h.MustRun(t, "ip6tables", "-t", "nat", "-F")
	h.Do(func() {
		err := m.Check(context.Background(), wish(""), r)
		if err == nil || !strings.Contains(err.Error(), "ip6tables") {
			t.Errorf("got %v", err)
		}
	})
}
