package operator

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// variant is a node on which packets meet much, and arrive.
type variant struct {
	name   string
	script string // has the functions of inField
	undo   string // "": takes away what the function rule has made
	asks   string // what is asked beside the usual
	guest  string // a script in containers that are the first of their networks, for which doctor's packets are
	start  func(t *testing.T, f *field) (stop func())
}

// Rules that lead a port to a container, whoever asks for it and whomever, and what makes a bridge of that.
const (
	led        = `nft add table ip led; nft add chain ip led p '{ type nat hook prerouting priority -100; }'; nft add rule ip led p tcp dport 443 dnat to 10.88.0.3:80; `
	led80      = `nft add table ip led; nft add chain ip led p '{ type nat hook prerouting priority -100; }'; nft add rule ip led p iifname demo0 tcp dport 80 dnat to 10.88.0.3; `
	led6       = `nft add table ip6 led; nft add chain ip6 led p '{ type nat hook prerouting priority -100; }'; nft add rule ip6 led p tcp dport 443 dnat to [fd00:88::3]:80; `
	ledBack    = `nft add chain ip led q '{ type nat hook postrouting priority 99; }'; nft add rule ip led q ip saddr 10.88.0.0/24 ip daddr 10.88.0.0/24 ct status dnat masquerade; `
	unled      = "nft delete table ip led 2>/dev/null || true; nft delete table ip6 led 2>/dev/null || true; "
	unfiltered = "sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0; "
	filtered   = "sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1; "
	hairpin    = "for n in web other; do bridge link set dev $(end $n) hairpin on; done; "
	noHairpin  = "for n in web other; do bridge link set dev $(end $n) hairpin off; done; "

	published443   = "cnictl add demo /run/netns/late --id late -p 443:80 >/dev/null"
	unpublished443 = "cnictl del demo /run/netns/late --id late"
	byIPTables     = `cat >/etc/cni/net.d/30-demo.conflist <<-END
		{"cniVersion": "1.1.0", "name": "demo-iptables", "plugins": [
			{"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true, "ipMasqBackend": "iptables",
				"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24", "rangeStart": "10.88.0.200"}]]}},
			{"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}}]}
	END
	`
)

