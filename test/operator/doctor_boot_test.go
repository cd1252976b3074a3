package operator

import (
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// onMaster is a network whose containers are on the uplink's segment.
const onMaster = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [
  {"type": "macvlan", "master": "` + netlab.UplinkName + `", "ipam": {"type": "host-local", "subnet": "192.0.2.0/24", "rangeStart": "192.0.2.100", "rangeEnd": "192.0.2.150"}}]}`

// bridged is a network of layer 2 whose containers have addresses, and no gateway.
const bridged = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "bridge", "bridge": "demo0", "ipam": {"type": "host-local", "subnet": "10.88.0.0/24"}}]}`

// networkdRuns has systemd-networkd look after the uplink, and a route of flannel's backend host-gw leave by it.
func networkdRuns(p *clinic) {
	p.Helper()
	flanneld(p)
	runs(p, "systemd-networkd")
	p.write("/etc/systemd/network/20-lan.network", "[Match]\nName="+netlab.UplinkName+"\n\n[Network]\nDHCP=yes\n")
	p.write("/etc/systemd/networkd.conf.d/10-own.conf", "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n")
	p.shell("ip route add 10.244.9.0/24 via " + netlab.OutsideIPv4 + "; ip rule add fwmark 7 lookup 77")
}

// secondDirectory has a runtime read a directory of its own.
func secondDirectory(p *clinic) {
	p.Helper()
	p.write("/etc/containerd/config.toml", "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/opt/cni/bin']\nconf_dir = '/run/second'\nuse_internal_loopback = true\n")
	p.write("/run/second/10-other.conflist", strings.ReplaceAll(bridged, `"demo"`, `"other"`))
}

// faultsOfBoot are what shows itself later: at the next boot, when a daemon starts again, with the next container.
var faultsOfBoot = []fault{
	{code: "forwarding-off-at-boot", before: func(p *clinic) { p.write("/etc/sysctl.d/10-net.conf", "# ours\nnet.ipv4.ip_forward = 1\n") },
		plant: func(p *clinic) { p.write("/etc/sysctl.d/99-hard.conf", "-net.ipv4.ip_forward=0\n") },
		says:  "write net.ipv4.ip_forward = 1 in /etc/sysctl.d/99-hard.conf", remedy: shell("sed -i s/=0/=1/ /etc/sysctl.d/99-hard.conf")},
	{code: "forwarding-off-at-boot", kind: "under its other name", plant: func(p *clinic) { p.write("/etc/sysctl.d/99-hard.conf", "net/ipv4/conf/all/forwarding = 0\n") },
		says: "in /etc/sysctl.d/99-hard.conf", remedy: shell("rm /etc/sysctl.d/99-hard.conf")},
	{code: "forwarding-off-at-boot", kind: "IPv6", plant: func(p *clinic) { p.write("/etc/sysctl.d/99-hard.conf", "net.ipv6.conf.all.forwarding = 0\n") },
		says: "write net.ipv6.conf.all.forwarding = 1", remedy: shell("ln -sf /dev/null /etc/sysctl.d/99-hard.conf")},
	{code: "ipv6-off", pods: []string{}, plant: shell("ip link del demo0; sysctl -qw net.ipv6.conf.default.disable_ipv6=1"), works: adds},
	{code: "ipv6-off", kind: "by an MTU", pods: []string{}, plant: shell("ip link set demo0 mtu 1279"), says: "ip link set dev demo0 mtu 1280", works: adds},
	{code: "networkd-takes-routes", config: overlay, pods: []string{}, before: networkdRuns, plant: shell("rm /etc/systemd/networkd.conf.d/10-own.conf")},
	{code: "networkd-takes-routes", kind: "rules", config: overlay, pods: []string{}, before: networkdRuns,
		plant: func(p *clinic) {
			p.write("/etc/systemd/networkd.conf.d/20-rules.conf", "[Network]\nManageForeignRoutingPolicyRules=yes\n")
		}},
	{code: "subnets-overlap", kind: "on one master", config: onMaster, pods: []string{}, plant: shell(`cd /etc/cni/net.d; sed 's/"demo"/"again"/' 10-demo.conflist >20-again.conflist`),
		says: `"rangeStart" and "rangeEnd" in /etc/cni/net.d/`, remedy: shell(`sed -i s/192.0.2.100/192.0.2.160/\;s/192.0.2.150/192.0.2.170/ /etc/cni/net.d/20-again.conflist`)},
	{code: "subnets-overlap", kind: "on one bridge, without a gateway", config: bridged, pods: []string{}, plant: shell(`cd /etc/cni/net.d; sed 's/"demo"/"again"/' 10-demo.conflist >20-again.conflist`),
		says: `"rangeStart" and "rangeEnd" in /etc/cni/net.d/`, remedy: shell("sed -i s/demo0/again0/ /etc/cni/net.d/20-again.conflist")},
	{code: "subnets-overlap", kind: "in two directories", config: strings.Replace(bridged, "demo0", "web0", 1), pods: []string{}, before: secondDirectory,
		plant: shell("sed -i s/demo0/web0/ /run/second/10-other.conflist"), says: "/run/second/10-other.conflist", remedy: shell("rm /run/second/10-other.conflist")},
}
