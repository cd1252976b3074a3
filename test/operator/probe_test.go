package operator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// probed is a network for probe, as its file has it.
func probed(plugins string) string {
	return `{"cniVersion": "1.1.0", "name": "demo", "plugins": [` + plugins + `]}`
}

const (
	dualStack    = `"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]]}`
	probedBridge = `{"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true, ` + dualStack + `}`
	portmap      = `{"type": "portmap", "capabilities": {"portMappings": true}}`
)

// network replaces the network demo.
func (o *operator) network(list string) {
	o.Helper()
	o.host.Feed(o, list, "sh", "-c", "cat >/etc/cni/net.d/10-demo.conflist")
}

// patience is for machines where others run too.
var patience = []string{"--timeout", netlab.Patience.String()}

// TestProbe finds nothing wrong on networks that work, and leaves nothing behind.
func TestProbe(t *testing.T) {
	t.Parallel()
	const (
		routed  = `"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}`
		outside = `"master": "uplink0", "ipam": {"type": "host-local", "subnet": "192.0.2.0/24", "rangeStart": "192.0.2.100", "gateway": "192.0.2.254"}`
	)
	for _, kind := range []struct {
		name    string
		plugins string
		works   []string // tests, of whatever family
		says    []string
		needs   netlab.Feature
	}{
		{name: "bridge", plugins: probedBridge + "," + portmap + `, {"type": "firewall"}`, works: []string{"published port, from b itself, UDP", "published port, from the host's loopback, TCP", "published port, from outside, TCP",
			"a to the outside, ping", "largest packet, a to the outside", "a to its gateway, ping"}},
		{name: "iptables", plugins: strings.Replace(probedBridge, `"ipMasq": true`, `"ipMasq": true, "ipMasqBackend": "iptables"`, 1) +
			`, {"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}}, {"type": "firewall", "backend": "iptables"}`, works: []string{"published port, from b itself, UDP"}},
		{name: "no hairpin", plugins: strings.Replace(probedBridge, `"hairpinMode": true, `, "", 1) + "," + portmap, works: []string{"published port, from a, TCP"}, says: []string{`"hairpinMode"`}},
		{name: "isolated ports", plugins: strings.Replace(probedBridge, `"hairpinMode": true`, `"portIsolation": true`, 1), works: []string{"a to its gateway, ping"}, says: []string{`the network has "portIsolation"`}},
		{name: "ptp", plugins: `{"type": "ptp", "ipMasq": true, ` + routed + "}, " + portmap, works: []string{"a to b, UDP", "published port, from a, TCP", "published port, from b itself, UDP"}},
		{name: "macvlan", plugins: `{"type": "macvlan", ` + outside + "}", works: []string{"a to b, TCP", "a to its gateway, ping"}, says: []string{"no plugin of the network publishes ports"}},
		{name: "macvlan with ports", plugins: `{"type": "macvlan", ` + outside + "}, " + portmap, works: []string{"a to b, TCP"}, says: []string{"between macvlan links and their own host"}},
		{name: "macvlan, private", plugins: `{"type": "macvlan", "mode": "private", ` + outside + "}", works: []string{"a to its gateway, ping"}, says: []string{"the mode of the macvlans keeps"}},
		{name: "ipvlan", plugins: `{"type": "ipvlan", ` + outside + "}, " + portmap, works: []string{"a to b, TCP", "a to its gateway, ping"}, says: []string{"between ipvlan links and their own host"}, needs: netlab.IPVLAN},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			if kind.needs.Name != "" {
				netlab.Need(t, kind.needs)
			}
			o := newOperator(t)
			o.network(probed(kind.plugins))
			args := append([]string{"probe", "demo", "--to", netlab.OutsideIPv4, "--to", netlab.OutsideIPv6}, patience...)
			o.cnictl(args...) // what a network makes with its first container stays
			before := o.host.Snapshot(t)
			code, printed := o.cnictl(args...)
			t.Logf("exit code %d\n%s", code, printed)
			if code != 0 || strings.Contains(printed, "failed") {
				t.Error("something does not work")
			}
			for _, test := range kind.works {
				if !strings.Contains(printed, test+" ") || !strings.Contains(strings.SplitN(strings.SplitN(printed, test+" ", 2)[1], "\n", 2)[0], "ok") {
					t.Errorf("%q does not work", test)
				}
			}
			for _, part := range kind.says {
				if !strings.Contains(printed, part) {
					t.Errorf("%q is missing", part)
				}
			}
			if diff := before.Diff(o.host.Snapshot(t), "file /var/lib/cni/networks/"); diff != "" {
				t.Errorf("left behind:\n%s", diff)
			}
			if left := o.leases(); left != "" {
				t.Errorf("leases are left:\n%s", left)
			}
		})
	}
}