var variants = []variant{
	{name: "nothing", script: ":", undo: ":"},
	{name: "a set of others", script: "rule forward ip daddr '{ 198.51.100.0/24, 10.0.0.0-10.87.255.255 }' drop"},
	{name: "addresses that nobody has are dropped", script: "rule forward ip daddr '{ 192.0.0.0/24, 198.51.100.0/24, 203.0.113.0/24 }' ct state new drop; nft add rule inet mine f ip6 daddr 2001:db8:fff0::/44 drop"},
	{name: "a limit that is not reached", script: "rule forward limit rate over 10000/second burst 1000 packets drop"},
	{name: "a quota that is not used up", script: "rule forward quota over 1000 mbytes drop"},
	{name: "logs and counters", script: "rule forward counter log prefix seen; nft add rule inet mine f ct state new counter accept"},
	{name: "accepted first", script: "rule forward ip saddr 10.88.0.0/13 accept; nft add rule inet mine f ip daddr 10.88.0.0/13 accept; nft add rule inet mine f meta nfproto ipv6 accept; nft add rule inet mine f drop"},
	{name: "a policy, and what may pass", script: "rule forward ct state established,related accept; nft add rule inet mine f iifname '{ demo0, listed0, apart0, plain0, veth* }' accept; nft add rule inet mine f ct status dnat accept; nft 'chain inet mine f { policy drop; }'"},
	{name: "verdicts by state", script: "rule forward ct state vmap '{ established : accept, related : accept, invalid : drop }'"},
	{name: "sources without a way back", script: "rule prerouting fib saddr . iif oif missing drop"},
	{name: "what is of no connection", script: "rule prerouting ct state invalid drop"},
	{name: "tables at other priorities", script: "rule forward accept; nft add chain inet mine early '{ type filter hook prerouting priority -310; }'; nft add rule inet mine early accept; nft add chain inet mine late '{ type filter hook postrouting priority 500; }'; nft add rule inet mine late counter"},
	{name: "marks", script: "rule prerouting iifname demo0 meta mark set 0x17 ct mark set 0x17"},
	{name: "a smaller MSS", script: "rule forward tcp flags syn tcp option maxseg size set rt mtu"},
	{name: "a queue that may be passed", script: "iptables -A FORWARD -j NFQUEUE --queue-num 7 --queue-bypass", undo: "no_iptables"},
	{name: "masquerading by others", script: "rule postrouting counter; nft add chain inet mine nat '{ type nat hook postrouting priority 90; }'; nft add rule inet mine nat oifname docker0 snat ip to 198.51.100.9"},
	{name: "in bridges, and at the edge", script: `nft add table bridge mine; nft add chain bridge mine f '{ type filter hook forward priority 0; }'; nft add rule bridge mine f ether type arp accept; nft add rule bridge mine f counter
		nft add table netdev mine; nft add chain netdev mine i '{ type filter hook ingress device uplink0 priority 0; }'; nft add rule netdev mine i tcp dport 22 drop`, undo: "nft delete table bridge mine; nft delete table netdev mine"},
	{name: "notrack of others", script: `nft add table ip raw; nft add chain ip raw p '{ type filter hook prerouting priority raw; }'; nft add rule ip raw p udp dport 53 notrack`, undo: "nft delete table ip raw"},
	{name: "Docker, and its chain for administrators", script: docker + "iptables -I DOCKER-USER -j ACCEPT", undo: "no_iptables"},
	{name: "Docker without its policy", script: docker + "iptables -P FORWARD ACCEPT", undo: "no_iptables"},
	{name: "libvirt", script: "iptables -N LIBVIRT_FWI; iptables -A FORWARD -j LIBVIRT_FWI; iptables -A LIBVIRT_FWI -o virbr0 -j REJECT", undo: "no_iptables"},
	{name: "kube-proxy", script: kubeProxy, undo: "no_iptables"},
	{name: "kube-proxy by nftables", script: kubeProxyNFT, undo: "nft delete table ip kube-proxy"},
	{name: "ufw", script: ufw + "; ufw default allow routed >/dev/null; ufw allow 22 >/dev/null", undo: ufwOff},
	{name: "iptables-legacy", script: "iptables-legacy -A FORWARD -i demo0 -j ACCEPT; iptables-legacy -A FORWARD -j ACCEPT; iptables-legacy -P FORWARD DROP", undo: "iptables-legacy -P FORWARD ACCEPT; iptables-legacy -F"},
	{name: "firewalld", script: "for n in 88 89 90 91 92; do firewall-cmd -q --zone=trusted --add-source=10.$n.0.0/24; done; firewall-cmd -q --zone=trusted --add-source=fd00:88::/64", undo: "nft delete table inet firewalld", start: runFirewalld},
	{name: "neighbours that nobody knows yet", script: "ip neigh flush all; for n in web other box kept; do inside $n ip neigh flush all; done", undo: ":"},
	{name: "a container without a loopback link", guest: ":"},
	{name: "a container without routes and addresses", guest: "ip address flush dev eth0; ip route flush table main"},
	{name: "a container with addresses of others", guest: "ip address add 203.0.113.99/24 dev eth0; ip address add 192.0.2.254/24 dev eth0; ip address add 10.88.0.1/32 dev eth0; ip route replace default dev eth0"},
	{name: "a container with another link address", guest: "ip link set eth0 address 02:00:00:00:00:77"},
	{name: "a container with its gateway's link address", guest: "ping -c 1 $(ip route show default | cut -d ' ' -f 3) >/dev/null || true; ip link set eth0 address $(ip neigh show dev eth0 | grep -o '..:..:..:..:..:..' | head -1)"},
	{name: "a container whose link is down", guest: "ip link set eth0 down"},
	{name: "a container whose link has another name", guest: "ip link set eth0 down; ip link set eth0 name docker0; ip link set docker0 up"},
	{name: "a container whose link is a bridge's", guest: "ip link add eth1 type bridge; ip link set eth0 master eth1"},
	{name: "a container that filters all", guest: `nft add table inet own; nft add chain inet own i "{ type filter hook input priority 0; policy drop; }"; nft add chain inet own o "{ type filter hook output priority 0; policy drop; }"`},
	{name: "a container that answers all questions", guest: "sysctl -qw net.ipv4.conf.all.proxy_arp=1 net.ipv4.ip_forward=1; ip route replace default dev eth0"},
	{name: "a container that floods", guest: "(ping -f -q -w 30 10.88.0.1 >/dev/null 2>&1 & ping -f -q -w 30 203.0.113.99 >/dev/null 2>&1 &)"},
	{name: "thousands of rules", script: "rule forward counter; { for i in $(seq 4000); do echo add rule inet mine f counter; done; } | nft -f -"},
	{name: "tens of thousands of rules", script: "rule forward counter; { for i in $(seq 20000); do echo add rule inet mine f counter; done; } | nft -f -"},
	{name: "thousands of rules at each hook", script: "rule forward counter; for h in prerouting input output postrouting; do nft add chain inet mine $h \"{ type filter hook $h priority 7; }\"; done; { for i in $(seq 1500); do for h in f prerouting postrouting; do echo add rule inet mine $h counter; done; done; } | nft -f -"},
	{name: "thousands of rules of iptables", script: "{ echo '*filter'; for i in $(seq 3000); do echo \"-A FORWARD -s 198.51.100.$((i % 250)) -p tcp --dport $i -j DROP\"; done; echo COMMIT; } | restore", undo: "no_iptables"},
	{name: "rp_filter 2", script: "sysctl -qw net.ipv4.conf.all.rp_filter=2", undo: "sysctl -qw net.ipv4.conf.all.rp_filter=0"},
	{name: "rp_filter 1", script: "sysctl -qw net.ipv4.conf.all.rp_filter=1", undo: "sysctl -qw net.ipv4.conf.all.rp_filter=0"},
	{name: "a policy rule to the same table", script: "ip rule add from 10.88.0.0/24 prio 99 lookup main", undo: "ip rule del prio 99"},
	{name: "a table of its own", script: "ip route add default via 192.0.2.254 table 77; ip rule add from 10.88.0.0/24 to 192.0.2.0/24 prio 99 lookup 77", undo: "ip rule del prio 99; ip route flush table 77"},
	{name: "blackholes for others", script: "ip route add blackhole 198.51.100.0/24; ip route add blackhole 10.200.0.0/16", undo: "ip route del blackhole 198.51.100.0/24; ip route del blackhole 10.200.0.0/16"},
	{name: "a port led to a neighbour", script: led + led6, undo: unled},
	{name: "a port led to a neighbour, past br_netfilter", script: led + led6 + unfiltered, undo: unled + filtered},
	{name: "a port led to a neighbour, and masqueraded", script: led + led6 + ledBack + unfiltered, undo: unled + filtered, asks: "web --to 192.0.2.254:443"},
	{name: "a port led to a neighbour, with hairpin", script: led + led6 + hairpin, undo: unled + noHairpin, asks: "web --to 192.0.2.254:443"},
	{name: "a port led to a neighbour, by iptables", script: "iptables -t nat -A PREROUTING -p tcp --dport 443 -j DNAT --to-destination 10.88.0.3:80", undo: "no_iptables"},
	{name: "a port led to a container itself", script: strings.ReplaceAll(led, "10.88.0.3", "10.88.0.4"), undo: unled},
	{name: "a port led to a container itself, past br_netfilter", script: strings.ReplaceAll(led, "10.88.0.3", "10.88.0.4") + unfiltered + hairpin, undo: unled + filtered + noHairpin},
	{name: "a port led to a container of another network", script: strings.ReplaceAll(led, "10.88.0.3", "10.89.0.2"), undo: unled, asks: "web --to 192.0.2.254:443"},
	{name: "a port led to the node", script: strings.ReplaceAll(led, "dnat to 10.88.0.3:80", "redirect to :22"), undo: unled},
	{name: "a port led to a machine outside", script: strings.ReplaceAll(led, "10.88.0.3", "192.0.2.254"), undo: unled, asks: "web --to 203.0.113.9:443"},
	{name: "all ports led to a neighbour", script: strings.ReplaceAll(led, "tcp dport 443 dnat to 10.88.0.3:80", "iifname demo0 ip daddr 203.0.113.0/24 dnat to 10.88.0.3"), undo: unled},
	{name: "port 443 published", start: another, script: published443, undo: unpublished443},
	{name: "port 443 published by iptables", start: another, script: byIPTables + strings.ReplaceAll(published443, "add demo", "add demo-iptables"), undo: strings.ReplaceAll(unpublished443, "del demo", "del demo-iptables") + "; rm /etc/cni/net.d/30-demo.conflist; no_iptables"},
	{name: "a blackhole for addresses that nobody has", script: "ip route add blackhole 203.0.113.0/24; ip route add blackhole 2001:db8:fffe::/48", undo: "ip route del blackhole 203.0.113.0/24; ip -6 route del blackhole 2001:db8:fffe::/48"},
}

