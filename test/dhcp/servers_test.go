package dhcp

import (
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// seconds is how long leases are, so that a test sees them extended after half of that.
const seconds = 20

var servers = []struct {
	name  string
	start func(t testing.TB, o *netlab.Outside) *netlab.DHCPServer
	slow6 bool // its leases of IPv6 addresses are not shorter than two minutes
}{
	{"dnsmasq", func(t testing.TB, o *netlab.Outside) *netlab.DHCPServer {
		return o.ServeDNSMasq(t, "--dhcp-option=option:T1,2", "--dhcp-option=option:T2,4")
	}, true},
	{"isc", func(t testing.TB, o *netlab.Outside) *netlab.DHCPServer { return o.ServeISC(t, seconds) }, false},
	{"kea", func(t testing.TB, o *netlab.Outside) *netlab.DHCPServer { return o.ServeKea(t, seconds) }, false},
}

// TestServers leases, extends, checks and releases an address of each family by each server, on a macvlan and a bridge.
func TestServers(t *testing.T) {
	for _, server := range servers {
		for _, main := range []string{"macvlan", "bridge"} {
			t.Run(server.name+"/"+main, func(t *testing.T) {
				t.Parallel()
				host, outside := node(t, main)
				s := server.start(t, outside)
				host.StartDHCPDaemon(t)
				conflist := network(main, both)
				pod, result := attach(t, host, conflist, "web")
				if len(result.IPs) != 2 {
					t.Fatalf("leased %v, want an address of each family", result.IPs)
				}
				if err := pod.Ping(netlab.OutsideIPv4, netlab.Patience); err != nil {
					t.Error(err)
				}
				netlab.Until(t, "extended", func() bool { return s.Extended() >= 2 && (server.slow6 || s.Extended6() >= 1) })
				if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err != nil {
					t.Error("CHECK:", err)
				}
				if err := host.DelList(conflist, pod.RuntimeConf(nil)); err != nil {
					t.Error("DEL:", err)
				}
				netlab.Until(t, "released", func() bool { return s.Released() >= 2 })
				t.Logf("leased %s and %s; extended %d times and %d times; CHECK; %d released", result.IPs[0].Address.IP, result.IPs[1].Address.IP,
					s.Extended()-1, s.Extended6(), s.Released())
				if t.Failed() {
					t.Log(s.Log())
				}
			})
		}
	}
}
