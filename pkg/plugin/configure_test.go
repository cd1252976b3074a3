package plugin

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/conf"
)

func TestText(t *testing.T) {
	result := &types100.Result{Interfaces: []*types100.Interface{{Name: "eth0"}}}
	const written = `{"name": "net", "cniVersion": "1.1.0", "prevResult": {"interfaces": [{"name": "eth1"}]}, "mtu": 1.50}`
	tests := []struct {
		name    string
		request func(config *conf.Object) *Request
		want    string
	}{
		{"as it was read", func(*conf.Object) *Request { return &Request{Stdin: []byte(`{ }`)} }, `{ }`},
		{"composed", func(o *conf.Object) *Request {
			o.Drop("mtu")
			return &Request{Config: o}
		}, `{"name": "net", "cniVersion": "1.1.0", "prevResult": {"interfaces": [{"name": "eth1"}]}}`},
		{"composed with the result it has", func(o *conf.Object) *Request {
			return &Request{Config: o, PrevResult: result}
		}, written},
		{"composed with another result", func(o *conf.Object) *Request {
			o.Drop("prevResult")
			return &Request{Config: o, PrevResult: result, Version: "1.1.0"}
		}, `{"name": "net", "cniVersion": "1.1.0", "mtu": 1.5, "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0"}]}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := conf.Parse([]byte(written))
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			text := tt.request(o.Copy()).Text()
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A configuration that was read already is as good as its text.
func TestConfigureBy(t *testing.T) {
	const text = `{"name": "net", "cniVersion": "1.0.0", "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth1"}]}}`
	o, err := conf.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	by, from := &Request{Command: Check}, &Request{Command: Check}
	if err := by.ConfigureBy(o, ""); err != nil {
		t.Fatal(err)
	}
	if err := from.Configure([]byte(text), ""); err != nil {
		t.Fatal(err)
	}
	if by.Network != "net" || by.Version != "1.0.0" || !cmp.Equal(by.PrevResult, from.PrevResult) {
		t.Errorf("got %+v, want %+v", by, from)
	}
	result := &types100.Result{}
	own := &Request{Command: Add, PrevResult: result}
	if err := own.ConfigureBy(o.Copy(), ""); err != nil || own.PrevResult != result {
		t.Errorf("error %v, previous result %+v, want the one it had", err, own.PrevResult)
	}
	if err := (&Request{Command: GC}).ConfigureBy(o.Copy(), ""); AsError(err).Code != types.ErrIncompatibleCNIVersion {
		t.Errorf("GC of 1.0.0: %v", err)
	}
}

// A result is handed on in the form of the version, which may have less in it.
func TestResultIn(t *testing.T) {
	result := &types100.Result{
		Interfaces: []*types100.Interface{{Name: "eth0", Mtu: 1500}},
		IPs:        []*types100.IPConfig{{Address: IPNet(netip.MustParsePrefix("10.0.0.2/24"))}, {Address: IPNet(netip.MustParsePrefix("10.0.0.3/24"))}},
	}
	for version, want := range map[string]struct{ interfaces, mtu, ips int }{
		"0.2.0": {0, 0, 1}, "0.4.0": {1, 0, 2}, "1.0.0": {1, 1500, 2}, "1.1.0": {1, 1500, 2},
	} {
		got, err := In(result, version)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Interfaces) != want.interfaces || len(got.IPs) != want.ips || want.interfaces == 1 && got.Interfaces[0].Mtu != want.mtu {
			t.Errorf("%s: %+v, want %+v", version, got, want)
		}
	}
}
