package operator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// listChain is a line of a script after which $list is the chain of the one list.
const listChain = "list=$(nft list table inet cnibox-egress | sed -n 's/.*chain \\(list_v1_[0-9a-f]*\\) .*/\\1/p'); "

// reachesOutside reports whether the first pod reaches a machine beyond the host.
func reachesOutside(p *clinic, limit time.Duration) error {
	return p.pods["web"].Ping(netlab.OutsideIPv4, limit)
}

// opensOutside is reachesOutside by TCP, where others let a ping through.
func opensOutside(p *clinic, limit time.Duration) error {
	_, err := p.pods["web"].DialTCP(netlab.OutsideIPv4+":80", limit)
	return err
}

// shell returns a step that is a script.
func shell(script string) func(p *clinic) {
	return func(p *clinic) {
		p.Helper()
		p.shell(script)
	}
}

// guarded is the network demo with the plugin firewall.
var guarded = strings.Replace(demo, `{"type": "portmap"`, `{"type": "firewall"}, {"type": "portmap"`, 1)

// routed is a network without a bridge.
const routed = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [
  {"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`

// listed is the network demo with a list that has one machine outside.
var listed = strings.Replace(demo, `{"type": "portmap"`, `{"type": "egress", "allow": ["`+netlab.OutsideIPv4+`:80"]}, {"type": "portmap"`, 1)

// staysClosed reports whether the first pod is kept to its list: it does not reach another port of the machine that the list has.
func staysClosed(p *clinic, _ time.Duration) error {
	if reply, err := p.pods["web"].DialTCP(netlab.OutsideIPv4+":81", silence); err == nil {
		return errors.New("what the list closes is open: " + reply)
	}
	return nil
}

func servesOutside(p *clinic) { p.outside.ServeTCP(p, netlab.OutsideIPv4+":81") }

// readmit has the first pod start again.
func readmit(p *clinic) {
	p.must("del", "demo", "--id", "web")
	p.must("add", "demo", p.pods["web"].Path(), "--id", "web")
}

var faultsOfFilters = []fault{
	{code: "lists-gone", kind: "the table is flushed", config: listed, before: servesOutside, works: staysClosed, plant: shell("nft flush table inet cnibox-egress")},
	{code: "lists-gone", kind: "the table is deleted", config: listed, before: servesOutside, works: staysClosed, plant: shell("nft delete table inet cnibox-egress")},
	{code: "lists-gone", kind: "the table is dormant", config: listed, before: servesOutside, works: staysClosed, plant: shell("nft 'add table inet cnibox-egress { flags dormant; }'")},
	{code: "lists-gone", kind: "a chain is deleted", config: listed, before: servesOutside, works: staysClosed, plant: shell("nft flush chain inet cnibox-egress forward_v1; nft delete chain inet cnibox-egress forward_v1")},
	{code: "lists-gone", kind: "an element is deleted", config: listed, before: servesOutside, works: staysClosed, plant: shell("nft flush map inet cnibox-egress judged4_v1")},
	{code: "lists-gone", kind: "the rule of the list", config: listed, before: servesOutside, works: staysClosed, plant: shell(listChain + "nft flush chain inet cnibox-egress $list")},
	{code: "lists-gone", kind: "the ports of the bridge", config: listed, plant: shell("nft delete table bridge cnibox-egress")},
	{code: "lists-gone", kind: "a rule of somebody's in the list", config: listed, before: servesOutside, works: staysClosed, plant: shell(listChain + "nft insert rule inet cnibox-egress $list accept")},
	{code: "lists-gone", kind: "a rule of somebody's before the list", config: listed, before: servesOutside, works: staysClosed, plant: shell("nft insert rule inet cnibox-egress forward_v1 accept")},
	{code: "rules-older", config: listed, plant: shell("t='inet cnibox-egress'; nft \"flush table $t; add chain $t forward_v2; add rule $t forward_v2 counter\"")},
	{code: "lists-older", plant: func(p *clinic) { p.write("/etc/cni/net.d/10-demo.conflist", listed) },
		says: "start these containers again", remedy: readmit},
	{code: "lists-older", kind: "edited", config: strings.Replace(listed, ":80", "", 1), plant: func(p *clinic) { p.write("/etc/cni/net.d/10-demo.conflist", listed) },
		says: "start these containers again", remedy: readmit},
	{code: "forwarding-off", plant: shell("sysctl -qw net.ipv4.ip_forward=0"), works: reachesOutside},
	{code: "forwarding-off", kind: "of the uplink", plant: shell("sysctl -qw net.ipv4.conf." + netlab.UplinkName + ".forwarding=0"), works: reachesOutside},
	{code: "forward-drops", kind: "iptables-nft", plant: shell("iptables-nft -P FORWARD DROP; ip6tables-nft -P FORWARD DROP"), works: reachesOutside},
	{code: "forward-drops", kind: "iptables-legacy", plant: shell("iptables-legacy -P FORWARD DROP"), works: reachesOutside},
	{code: "forward-drops", kind: "ptp", config: routed, plant: shell("iptables-nft -P FORWARD DROP"), works: reachesOutside},
	{code: "forward-drops", kind: "nft", works: reachesOutside,
		plant: shell("nft add table inet own; nft 'add chain inet own forward { type filter hook forward priority 0; policy drop; }'")},
	{code: "forward-drops", kind: "nft and firewall", config: guarded, works: reachesOutside,
		plant: shell("nft add table inet own; nft 'add chain inet own forward { type filter hook forward priority 0; policy drop; }'")},
	{code: "forward-drops", kind: "a rule before the routes", works: reachesOutside, plant: shell("iptables-nft -t raw -A PREROUTING -i demo0 -j DROP")},
	{code: "forward-drops", kind: "what a list opens", config: listed, works: opensOutside, before: func(p *clinic) { p.outside.ServeTCP(p, netlab.OutsideIPv4+":80") }, plant: shell("iptables-nft -P FORWARD DROP")},
	{code: "forward-drops", kind: "a set", works: reachesOutside,
		plant: shell("nft add table inet own; nft 'add chain inet own early { type filter hook prerouting priority -150; }'; nft 'add set inet own cut { type ipv4_addr; flags interval; elements = { 10.88.0.0/16 }; }'; nft add rule inet own early ip saddr @cut drop")},
	{code: "packet-lost", kind: "a policy rule", plant: shell("ip rule add from 10.88.0.0/24 prio 99 blackhole"), works: reachesOutside,
		says: "take it away if nobody needs it", remedy: shell("ip rule del prio 99")},
	{code: "packet-lost", kind: "notrack", works: reachesOutside, says: "leave packets from",
		plant:  shell("nft add table ip raw; nft 'add chain ip raw p { type filter hook prerouting priority raw; }'; nft add rule ip raw p iifname demo0 notrack"),
		remedy: shell("nft delete table ip raw")},
	{code: "docker-drops", kind: "iptables-legacy", works: reachesOutside, plant: shell("iptables-legacy -N DOCKER-USER; iptables-legacy -A FORWARD -j DOCKER-USER; iptables-legacy -P FORWARD DROP")},
	{code: "docker-drops", works: reachesOutside, plant: shell(`for i in iptables-nft ip6tables-nft; do
		$i -N DOCKER-USER; $i -A FORWARD -j DOCKER-USER; $i -N DOCKER-FORWARD; $i -A FORWARD -j DOCKER-FORWARD; $i -A DOCKER-FORWARD -i docker0 -j ACCEPT; $i -P FORWARD DROP; done`)},
	{code: "ufw-drops", works: opensOutside, before: func(p *clinic) { p.outside.ServeTCP(p, netlab.OutsideIPv4+":80") }, plant: shell("ufw --force enable >/run/ufw.log 2>&1 || { cat /run/ufw.log >&2; false; }")},
	{code: "firewalld-no-zone", works: reachesOutside, plant: func(p *clinic) { firewalldtest.Start(p, p.host, "nftables") }},
	{code: "firewalld-no-zone", kind: "a zone that rejects", works: reachesOutside, plant: func(p *clinic) {
		firewalldtest.Start(p, p.host, "nftables")
		p.shell("firewall-cmd --zone=internal --add-source=10.88.0.0/24; firewall-cmd --zone=trusted --add-source=fd00:88::/64")
	}},
	{code: "firewalld-sources-lost", config: guarded, works: reachesOutside, pods: []string{}, before: func(p *clinic) {
		daemon := firewalldtest.Start(p, p.host, "nftables")
		p.admit("web")
		p.harm = func() { daemon.Reload(p) }
	}, plant: func(p *clinic) { p.harm() }},
	{code: "bridge-nf-off", before: func(p *clinic) { netlab.Need(p.T, netlab.BridgeNetfilter) },
		plant: shell("iptables-nft -t nat -N KUBE-SERVICES; sysctl -qw net.bridge.bridge-nf-call-iptables=0")},
	{code: "ipvs-nftables", config: strings.Replace(demo, `{"type": "portmap",`, `{"type": "portmap", "backend": "nftables",`, 1), plant: func(p *clinic) {
		p.shell("ip link add kube-ipvs0 type bridge")
		p.must("repair") // which masquerades by iptables from now on
	}},
}

// TestDoctorZones finds nothing where firewalld has a network's bridge, or its addresses, in a zone that lets pass what they send.
func TestDoctorZones(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"bridge":  "firewall-cmd --zone=trusted --add-interface=demo0",
		"subnets": "firewall-cmd --zone=trusted --add-source=10.88.0.0/24; firewall-cmd --zone=trusted --add-source=fd00:88::/64",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newClinic(t, demo)
			p.admit("web")
			firewalldtest.Start(p, p.host, "nftables")
			p.shell(script)
			if e := p.examine(); !e.Healthy() {
				t.Errorf("found %+v", e.Findings)
			}
		})
	}
}

