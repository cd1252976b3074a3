package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// direct is the network demo of ptp.
const direct = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "ptp", "ipMasq": true,
  "ipam": {"type": "host-local", "subnet": "10.66.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}]}`

// other is a second network, on a bridge of its own.
const other = `{"cniVersion": "1.0.0", "name": "other", "plugins": [
  {"type": "bridge", "bridge": "other0", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}}]}`

func writeOther(p *clinic) { p.write("/etc/cni/net.d/20-other.conflist", other) }

// faultsOfLinks are those of links, addresses and routes of the host.
var faultsOfLinks = []fault{
	{code: "bridge-down", plant: shell("ip link set demo0 down"), works: reachesOutside},
	{code: "master-down", config: alone, pods: []string{}, before: func(p *clinic) {
		p.shell("ip link add lan0 up type bridge")
		p.admit("web")
	}, plant: shell("ip link set lan0 down")},
	{code: "bridge-port-lost", pods: []string{"web", "db"}, works: reachesOutside,
		plant: shell("for port in $(ls /sys/class/net/demo0/brif); do ip link set $port nomaster; done")},
	{code: "attachment-broken", kind: "the route of ptp", config: direct, works: reachesOutside, plant: shell("ip route delete 10.66.0.2")},
	{code: "attachment-broken", kind: "the bridge is deleted", plant: shell("ip link delete demo0"), works: reachesOutside},
	{code: "gateway-gone", plant: shell("ip address flush dev demo0 scope global"), works: reachesOutside},
	{code: "bridge-other-subnet", pods: []string{}, before: shell("ip link add demo0 up type bridge"), plant: shell("ip address flush dev demo0 scope global; ip address add 10.99.0.1/24 dev demo0"), works: adds},
	{code: "bridge-other-subnet", kind: "flannel", config: overlay, pods: []string{}, before: func(p *clinic) {
		writeSubnetEnv(p, "10.244.3.1/24")
		p.must("run", "--network", "demo", "--", "true")
	}, plant: func(p *clinic) { writeSubnetEnv(p, "10.244.7.1/24") }},
	{code: "subnets-overlap", kind: "of two networks", before: writeOther, plant: shell(`sed -i s/10.77.0.0/10.88.0.0/ /etc/cni/net.d/20-other.conflist`)},
	{code: "subnets-overlap", kind: "on one bridge", plant: shell(`cd /etc/cni/net.d; sed 's/"demo"/"again"/' 10-demo.conflist >20-again.conflist`),
		says: `"rangeStart" and "rangeEnd" in /etc/cni/net.d/`, remedy: shell("rm /etc/cni/net.d/20-again.conflist")},
	{code: "subnets-overlap", kind: "of the host's", pods: []string{}, plant: shell("ip route add 10.88.0.0/25 via " + netlab.OutsideIPv4)},
	{code: "mtu-above-uplink", plant: shell("ip link set " + netlab.UplinkName + " mtu 1400")},
	{code: "mtu-above-uplink", kind: "configured", config: strings.Replace(demo, `"bridge": "demo0"`, `"bridge": "demo0", "mtu": 1480`, 1),
		plant: shell("ip link set " + netlab.UplinkName + " mtu 1400")},
	{code: "rp-filter-strict", plant: shell("sysctl -qw net.ipv4.conf.all.rp_filter=1"),
		before: func(p *clinic) {
			writeOther(p)
			p.must("add", "other", p.pods["web"].Path(), "--id", "web", "--ifname", "eth1")
			p.outside.AddRoute(p, "10.77.0.0/24")
		},
		works: func(p *clinic, limit time.Duration) error { return p.outside.Ping("10.77.0.2", limit) }},
	{code: "bridge-nearly-full", pods: []string{},
		before: shell("ip link add demo0 up type bridge; ip address add 10.88.0.1/24 dev demo0"),
		plant: shell(`for i in $(seq 461); do
			echo link add a$i group 7 master demo0 type veth peer name b$i group 7; echo link set b$i master demo0; done | ip -batch -`),
		says: "bridge link show", remedy: shell("ip link delete group 7")},
}

// TestDoctorSourceRouting finds nothing wrong with a strict filter where containers answer by the way that they were asked.
func TestDoctorSourceRouting(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.write("/etc/cni/net.d/20-other.conflist", strings.Replace(other, "}}]}", `}}, {"type": "sbr"}]}`, 1))
	p.admit("web")
	p.must("add", "other", p.pods["web"].Path(), "--id", "web", "--ifname", "eth1")
	p.outside.AddRoute(p, "10.77.0.0/24")
	p.shell("sysctl -qw net.ipv4.conf.all.rp_filter=1")
	if e := p.examine(); !e.Healthy() {
		t.Errorf("found %+v", e.Findings)
	}
	if err := p.outside.Ping("10.77.0.2", netlab.Patience); err != nil {
		t.Error(err)
	}
}
