package bridge

import (
	"math"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

func request(t testing.TB, config, args string) *plugin.Request {
	t.Helper()
	o, err := conf.Parse([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return &plugin.Request{Config: o, Args: args, Key: plugin.Key{Network: "n", ContainerID: "c", IfName: "eth0"}}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		config, args string
		code         uint
		says         string
	}{
		{`{"bridge":""}`, "", 7, "no interface name"},
		{`{"bridge":"sixteen-letters0"}`, "", 7, "no interface name"},
		{`{"mtu":"1500"}`, "", 7, `"mtu"`},
		{`{"mtu":10}`, "", 7, `"mtu"`},
		{`{"mtu":65536}`, "", 7, `"mtu"`},
		{`{"isGateway":"yes"}`, "", 7, `"isGateway"`},
		{`{"hairpinMode":true,"promiscMode":true}`, "", 7, "hairpinMode and promiscMode"},
		{`{"disableContainerInterface":true,"ipam":{"type":"static"}}`, "", 7, "IPAM"},
		{`{"ipMasqBackend":"ebtables"}`, "", 7, "ebtables"},
		{`{"runtimeConfig":{"mac":"02:00"}}`, "", 7, "02:00"},
		{`{"runtimeConfig":{"mac":"zz:00:00:00:00:00"}}`, "", 7, "zz"},
		{`{"runtimeConfig":{"mac":"01:00:00:00:00:00"}}`, "", 7, "01:00:00:00:00:00"},
		{`{"runtimeConfig":{"mac":"00:00:00:00:00:00"}}`, "", 7, "00:00:00:00:00:00"},
		{`{"runtimeConfig":{"mac":5}}`, "", 7, "runtimeConfig.mac"},
		{`{"ipam":[]}`, "", 7, `"ipam"`},
		{`{"ipam":{"type":5}}`, "", 7, `"ipam.type"`},
		{`{"dns":{"nameservers":"10.0.0.1"}}`, "", 7, `"dns.nameservers"`},
		{`{}`, "MAC=02:00:00:00:00:01;FOO=1", 4, "FOO"},
		{`{"vlan":4095}`, "", 7, "vlan: invalid VLAN ID 4095 (must be between 0 and 4094)"},
		{`{"vlan":"5"}`, "", 7, `"vlan"`},
		{`{"vlanTrunk":[{"id":5},{"id":4095}]}`, "", 7, "vlanTrunk[1].id: incorrect trunk id parameter"},
		{`{"vlanTrunk":[{"id":0},{"id":"5"}]}`, "", 7, `"vlanTrunk[1].id"`},
		{`{"bridge":"br%d"}`, "", 7, "pattern"},
	} {
		_, err := parse(request(t, c.config, c.args))
		if err == nil {
			t.Errorf("%s: taken", c.config)
			continue
		}
		e := plugin.AsError(err)
		if e.Code != c.code || !strings.Contains(e.Msg, c.says) || e.Details == "" {
			t.Errorf("%s: code %d, %q, details %q; want code %d, %q", c.config, e.Code, e.Msg, e.Details, c.code, c.says)
		}
	}
}

// TestLocateIsTolerant reads what DEL needs out of a configuration that ADD
// would refuse.
func TestLocateIsTolerant(t *testing.T) {
	r := request(t, `{"bridge":"b","mtu":"x","isGateway":7,"ipam":{"type":"host-local","ranges":5},"vlan":"x"}`, "FOO")
	r.Config = r.Config.Lenient()
	c := locate(r)
	if c.name != "b" || c.IPAM != "host-local" || r.Config.Err() != nil {
		t.Errorf("got %+v, %v", c, r.Config.Err())
	}
}

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
