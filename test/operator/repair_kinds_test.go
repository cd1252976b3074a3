package operator

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/netlab"
)

const (
	addressKeys = `"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.66.0.0/24"}], [{"subnet": "fd00:66::/64"}]], "routes": [{"dst": "10.99.0.0/16", "gw": "10.66.0.1"}]}`
	flushAll    = "ip address flush dev eth0"
)

// harmsOfKinds are about links of all kinds.
var harmsOfKinds = []struct {
	harm
	needs *netlab.Feature
}{
	{harm: harm{name: "loopback", network: `{"type": "loopback"}`, inside: "ip link set lo down", finds: "loopback interface is down"}},
	{harm: harm{name: "macvlan", network: `{"type": "macvlan", "master": "uplink0", ` + addressKeys + `}`, inside: flushAll, finds: "lacks the address"}},
	{harm: harm{name: "macvlan, down", network: `{"type": "macvlan", "master": "uplink0", ` + addressKeys + `}`, inside: "ip link set eth0 down", finds: "is down"}},
	{harm: harm{name: "macvlan, MAC address", network: `{"type": "macvlan", "master": "uplink0", ` + addressKeys + `}`,
		inside: "ip link set eth0 address 02:66:66:66:66:66", finds: "MAC address"}},
	{harm: harm{name: "tap", network: `{"type": "tap", ` + addressKeys + `}`, inside: flushAll + "; ip link set eth0 down", finds: "is down"}},
	{harm: harm{name: "tap in a bridge", network: `{"type": "tap", "bridge": "lan0"}`, prepare: "ip -n kind link add lan0 address 02:00:00:00:00:09 type bridge",
		inside: "ip link set eth0 nomaster", finds: "is not in bridge lan0"}},
	{harm: harm{name: "host-device", network: `{"type": "host-device", "device": "spare0", ` + addressKeys + `}`,
		prepare: "ip link add spare0 type veth peer name spare1; ip link set spare1 up", inside: flushAll + "; ip link set eth0 down", finds: "is down"}},
	{harm: harm{name: "static addresses", network: `{"type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "10.66.0.5/24", "gateway": "10.66.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]}}`,
		inside: flushAll, finds: "lacks the address"}},
	{harm: harm{name: "two addresses of one network", network: `{"type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "10.66.0.5/24", "gateway": "10.66.0.1"}, {"address": "10.66.0.6/24"}], "routes": [{"dst": "0.0.0.0/0"}]}}`,
		inside: "ip route del default", finds: "lacks the route"}},
	{harm: harm{name: "layer 2 alone", network: `{"type": "bridge"}`, inside: "ip link set eth0 down", finds: "is down"}},
	{harm: harm{name: "dummy", network: `{"type": "dummy", ` + addressKeys + `}`, inside: flushAll, finds: "lacks the address"}, needs: &netlab.Dummy},
	{harm: harm{name: "ipvlan", network: `{"type": "ipvlan", "master": "uplink0", ` + addressKeys + `}`, inside: flushAll + "; ip link set eth0 down", finds: "is down"}, needs: &netlab.IPVLAN},
	{harm: harm{name: "vlan", network: `{"type": "vlan", "master": "uplink0", "vlanId": 5, "mtu": 1400, ` + addressKeys + `}`,
		inside: flushAll + "; ip link set eth0 mtu 1300", finds: "lacks the address"}, needs: &netlab.VLAN},
	{harm: harm{name: "vrf: the VRF's routes", network: `{"type": "macvlan", "master": "uplink0", ` + addressKeys + `}, {"type": "vrf", "vrfname": "blue"}`,
		inside: "ip route flush vrf blue", finds: "lacks the route"}, needs: &netlab.VRF},
	{harm: harm{name: "vrf: out of the VRF", network: `{"type": "macvlan", "master": "uplink0", ` + addressKeys + `}, {"type": "vrf", "vrfname": "blue"}`,
		inside: "ip link set eth0 nomaster", finds: "lacks the route"}, needs: &netlab.VRF},
	{harm: harm{name: "vrf: the VRF is deleted", network: `{"type": "macvlan", "master": "uplink0", ` + addressKeys + `}, {"type": "vrf", "vrfname": "blue"}`,
		inside: "ip link del blue", finds: "lacks the route"}, needs: &netlab.VRF},
	{harm: harm{name: "vlans of a port", network: `{"type": "bridge", "bridge": "demo0", "vlan": 5, "vlanTrunk": [{"minID": 10, "maxID": 12}], "isGateway": true, ` + addressKeys + `}`,
		host: "bridge vlan del dev END vid 11; bridge vlan add dev END vid 99; bridge vlan add dev END vid 5", finds: "VLAN"}, needs: &netlab.BridgeVLANFiltering},
	{harm: harm{name: "a VLAN's port out of the bridge", network: `{"type": "bridge", "bridge": "demo0", "vlan": 5, "vlanTrunk": [{"minID": 10, "maxID": 12}], "isGateway": true, ` + addressKeys + `}`,
		host: "ip link set END nomaster", finds: "is not in bridge"}, needs: &netlab.BridgeVLANFiltering},
	{harm: harm{name: "a VLAN's gateway", network: `{"type": "bridge", "bridge": "demo0", "vlan": 5, "isGateway": true, ` + addressKeys + `}`,
		host: "ip address flush dev demo0.5", finds: "lacks the gateway's address"}, needs: &netlab.BridgeVLANFiltering},
	{harm: harm{name: "a VLAN's gateway out of the bridge", network: `{"type": "bridge", "bridge": "demo0", "vlan": 5, "isGateway": true, ` + addressKeys + `}`,
		host: `ip link set $(ip -o link show demo0.5 | sed "s/.*@\(veth[^:]*\):.*/\1/") nomaster`, finds: "the gateway's link, is not in bridge"}, needs: &netlab.BridgeVLANFiltering},
	{harm: harm{name: "a VLAN's gateway is deleted", network: `{"type": "bridge", "bridge": "demo0", "vlan": 5, "isGateway": true, ` + addressKeys + `}`,
		host: "ip link del demo0.5", finds: "demo0.5 is not there"}, needs: &netlab.BridgeVLANFiltering},
}

