package agent

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestNamespaceWithoutNumber takes an address from a container that has a macvlan alone. The kernel tells of it because the agent has given the
// namespace a number.
func TestNamespaceWithoutNumber(t *testing.T) {
	t.Parallel()
	host := netlab.NewHost(t)
	host.OwnProcesses(t)
	host.InstallPlugins(t, "macvlan", "static")
	host.MustRun(t, "ip", "link", "add", "up0", "up", "type", "veth", "peer", "name", "up1")
	host.MustRun(t, "ip", "link", "set", "up1", "up")
	const list = `{"cniVersion": "1.0.0", "name": "segment", "repair": "all", "plugins": [{"type": "macvlan", "master": "up0",
		"ipam": {"type": "static", "addresses": [{"address": "10.7.0.2/24"}]}}]}`
	pod := host.NewPod(t, "web")
	if _, err := host.AddList(list, pod.RuntimeConf(nil)); err != nil {
		t.Fatal(err)
	}
	if ids := host.MustRun(t, "ip", "netns", "list-id"); ids != "" {
		t.Fatalf("it has a number without an agent: %s", ids)
	}
	a := start(t, host, "--every", "1h")
	pod.MustRun(t, "ip", "address", "del", "10.7.0.2/24", "dev", "eth0")
	netlab.Until(t, "the address to be back", func() bool {
		return strings.Contains(pod.MustRun(t, "ip", "address", "show", "dev", "eth0"), "10.7.0.2/24")
	})
	netlab.Until(t, "the repair to be told", func() bool { return a.log.count("address 10.7.0.2/24 of eth0 in namespace") > 0 })
}
