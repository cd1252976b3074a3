package nft

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/test/netlab"
)

// withBit and onCondition return ports that are not plain.
func withBit(bit int, p netfilter.PortMaps) netfilter.PortMaps {
	p.MarkBit = bit
	return p
}

func onCondition(v4 string, p netfilter.PortMaps) netfilter.PortMaps {
	p.Conditions4 = strings.Fields(v4)
	return p
}

func on6Condition(v6 string, p netfilter.PortMaps) netfilter.PortMaps {
	p.Conditions6 = strings.Fields(v6)
	return p
}

// fillGroups puts one port of several groups into the table.
func fillGroups(t testing.TB, h *netlab.Host, table *Table) map[string]netfilter.PortMaps {
	t.Helper()
	addLink(t, h, "cni0")
	all := map[string]netfilter.PortMaps{
		"bit14": withBit(14, behind("cni0", portMaps(t, "tcp/8014=10.88.0.2:80", "tcp/8014=[fd00::2]:80"))),
		"bit0":  withBit(0, behind("cni0", portMaps(t, "tcp/192.0.2.1:8000=10.88.0.2:80"))),
		"lists": onCondition("ip saddr { 10.0.0.0/8, 192.0.2.9 } iifname { eth0, ens* } ip daddr != { 192.0.2.7, 192.0.2.8 } mark and 0xf0 == 0x10",
			behind("cni0", portMaps(t, "tcp/8001=10.88.0.2:80", "udp/192.0.2.1:8001=10.88.0.2:80"))),
		"both": withBit(5, onCondition("ip saddr != 10.0.0.0/8", on6Condition("ip6 saddr fd00::/8 mark 7", behind("cni0", portMaps(t,
			"tcp/8002=10.88.0.2:80", "tcp/8002=[fd00::2]:80"))))),
	}
	h.Do(func() {
		for id, ports := range all {
			must(t, table.AddPortMaps(ctx, keyOf(id), ports))
		}
	})
	return all
}

