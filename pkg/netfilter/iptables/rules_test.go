package iptables

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
	}{
		{"newline in a condition", validatePorts(spec.PortNeeds{Conditions4: []string{"-s", "1\n-F"}})},
		{"empty condition", validatePorts(spec.PortNeeds{Conditions6: []string{""}})},
		{"mark chain", validatePorts(spec.PortNeeds{SetMarkChain: "-j ACCEPT"})},
		{"admin chain", ForwardRules(plugin.Key{}, spec.ForwardNeeds{AdminChain: "A\nB"}).err},
		{"long admin chain", ForwardRules(plugin.Key{}, spec.ForwardNeeds{AdminChain: strings.Repeat("A", 29)}).err},
		{"no bridge", ForwardRules(plugin.Key{}, spec.ForwardNeeds{Ingress: spec.SameBridge}).err},
		{"path for a bridge", ForwardRules(plugin.Key{}, spec.ForwardNeeds{Ingress: spec.SameBridge, Bridge: "../br0"}).err},
		{"pattern for a bridge", ForwardRules(plugin.Key{}, spec.ForwardNeeds{Ingress: spec.SameBridge, Bridge: "br+"}).err},
	} {
		if tt.err == nil || plugin.AsError(tt.err).Code != types.ErrInvalidNetworkConfig || plugin.AsError(tt.err).Details == "" {
			t.Errorf("%s: %v", tt.name, tt.err)
		}
	}
}
