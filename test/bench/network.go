package bench

import (
	"encoding/json"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

type object = map[string]any

// cniVersion is the newest that all implementations know.
const cniVersion = "1.0.0"

// networkName is that of all networks: each is alone on its Host.
const networkName = "pods"

// subnet has room for more than 60,000 leases.
const subnet = "10.88.0.0/16"

// network describes a network by the configurations of its plugins.
type network []object

var (
	hostLocal = ranged(subnet)
	dualStack = object{
		"type":   "host-local",
		"ranges": [][]object{{{"subnet": subnet}}, {{"subnet": "fd00:88::/64"}}},
		"routes": []object{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}},
	}
	static  = object{"type": "static", "addresses": []object{{"address": "10.88.0.2/16", "gateway": "10.88.0.1"}}}
	tuning  = object{"type": "tuning", "sysctl": object{"net.core.somaxconn": "500"}}
	portmap = object{"type": "portmap", "capabilities": object{"portMappings": true}}
)

// ranged is host-local with one range.
func ranged(subnet string) object {
	return object{"type": "host-local", "ranges": [][]object{{{"subnet": subnet}}}, "routes": []object{{"dst": "0.0.0.0/0"}}}
}

func bridge(ipam object) object {
	return object{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": ipam}
}

// usual is the chain that most nodes have.
func usual(ipam object) network {
	bridge := bridge(ipam)
	bridge["ipMasq"] = true
	return network{bridge, tuning, portmap}
}

// list returns the network as libcni takes it; as one entry of type chain if asked for.
func (n network) list(t testing.TB, chain bool) *libcni.NetworkConfigList {
	t.Helper()
	plugins := []object(n)
	if chain {
		plugins = []object{{"type": "chain", "capabilities": object{"portMappings": true}, "plugins": plugins}}
	}
	text, err := json.Marshal(object{"cniVersion": cniVersion, "name": networkName, "plugins": plugins})
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// portMappings are n port maps in a row.
func portMappings(first, n int) (maps []object) {
	for port := first; port < first+n; port++ {
		maps = append(maps, object{"hostPort": port, "containerPort": 80, "protocol": "tcp"})
	}
	return maps
}
