package portmap

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/request"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/test/netfiltertest"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// TestNoRouteToContainer publishes without SNAT, as there is no link to do it for.
func TestNoRouteToContainer(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	call := func(command plugin.Command) {
		t.Helper()
		o, err := conf.Parse([]byte(configText("", webPort)))
		if err != nil {
			t.Fatal(err)
		}
		r := &plugin.Request{Command: command, Version: "1.1.0", Config: o, Key: netfiltertest.KeyOf("c"), Netns: "/run/netns/web",
			PrevResult: &types100.Result{
				Interfaces: []*types100.Interface{{Name: "port0"}, {Name: "eth0", Sandbox: "/run/netns/web"}},
				IPs:        []*types100.IPConfig{{Address: result.IPNet(netip.MustParsePrefix("10.88.0.2/24"))}},
			}}
		h.Do(func() {
			if _, err := request.Serve(context.Background(), Plugin{}, r); err != nil {
				t.Errorf("%s: %v", command, err)
			}
		})
	}
	call(plugin.Add)
	call(plugin.Check)
	if got := h.MustRun(t, "nft", "list", "ruleset"); strings.Contains(got, `"lo"`) || !strings.Contains(got, "tcp . 8080") {
		t.Errorf("unexpected:\n%s", got)
	}
	// An address of the host itself is routed by lo, which no guard may be for.
	h.MustRun(t, "ip", "addr", "add", "10.88.0.2/32", "dev", "lo")
	call(plugin.Add)
	if got := h.MustRun(t, "nft", "list", "ruleset"); strings.Contains(got, `"lo"`) {
		t.Errorf("a guard for lo:\n%s", got)
	}
}
