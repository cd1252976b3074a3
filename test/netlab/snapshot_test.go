package netlab

import (
	"slices"
	"strings"
	"testing"
)

func TestSnapshotDiff(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		setup   string // before the first snapshot
		command string // between the two
		want    []string
	}{
		{"nothing", "", "true", nil},
		{"link up", "ip link add br0 address 02:00:00:00:00:01 type bridge", "ip link set br0 up", []string{
			"- link br0: address 02:00:00:00:00:01 info_kind bridge mcast_snooping mtu 1500 txqlen 1000",
			"+ link br0: address 02:00:00:00:00:01 info_kind bridge mcast_snooping mtu 1500 txqlen 1000 up",
			"+ qdisc br0: Parent root kind noqueue",
		}},
		{"link added", "", "ip link add br0 address 02:00:00:00:00:01 mtu 1400 type bridge && ip link set br0 alias note", []string{
			"+ link br0: address 02:00:00:00:00:01 ifalias note info_kind bridge mcast_snooping mtu 1400 txqlen 1000",
			"+ sysctl ipv4 br0: ", "+ sysctl ipv6 br0: ",
		}},
		{
			"link enslaved",
			"ip link add br0 address 02:00:00:00:00:01 type bridge; ip link add v0 address 02:00:00:00:00:02 type veth peer v1",
			"ip link set v0 master br0; ip link set v0 type bridge_slave hairpin on isolated on guard on",
			[]string{
				"- link v0: address 02:00:00:00:00:02 info_kind veth mtu 1500 txqlen 1000",
				"+ link v0: address 02:00:00:00:00:02 guard hairpin info_kind veth isolated master br0 mtu 1500 txqlen 1000",
			},
		},
		{
			"link changed",
			"ip link add br0 address 02:00:00:00:00:01 type bridge",
			"ip link set br0 arp off promisc on allmulticast on group 7 txqueuelen 5; ip link property add dev br0 altname other; ip link set br0 type bridge mcast_snooping 0",
			[]string{
				"- link br0: address 02:00:00:00:00:01 info_kind bridge mcast_snooping mtu 1500 txqlen 1000",
				`+ link br0: address 02:00:00:00:00:01 allmulti altnames ["other"] group 7 info_kind bridge mtu 1500 noarp promisc txqlen 5`,
			},
		},
		{"address", "", "ip addr add 10.9.0.1/24 dev lo", []string{
			"+ address lo: 10.9.0.1/24 label lo scope universe",
			"+ route ipv4 10.9.0.1/32 Protocol kernel Scope host Src 10.9.0.1 Table 255 Type 2 dev lo",
			"+ route ipv4 10.9.0.255/32 Protocol kernel Scope link Src 10.9.0.1 Table 255 Type 3 dev lo",
			"+ route ipv4 10.9.0.0/24 Protocol kernel Scope host Src 10.9.0.1 Table 255 Type 2 dev lo",
		}},
		{
			"addresses",
			"ip link add br0 type bridge",
			"ip addr add 10.9.0.1 peer 10.9.0.2/24 broadcast 10.9.0.7 label br0:x scope host valid_lft 9999 preferred_lft 9999 noprefixroute dev br0; ip addr add fd09::1/64 dev br0",
			[]string{
				"+ address br0: 10.9.0.1/32 broadcast 10.9.0.7 dynamic flags 512 label br0:x peer 10.9.0.2/24 scope host",
				"+ address br0: fd09::1/64 scope universe",
				"+ route ipv4 10.9.0.1/32 Protocol kernel Scope host Src 10.9.0.1 Table 255 Type 2 dev br0",
			},
		},
		{"route", "", "ip route add 10.9.0.0/24 dev lo table 77 metric 5 mtu 1300", []string{
			"+ route ipv4 10.9.0.0/24 MTU 1300 Priority 5 Protocol boot Scope link Table 77 Type 1 dev lo",
		}},
		{
			"routes by gateways",
			"ip link add br0 up type bridge; ip addr add 10.9.0.1/24 dev br0",
			"ip route add default via 10.8.0.1 dev br0 onlink; ip route add 10.7.0.0/24 nexthop via 10.9.0.2 weight 2 nexthop via 10.9.0.3",
			[]string{
				"+ route ipv4 0.0.0.0/0 Gw 10.8.0.1 Protocol boot Scope universe Table 254 Type 1 dev br0 onlink",
				`+ route ipv4 10.7.0.0/24 MultiPath ["dev br0 Gw 10.9.0.2 Hops 1","dev br0 Gw 10.9.0.3"] Protocol boot Scope universe Table 254 Type 1`,
			},
		},
		{"route v6", "", "ip -6 route add unreachable fd09::/64 dev lo", []string{
			"+ route ipv6 fd09::/64 Priority 1024 Protocol boot Scope universe Table 254 Type 7 dev lo",
		}},
		{"rule", "", "ip rule add from 10.9.0.0/24 fwmark 7/0xff iif lo table 77 priority 1000", []string{
			"+ rule ipv4 1000: IifName lo Mark 7 Mask 255 Src 10.9.0.0/24 Table 77",
		}},
		{"rule v6", "", "ip -6 rule add to fd09::/64 table 77 priority 1000", []string{
			"+ rule ipv6 1000: Dst fd09::/64 Table 77",
		}},
		{"qdisc", "ip link add br0 up type bridge", "tc qdisc add dev br0 ingress", []string{"+ qdisc br0: Parent ingress kind ingress"}},
		{"sysctl", "", "echo 1 > /proc/sys/net/ipv4/conf/lo/route_localnet", []string{
			"- sysctl ipv4 lo: ", "+ sysctl ipv4 lo: ",
		}},
		{"file", "", "printf 'id\\r\\neth0' > /run/lease", []string{`+ file /run/lease -rw-r--r-- "id\r\neth0"`}},
		{"file changed", "echo a > /etc/cni/conf", "echo b > /etc/cni/conf", []string{"- file /etc/cni/conf", "+ file /etc/cni/conf"}},
		{"file mode", "mkdir /opt/cni/bin", "chmod 700 /opt/cni/bin", []string{"- file /opt/cni/bin drwxr-xr-x", "+ file /opt/cni/bin drwx------"}},
		{"binary file", "", "head -c 300 /dev/zero > /var/lib/cni/zero", []string{"+ file /var/lib/cni/zero -rw-r--r-- 300 bytes, sha256 "}},
		{"symbolic link", "", "ln -s cnibox /opt/cni/bridge", []string{"+ file /opt/cni/bridge Lrwxrwxrwx -> cnibox"}},
		{"mount", "", "mount -n -t tmpfs made /mnt", []string{"+ mount /mnt: tmpfs of made root / rw,relatime"}},
		{"nft table", "", "nft add table inet t", []string{"+ nft table inet t"}},
		{"nft rule", "nft 'add table inet t; add chain inet t c'", "nft 'add rule inet t c tcp dport { 80, 443 } counter accept comment \"a { b\"'", []string{
			`+ nft table inet t chain c: comment a { b expr [{"match":`,
		}},
		{"nft element", "nft 'add table inet t; add set inet t s { type ipv4_addr; }; add element inet t s { 10.0.0.1, 10.0.0.2, 10.0.0.3 }'",
			`nft 'add element inet t s { 10.0.0.4 comment "x, y" }'`, []string{`+ nft table inet t set s: element {"elem":{"comment":"x, y","val":"10.0.0.4"}}`}},
		{"iptables-nft", "iptables-nft -t nat -N CNI-A", "iptables-nft -t nat -A CNI-A -s 10.0.0.1/32 -j ACCEPT", []string{
			"+ iptables ip nft nat: -A CNI-A -s 10.0.0.1/32 -j ACCEPT", "+ nft table ip nat chain CNI-A: expr ",
		}},
		{"iptables-legacy", "ip6tables-legacy -t filter -N CNI-A", "ip6tables-legacy -A CNI-A -s fd09::1/128 -j ACCEPT", []string{
			"+ iptables ip6 legacy filter: -A CNI-A -s fd09::1/128 -j ACCEPT",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := NewHost(t)
			h.MustRun(t, "sh", "-ec", tt.setup)
			before := h.Snapshot(t)
			h.MustRun(t, "sh", "-ec", tt.command)
			diff := before.Diff(h.Snapshot(t))
			if !equalPrefixes(splitLines(diff), tt.want) {
				t.Errorf("diff is\n%swant lines that begin with\n%s", diff, strings.Join(tt.want, "\n"))
			}
		})
	}
}

