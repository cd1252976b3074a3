package harmtest

import "github.com/cnibox/cnibox/test/netlab"

// Of networks and harms that are about one link.
const (
	AddressKeys = `"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.66.0.0/24"}], [{"subnet": "fd00:66::/64"}]], "routes": [{"dst": "10.99.0.0/16", "gw": "10.66.0.1"}]}`
	FlushAll    = "ip address flush dev eth0"
)

// OfKinds are about links of all kinds.
var OfKinds = []Harm{
	{Name: "loopback", Network: `{"type": "loopback"}`, Inside: "ip link set lo down", Finds: "loopback interface is down"},
	{Name: "macvlan", Network: `{"type": "macvlan", "master": "uplink0", ` + AddressKeys + `}`, Inside: FlushAll, Finds: "lacks the address"},
	{Name: "macvlan, down", Network: `{"type": "macvlan", "master": "uplink0", ` + AddressKeys + `}`, Inside: "ip link set eth0 down", Finds: "is down"},
	{Name: "macvlan, MAC address", Network: `{"type": "macvlan", "master": "uplink0", ` + AddressKeys + `}`,
		Inside: "ip link set eth0 address 02:66:66:66:66:66", Finds: "MAC address"},
	{Name: "tap", Network: `{"type": "tap", ` + AddressKeys + `}`, Inside: FlushAll + "; ip link set eth0 down", Finds: "is down"},
	{Name: "tap in a bridge", Network: `{"type": "tap", "bridge": "lan0"}`, Prepare: "ip -n kind link add lan0 address 02:00:00:00:00:09 type bridge",
		Inside: "ip link set eth0 nomaster", Finds: "is not in bridge lan0"},
	{Name: "host-device", Network: `{"type": "host-device", "device": "spare0", ` + AddressKeys + `}`,
		Prepare: "ip link add spare0 type veth peer name spare1; ip link set spare1 up", Inside: FlushAll + "; ip link set eth0 down", Finds: "is down"},
	{Name: "static addresses", Network: `{"type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "10.66.0.5/24", "gateway": "10.66.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]}}`,
		Inside: FlushAll, Finds: "lacks the address"},
	{Name: "two addresses of one network", Network: `{"type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "10.66.0.5/24", "gateway": "10.66.0.1"}, {"address": "10.66.0.6/24"}], "routes": [{"dst": "0.0.0.0/0"}]}}`,
		Inside: "ip route del default", Finds: "lacks the route"},
	{Name: "layer 2 alone", Network: `{"type": "bridge"}`, Inside: "ip link set eth0 down", Finds: "is down"},
	{Name: "names", Network: `{"type": "bridge", "bridge": "demo0", "isGateway": true, ` + AddressKeys + `}, {"type": "dnsname", "domainName": "dns.podman"}`,
		Host: "rm /run/cnibox/names/*", Finds: "are not written down", Silent: true},
	{Name: "dummy", Network: `{"type": "dummy", ` + AddressKeys + `}`, Inside: FlushAll, Finds: "lacks the address", Needs: &netlab.Dummy},
	{Name: "ipvlan", Network: `{"type": "ipvlan", "master": "uplink0", ` + AddressKeys + `}`, Inside: FlushAll + "; ip link set eth0 down", Finds: "is down", Needs: &netlab.IPVLAN},
	{Name: "vlan", Network: `{"type": "vlan", "master": "uplink0", "vlanId": 5, "mtu": 1400, ` + AddressKeys + `}`,
		Inside: FlushAll + "; ip link set eth0 mtu 1000", Finds: "lacks the address", Needs: &netlab.VLAN},
	{Name: "vrf: the VRF's routes", Network: `{"type": "macvlan", "master": "uplink0", ` + AddressKeys + `}, {"type": "vrf", "vrfname": "blue"}`,
		Inside: "ip route flush vrf blue", Finds: "lacks the route", Needs: &netlab.VRF},
	{Name: "vrf: out of the VRF", Network: `{"type": "macvlan", "master": "uplink0", ` + AddressKeys + `}, {"type": "vrf", "vrfname": "blue"}`,
		Inside: "ip link set eth0 nomaster", Finds: "lacks the route", Needs: &netlab.VRF},
	{Name: "vrf: the VRF is deleted", Network: `{"type": "macvlan", "master": "uplink0", ` + AddressKeys + `}, {"type": "vrf", "vrfname": "blue"}`,
		Inside: "ip link del blue", Finds: "lacks the route", Needs: &netlab.VRF},
	{Name: "vlans of a port", Network: `{"type": "bridge", "bridge": "demo0", "vlan": 5, "vlanTrunk": [{"minID": 10, "maxID": 12}], "isGateway": true, ` + AddressKeys + `}`,
		Host: "bridge vlan del dev END vid 11; bridge vlan add dev END vid 99; bridge vlan add dev END vid 5", Finds: "VLAN", Needs: &netlab.BridgeVLANFiltering},
	{Name: "a VLAN's port out of the bridge", Network: `{"type": "bridge", "bridge": "demo0", "vlan": 5, "vlanTrunk": [{"minID": 10, "maxID": 12}], "isGateway": true, ` + AddressKeys + `}`,
		Host: "ip link set END nomaster", Finds: "is not in bridge", Needs: &netlab.BridgeVLANFiltering},
	{Name: "a VLAN's gateway", Network: `{"type": "bridge", "bridge": "demo0", "vlan": 5, "isGateway": true, ` + AddressKeys + `}`,
		Host: "ip address flush dev demo0.5", Finds: "lacks the gateway's address", Needs: &netlab.BridgeVLANFiltering},
	{Name: "a VLAN's gateway set down", Network: `{"type": "bridge", "bridge": "demo0", "vlan": 5, "isGateway": true, ` + AddressKeys + `}`,
		Host: "ip link set demo0.5 down", Finds: "demo0.5, the gateway, is down", Needs: &netlab.BridgeVLANFiltering},
	{Name: "a bridge out of its VLAN", Network: `{"type": "bridge", "bridge": "demo0", "vlan": 5, "isGateway": true, ` + AddressKeys + `}`,
		Host: "bridge vlan del dev demo0 vid 5 self", Finds: "is not in VLAN 5", Needs: &netlab.BridgeVLANFiltering},
	{Name: "a VLAN's gateway is deleted", Network: `{"type": "bridge", "bridge": "demo0", "vlan": 5, "isGateway": true, ` + AddressKeys + `}`,
		Host: "ip link del demo0.5", Finds: "demo0.5 is not there", Needs: &netlab.BridgeVLANFiltering},
}
