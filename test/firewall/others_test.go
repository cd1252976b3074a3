package firewall

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// iptables is the program of the backend's flavour.
func (b backend) iptables() string {
	if b.flavour == "" {
		return "iptables"
	}
	return "iptables-" + b.flavour
}

// TestAdministratorsNAT shows what an administrator's own rules of source NAT do
// to our masquerading.
func TestAdministratorsNAT(t *testing.T) {
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			host := newHost(t, b)
			outside := host.NewOutside(t)
			outside.AddRoute(t, podsBridge.subnet4)
			v4 := families[0]
			host.MustRun(t, "ip", "addr", "add", v4.second.String()+"/24", "dev", netlab.UplinkName)
			pod := attach(t, host, network(b, podsBridge), "web")
			protocols[0].serve(t, &outside.Namespace, at(v4.outside, 80))
			nat := func(arguments string) {
				t.Helper()
				host.MustRun(t, b.iptables(), strings.Fields("-t nat "+arguments)...)
			}
			sees := func(want netip.Addr) {
				t.Helper()
				protocols[0].ask(t, question{&pod.Namespace, at(v4.outside, 80), "outside saw " + want.String()})
			}
			sees(v4.host)
			accept := " POSTROUTING -s " + pod.v4.String() + " -j ACCEPT"
			nat("-I" + accept)
			sees(map[string]netip.Addr{"nftables": v4.host, "iptables": pod.v4}[b.config])
			nat("-D" + accept)
			nat("-I POSTROUTING -s " + pod.v4.String() + " -j SNAT --to-source " + v4.second.String())
			sees(v4.second)
		})
	}
}
