package request

import (
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

func TestConfigure(t *testing.T) {
	o, err := conf.Parse([]byte(`{"name": "net", "cniVersion": "1.0.0", "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth1"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	r := &plugin.Request{Command: plugin.Check, PrevResult: &types100.Result{}}
	if err := Configure(r, o, plugin.Descriptor{}); err != nil {
		t.Fatal(err)
	}
	if r.Network != "net" || r.Version != "1.0.0" || r.PrevResult == nil || len(r.PrevResult.Interfaces) != 1 {
		t.Errorf("got %+v", r)
	}
	if err := Configure(&plugin.Request{Command: plugin.GC}, o.Copy(), plugin.Descriptor{}); plugin.AsError(err).Code != types.ErrIncompatibleCNIVersion {
		t.Errorf("GC of 1.0.0: %v", err)
	}
}

// GC's list has two names, of which the specification's counts. Without either there is no list, which is not an empty one.
func TestValid(t *testing.T) {
	const a, b = `[{"containerID": "a", "ifname": "eth0"}]`, `[{"containerID": "b", "ifname": "net1"}]`
	for keys, want := range map[string]string{
		``: "false []",
		`, "cni.dev/valid-attachments": null, "cni.dev/attachments": null`:      "false []",
		`, "cni.dev/valid-attachments": []`:                                     "true []",
		`, "cni.dev/attachments": ` + a:                                         "true [net/a/eth0]",
		`, "cni.dev/valid-attachments": null, "cni.dev/attachments": ` + b:      "true [net/b/net1]",
		`, "cni.dev/attachments": ` + a + `, "cni.dev/valid-attachments": ` + b: "true [net/b/net1]",
	} {
		o, err := conf.Parse([]byte(`{"cniVersion": "1.1.0", "name": "net"` + keys + `}`))
		if err != nil {
			t.Fatal(err)
		}
		r := &plugin.Request{Command: plugin.GC}
		err = Read(r, o, plugin.Descriptor{})
		if got := fmt.Sprint(r.HasValid, " ", r.Valid); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", keys, got, err, want)
		}
	}
}

// DEL has what can be read of a configuration and a previous result. ADD refuses what can't be.
func TestHowStrict(t *testing.T) {
	const text = `{"cniVersion": "1.0.0", "name": "net", "mtu": "x", "prevResult": {"ips": [{"address": "x"}, {"address": "10.0.0.2/24"}]}}`
	for _, command := range []plugin.Command{plugin.Add, plugin.Del} {
		o, err := conf.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r := &plugin.Request{Command: command}
		err = Read(r, o, plugin.Descriptor{})
		r.Config.Int("mtu", new(int))
		isDEL := command == plugin.Del
		if (err == nil) != isDEL || (r.Config.Err() == nil) != isDEL || isDEL && (r.PrevResult == nil || len(r.PrevResult.IPs) != 1) {
			t.Errorf("%s: %v, %v, result %+v", command, err, r.Config.Err(), r.PrevResult)
		}
	}
}
