package bridge

import (
	"math"
	"testing"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// FuzzParse makes sure that no configuration panics, and that what is taken is
// within bounds.
func FuzzParse(f *testing.F) {
	f.Add(`{"bridge":"cni0","isDefaultGateway":true,"ipMasq":true,"mtu":1450,"ipam":{"type":"host-local"}}`, "MAC=02:00:00:00:00:01")
	f.Add(`{"runtimeConfig":{"mac":"02-00-00-00-00-01"},"vlanTrunk":[{"id":5}],"dns":{"search":["x"]}}`, "IgnoreUnknown=true;")
	f.Add(`{"vlan":100,"vlanTrunk":[{"minID":5,"maxID":7,"id":4094},{"id":6}],"isGateway":true,"ipam":{"type":"x"}}`, "")
	f.Add(`{"MTU":68,"BRIDGE":"x","args":{"cni":{"mac":null}}}`, "")
	f.Fuzz(func(t *testing.T, text, args string) {
		o, err := conf.Parse([]byte(text))
		if err != nil {
			return
		}
		r := &plugin.Request{Config: o, Args: args}
		c, err := parse(r)
		if err != nil {
			if plugin.AsError(err).Msg == "" {
				t.Errorf("an error without a message for %q", text)
			}
			return
		}
		if c.vlan < 0 || c.vlan > lastVLAN || len(c.gatewayLink()) > 15 {
			t.Errorf("%q gives vlan %d of %s", text, c.vlan, c.name)
		}
		for _, r := range c.trunk {
			if r.first < 1 || max(r.first, r.last) > lastVLAN || r.last != 0 && r.last <= r.first {
				t.Errorf("%q gives a trunk of %v", text, r)
			}
		}
		if c.name == "" || len(c.name) > 15 || c.MTU < 0 || c.MTU > math.MaxUint16 || len(c.MAC) > 0 && c.MAC[0]&1 != 0 {
			t.Errorf("%q gives %+v", text, c)
		}
	})
}
