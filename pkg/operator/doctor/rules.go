package doctor

import (
	"context"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
	"github.com/cnibox/cnibox/pkg/plugin"
)

var rulesGone = codes.Declare(finding.Code{Name: "rules-gone", Severity: finding.Error, Brings: finding.Codes{repair.Broken, packetLost},
	Meaning: "Somebody has flushed the packet filter: these containers are not masqueraded, and their ports not published.",
	Remedy:  "`cnictl repair NETWORK`"})

// checkRules looks for attachments of ours that hold nothing in the packet filter, and should: somebody has flushed it.
func checkRules(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.made {
		var lost []string
		for _, a := range n.alive {
			if !isOwn(a) || repair.IsLeftAlone(a) {
				continue // what the reference plugins made does not say whose it is
			}
			masquerade := n.isOn("ipMasq") && len(a.Addresses) > 0 && !holds(a.Held, nft.Masquerading, iptables.Masquerading)
			ports := n.find(publishesPorts) != nil && len(a.Ports) > 0 && !holds(a.Held, nft.Publishing, iptables.PortMapping)
			if masquerade || ports {
				lost = append(lost, a.ContainerID+"/"+a.IfName)
			}
		}
		if lost != nil {
			list = append(list, found(rulesGone, n.Name, finding.Run("cnictl", "repair", n.Name),
				"the packet filter has no masquerading or published ports any more of %s of network %s: %s", count(len(lost), "attachment", "attachments"), n.Name, some(lost)))
		}
	}
	return list, nil
}

// isOwn reports whether cnibox has made the attachment: its host end is called by the key.
func isOwn(a *node.Attachment) bool { return a.HostEnd != nil && a.HostEnd.Owner == a.Owner }

// holds reports whether one of the things that are held is in one of these.
func holds(holdings []node.Holding, stores ...plugin.Store) bool {
	return slices.ContainsFunc(holdings, func(t node.Holding) bool {
		return slices.ContainsFunc(stores, func(s plugin.Store) bool { return t.Store == s })
	})
}
