package e2e

import (
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"
)

// TestEveryVersion attaches with each CNI version, and has the CNI library
// read the result as one of that version. DEL of the chain is part of it: from
// 0.4.0 on it gets the result back.
func TestEveryVersion(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	for i, version := range []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		ranges := fmt.Sprintf(`[[{"subnet":"10.8%d.0.0/24"}],[{"subnet":"fd00:8%d::/64"}]]`, i, i)
		conf := fmt.Sprintf(`{"cniVersion":%q,"name":"v%d","type":"bridge","bridge":"br%d","isDefaultGateway":true,
			"ipam":{"type":"host-local","ranges":%s}}`, version, i, i, ranges)
		pod := host.NewPod(t, fmt.Sprintf("pod%d", i))
		r := host.Exec(t, "bridge", pod.Call("ADD", conf))
		if r.ExitCode != 0 {
			t.Errorf("%s: %v", version, r)
			continue
		}
		result, err := create.Create(version, []byte(r.Stdout))
		if err != nil {
			t.Errorf("%s: the CNI library can't read the result: %v\n%s", version, err, r.Stdout)
			continue
		}
		if result.Version() != version || r.Map(t)["cniVersion"] != version {
			t.Errorf("%s: the result says it is %s", version, result.Version())
		}
		newest := r.Result(t)
		if len(newest.IPs) != 2 || len(newest.Routes) != 2 {
			t.Errorf("%s: want two addresses and two routes, got %s", version, r.Stdout)
		}
		for _, plugin := range []struct{ name, keys string }{{"tuning", `"sysctl":{"net.core.somaxconn":"256"}`}, {"portmap", `"snat":true`}} {
			next := with(t, fmt.Sprintf(`{"cniVersion":%q,"name":"v%d","type":%q,%s}`, version, i, plugin.name, plugin.keys), "prevResult", r.Map(t))
			if again := host.Exec(t, plugin.name, pod.Call("ADD", next)); again.ExitCode != 0 || again.Map(t)["cniVersion"] != version {
				t.Errorf("%s: %s after bridge: %v", version, plugin.name, again)
			}
		}
		if r := host.Exec(t, "bridge", pod.Call("DEL", conf)); r.ExitCode != 0 {
			t.Errorf("%s: DEL: %v", version, r)
		}
	}
}

// TestLayer2InOldVersions attaches without addresses where the result's form
// has little else.
func TestLayer2InOldVersions(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	for i, version := range []string{"0.1.0", "0.2.0", "0.4.0", "1.1.0"} {
		pod := host.NewPod(t, fmt.Sprintf("pod%d", i))
		conf := fmt.Sprintf(`{"cniVersion":%q,"name":"l2","type":"bridge","bridge":"l2"}`, version)
		r := host.Exec(t, "bridge", pod.Call("ADD", conf))
		if r.ExitCode != 0 {
			t.Errorf("%s: %v", version, r)
			continue
		}
		if _, err := create.Create(version, []byte(r.Stdout)); err != nil {
			t.Errorf("%s: the CNI library can't read the result: %v\n%s", version, err, r.Stdout)
		}
		if r := host.Exec(t, "bridge", pod.Call("DEL", conf)); r.ExitCode != 0 {
			t.Errorf("%s: DEL: %v", version, r)
		}
	}
}
