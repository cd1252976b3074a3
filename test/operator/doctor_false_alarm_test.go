package operator

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// falseAlarms are what looks like a fault and is none.
var falseAlarms = []struct {
	name   string
	config string // of the network demo, in place of demo
	pods   []string
	before func(*clinic)
	script string
}{
	{name: "forwarding is off, and nothing needs it yet", config: routed, script: ":"},
	{name: "bridged packets don't pass, and nobody needs it", script: "[ ! -e /proc/sys/net/bridge ] || sysctl -qw net.bridge.bridge-nf-call-iptables=0"},
	{name: "another address, which the bridge plugin may remove", config: strings.Replace(demo, `"ipMasq": true`, `"ipMasq": true, "forceAddress": true`, 1),
		script: "ip link add demo0 up type bridge; ip address add 10.99.0.1/24 dev demo0"},
	{name: "IPv6 is dropped, and the network has none", config: routed, pods: []string{"web"}, script: "ip6tables-nft -P FORWARD DROP"},
	{name: "a route to a larger network", script: "ip route add 10.88.0.0/16 via " + netlab.OutsideIPv4 + "; ip route add 10.88.0.9/32 via " + netlab.OutsideIPv4},
	{name: "a route to a network beside it", script: "ip route add 10.88.1.0/24 via " + netlab.OutsideIPv4},
	{name: "two networks on one bridge, each with its part", script: `cd /etc/cni/net.d
		sed -i 's|"10.88.0.0/24"|&, "rangeEnd": "10.88.0.99"|; s|, \[{"subnet": "fd00:88::/64"}\]||' 10-demo.conflist
		sed 's/"demo"/"again"/; s/"rangeEnd": "10.88.0.99"/"rangeStart": "10.88.0.100"/' 10-demo.conflist >20-again.conflist`},
	{name: "a manager's file, and no manager", script: `printf '[Match]\nName=*\n' >/etc/systemd/network/10-all.network`},
	{name: "a small uplink, and a network that knows", config: strings.Replace(demo, `"bridge": "demo0"`, `"bridge": "demo0", "mtu": 1400`, 1),
		script: "ip link set " + netlab.UplinkName + " mtu 1400"},
	{name: "firewalld's own table drops what is of others", pods: []string{"web"}, script: `nft add table inet firewalld
		nft 'add chain inet firewalld forward { type filter hook forward priority 10; policy drop; }'; nft add rule inet firewalld forward iifname demo0 accept`},
	{name: "the network's own list closes all but one address", config: listed, pods: []string{"web"}, script: ":"},
	{name: "the network's own policy keeps others away", config: strings.Replace(demo, `{"type": "portmap"`, `{"type": "firewall", "ingressPolicy": "isolated"}, {"type": "portmap"`, 1), pods: []string{"web"}, script: ":"},
	{name: "the reference plugins, in a directory that comes later", script: `mkdir -p /etc/containers
		printf '[network]\nnetwork_backend="cni"\ncni_plugin_dirs=["/opt/cni/bin", "/usr/lib/cni"]\n' >/etc/containers/containers.conf`},
	{name: "a pool of one address, which is taken", pods: []string{"web"}, script: ":",
		config: strings.Replace(demo, `"10.88.0.0/24"}], [{"subnet": "fd00:88::/64"`, `"10.88.0.0/24", "rangeStart": "10.88.0.9", "rangeEnd": "10.88.0.9"`, 1)},
	{name: "somebody else's IPAM plugin", config: `{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "bridge", "ipam": {"type": "whereabouts"}}]}`,
		script: `printf '#!/bin/sh\nexit 1\n' >/opt/cni/bin/whereabouts; chmod +x /opt/cni/bin/whereabouts`},
	{name: "forwarding is off in a file of sysctl.d, and on in a later one", pods: []string{"web"},
		script: "mkdir -p /etc/sysctl.d; echo net.ipv4.ip_forward=0 >/etc/sysctl.d/10-a.conf; echo net.ipv4.ip_forward = 1 >/etc/sysctl.d/20-b.conf"},
	{name: "forwarding is off in a file of sysctl.d that another one hides", pods: []string{"web"},
		script: "mkdir -p /etc/sysctl.d /run/sysctl.d; echo net.ipv4.ip_forward=0 >/run/sysctl.d/10-a.conf; ln -s /dev/null /etc/sysctl.d/10-a.conf"},
	{name: "forwarding is off in a file of sysctl.d, and no network needs it", config: bridged, script: "mkdir -p /etc/sysctl.d; echo net.ipv4.ip_forward=0 >/etc/sysctl.d/10-a.conf"},
	{name: "IPv6 is off, and no gateway of the host's needs it", config: strings.Replace(bridged, "10.88.0.0/24", "fd00:88::/64", 1), script: "sysctl -qw net.ipv6.conf.default.disable_ipv6=1"},
	{name: "IPv6 is off, and the network has none", config: strings.Replace(bridged, `"bridge",`, `"bridge", "isGateway": true,`, 1), script: "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"},
	{name: "a route of somebody's own on a link of networkd's, and networks of ours alone", before: func(p *clinic) { runs(p, "systemd-networkd") },
		script: `printf '[Match]\nName=` + netlab.UplinkName + `\n' >/etc/systemd/network/10-lan.network
		ip route add 10.244.9.0/24 via ` + netlab.OutsideIPv4},
	{name: "a route of flannel's on a link that is not networkd's", config: overlay, before: networkdRuns, script: `rm /etc/systemd/networkd.conf.d/10-own.conf
		sed -i s/=.*/=other0/ /etc/systemd/network/20-lan.network; ip rule delete fwmark 7`},
	{name: "routes of the kernel's on a link of networkd's", config: overlay, before: networkdRuns, script: `rm /etc/systemd/networkd.conf.d/10-own.conf
		ip route delete 10.244.9.0/24; ip rule delete fwmark 7`},
	{name: "a gateway that is 0.0.0.0", config: strings.Replace(bridged, `"10.88.0.0/24"`, `"10.88.0.0/24", "gateway": "0.0.0.0"`, 1), pods: []string{"web"}, script: ":"},
	{name: "two networks on one master, each with its part", config: onMaster,
		script: `cd /etc/cni/net.d; sed 's/"demo"/"again"/; s/2.100/2.160/; s/2.150/2.170/' 10-demo.conflist >20-again.conflist`},
	{name: "plugins of others whose names end as ours do", config: foreignNames, script: installForeign},
}

// foreignNames is a network whose plugins are all somebody else's, with keys that ours of like names don't have.
const foreignNames = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "vpc-bridge", "isGatway": true, "mtu": "1"}, {"type": "win-bridge", "x": 1},
	{"type": "cni-nftables-portmap", "y": 1}, {"type": "tc-redirect-tap", "z": 1}]}`

// installForeign puts their files on the node.
const installForeign = `for name in vpc-bridge win-bridge cni-nftables-portmap tc-redirect-tap; do
	printf '#!/bin/sh\nexit 1\n' >/opt/cni/bin/$name; chmod +x /opt/cni/bin/$name; done`

// TestDoctorNoFalseAlarm finds nothing in them.
func TestDoctorNoFalseAlarm(t *testing.T) {
	t.Parallel()
	for _, f := range falseAlarms {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			config := demo
			if f.config != "" {
				config = f.config
			}
			p := newClinic(t, config)
			p.admit(f.pods...)
			if f.before != nil {
				f.before(p)
			}
			p.shell(f.script)
			if e := p.examine(); !e.Healthy() {
				t.Errorf("found %+v", e.Findings)
			}
		})
	}
}