// equalPrefixes reports whether each line has exactly one prefix of its own.
func equalPrefixes(lines, prefixes []string) bool {
	if len(lines) != len(prefixes) {
		return false
	}
	for _, prefix := range prefixes {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) }) {
			return false
		}
	}
	return true
}

func splitLines(text string) []string {
	return slices.Collect(func(yield func(string) bool) {
		for line := range strings.Lines(text) {
			if !yield(strings.TrimSuffix(line, "\n")) {
				return
			}
		}
	})
}

func TestSnapshotOfPod(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	pod := h.NewPod(t, "web")
	before := pod.Snapshot(t)
	h.MustRun(t, "ip", "link", "add", "hostlink", "type", "bridge")
	if diff := before.Diff(pod.Snapshot(t)); diff != "" {
		t.Errorf("a change of the host shows in the pod:\n%s", diff)
	}
	pod.SetLoopbackUp(t)
	if diff := before.Diff(pod.Snapshot(t)); !strings.Contains(diff, "+ link lo: info_kind device mtu 65536 txqlen 1000 up") {
		t.Errorf("diff is\n%s", diff)
	}
}

func TestSnapshotOfVLANFiltering(t *testing.T) {
	t.Parallel()
	Need(t, BridgeVLANFiltering)
	h := NewHost(t)
	h.MustRun(t, "ip", "link", "add", "br0", "type", "bridge", "vlan_default_pvid", "7")
	before := h.Snapshot(t)
	h.MustRun(t, "ip", "link", "set", "br0", "type", "bridge", "vlan_filtering", "1")
	if diff := before.Diff(h.Snapshot(t)); !strings.Contains(diff, " vlan_default_pvid 7\n") || !strings.Contains(diff, " vlan_default_pvid 7 vlan_filtering\n") {
		t.Errorf("diff is\n%s", diff)
	}
}

