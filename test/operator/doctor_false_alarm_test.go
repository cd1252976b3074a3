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
			p.shell(f.script)
			if e := p.examine(); !e.Healthy() {
				t.Errorf("found %+v", e.Findings)
			}
		})
	}
}
