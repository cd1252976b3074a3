// Package dhcp drives the dhcp plugin and its daemon with the DHCP servers that people run: dnsmasq, isc-dhcp-server and kea.
// TestServers has a case for each server, plugin and family; what no real server does is a script's (script_test.go, script6_test.go).
// What a user sees of dhcp on any plugins is a row of test/conformance.
//
//	go test ./test/dhcp -run TestServers -v
package dhcp

import (
	"flag"
	"fmt"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // they wait for times of leases, most of the time
	netlab.Main(m)
}

// network returns a network on the node's uplink: of macvlans, or of a bridge.
func network(main, families string) string {
	link := `"type":"macvlan","master":"uplink0"`
	if main == "bridge" {
		link = `"type":"bridge","bridge":"lan0"`
	}
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"lan","plugins":[{%s,"ipam":{"type":"dhcp","families":%s}}]}`, link, families)
}

const ipv4, ipv6, both = `["ipv4"]`, `["ipv6"]`, `["ipv4","ipv6"]`

// node returns a host whose uplink is ready for such a network, and the outside.
func node(t testing.TB, main string) (*netlab.Host, *netlab.Outside) {
	t.Helper()
	host := netlab.NewHost(t)
	host.InstallPlugins(t, "macvlan", "bridge", "dhcp")
	outside := host.NewOutside(t)
	if main == "bridge" {
		host.MustRun(t, "ip", "link", "add", "lan0", "type", "bridge", "forward_delay", "0")
		host.MustRun(t, "ip", "link", "set", "uplink0", "master", "lan0")
		host.MustRun(t, "ip", "link", "set", "lan0", "up")
	}
	return host, outside
}

// attach makes a pod and attaches it, which must succeed.
func attach(t testing.TB, host *netlab.Host, conflist, name string) (*netlab.Pod, *types100.Result) {
	t.Helper()
	pod := host.NewPod(t, name)
	result, err := host.AddList(conflist, pod.RuntimeConf(nil))
	if err != nil {
		t.Fatalf("ADD %s: %v", name, err)
	}
	return pod, result
}

// addresses returns the text of the pod's addresses.
func addresses(t testing.TB, pod *netlab.Pod) string {
	t.Helper()
	return pod.MustRun(t, "ip", "-o", "address", "show", "dev", "eth0", "scope", "global")
}
