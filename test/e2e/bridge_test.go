package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// lan returns a bridge configuration with more keys, such as `"mtu":1400,`.
func lan(keys, ipam string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"lan","type":"bridge","bridge":"lan0",%s"ipam":%s}`, keys, ipam)
}

func shows(t *testing.T, output string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(output, part) {
			t.Errorf("%q is not in:\n%s", part, output)
		}
	}
}

// TestAddressChangesHands has a container follow another one at an address that its neighbours know. They reach it at once,
// whether they were told or not: on a crowded node they are not.
func TestAddressChangesHands(t *testing.T) {
	t.Parallel()
	const known, silent, told = "0a:58:0a:2c:00:02", "arp_notify = 0", "arp_notify = 1"
	for _, c := range []struct {
		name, keys  string
		crowded     bool
		mac, notify string
	}{
		{"few links", ``, false, known, told},
		{"many links", ``, true, known, silent},
		{"many links and a MAC address that was asked for", `"runtimeConfig":{"mac":"02:aa:00:00:00:01"},`, true, "02:aa:00:00:00:01", told},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			if c.crowded {
				host.Crowd(t)
			}
			neighbour := host.NewPod(t, "neighbour")
			succeed(t, host, neighbour.Call("ADD", lan(`"isGateway":true,`, `{"type":"static","addresses":[{"address":"10.44.0.3/24"}]}`)))
			before := host.NewPod(t, "before")
			config := lan(`"isGateway":true,`, `{"type":"static","addresses":[{"address":"10.44.0.2/24"}]}`)
			succeed(t, host, before.Call("ADD", config))
			if err := neighbour.Ping("10.44.0.2", timeout); err != nil {
				t.Fatal(err)
			}
			succeed(t, host, before.Call("DEL", config))
			after := host.NewPod(t, "after")
			succeed(t, host, after.Call("ADD", strings.Replace(config, `"isGateway"`, c.keys+`"isGateway"`, 1)))
			for _, from := range []*netlab.Namespace{&neighbour.Namespace, &host.Namespace} {
				if err := from.Ping("10.44.0.2", timeout); err != nil {
					t.Errorf("from %s: %v", from.Name(), err)
				}
			}
			shows(t, after.MustRun(t, "ip", "link", "show", "eth0"), c.mac)
			shows(t, after.MustRun(t, "sysctl", "net.ipv4.conf.eth0.arp_notify"), c.notify)
		})
	}
}

// succeed makes a call of the bridge plugin.
func succeed(t *testing.T, host *netlab.Host, call netlab.PluginCall) {
	t.Helper()
	if r := host.Exec(t, "bridge", call); r.ExitCode != 0 {
		t.Fatalf("%s: %v", call.Command, r)
	}
}

// TestFullBridge has a bridge with all ports that the kernel lets one have
// (BR_MAX_PORTS), of pairs with both ends in it.
func TestFullBridge(t *testing.T) {
	t.Parallel()
	const most = 1023
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
	if r.ExitCode != 1 || r.Error == nil || !strings.Contains(r.Error.Msg, "bridge demo0 has as many ports") || !strings.Contains(r.Error.Details, "another bridge") {
		t.Errorf("ADD to a bridge with %d ports: %v", most, r)
	}
	if diff := before.Diff(host.Snapshot(t), "file /var/lib/cni/networks/.cnibox", "file /var/lib/cni/networks/demo/last_reserved_ip") + inside.Diff(pod.Snapshot(t)); diff != "" {
		t.Errorf("the failed call changed:\n%s", diff)
	}
}
