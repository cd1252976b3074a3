package bridge

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
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

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, config, args string
		want               config
	}{
		{"defaults", `{}`, "", config{bridge: "cni0"}},
		{"all", `{"bridge":"b","isGateway":true,"forceAddress":true,"ipMasq":true,"mtu":1400,"hairpinMode":true,"enabledad":true,
			"portIsolation":true,"ipMasqBackend":"nftables","ipam":{"type":"x"}}`, "",
			config{bridge: "b", gateway: true, forceAddress: true, masquerade: true, mtu: 1400, dad: true, ipam: "x",
				port: link.Port{Hairpin: true, Isolated: true}}},
		{"default gateway is a gateway", `{"isDefaultGateway":true}`, "", config{bridge: "cni0", gateway: true, defaultRoute: true}},
		{"MAC by arguments", `{}`, "MAC=02:00:00:00:00:01", config{bridge: "cni0", mac: "02:00:00:00:00:01"}},
		{"args.cni before arguments", `{"args":{"cni":{"mac":"02:00:00:00:00:02"}}}`, "MAC=02:00:00:00:00:01", config{bridge: "cni0", mac: "02:00:00:00:00:02"}},
		{"capability before all", `{"args":{"cni":{"mac":"02:00:00:00:00:02"}},"runtimeConfig":{"mac":"02:00:00:00:00:03"}}`,
			"IgnoreUnknown=1;K8S_POD_NAME=x;MAC=02:00:00:00:00:01", config{bridge: "cni0", mac: "02:00:00:00:00:03"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parse(request(t, c.config, c.args))
			if err != nil {
				t.Fatal(err)
			}
			if !got.dns.IsEmpty() {
				t.Errorf("dns: %v", got.dns)
			}
			got.dns = types.DNS{}
			if equal := *got; !same(equal, c.want) {
				t.Errorf("got %+v\nwant %+v", equal, c.want)
			}
		})
	}
}

// same compares all but the DNS settings, which are lists.
func same(a, b config) bool {
	return a.bridge == b.bridge && a.gateway == b.gateway && a.defaultRoute == b.defaultRoute && a.forceAddress == b.forceAddress &&
		a.masquerade == b.masquerade && a.mtu == b.mtu && a.promiscuous == b.promiscuous && a.port == b.port && a.dad == b.dad &&
		a.containerDown == b.containerDown && a.mac == b.mac && a.ipam == b.ipam
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
		{`{"mtu":10}`, "", 7, "out of range"},
		{`{"mtu":-1}`, "", 7, "out of range"},
		{`{"mtu":65536}`, "", 7, "out of range"},
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
		{`{"vlan":5}`, "", 2, "vlan"},
		{`{"vlanTrunk":[]}`, "", 2, "vlanTrunk"},
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
	if c.bridge != "b" || c.ipam != "host-local" || r.Config.Err() != nil {
		t.Errorf("got %+v, %v", c, r.Config.Err())
	}
}

func TestDefaultRoutes(t *testing.T) {
	ips := []*types100.IPConfig{
		{Address: plugin.IPNet(netip.MustParsePrefix("10.1.0.2/24")), Gateway: netip.MustParseAddr("10.1.0.1").AsSlice()},
		{Address: plugin.IPNet(netip.MustParsePrefix("fd00::2/64")), Gateway: netip.MustParseAddr("fd00::1").AsSlice()},
		{Address: plugin.IPNet(netip.MustParsePrefix("10.2.0.2/24")), Gateway: netip.MustParseAddr("10.2.0.1").AsSlice()},
	}
	v4, v6 := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
	for _, c := range []struct {
		name   string
		routes []*types.Route
		want   int
	}{
		{"none there", nil, 2},
		{"one there without gateway", []*types.Route{{Dst: plugin.IPNet(v4)}}, 2},
		{"one there with gateway", []*types.Route{{Dst: plugin.IPNet(v4), GW: netip.MustParseAddr("10.1.0.9").AsSlice()}}, 2},
		{"both there", []*types.Route{{Dst: plugin.IPNet(v4)}, {Dst: plugin.IPNet(v6)}}, 2},
		{"another there", []*types.Route{{Dst: plugin.IPNet(netip.MustParsePrefix("10.9.0.0/16"))}}, 3},
	} {
		got := withDefaultRoutes(c.routes, ips)
		if len(got) != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if got := withDefaultRoutes(nil, ips[:1]); len(got) != 1 || !got[0].GW.Equal(ips[0].Gateway) {
		t.Errorf("v4 only: %v", got)
	}
}

// FuzzParse makes sure that no configuration panics, and that what is taken is
// within bounds.
func FuzzParse(f *testing.F) {
	f.Add(`{"bridge":"cni0","isDefaultGateway":true,"ipMasq":true,"mtu":1450,"ipam":{"type":"host-local"}}`, "MAC=02:00:00:00:00:01")
	f.Add(`{"runtimeConfig":{"mac":"02-00-00-00-00-01"},"vlanTrunk":[{"id":5}],"dns":{"search":["x"]}}`, "IgnoreUnknown=true;")
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
		if c.bridge == "" || len(c.bridge) > 15 || c.mtu < 0 || c.mtu > maxMTU {
			t.Errorf("%q gives %+v", text, c)
		}
		if mac := (&attachment{Request: r, config: *c}).chooseMAC(); mac[0]&1 != 0 {
			t.Errorf("%q gives the MAC address %v", text, mac)
		}
	})
}
