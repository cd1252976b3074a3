package doctor

import (
	"context"
	"strconv"

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
		without := finding.Say("or take IPv6 out of the ranges of network %s, in %s", n.Name, n.File)
		var remedy finding.Remedy
		switch why {
		case node.NoIPv6:
			remedy = finding.Say("boot without ipv6.disable=1")
		case node.LowMTU:
			remedy = finding.Run("ip", "link", "set", "dev", n.gatewayLink(), "mtu", strconv.Itoa(node.LeastMTU6))
		default:
			remedy = set(forNew, "0")
			if why != forNew {
				remedy = finding.Steps(remedy, set(why, "0"))
			}
			remedy = finding.Steps(remedy, finding.Say("and %s = 0 in a file of /etc/sysctl.d", dotted(forNew)))
		}
		list = append(list, found(ipv6Off, n.Name, finding.Steps(remedy, without), "network %s hands out IPv6 addresses, and %s switches IPv6 off for %s", n.Name, dotted(why), n.gatewayLink()))
	}
	return list, nil
}