// breaker is a plugin that does something to the host once b is attached.
const breaker = `#!/bin/sh
case $CNI_COMMAND-$CNI_CONTAINERID in ADD-*-b) sh -e /opt/cni/break >&2 || exit 1;; esac
[ "$CNI_COMMAND" != ADD ] || sed 's/.*"prevResult"://; s/,"type":"breaker"}$//'
`

// broken has the network demo break when it is probed. In the script $A and $B are the host ends.
func (o *operator) broken(plugins, script string) {
	o.Helper()
	o.network(probed(plugins + `, {"type": "breaker"}`))
	o.host.Feed(o, breaker, "sh", "-c", "cat >/opt/cni/bin/breaker; chmod +x /opt/cni/bin/breaker")
	ends := `set -- $(ip -o link show type veth | grep -o 'veth[0-9a-f]*'); A=$1 B=$2` + "\n"
	o.host.Feed(o, ends+script, "sh", "-c", "cat >/opt/cni/break")
}

// tried is a test of probe's.
type tried struct {
	Name, Family, Outcome string
	Lost                  struct{ Packet, SeenAt, NotSeenAt, Reason, Remedy string }
}

// TestProbeFindsFaults breaks a network in many ways. Probe says where packets were lost, and why.
func TestProbeFindsFaults(t *testing.T) {
	t.Parallel()
	const all = probedBridge + "," + portmap
	const toB, toGateway, toOutside = "a to b, TCP", "a to its gateway, ping", "a to the outside, ping"
	for _, fault := range []struct {
		name    string
		plugins string
		script  string
		args    []string
		test    string // that fails
		family  string // "": IPv4
		packet  string // that is lost
		seen    string // where it was last; A and B are the host ends
		gone    string // where it was not any more
		reason  string
	}{
		{name: "bridge down", plugins: all, script: "ip link set demo0 down", test: toB, packet: "question who has", seen: "A", gone: "B", reason: "demo0 is down"},
		{name: "port down", plugins: all, script: "ip link set $B down", test: toB, packet: "question who has", seen: "A", gone: "B", reason: "B is down"},
		{name: "own port down", plugins: all, script: "ip link set $A down", test: toB, packet: "request", gone: "eth0 of a", reason: "eth0 of a has no carrier"},
		{name: "port taken from the bridge", plugins: all, script: "ip link set $A nomaster", test: toGateway, packet: "", seen: "A", gone: "demo0", reason: "A is not a port of demo0"},
		{name: "isolated ports", plugins: all, script: "bridge link set dev $A isolated on; bridge link set dev $B isolated on", test: toB, packet: "question who has", seen: "A", gone: "B", reason: "isolated"},
		{name: "no forwarding", plugins: all, script: "sysctl -wq net.ipv4.ip_forward=0", test: toOutside, packet: "request", seen: "demo0", gone: "uplink0", reason: "net.ipv4.ip_forward is 0"},
		{name: "no forwarding of IPv6", plugins: all, script: "sysctl -wq net.ipv6.conf.all.forwarding=0", test: toOutside, family: "IPv6", packet: "request", seen: "demo0", gone: "uplink0", reason: "net.ipv6.conf.all.forwarding is 0"},
		{name: "nftables drops", plugins: all, script: "nft 'add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }'", test: toOutside,
			packet: "request", seen: "demo0", gone: "uplink0", reason: "FORWARD of table ip filter"},
		{name: "iptables drops", plugins: all, script: "iptables -P FORWARD DROP", test: toOutside, packet: "request", seen: "demo0", gone: "uplink0", reason: "FORWARD of table ip filter"},
		{name: "legacy iptables drops", plugins: all, script: "iptables-legacy -P FORWARD DROP", test: toOutside, packet: "request", seen: "demo0", gone: "uplink0", reason: "chain FORWARD of iptables-legacy drops"},
		{name: "a rule drops", plugins: all, script: "iptables -I FORWARD -i demo0 -p icmp -j DROP", test: toOutside, packet: "request", seen: "demo0", gone: "uplink0", reason: `rule \d+ in chain FORWARD of table ip filter drops it: .*iifname "demo0" .* drop`},
		{name: "a rule drops answers", plugins: all, script: "nft 'add table inet mine; add chain inet mine f { type filter hook forward priority 0; }; add rule inet mine f tcp sport 7 ct status dnat drop'",
			test: "published port, from a, TCP", packet: "answer", seen: "(B|demo0)", gone: "(A|demo0)", reason: `rule \d+ in chain f of table inet mine drops the answer`},
		{name: "a rule drops what is for the host", plugins: all, script: "nft 'add table inet mine; add chain inet mine i { type filter hook input priority 0; }; add rule inet mine i iifname demo0 icmp type echo-request drop'",
			test: toGateway, packet: "request", seen: "demo0", reason: `rule \d+ in chain i of table inet mine drops it`},
		{name: "a rule rejects", plugins: all, script: "iptables -I FORWARD -i demo0 -p icmp -j REJECT --reject-with icmp-admin-prohibited", test: toOutside, packet: "request", seen: "demo0", gone: "uplink0", reason: "10.88.0.1 answered by ICMP"},
		{name: "gateway's address gone", plugins: all, script: "ip address flush dev demo0", test: toGateway, packet: "question who has 10.88.0.1", seen: "demo0", reason: "the host does not have the address 10.88.0.1"},
		{name: "no such gateway", plugins: `{"type": "bridge", "bridge": "demo0", "ipam": {"type": "host-local", "subnet": "10.88.0.0/24", "gateway": "10.88.0.200"}}`, script: ":", test: toGateway,
			packet: "question who has 10.88.0.200", seen: "demo0", reason: "the host does not have the address 10.88.0.200"},
		{name: "smaller MTU in the middle", plugins: all, script: "ip link set $B mtu 1400", test: "largest packet, a to b", packet: "request", seen: "A", gone: "B", reason: "B takes packets of 1400 bytes at most"},
		{name: "smaller MTU that nobody tells of", plugins: all, test: "largest packet, a to the outside", packet: "request", seen: "demo0", gone: "uplink0", reason: "uplink0 takes packets of 1400 bytes at most",
			script: "ip link set uplink0 mtu 1400; nft 'add table ip mine; add chain ip mine o { type filter hook output priority 0; }; add rule ip mine o icmp type destination-unreachable drop'"},
		{name: "port map flushed", plugins: all, script: "nft flush ruleset", test: "published port, from a, TCP", packet: "request", seen: "demo0, coming in", gone: "demo0, going out", reason: `no rule leads port \d+/\w+ of the node to b: the port map is gone`},
		{name: "a rule drops what the host sends", plugins: all, script: "iptables -I OUTPUT -p tcp --dport 7 -j DROP", test: "published port, from the host, TCP", packet: "request", gone: "demo0", reason: `rule \d+ in chain OUTPUT of table ip filter drops it`},
		{name: "not tracked", plugins: all, script: "nft 'add table ip raw; add chain ip raw p { type filter hook prerouting priority raw; }; add rule ip raw p notrack'", test: "published port, from a, TCP",
			packet: "request", seen: "demo0, coming in", gone: "demo0, going out", reason: "takes it out of connection tracking"},
		{name: "a policy rule", plugins: all, script: "ip rule add from 10.88.0.0/24 prio 99 prohibit", test: toOutside, packet: "request", seen: "demo0", gone: "uplink0", reason: "the policy rule 99: from 10.88.0.0/24 prohibit"},
		{name: "masqueraded no more", plugins: all, script: "nft flush ruleset", test: toOutside, packet: "request", seen: "uplink0", reason: "it leaves by uplink0 with the container's own address 10.88.0."},
		{name: "dropped at the edge", plugins: all, script: "nft 'add table netdev e; add chain netdev e i { type filter hook ingress device uplink0 priority 0; }; add rule netdev e i meta l4proto tcp drop'",
			test: "published port, from outside, TCP", packet: "request", reason: `rule \d+ in chain i of table netdev e drops it`},
		{name: "from outside, flushed", plugins: all, script: "nft flush ruleset", test: "published port, from outside, UDP", packet: "request", reason: "the port map is gone"},
		{name: "port map flushed, for the host", plugins: all, script: "nft flush ruleset", test: "published port, from the host, UDP", packet: "request", gone: "demo0", reason: `no rule leads port \d+/\w+ of the node to b: the port map is gone`},
		{name: "no route_localnet", plugins: all, script: "sysctl -wq net.ipv4.conf.all.route_localnet=0 net.ipv4.conf.demo0.route_localnet=0", test: "published port, from the host's loopback, TCP", packet: "request", gone: "demo0", reason: "route_localnet is 0"},
		{name: "no masquerading", plugins: strings.Replace(probedBridge, `"ipMasq": true, `, "", 1), script: ":", test: toOutside, packet: "request", seen: "uplink0", reason: "it leaves by uplink0 with the container's own address 10.88.0."},
		{name: "hairpin off", plugins: all, script: "bridge link set dev $B hairpin off", test: "published port, from b itself, TCP", packet: "request", seen: "(demo0|B).*", gone: "(demo0|B).*", reason: "hairpin is off"},
		{name: "name server refuses", plugins: all, script: ":", args: []string{"--dns", netlab.OutsideIPv4}, test: "names, by " + netlab.OutsideIPv4, packet: "request", seen: "uplink0", reason: "192.0.2.254 answered by ICMP"},
		{name: "name server dead", plugins: all, script: ":", args: []string{"--dns", "192.0.2.77"}, test: "names, by 192.0.2.77", packet: "question who has 192.0.2.77", seen: "uplink0", reason: "nobody beyond uplink0"},
		{name: "no route", plugins: `{"type": "bridge", "bridge": "demo0", "isGateway": true, ` + dualStack + "}", script: ":", test: toOutside, packet: "request", gone: "eth0 of a", reason: "a has no route to 192.0.2.254"},
		{name: "no route back", plugins: `{"type": "ptp", ` + dualStack + "}, " + portmap, script: ":", test: "published port, from the host, TCP", packet: "request", seen: "eth0 of b", reason: "b has no route back to 192.0.2.1"},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			o.broken(fault.plugins, fault.script)
			args := append([]string{"probe", "demo", "--timeout", silence.String(), "--to", netlab.OutsideIPv4, "--to", netlab.OutsideIPv6}, fault.args...)
			code, printed := o.cnictl(append(args, "--json")...)
			var report struct {
				Containers []struct{ HostEnd string }
				Tests      []tried
			}
			if err := json.Unmarshal([]byte(printed), &report); err != nil || code != 1 {
				t.Fatalf("exit code %d, %v\n%s", code, err, printed)
			}
			found := false
			for _, test := range report.Tests {
				if test.Name != fault.test || test.Family != cmp.Or(fault.family, "IPv4") {
					continue
				}
				found = true
				ends := strings.NewReplacer(report.Containers[0].HostEnd+" ", "A ", report.Containers[1].HostEnd+" ", "B ")
				got := ends.Replace(fmt.Sprintf("%s | %s | %s | %s | %s", test.Outcome, test.Lost.Packet, test.Lost.SeenAt, test.Lost.NotSeenAt, test.Lost.Reason))
				t.Log(got)
				want := regexp.MustCompile(fmt.Sprintf(`^failed \| %s.* \| %s \| %s \| .*%s`, fault.packet, fault.seen, fault.gone, fault.reason))
				if !want.MatchString(got) {
					t.Errorf("%q does not match %s", got, want)
				}
			}
			if tables := o.host.MustRun(t, "nft", "list", "tables"); strings.Contains(tables, "cnictl") {
				t.Errorf("left behind:\n%s", tables)
			}
			if !found {
				t.Errorf("there is no test %q\n%s", fault.test, printed)
			}
		})
	}
}

