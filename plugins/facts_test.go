package plugins_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins"
	"github.com/cnibox/cnibox/plugins/known"
)

func facts(t *testing.T, name, config string) plugin.Facts {
	t.Helper()
	o, err := conf.Parse([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return plugins.All.Find(name).Facts(o)
}

// TestFacts compares what plugins say of themselves with what their pages say.
func TestFacts(t *testing.T) {
	for _, c := range []struct{ config, bridge, gateway string }{
		{`{}`, "cni0", "cni0"},
		{`{"bridge": "br0"}`, "br0", "br0"},
		{`{"bridge": 7}`, "cni0", "cni0"},
		{`{"bridge": "br0", "vlan": 7}`, "br0", "br0.7"},
	} {
		if f := facts(t, "bridge", c.config); f.Bridge != c.bridge || f.GatewayLink != c.gateway {
			t.Errorf("bridge with %s: bridge %q, gateway %q", c.config, f.Bridge, f.GatewayLink)
		}
	}
	if facts(t, "bridge", `{}`).IsGateway || !facts(t, "bridge", `{"isDefaultGateway": true}`).IsGateway {
		t.Error("a bridge is a gateway if, and only if, it is told to be")
	}
	if facts(t, "ipvlan", `{"mode": "l2"}`).AnyGateway || !facts(t, "ipvlan", `{"mode": "l3s"}`).AnyGateway {
		t.Error("an ipvlan needs no gateway in layer 3 alone")
	}
	usual, own := facts(t, "dhcp", `{}`).Daemon, facts(t, "dhcp", `{"daemonSocketPath": "/run/a.sock"}`).Daemon
	if usual.Socket != "/run/cni/dhcp.sock" || usual.Unit == "" || own.Unit != "" || !slices.Equal(own.Arguments, []string{"daemon", "-socketpath", "/run/a.sock"}) {
		t.Errorf("daemons of dhcp: %+v, %+v", usual, own)
	}
	if (*plugin.Descriptor)(nil).Facts(nil).MakesInterface || !plugins.All.Find("tap").Facts(nil).MakesInterface {
		t.Error("no plugin makes no interface, and tap makes one")
	}
}

// TestSubnetFile reads a file of flannel's daemon that is whole, and one that is not.
func TestSubnetFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subnet.env")
	read := func(text string) (plugin.Subnets, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f := facts(t, "flannel", `{"subnetFile": "`+path+`"}`).Subnets
		if f.Path != path {
			t.Errorf("the path is %s", f.Path)
		}
		return f.Read()
	}
	whole := "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	if s, err := read(whole); err != nil || s.MTU != 1450 || !slices.Equal(s.Own, []netip.Prefix{netip.MustParsePrefix("10.244.3.0/24")}) {
		t.Errorf("%+v, %v", s, err)
	}
	of6 := strings.Replace(strings.ReplaceAll(whole, "NETWORK=10.244.0.0/16", "IPV6_NETWORK=fd00::/16"), "SUBNET=10.244.3.1/24", "IPV6_SUBNET=fd00::1/64,fd01::1/64", 1)
	if s, err := read(of6); err != nil || len(s.Own) != 2 {
		t.Errorf("of IPv6: %+v, %v", s, err)
	}
	for line := range strings.Lines(whole) {
		if s, err := read(strings.Replace(whole, line, "", 1)); err == nil {
			t.Errorf("without %s: %+v", line, s)
		}
	}
	if s, err := read(whole[:40]); err == nil || s.MTU != 0 {
		t.Errorf("a torn one: %+v, %v", s, err)
	}
}

// TestWhatIsNeeded makes sure that what a kernel has to have is named and can be probed, and that directories are where plugins keep things.
func TestWhatIsNeeded(t *testing.T) {
	for _, row := range known.Plugins {
		f := row.Facts(nil)
		for _, k := range f.Kernel {
			if k.Name == "" || k.Probe == nil {
				t.Errorf("%s: feature %+v", row.Name, k)
			}
		}
		for _, dir := range f.Dirs {
			if !filepath.IsAbs(dir) {
				t.Errorf("%s: directory %q", row.Name, dir)
			}
		}
		for _, usual := range []string{f.DelegateType, f.IPAMType} {
			if usual != "" && known.Plugins.Find(usual) == nil {
				t.Errorf("%s calls %q", row.Name, usual)
			}
		}
	}
}
