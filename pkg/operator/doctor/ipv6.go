package doctor

import (
	"context"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

var ipv6Off = codes.Declare(finding.Code{Name: "ipv6-off", Severity: finding.Error,
	Meaning: "The next ADD fails: the host has IPv6 switched off, and the plugin gives it an address of IPv6, the containers' gateway.",
	Remedy:  "`sysctl -w net.ipv6.conf.default.disable_ipv6=0`, or no IPv6 in the network's ranges"})

// checkIPv6 looks whether the gateways of networks with IPv6 can have their addresses.
func checkIPv6(_ context.Context, s *subject) (list []Finding, err error) {
	const forNew = "net/ipv6/conf/default/disable_ipv6"
	for _, n := range s.networks {
		_, v6 := n.families()
		why := s.IPv6Off(n.gatewayLink())
		if !n.isRouted() || !v6 || why == "" {
			continue
		}
		remedy := set(forNew, "0")
		if why != forNew {
			remedy = finding.Steps(remedy, set(why, "0"))
		}
		remedy = finding.Steps(remedy, finding.Say("and %s = 0 in a file of /etc/sysctl.d; or take IPv6 out of the ranges of network %s, in %s", dotted(forNew), n.Name, n.File))
		if why == node.NoIPv6 {
			remedy = finding.Say("boot without ipv6.disable=1, or take IPv6 out of the ranges of network %s, in %s", n.Name, n.File)
		}
		list = append(list, found(ipv6Off, n.Name, remedy, "network %s hands out IPv6 addresses, and %s of this host switches IPv6 off", n.Name, dotted(why)))
	}
	return list, nil
}