// intrude attaches containers that come first by name, and does something in them. They go with the test.
func (f *field) intrude(t *testing.T, script string) {
	for name, network := range map[string]string{"aaa": "demo", "aab": "routed", "aac": "listed"} {
		pod := f.host.NewPod(t, name)
		f.must("add", network, pod.Path(), "--id", name)
		t.Cleanup(func() { f.must("del", network, pod.Path(), "--id", name) })
		pod.MustRun(t, "sh", "-ec", script)
	}
}

// another makes a namespace that is not attached.
func another(t *testing.T, f *field) (stop func()) {
	f.host.NewPod(t, "late")
	return func() {}
}

func runFirewalld(t *testing.T, f *field) (stop func()) {
	daemon := firewalldtest.Start(t, f.host, "nftables")
	return func() { daemon.Stop(t) }
}

// TestNoCause finds no cause on nodes where packets arrive: neither trace nor doctor does. What they look with goes with them.
func TestNoCause(t *testing.T) {
	t.Parallel()
	f := newField(t)
	for i, v := range variants {
		if netlab.LeftOut(t, i, 3) {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			if v.start != nil {
				defer v.start(t, f)()
			}
			if v.guest != "" {
				f.intrude(t, v.guest)
				v.script, v.undo = ":", ":"
			}
			f.run(t, v.script)
			before := f.host.Snapshot(t)
			f.wantAnswer(t, "as it is", outwards, published, beside, "box --to 192.0.2.254", "kept --to 192.0.2.254", "web --to 2001:db8:2::254")
			if v.asks != "" {
				f.wantAnswer(t, "as it is", v.asks)
			}
			began := time.Now()
			for _, found := range f.lost(t) {
				t.Errorf("doctor: %s", found)
			}
			t.Logf("| %s | doctor: %d ms |", v.name, time.Since(began).Milliseconds())
			if diff := before.Diff(f.host.Snapshot(t)); diff != "" {
				t.Errorf("left behind:\n%s", diff)
			}
			f.run(t, cmp.Or(v.undo, "nft delete table inet mine"))
		})
	}
}

// lost are the findings of doctor about packets that get lost.
func (f *field) lost(t *testing.T) (list []string) {
	t.Helper()
	e := f.doctor(t, "docker-drops", "ufw-drops", "forward-drops", "firewalld-no-zone", "packet-lost")
	for _, found := range e.Findings {
		list = append(list, found.Code+": "+found.Summary)
	}
	for _, n := range e.CouldNotLook {
		list = append(list, "could not look at "+n.What+": "+n.Why)
	}
	return list
}

func (f *field) doctor(t *testing.T, codes ...string) (e examined) {
	t.Helper()
	_, printed := f.cnictl(append([]string{"doctor", "--json"}, codes...)...)
	if err := json.Unmarshal([]byte(printed), &e); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	return e
}
