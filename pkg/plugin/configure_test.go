package plugin

import (
	"net/netip"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
)

func TestConfigure(t *testing.T) {
	o, err := conf.Parse([]byte(`{"name": "net", "cniVersion": "1.0.0", "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth1"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{Command: Check, PrevResult: &types100.Result{}}
	if err := r.Configure(o, ""); err != nil {
		t.Fatal(err)
	}
	if r.Network != "net" || r.Version != "1.0.0" || r.PrevResult == nil || len(r.PrevResult.Interfaces) != 1 {
		t.Errorf("got %+v", r)
	}
	if err := (&Request{Command: GC}).Configure(o.Copy(), ""); AsError(err).Code != types.ErrIncompatibleCNIVersion {
		t.Errorf("GC of 1.0.0: %v", err)
	}
}

// A result is handed on in the form of the version, which may have less in it.
func TestFormOf(t *testing.T) {
	result := &types100.Result{
		Interfaces: []*types100.Interface{{Name: "eth0", Mtu: 1500}},
		IPs:        []*types100.IPConfig{{Address: IPNet(netip.MustParsePrefix("10.0.0.2/24"))}, {Address: IPNet(netip.MustParsePrefix("10.0.0.3/24"))}},
	}
	for version, want := range map[string]struct{ interfaces, mtu, ips int }{
		"0.2.0": {0, 0, 1}, "0.4.0": {1, 0, 2}, "1.0.0": {1, 1500, 2}, "1.1.0": {1, 1500, 2},
	} {
		got, err := ParseResult(FormOf(result, version), version)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Interfaces) != want.interfaces || len(got.IPs) != want.ips || want.interfaces == 1 && got.Interfaces[0].Mtu != want.mtu {
			t.Errorf("%s: %+v, want %+v", version, got, want)
		}
	}
}