// startProbe starts a probe that takes long, since nobody answers at the outside, and returns when its containers are attached.
func (o *operator) startProbe() *exec.Cmd {
	o.Helper()
	cmd := o.host.Command(netlab.Cnictl(o), "probe", "demo", "--to", "192.0.2.99", "--timeout", "10m")
	if err := o.host.Start(cmd); err != nil {
		o.Fatal(err)
	}
	netlab.Until(o, "two results", func() bool {
		return strings.Count(o.host.MustRun(o, "sh", "-c", "ls /var/lib/cni/results 2>/dev/null || true"), "\n") >= 2
	})
	return cmd
}

// TestProbeStopped takes everything away when it is told to end.
func TestProbeStopped(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			o.cnictl("probe", "demo")
			before := o.host.Snapshot(t)
			cmd := o.startProbe()
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			if diff := before.Diff(o.host.Snapshot(t), "file /var/lib/cni/networks/"); diff != "" || o.leases() != "" {
				t.Errorf("left behind:\n%s%s", diff, o.leases())
			}
		})
	}
}

// TestProbeKilled leaves leases and rules, which gc knows for what they are: the namespaces have gone with the process.
func TestProbeKilled(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	cmd := o.startProbe()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	netlab.Until(t, "the links to go with their namespaces", func() bool {
		return o.host.MustRun(t, "ip", "-o", "link", "show", "type", "veth", "master", "demo0") == ""
	})
	if o.leases() == "" {
		t.Fatal("there is nothing to collect")
	}
	o.host.MustRun(t, "sh", "-c", `touch -d "5 minutes ago" /var/lib/cni/networks/demo/* /var/lib/cni/results/*`)
	o.must("gc", "demo", "--apply")
	if left := o.leases(); left != "" {
		t.Errorf("leases after gc:\n%s", left)
	}
}

