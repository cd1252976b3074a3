package doctor

import (
	"context"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

var (
	// listsGone is what checkAttachments finds of the plugin that has lists.
	listsGone = codes.Declare(finding.Code{Name: "lists-gone", Severity: finding.Error,
		Meaning: "Something has changed the rules that keep these containers to their lists, or somebody has added one: they may reach what the lists close, or not what they open.",
		Remedy:  "`cnictl repair NETWORK`"})
	listsOlder = codes.Declare(finding.Code{Name: "lists-older", Severity: finding.Warning,
		Meaning: "The lists of the network were edited. Containers that run keep what they were attached with.",
		Remedy:  "start the containers again"})
)

func closesEgress(f plugin.Facts) bool { return f.ClosesEgress }

// checkLists looks whether what containers may reach is what the networks say now.
func checkLists(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		p := n.find(closesEgress)
		if p == nil {
			continue
		}
		now := node.ReadReach(p.Config.JSON())
		var never, edited []string
		for _, a := range n.alive {
			switch name := a.ContainerID + "/" + a.IfName; {
			case a.Result == nil: // what it was attached with is not known
			case a.Reach == nil:
				never = append(never, name)
			case a.Reach.OfNetwork() != now.OfNetwork():
				edited = append(edited, name)
			}
		}
		again := finding.Say("start these containers again, and they have the lists of %s", n.File)
		if never != nil {
			list = append(list, found(listsOlder, n.Name, again, "network %s had no lists when %s came: nothing judges what they send: %s", n.Name, count(len(never), "container", "containers"), some(never)))
		}
		if edited != nil {
			list = append(list, found(listsOlder, n.Name, again, "network %s had other lists when %s came: %s", n.Name, count(len(edited), "container", "containers"), some(edited)))
		}
	}
	return list, nil
}
