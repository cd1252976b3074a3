package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trace"
	"github.com/cnibox/cnibox/pkg/plugin"
)

var (
	// listsGone is what checkAttachments finds of the plugin that has lists.
	listsGone = codes.Declare(finding.Code{Name: "lists-gone", Severity: finding.Error,
		Meaning: "Something has changed the rules that keep these containers to their lists: they may reach what the lists close, or not what they open.",
		Remedy:  "`cnictl repair NETWORK`"})
	listsOpened = codes.Declare(finding.Code{Name: "lists-opened", Severity: finding.Error,
		Meaning: "Somebody has added a rule to the tables of `egress` that accepts packets before the lists are asked: containers may reach what their lists close.",
		Remedy:  "`nft delete rule TABLE CHAIN handle NUMBER`"})
	listsOlder = codes.Declare(finding.Code{Name: "lists-older", Severity: finding.Warning,
		Meaning: "The lists of the network were edited. Containers that run keep what they were attached with.",
		Remedy:  "start the containers again"})
)

func closesEgress(f plugin.Facts) bool { return f.ClosesEgress }

// addedRule is a rule that somebody has added to a table of cnibox.
type addedRule struct {
	table  nftables.Table
	chain  string
	handle uint64
}

func hasLists(t *nftables.Table) bool {
	return slices.ContainsFunc([]nftables.Table{nft.Judging.Table, nft.GuardingPorts.Table}, func(own nftables.Table) bool { return own.Family == t.Family && own.Name == t.Name })
}

// readAdded notes the rules of a chain that accept: those of cnibox drop, or go on.
func (r *ruleset) readAdded(conn *nftables.Conn, c *nftables.Chain) error {
	rules, err := conn.GetRules(c.Table, c)
	for _, rule := range rules {
		accepts := func(e expr.Any) bool { v, is := e.(*expr.Verdict); return is && v.Kind == expr.VerdictAccept }
		if slices.ContainsFunc(rule.Exprs, accepts) {
			r.added = append(r.added, addedRule{*c.Table, c.Name, rule.Handle})
		}
	}
	return err
}

// checkLists looks whether what containers may reach is what the networks say now, and whether a rule before the lists lets more pass.
func checkLists(_ context.Context, s *subject) (list []Finding, err error) {
	for _, r := range s.filter.added {
		remedy := finding.Say("ask who has added rule %d, and delete it", r.handle)
		if trace.IsPlain(r.chain) {
			remedy = finding.Run("nft", "delete", "rule", trace.FamilyName(byte(r.table.Family)), r.table.Name, r.chain, "handle", fmt.Sprint(r.handle))
		}
		list = append(list, found(listsOpened, "", remedy, "rule %d of chain %s in table %s %s accepts packets, and is not of cnibox", r.handle, r.chain, trace.FamilyName(byte(r.table.Family)), r.table.Name))
	}
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
