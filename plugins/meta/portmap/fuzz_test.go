package portmap

import (
	"net/netip"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/result"
)

// FuzzPortMaps makes sure that no configuration panics, and that what is
// published is complete and of one family.
func FuzzPortMaps(f *testing.F) {
	f.Add(`{"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}}`)
	f.Add(`{"snat":false,"markMasqBit":13,"runtimeConfig":{"portMappings":[{"hostPort":53,"containerPort":53,"protocol":"UDP","hostIP":"::"}]}}`)
	f.Add(`{"backend":"nftables","runtimeConfig":{"portMappings":[{"hostPort":0,"containerPort":70000,"protocol":"","hostIP":"1.2.3"}]}}`)
	ips := []*types100.IPConfig{{Address: result.IPNet(netip.MustParsePrefix("10.88.0.2/24"))}, {Address: result.IPNet(netip.MustParsePrefix("fd00::2/64"))}}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := conf.Parse([]byte(text))
		if err != nil {
			return
		}
		c, err := parse(o)
		if err != nil {
			return
		}
		maps, err := c.portMaps(ips)
		if err != nil {
			return
		}
		for _, m := range maps {
			if m.HostPort == 0 || m.Container.Port() == 0 || m.Protocol == 0 || !m.Container.IsValid() {
				t.Errorf("%q publishes %+v", text, m)
			}
			if m.HostIP.IsValid() && m.HostIP.Is4() != m.Container.Addr().Is4() {
				t.Errorf("%q publishes across families: %+v", text, m)
			}
		}
	})
}
