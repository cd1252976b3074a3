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
			"- link br0: address 02:00:00:00:00:01 group default info_kind bridge mcast_snooping 1 mtu 1500 txqlen 1000",
			"+ link br0: address 02:00:00:00:00:01 group default info_kind bridge mcast_snooping 1 mtu 1500 txqlen 1000 up",
			"+ qdisc br0: Parent root kind noqueue",
		}},
		{"link added", "", "ip link add br0 address 02:00:00:00:00:01 mtu 1400 type bridge && ip link set br0 alias note", []string{
			"+ link br0: address 02:00:00:00:00:01 group default ifalias note info_kind bridge mcast_snooping 1 mtu 1400 txqlen 1000",
			"+ sysctl ipv4 br0: ", "+ sysctl ipv6 br0: ",
		}},
		{
			"link enslaved",
			"ip link add br0 address 02:00:00:00:00:01 type bridge; ip link add v0 address 02:00:00:00:00:02 type veth peer v1",
			"ip link set v0 master br0; ip link set v0 type bridge_slave hairpin on isolated on",
			[]string{
				"- link v0: address 02:00:00:00:00:02 group default info_kind veth mtu 1500 txqlen 1000",
				"+ link v0: address 02:00:00:00:00:02 allmulti 1 group default hairpin info_kind veth isolated master br0 mtu 1500 txqlen 1000",
			},
		},
		{"address", "", "ip addr add 10.9.0.1/24 dev lo", []string{
			"+ address lo: 10.9.0.1/24 label lo scope global",
			"+ route ipv4 10.9.0.1 dev lo prefsrc 10.9.0.1 protocol kernel scope host table local type local",
			"+ route ipv4 10.9.0.255 dev lo prefsrc 10.9.0.1 protocol kernel scope link table local type broadcast",
			"+ route ipv4 10.9.0.0/24 dev lo prefsrc 10.9.0.1 protocol kernel scope host table local type local",
		}},
		{"route", "", "ip route add 10.9.0.0/24 dev lo table 77 metric 5 mtu 1300", []string{
			`+ route ipv4 10.9.0.0/24 dev lo metric 5 metrics [{"mtu":1300}] protocol boot scope link table 77 type unicast`,
		}},
		{"route v6", "", "ip -6 route add unreachable fd09::/64 dev lo", []string{
			"+ route ipv6 fd09::/64 dev lo metric 1024 pref medium protocol boot scope global table main type unreachable",
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
	if diff := before.Diff(pod.Snapshot(t)); !strings.Contains(diff, "+ link lo: address 00:00:00:00:00:00 group default mtu 65536 txqlen 1000 up") {
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
	must(t, h.Ping("127.0.0.1", timeout))
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
