package doctor

import (
	"context"

	"github.com/cnibox/cnibox/pkg/netfilter/firewalld"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

var firewalldSourcesLost = codes.Declare(finding.Code{Name: "firewalld-sources-lost", Severity: finding.Error, Fixable: true, Brings: finding.Codes{repair.Broken, firewalldNoZone},
	Meaning: "firewalld was reloaded or restarted, and rejects what these containers send through the host.",
	Remedy:  "`firewall-cmd --zone=ZONE --change-source=ADDRESS`"})

// checkFirewalld looks for addresses that the firewall plugin made sources, and that firewalld has forgotten since.
func checkFirewalld(ctx context.Context, _ *subject) (list []Finding, err error) {
	if running, err := firewalld.Running(ctx); err != nil || !running {
		return nil, err
	}
	lost, err := firewalld.Lost(ctx)
	byNetwork := map[string][]firewalld.Source{}
	for _, source := range lost {
		byNetwork[source.Key.Network] = append(byNetwork[source.Key.Network], source)
	}
	for name, sources := range byNetwork {
		var commands finding.Remedy
		var addresses []string
		for _, source := range sources {
			addresses = append(addresses, source.Address.String())
			commands = append(commands, finding.Run("firewall-cmd", "--zone="+string(source.Zone), "--change-source="+source.String())...)
		}
		list = append(list, found(firewalldSourcesLost, name, commands, "%s of network %s: firewalld has forgotten them as sources of zone %s",
			some(addresses), name, sources[0].Zone))
	}
	return list, err
}
