package firewall

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/result"
)

func object(t *testing.T, text string) *conf.Object {
	t.Helper()
	o, err := conf.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text, admin, zone, backend string
		ingress                    spec.Ingress
	}{
		{text: `{}`, zone: "trusted"},
		{text: `{"backend": "", "ingressPolicy": "", "firewalldZone": ""}`, zone: "trusted"},
		{text: `{"ingressPolicy": "open"}`, zone: "trusted"},
		{text: `{"backend": "nftables", "ingressPolicy": "same-bridge", "iptablesAdminChainName": "SITE"}`,
			admin: "SITE", backend: "nftables", ingress: spec.SameBridge},
		{text: `{"backend": "firewalld", "firewalldZone": "pods", "ingressPolicy": "isolated"}`,
			zone: "pods", backend: "firewalld", ingress: spec.Isolated},
	} {
		got, err := parse(object(t, c.text))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		f := got.forward
		if f.AdminChain != c.admin || string(f.Zone) != c.zone || got.backend.Value != c.backend || f.Ingress != c.ingress {
			t.Errorf("%s: %+v", c.text, got)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, path := range map[string]string{
		`{"backend": "NFTables"}`:          "backend",
		`{"backend": 1}`:                   "backend",
		`{"ingressPolicy": "Isolated"}`:    "ingressPolicy",
		`{"iptablesAdminChainName": []}`:   "iptablesAdminChainName",
		`{"firewalldZone": {"a": "b"}}`:    "firewalldZone",
		`{"ingressPolicy": "same_bridge"}`: "ingressPolicy",
	} {
		_, err := parse(object(t, text))
		var e *conf.Error
		if !errors.As(err, &e) || e.Path != path {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestParseRefusesChains has every backend refuse what iptables would, before anything is changed.
func TestParseRefusesChains(t *testing.T) {
	for _, backend := range []string{"", "nftables", "iptables", "firewalld"} {
		for _, name := range []string{"no chain", "-j", "ADMIN-OF-A-SITE-THAT-LIKES-NAMES", "a\nb"} {
			text := fmt.Sprintf(`{"backend": %q, "iptablesAdminChainName": %q}`, backend, name)
			_, err := parse(object(t, text))
			var e *types.Error
			if !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || !strings.HasPrefix(e.Msg, "iptablesAdminChainName: ") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

func TestBridgeAndPort(t *testing.T) {
	for _, c := range []struct {
		name         string
		interfaces   []*types100.Interface
		bridge, port string
	}{
		{"none", nil, "", ""},
		{"bridge", []*types100.Interface{{Name: "cni0"}, {Name: "veth1"}, {Name: "eth0", Sandbox: "/ns"}, {Name: "cni0.5"}}, "cni0", "veth1"},
		{"ptp", []*types100.Interface{{Name: "veth1"}, {Name: "eth0", Sandbox: "/ns"}}, "veth1", ""},
		{"macvlan", []*types100.Interface{{Name: "eth0", Sandbox: "/ns"}}, "", ""},
	} {
		bridge, port := bridgeAndPort(&types100.Result{Interfaces: c.interfaces})
		if bridge != c.bridge || port != c.port {
			t.Errorf("%s: %q, %q", c.name, bridge, port)
		}
	}
}

// TestAllAddresses takes those that are on no interface, or on another one, too.
func TestAllAddresses(t *testing.T) {
	other := 7
	r := &types100.Result{IPs: []*types100.IPConfig{{Address: result.IPNet(netip.MustParsePrefix("10.0.0.2/24"))}, {Address: result.IPNet(netip.MustParsePrefix("fd00::2/64")), Interface: &other}}}
	if got := allPrefixes(r); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := allPrefixes(nil); got != nil {
		t.Errorf("%v", got)
	}
}