func TestGroupsAreWhatNftLists(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	addLink(t, h, "cni0")
	// One at a time: parts stand in the order in which they were made.
	for i, ports := range []netfilter.PortMaps{
		withBit(14, behind("cni0", portMaps(t, "tcp/8014=10.88.0.2:80"))),
		on6Condition("ip6 saddr { fd00::/8, 2001:db8::1 } iifname != { eth0, ens* }", behind("cni0", portMaps(t, "tcp/8001=[fd00::2]:80"))),
		withBit(5, onCondition("ip saddr != 10.0.0.0/8 ip daddr 192.0.2.1 mark and 0xf0 == 0x10 mark 7", behind("cni0", portMaps(t, "tcp/192.0.2.1:8002=10.88.0.2:80")))),
	} {
		h.Do(func() { must(t, table.AddPortMaps(ctx, keyOf(fmt.Sprint("c", i)), ports)) })
	}
	got := listing(t, h)
	const golden = "testdata/groups.nft"
	if *update {
		must(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if got != string(want) {
		t.Errorf("the table is not as in %s:\n%s", golden, got)
	}
}

func TestGroupsComeAndGo(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	all := fillGroups(t, h, table)
	saved := listing(t, h)
	h.Do(func() {
		for id, ports := range all {
			must(t, table.CheckPortMaps(ctx, keyOf(id), ports))
			must(t, table.AddPortMaps(ctx, keyOf(id), ports))
			must(t, table.AddPortMaps(ctx, keyOf(id+"2"), shifted(ports)))
		}
		for id := range all {
			delPorts(t, table, keyOf(id+"2"))
		}
	})
	if got := listing(t, h); got != saved {
		t.Errorf("changed by repeating, and by others that came and went:\n%s\nbefore:\n%s", got, saved)
	}
	restore(t, h, saved)
	if got := listing(t, h); got != saved {
		t.Errorf("after a reload:\n%s\nbefore:\n%s", got, saved)
	}
	for id, ports := range all {
		h.Do(func() {
			must(t, table.CheckPortMaps(ctx, keyOf(id), ports))
			removed := delPorts(t, table, keyOf(id))
			if len(removed) != len(ports.Maps) || !strings.HasSuffix(removed[0], "=10.88.0.2:80") {
				t.Errorf("%s: removed %v", id, removed)
			}
		})
	}
	got := listing(t, h)
	if strings.Contains(got, version+"_") || strings.Contains(got, "net/") {
		t.Errorf("left behind:\n%s", got)
	}
	// GC does it too.
	restore(t, h, saved)
	h.Do(func() { must(t, table.GCPortMaps(ctx, "net", nil)) })
	if got := listing(t, h); strings.Contains(got, version+"_") || strings.Contains(got, "net/") {
		t.Errorf("left behind by GC:\n%s", got)
	}
}

// shifted returns the same ports with other numbers.
func shifted(ports netfilter.PortMaps) netfilter.PortMaps {
	maps := append([]netfilter.PortMap(nil), ports.Maps...)
	for i := range maps {
		maps[i].HostPort += 1000
	}
	ports.Maps = maps
	return ports
}

// TestSecondFamilyOfPart adds to one part that is there and one that is not.
func TestSecondFamilyOfPart(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	addLink(t, h, "cni0")
	h.Do(func() {
		must(t, table.AddMasquerade(ctx, keyOf("a"), prefixes("10.88.0.2/24")))
		must(t, table.AddMasquerade(ctx, keyOf("b"), prefixes("10.88.0.3/24", "fd00::3/64")))
		must(t, table.AddPortMaps(ctx, keyOf("a"), withBit(14, behind("cni0", portMaps(t, "tcp/80=10.88.0.2:80")))))
		must(t, table.AddPortMaps(ctx, keyOf("b"), withBit(14, behind("cni0", portMaps(t, "tcp/81=10.88.0.2:80", "tcp/81=[fd00::2]:80")))))
	})
}

func TestCheckFindsMissingRulesOfGroups(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	all := fillGroups(t, h, table)
	saved := listing(t, h)
	check := func() (err error) {
		h.Do(func() {
			for id, ports := range all {
				err = errors.Join(err, table.CheckPortMaps(ctx, keyOf(id), ports))
			}
		})
		return err
	}
	lists, err := parseConditions("", all["lists"].Conditions4, &ipv4)
	must(t, err)
	part := group{family: &ipv4, bit: defaultBit, conditions: lists.id}.id()
	for _, c := range []struct{ do, want string }{
		{"flush chain inet cnibox options_v2", "chain options_v2 has no rule for set"},
		{"flush chain inet cnibox hostoptions_v2", "chain hostoptions_v2 has no rule for set"},
		{"flush chain inet cnibox mark_v2_all4_bit14", "chain mark_v2_all4_bit14 has 0 of its 3 rules"},
		{"flush chain inet cnibox masquerade_v2_host4_bit0", "chain masquerade_v2_host4_bit0 has 0 of its 1 rules"},
		{"flush chain inet cnibox dnat2_v2_" + part, "has 0 of its 7 rules"},
		{"flush set inet cnibox if_v2_" + part, "tcp/8001 is not in if_v2_" + part},
	} {
		h.MustRun(t, "nft", c.do)
		if err := check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("after %q: %v, want %q", c.do, err, c.want)
		}
		restore(t, h, saved)
	}
	must(t, check())
}

func TestConditionalPortTaken(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	table := open(t, h)
	add := func(id, v4, port string) error {
		return table.AddPortMaps(ctx, keyOf(id), onCondition(v4, netfilter.PortMaps{Maps: portMaps(t, port)}))
	}
	must(t, add("a", "saddr 10.0.0.0/8", "tcp/80=10.88.0.2:80"))
	for _, condition := range []string{"saddr 10.0.0.0/8", "saddr 192.168.0.0/16"} {
		var shown *types.Error
		err := add("b", condition, "tcp/80=10.88.0.3:80")
		if !errors.As(err, &shown) || shown.Msg != "host port tcp/80 is already published by net/a/eth0" {
			t.Errorf("%s: %v", condition, err)
		}
	}
	must(t, add("c", "", "tcp/80=10.88.0.4:80"))                               // without conditions
	must(t, add("b", "saddr 192.168.0.0/16", "tcp/192.0.2.1:80=10.88.0.3:80")) // another address
	before := listing(t, h)
	for _, bad := range []netfilter.PortMaps{
		onCondition("tcp dport 80", netfilter.PortMaps{}),
		withBit(32, netfilter.PortMaps{}),
		withBit(-1, netfilter.PortMaps{}),
		{SetMarkChain: "KUBE-MARK-MASQ"},
	} {
		bad.Maps = portMaps(t, "tcp/99=10.88.0.5:80")
		var shown *types.Error
		if err := table.AddPortMaps(ctx, keyOf("d"), bad); !errors.As(err, &shown) || shown.Code != types.ErrInvalidNetworkConfig || shown.Details == "" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if got := listing(t, h); got != before {
		t.Errorf("changed by what failed:\n%s", got)
	}
}

// TestMarkBits has ports with several bits, and one port that is published with
// one on one address and with another one on all.
func TestMarkBits(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.MustRun(t, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0", "net.bridge.bridge-nf-call-ip6tables=0")
	n.web.ServeTCP(t, ":80")
	n.peer.ServeTCP(t, ":80")
	all := behind("cni0", portMaps(t, "tcp/8080=10.1.0.2:80", "tcp/8080=[fd00:1::2]:80"))
	all.MasqAll = true
	n.addPorts(t, "web", withBit(20, all))
	n.addPorts(t, "bound", withBit(0, behind("cni0", portMaps(t, "tcp/192.0.2.1:8080=10.1.0.3:80"))))
	n.addPorts(t, "peer", behind("cni0", portMaps(t, "tcp/8081=10.1.0.3:80")))
	n.addPorts(t, "top", withBit(31, behind("cni0", portMaps(t, "tcp/8082=10.1.0.3:80"))))
	n.MustRun(t, "nft", `add table inet look; add chain inet look post { type filter hook postrouting priority 50; };
		add rule inet look post tcp dport 80 meta mark 0x100000 counter comment "20"; add rule inet look post tcp dport 80 meta mark 1 counter comment "0"`)
	outside, web, peer := &n.outside.Namespace, &n.web.Namespace, &n.peer.Namespace
	for _, c := range []struct {
		from         *netlab.Namespace
		target, want string
	}{
		{outside, "[2001:db8:2::1]:8080", "web saw fd00:1::1"},
		{&n.Namespace, "10.1.0.1:8080", "web saw 10.1.0.1"},
		{&n.Namespace, "127.0.0.1:8080", "web saw 10.1.0.1"},
		{outside, "192.0.2.1:8080", "peer saw 192.0.2.254"}, // not by masqAll of the other one
		{peer, "192.0.2.1:8080", "peer saw 10.1.0.1"},
		{web, "192.0.2.1:8080", "peer saw 10.1.0.1"},
		{outside, "192.0.2.1:8081", "peer saw 192.0.2.254"},
		{web, "192.0.2.1:8081", "peer saw 10.1.0.1"},
		{peer, "192.0.2.1:8082", "peer saw 10.1.0.1"},
		{&n.Namespace, "127.0.0.1:8082", "peer saw 10.1.0.1"},
	} {
		if got := ask(c.from, "tcp", c.target); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.from.Name(), c.target, got, c.want)
		}
	}
	if marked := n.MustRun(t, "nft", "list", "chain", "inet", "look", "post"); strings.Contains(marked, "packets 0 ") {
		t.Errorf("the marks are not the bits asked for:\n%s", marked)
	}
}

// TestConditions has several attachments publish the same port.
func TestConditions(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.MustRun(t, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0", "net.bridge.bridge-nf-call-ip6tables=0")
	for _, pod := range []*netlab.Pod{n.web, n.peer, n.remote} {
		pod.ServeTCP(t, ":80")
	}
	uplink := netlab.UplinkName
	type port struct{ id, v4, v6, ports string }
	for _, p := range []port{
		{"a", "ip saddr 10.1.0.0/16", "ip6 saddr { fd00:1::/64, fd00:9::/64 }", "tcp/8000=10.1.0.2:80 tcp/8000=[fd00:1::2]:80"},
		{"b", "", "", "tcp/8000=10.1.0.3:80 tcp/8000=[fd00:1::3]:80"},
		{"c", "ip saddr != { 10.1.0.0/16, 10.2.0.0/16 }", "", "tcp/8001=10.1.0.2:80"},
		{"d", "iifname { cni*, nosuch0 } ip daddr { 192.0.2.1, 192.0.2.9 }", "", "tcp/8002=10.1.0.2:80"},
		{"e", "iifname != " + uplink + " mark and 0xf0 == 0x10", "", "tcp/8003=10.1.0.2:80"},
		{"f", "mark != 0x10/0xf0", "", "tcp/8003=10.1.0.3:80"},
		{"g", "iifname p2p0", "", "tcp/192.0.2.1:8004=10.1.0.2:80"},
		{"h", "", "", "tcp/8004=10.1.0.3:80"},
	} {
		ports := onCondition(p.v4, on6Condition(p.v6, behind("cni0", portMaps(t, strings.Fields(p.ports)...))))
		var err error
		n.Do(func() { err = n.table.AddPortMaps(ctx, keyOf(p.id), ports) })
		if p.id == "f" {
			if err == nil {
				t.Error("a port was published twice, with different conditions")
			}
			continue
		}
		must(t, err)
	}
	n.MustRun(t, "nft", `add table inet look; add chain inet look pre { type filter hook prerouting priority -150; };
		add rule inet look pre iifname p2p0 meta mark set 0x11`)
	outside, web, remote := &n.outside.Namespace, &n.web.Namespace, &n.remote.Namespace
	for _, c := range []struct {
		from         *netlab.Namespace
		target, want string
	}{
		{web, "192.0.2.1:8000", "web saw 10.1.0.1"},
		{web, "[2001:db8:2::1]:8000", "web saw fd00:1::1"},
		{outside, "192.0.2.1:8000", "peer saw 192.0.2.254"},
		{outside, "[2001:db8:2::1]:8000", "peer saw 2001:db8:2::254"},
		{remote, "192.0.2.1:8000", "peer saw 10.2.0.2"},
		{&n.Namespace, "127.0.0.1:8000", "peer saw 10.1.0.1"},
		{outside, "192.0.2.1:8001", "web saw 192.0.2.254"},
		{&n.Namespace, "127.0.0.1:8001", "web saw 10.1.0.1"},
		{remote, "192.0.2.1:8001", ""},
		{web, "192.0.2.1:8002", "web saw 10.1.0.1"},
		{web, "10.1.0.1:8002", ""},
		{remote, "192.0.2.1:8002", ""},
		{remote, "192.0.2.1:8003", "web saw 10.2.0.2"},
		{web, "192.0.2.1:8003", ""},
		{outside, "192.0.2.1:8003", ""},
		{remote, "192.0.2.1:8004", "web saw 10.2.0.2"},
		{outside, "192.0.2.1:8004", "peer saw 192.0.2.254"},
	} {
		if c.want == "" {
			if got, err := c.from.DialTCP(c.target, patience); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("%s to %s: %q, %v, want it refused", c.from.Name(), c.target, got, err)
			}
			continue
		}
		if got := ask(c.from, "tcp", c.target); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.from.Name(), c.target, got, c.want)
		}
	}
}