// TestDoctorFiltersThatLetPass finds nothing where a chain drops, and a rule lets the network's packets pass.
func TestDoctorFiltersThatLetPass(t *testing.T) {
	t.Parallel()
	const own = "nft add table inet own; nft 'add chain inet own forward { type filter hook forward priority 0; policy drop; }'; nft add rule inet own forward "
	for name, script := range map[string]string{
		"subnet":           "iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -s 10.88.0.0/16 -j ACCEPT; iptables-nft -A FORWARD -d 10.88.0.0/16 -j ACCEPT",
		"a chain of all":   "iptables-nft -P FORWARD DROP; iptables-nft -N all; iptables-nft -A FORWARD -m comment --comment 'see all' -j all; iptables-nft -A all -j ACCEPT",
		"legacy":           "iptables-legacy -P FORWARD DROP; iptables-legacy -A FORWARD -i demo+ -j ACCEPT; iptables-legacy -A FORWARD -o demo+ -j ACCEPT",
		"bridges in a set": own + `iifname '{ "demo0", "docker0" }' accept; nft add rule inet own forward oifname demo0 accept`,
		"subnets in a set": own + "ip saddr '{ 10.0.0.0/8, 192.168.0.0/16 }' accept; nft add rule inet own forward ct state established accept",
		"input":            "iptables-nft -P INPUT DROP; iptables-nft -A INPUT -p icmp -j ACCEPT",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newClinic(t, strings.Replace(demo, `, [{"subnet": "fd00:88::/64"}]`, "", 1))
			p.admit("web")
			p.shell(script)
			if e := p.examine(); !e.Healthy() {
				t.Errorf("found %+v", e.Findings)
			}
			if err := reachesOutside(p, netlab.Patience); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("firewall", func(t *testing.T) {
		t.Parallel()
		p := newClinic(t, guarded)
		p.shell("iptables-nft -P FORWARD DROP; iptables-legacy -P FORWARD DROP")
		p.admit("web")
		if e := p.examine(); !e.Healthy() || reachesOutside(p, netlab.Patience) != nil {
			t.Errorf("found %+v", e.Findings)
		}
	})
}

// TestDoctorSendsNothing has none of doctor's packets leave the node, and no container on it get one: neither that for which they stand, nor one to which
// a rule leads them.
func TestDoctorSendsNothing(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web", "db")
	p.shell("nft add table ip own; nft add chain ip own p '{ type nat hook prerouting priority -150; }'")
	everywhere := []*netlab.Namespace{&p.outside.Namespace, &p.pods["web"].Namespace, &p.pods["db"].Namespace}
	for _, in := range everywhere {
		in.MustRun(t, "nft", "add table inet own; add chain inet own i { type filter hook prerouting priority -300; }; add rule inet own i meta l4proto tcp counter")
	}
	before := p.host.MustRun(t, "sh", "-c", "cat /proc/net/nf_conntrack 2>/dev/null | grep -c tcp || true")
	for _, script := range []string{"true", "nft add rule ip own p tcp dport 443 dnat to " + p.address["web"] + ":80", "nft flush chain ip own p; nft add rule ip own p tcp dport 443 redirect to :3128",
		"nft flush chain ip own p; iptables-nft -A FORWARD -p tcp -j REJECT --reject-with tcp-reset", "iptables-nft -F; iptables-nft -A FORWARD -j REJECT"} {
		p.shell(script)
		p.examine("forward-drops", "packet-lost")
		for _, in := range everywhere {
			if counted := in.MustRun(t, "nft", "list", "table", "inet", "own"); !strings.Contains(counted, "packets 0 bytes 0") {
				t.Errorf("%s: %s got packets:\n%s", script, in.Name(), counted)
			}
		}
	}
	if after := p.host.MustRun(t, "sh", "-c", "cat /proc/net/nf_conntrack 2>/dev/null | grep -c tcp || true"); after != before {
		t.Errorf("connections are left: %s, and there were %s", after, before)
	}
}
