package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/link"
)

// TestFullBridge has a bridge with all ports that the kernel lets one have
// (BR_MAX_PORTS), of pairs with both ends in it.
func TestFullBridge(t *testing.T) {
	t.Parallel()
	const most = link.MostPorts
	host, _ := node(t)
	first := host.NewPod(t, "first")
	for _, verb := range []string{"ADD", "DEL"} { // makes the bridge and the directories
		if r := host.Exec(t, "bridge", first.Call(verb, bridgeConf)); r.ExitCode != 0 {
			t.Fatal(r)
		}
	}
	var script strings.Builder
	for i := range most/2 + 1 {
		fmt.Fprintf(&script, "link add a%d numtxqueues 1 numrxqueues 1 master demo0 type veth peer name b%d numtxqueues 1 numrxqueues 1\n", i, i)
		if 2*i+1 < most {
			fmt.Fprintf(&script, "link set b%d master demo0\n", i)
		}
	}
	host.Feed(t, script.String(), "ip", "-batch", "-")
	pod := host.NewPod(t, "one-too-many")
	before, inside := host.Snapshot(t), pod.Snapshot(t)
	r := host.Exec(t, "bridge", pod.Call("ADD", bridgeConf))
	if r.ExitCode != 1 || r.Error == nil || r.Error.Code != 11 || !strings.Contains(r.Error.Msg, "bridge demo0 has as many ports") || !strings.Contains(r.Error.Details, "another bridge, or one of ptp") {
		t.Errorf("ADD to a bridge with %d ports: %v", most, r)
	}
	if diff := before.Diff(host.Snapshot(t), "file /var/lib/cni/networks/.cnibox", "file /var/lib/cni/networks/demo/last_reserved_ip") + inside.Diff(pod.Snapshot(t)); diff != "" {
		t.Errorf("the failed call changed:\n%s", diff)
	}
}