func TestRepairKinds(t *testing.T) {
	t.Parallel()
	for _, h := range harmsOfKinds {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			if h.needs != nil {
				netlab.Need(t, *h.needs)
			}
			p := newPatient(t)
			pod := p.host.NewPod(t, "kind")
			p.script(h.prepare)
			rt := pod.RuntimeConf(nil)
			if h.name == "loopback" {
				rt.IfName = "lo"
			} else {
				pod.SetLoopbackUp(t)
			}
			end := p.attachAs(conflist(h.network), rt)
			before, inside := p.host.Snapshot(t), pod.Snapshot(t)
			p.script(strings.ReplaceAll(h.host, "END", end))
			if h.inside != "" {
				pod.MustRun(t, "sh", "-ec", h.inside)
			}
			if code, printed := p.cnictl("repair", "--dry-run"); code != 1 || !strings.Contains(printed, h.finds) {
				t.Errorf("dry run: exit code %d, want one that finds %q\n%s", code, h.finds, printed)
			}
			printed := p.must("repair")
			if diff := before.Diff(p.host.Snapshot(t), ofRepair...) + inside.Diff(pod.Snapshot(t)); diff != "" {
				t.Errorf("after the repair:\n%s\n%s", diff, printed)
			}
			if printed := p.must("repair"); !strings.Contains(printed, "1 attachments: 1 right") {
				t.Errorf("a second repair:\n%s", printed)
			}
		})
	}
}

// attachAs attaches a container, and returns the name of its host end.
func (p *patient) attachAs(list string, rt *libcni.RuntimeConf) (end string) {
	p.Helper()
	result, err := p.host.AddList(list, rt)
	if err != nil {
		p.Fatal(err)
	}
	for _, i := range result.Interfaces {
		if strings.HasPrefix(i.Name, "veth") {
			end = i.Name
		}
	}
	return end
}

// TestRepairOrder gives a container that is on two networks its default routes back in their order: the first is the one that counts.
func TestRepairOrder(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	pod := p.host.NewPod(t, "two")
	pod.SetLoopbackUp(t)
	second := strings.NewReplacer("demo", "second", "10.88.0", "10.89.0", "fd00:88", "fd00:89").Replace(conflist(listBridge))
	p.attachAs(conflist(listBridge), pod.RuntimeConf(nil))
	rt := pod.RuntimeConf(nil)
	rt.IfName = "net1"
	p.attachAs(second, rt)
	before := pod.MustRun(t, "ip", "route")
	for _, harm := range []string{"ip route flush table main", "ip route del default dev eth0", "ip address flush dev eth0; ip address flush dev net1"} {
		pod.MustRun(t, "sh", "-ec", harm)
		p.must("repair")
		if after := pod.MustRun(t, "ip", "route"); after != before {
			t.Errorf("after %s, and a repair:\n%s\nbefore:\n%s", harm, after, before)
		}
	}
}
