package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestErrors shows what is said about each mistake: one document with a code,
// what failed and the remedy, and nothing changed.
func TestErrors(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	small := `{"cniVersion":"1.1.0","name":"small","type":"bridge","bridge":"small0","isGateway":true,
		"ipam":{"type":"host-local","ranges":[[{"subnet":"10.77.0.0/30"}]]}}`
	first := host.NewPod(t, "first")
	if r := host.Exec(t, "bridge", first.Call("ADD", small)); r.ExitCode != 0 {
		t.Fatal(r)
	}
	attach(t, host, demo, "holder", ports("8080:80/tcp"))
	pod := host.NewPod(t, "pod")
	prev := host.Exec(t, "bridge", pod.Call("ADD", bridgeConf)).Map(t)
	free := host.NewPod(t, "free")

	call := func(pod *netlab.Pod, config any, change func(*netlab.PluginCall)) netlab.PluginCall {
		c := pod.Call("ADD", config)
		if change != nil {
			change(&c)
		}
		return c
	}
	taken := with(t, with(t, portmapConf, "prevResult", prev), "runtimeConfig", ports("8080:80/tcp"))
	for _, c := range []struct {
		name   string
		plugin string
		call   netlab.PluginCall
		code   uint
		says   []string
	}{
		{"bad JSON", "bridge", call(free, `{"cniVersion": "1.1.0", "name" "demo"}`, nil), 6, []string{"JSON"}},
		{"not an object", "bridge", call(free, `[1,2]`, nil), 6, []string{"object"}},
		{"empty input", "bridge", call(free, ``, nil), 6, []string{"empty"}},
		{"unknown version", "bridge", call(free, with(t, bridgeConf, "cniVersion", "9.9.9"), nil), 1, []string{"9.9.9", "1.1.0"}},
		{"missing env", "bridge", call(free, bridgeConf, func(c *netlab.PluginCall) { c.ContainerID, c.IfName = "", "" }), 4, []string{"[CNI_CONTAINERID,CNI_IFNAME]"}},
		{"bad ifname", "bridge", call(free, bridgeConf, func(c *netlab.PluginCall) { c.IfName = "eth0/../x" }), 4, []string{"eth0/../x"}},
		{"long ifname", "bridge", call(free, bridgeConf, func(c *netlab.PluginCall) { c.IfName = "sixteen-letters0" }), 4, []string{"16"}},
		{"bad container id", "bridge", call(free, bridgeConf, func(c *netlab.PluginCall) { c.ContainerID = "../x" }), 4, []string{"../x"}},
		{"bad network name", "bridge", call(free, with(t, bridgeConf, "name", "../x"), nil), 7, []string{"../x"}},
		{"unknown command", "bridge", call(free, bridgeConf, func(c *netlab.PluginCall) { c.Command = "FROB" }), 4, []string{"FROB"}},
		{"host's own netns", "bridge", call(free, bridgeConf, func(c *netlab.PluginCall) { c.Netns = host.NetnsPath() }), 8, []string{"own network namespace"}},
		{"no such netns", "bridge", call(free, bridgeConf, func(c *netlab.PluginCall) { c.Netns = "/run/netns/none" }), 8, []string{"/run/netns/none"}},
		{"wrong type in a key", "bridge", call(free, with(t, bridgeConf, "mtu", "big"), nil), 7, []string{"mtu", "big"}},
		{"wrong type deep in a key", "bridge", call(free, strings.Replace(bridgeConf, `"10.88.0.0/24"`, `5`, 1), nil), 7, []string{"ipam.ranges[0][0].subnet", "5"}},
		{"pool exhausted", "bridge", call(free, small, nil), 11, []string{"10.77.0"}},
		{"port taken", "portmap", call(pod, taken, nil), 0, []string{"8080", "demo/"}},
		{"not chained", "portmap", call(free, with(t, portmapConf, "runtimeConfig", ports("8080:80/tcp")), nil), 7, []string{"prevResult"}},
		{"unknown IPAM", "bridge", call(free, strings.Replace(bridgeConf, "host-local", "hostlocal", 1), nil), 7, []string{"hostlocal", netlab.PluginDir}},
		{"unknown applet", "/unknown", call(free, bridgeConf, nil), 4, []string{"unknown"}},
		{"CHECK too early", "bridge", call(free, with(t, bridgeConf, "cniVersion", "0.3.1"), func(c *netlab.PluginCall) { c.Command = "CHECK" }), 1, []string{"0.4.0"}},
		{"unknown CNI_ARGS", "bridge", call(free, bridgeConf, func(c *netlab.PluginCall) { c.Args = "FOO=bar" }), 4, []string{"FOO", "IgnoreUnknown"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plugin := c.plugin
			if plugin == "/unknown" {
				host.InstallPlugin(t, "unknown", netlab.Cnibox(t))
				plugin = "unknown"
			}
			before, inside := host.Snapshot(t), free.Snapshot(t)
			r := host.Exec(t, plugin, c.call)
			if r.ExitCode != 1 || r.Error == nil {
				t.Fatalf("want exit code 1 and one error document, got %v", r)
			}
			t.Logf("%s", r.Stdout)
			var document map[string]any
			if err := json.Unmarshal([]byte(r.Stdout), &document); err != nil {
				t.Errorf("not one document: %v\n%s", err, r.Stdout)
			}
			if document["cniVersion"] == nil || r.Error.Msg == "" || r.Error.Details == "" {
				t.Errorf("want cniVersion, msg and details: %s", r.Stdout)
			}
			if c.code != 0 && r.Error.Code != c.code {
				t.Errorf("code %d, want %d", r.Error.Code, c.code)
			}
			for _, part := range c.says {
				if !strings.Contains(r.Error.Msg+"\n"+r.Error.Details, part) {
					t.Errorf("%q is not in: %s", part, r.Stdout)
				}
			}
			diff := before.Diff(host.Snapshot(t), "file /opt/cni/bin/unknown", "link small0", "address", "sysctl") + inside.Diff(free.Snapshot(t))
			if diff != "" {
				t.Errorf("the failed call changed:\n%s", diff)
			}
		})
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
