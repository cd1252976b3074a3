package doctor

import (
	"context"
	"maps"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/finding"
)

var poolNearlyFull = codes.Declare(finding.Code{Name: "pool-nearly-full", Severity: finding.Warning,
	Meaning: "Nine of ten addresses are taken. Without one left ADD fails.",
	Remedy:  "`cnictl gc NETWORK --apply`, or a larger subnet"})

// checkPools looks how many addresses are left.
func checkPools(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.Networks {
		for _, p := range n.Pools {
			if p.Size < 2 || p.Used < p.Size-p.Size/10 { // one of a single address is meant for one container
				continue
			}
			remedy := finding.Say("hand out more addresses: a larger subnet, or a second range, in %s", n.File)
			if p.Gone > 0 {
				remedy = finding.Run("cnictl", "gc", n.Name, "--apply")
			}
			list = append(list, found(poolNearlyFull, n.Name, remedy, "%d of %d addresses of %s (network %s) are taken, %d of them by attachments that are gone",
				p.Used, p.Size, p.Subnet, n.Name, p.Gone))
		}
	}
	return list, nil
}

var (
	gcStopped = codes.Declare(finding.Code{Name: "gc-stopped", Severity: finding.Warning,
		Meaning: "Something is held for attachments of which gc can't tell whether they are in use: it leaves them alone. Or it is not known what is held: nothing goes.",
		Remedy:  "`cnictl del NETWORK --id CONTAINER` for those that are gone, or `--cache-dir` of their runtime"})
	leftovers = codes.Declare(finding.Code{Name: "leftovers", Severity: finding.Info,
		Meaning: "Attachments that are gone hold addresses and rules until gc frees them.",
		Remedy:  "`cnictl gc NETWORK --apply`"})
)

// checkLeftovers says what gc would free, and what keeps it from that.
func checkLeftovers(ctx context.Context, s *subject) (list []Finding, err error) {
	plan := collect.Plan(ctx, s.Node, collect.Options{Options: s.Options.Options})
	goes := map[string]int{}
	for _, it := range plan.Goes {
		if !holds(it.Held, nft.Unused{}) { // the next container of the network uses it again
			goes[it.Network]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(goes)) {
		words, of := []string{"cnictl", "gc", name, "--apply"}, "of network "+name
		if name == "" {
			words, of = []string{"cnictl", "gc", "--apply"}, "of no network"
		}
		list = append(list, found(leftovers, name, finding.Run(words...), "gc would free %s %s", count(goes[name], "thing", "things"), of))
	}
	for _, stop := range plan.Stops {
		list = append(list, found(gcStopped, stop.Network, finding.Say("%s", stop.Remedy), "%s", stop.Why))
	}
	for _, stay := range plan.Stays {
		if remedy := stay.Remedy(); remedy != "" {
			list = append(list, found(gcStopped, stay.Network, finding.Say("%s", remedy), "gc can't tell whether %s is in use: %s", stay.Owner, stay.Why).Of(stay.Owner))
		}
	}
	return list, nil
}
