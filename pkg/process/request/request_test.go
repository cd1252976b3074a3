package request

import (
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