// TestProbeNames asks the name server that the network names.
func TestProbeNames(t *testing.T) {
	t.Parallel()
	host, outside := node(t)
	o := &operator{t, host}
	host.MustRun(t, "mkdir", "-p", "/etc/cni/net.d")
	o.network(probed(strings.Replace(probedBridge, `"ipMasq"`, `"dns": {"nameservers": ["`+netlab.OutsideIPv4+`", "`+netlab.OutsideIPv6+`"]}, "ipMasq"`, 1)))
	outside.Background(t, outside.Command("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--bind-interfaces", "--user=root", "--pid-file=",
		"--listen-address="+netlab.OutsideIPv4+","+netlab.OutsideIPv6, "--address=/known.example/192.0.2.9"))
	netlab.Until(t, "dnsmasq to listen", func() bool { return strings.Count(outside.MustRun(t, "ss", "-lunH"), ":53 ") >= 2 })
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 0, "names, by 192.0.2.254 "},
		{[]string{"--name", "known.example"}, 0, "names, by 2001:db8:2::254 "},
		{[]string{"--timeout", silence.String(), "--dns", netlab.OutsideIPv4 + ",192.0.2.77"}, 1, "the question who has 192.0.2.77 came to uplink0"},
		{[]string{"--name", "unknown.example."}, 1, "192.0.2.254:53 answers that it can't resolve unknown.example."},
	} {
		if code, printed := o.cnictl(append(append([]string{"probe", "demo"}, patience...), c.args...)...); code != c.code || !strings.Contains(printed, c.says) {
			t.Errorf("probe %q: exit code %d\n%s", c.args, code, printed)
		} else {
			t.Log(printed)
		}
	}
}

// TestProbePathMTU finds what the way takes, where somebody on it says so.
func TestProbePathMTU(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.host.MustRun(t, "ip", "link", "set", netlab.UplinkName, "mtu", "1400")
	printed := o.must(append([]string{"probe", "demo", "--to", netlab.OutsideIPv4, "--to", netlab.OutsideIPv6}, patience...)...)
	for _, row := range []string{`largest packet, a to b +ok 1500 bytes +ok 1500 bytes\n`, `largest packet, a to the outside +ok 1400 bytes \[\d\] +ok 1400 bytes`} {
		if !regexp.MustCompile(row).MatchString(printed) {
			t.Errorf("%s is missing in\n%s", row, printed)
		}
	}
	if !strings.Contains(printed, "the link takes 1500 bytes, the whole way 1400") {
		t.Error(printed)
	}
}