// TestSnapshotWhileLinksVanish takes snapshots of links that come and go: each is there as a whole or not at all.
func TestSnapshotWhileLinksVanish(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	churn := h.Command("sh", "-c", "for i in $(seq 30); do ip link add br0 type bridge && ip link del br0 || exit; done")
	ended := make(chan error, 1)
	go func() { ended <- h.Run(churn) }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
		s := h.snapshot(t, interfaceLines)
		if links, sysctls := len(s.Lines("link br0:")), len(s.Lines("sysctl ipv4 br0:"))+len(s.Lines("sysctl ipv6 br0:")); sysctls != 2*links {
			t.Errorf("%d links br0 and %d lines of its sysctls", links, sysctls)
		}
	}
}

func TestSnapshotLeavesOutCounters(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	h.MustRun(t, "nft", "add table inet t; add counter inet t n; add chain inet t c { type filter hook output priority 0; };"+
		"add rule inet t c counter name n; add rule inet t c counter")
	h.MustRun(t, "iptables-nft", "-A", "OUTPUT", "-j", "ACCEPT")
	h.MustRun(t, "iptables-legacy", "-A", "OUTPUT", "-j", "ACCEPT")
	before := h.Snapshot(t)
	must(t, h.Ping("127.0.0.1", Patience))
	if diff := before.Diff(h.Snapshot(t)); diff != "" {
		t.Errorf("a packet shows:\n%s", diff)
	}
}

func TestDiffCountsAndIgnores(t *testing.T) {
	t.Parallel()
	before := &Snapshot{lines: []string{"nft a", "nft a", "file /run/x", "link l"}}
	after := &Snapshot{lines: []string{"nft a", "file /run/y", "link l"}}
	if got, want := before.Diff(after), "- file /run/x\n+ file /run/y\n- nft a\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := before.Diff(after, "file /run/", "mount "), "- nft a\n"; got != want {
		t.Errorf("ignoring files: got %q, want %q", got, want)
	}
	if got := before.Diff(before); got != "" {
		t.Errorf("with itself: %q", got)
	}
}

func TestRulesetLines(t *testing.T) {
	t.Parallel()
	const ruleset = `{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "inet", "name": "t", "handle": 1}},
{"counter": {"family": "inet", "name": "n", "table": "t", "handle": 2, "packets": 7, "bytes": 8}},
{"set": {"family": "inet", "name": "s", "table": "t", "type": "ipv4_addr", "handle": 4, "elem": ["1.2.3.4", {"elem": {"val": "10.0.0.1", "comment": "x, y"}}]}},
{"chain": {"family": "inet", "table": "t", "name": "c", "handle": 1, "type": "nat", "hook": "postrouting", "prio": 100, "policy": "accept"}},
{"rule": {"family": "inet", "table": "t", "chain": "c", "handle": 6, "comment": "x {", "expr": [{"counter": null}, {"masquerade": null}]}},
{"table": {"family": "ip6", "name": "nat", "handle": 3}}]}`
	want := []string{
		"nft table inet t",
		"nft table inet t counter n",
		"nft table inet t set s type ipv4_addr",
		`nft table inet t set s: element "1.2.3.4"`,
		`nft table inet t set s: element {"elem":{"comment":"x, y","val":"10.0.0.1"}}`,
		"nft table inet t chain c hook postrouting policy accept prio 100 type nat",
		`nft table inet t chain c: comment x { expr [{"counter":null},{"masquerade":null}]`,
		"nft table ip6 nat",
	}
	got, iptables, err := rulesetLines(ruleset)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got\n%s\n%v\nwant\n%s", strings.Join(got, "\n"), err, strings.Join(want, "\n"))
	}
	if iptables["ip"] || !iptables["ip6"] {
		t.Errorf("tables of iptables: %v", iptables)
	}
}

func TestSavedLines(t *testing.T) {
	t.Parallel()
	const saved = `# Generated
*nat
:PREROUTING ACCEPT [3:180]
:POSTROUTING DROP [0:0]
:CNI-A - [0:0]
-A POSTROUTING -s 10.0.0.1/32 -m comment --comment "a" -j CNI-A
COMMIT
`
	want := []string{
		"p nat: chain POSTROUTING DROP",
		"p nat: chain CNI-A -",
		`p nat: -A POSTROUTING -s 10.0.0.1/32 -m comment --comment "a" -j CNI-A`,
	}
	if got := savedLines("p", saved); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
