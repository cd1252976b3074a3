package doctor

import (
	"context"
	"errors"

	"github.com/cnibox/cnibox/pkg/netfilter/firewalld"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

var firewalldNoZone = codes.Declare(finding.Code{Name: "firewalld-no-zone", Severity: finding.Error,
	Meaning: "firewalld rejects what containers of this network send through the host.",
	Remedy:  "`firewall-cmd --zone=trusted --add-source=SUBNET`, or the plugin `firewall`"})

// checkFirewalld looks whether firewalld knows the networks' addresses. It rejects those that it does not know.
func checkFirewalld(ctx context.Context, s *subject) (list []Finding, err error) {
	if running, err := firewalld.Running(ctx); err != nil || !running {
		return nil, err
	}
	for _, n := range s.networks {
		if !n.isRouted() || n.find(opensFirewall) != nil {
			continue
		}
		known, wrong := inZone(ctx, n)
		err = errors.Join(err, wrong)
		if known || wrong != nil {
			continue
		}
		var commands finding.Remedy
		for _, p := range n.subnets() {
			for _, how := range [][]string{{"firewall-cmd"}, {"firewall-cmd", "--permanent"}} {
				commands = append(commands, finding.Run(append(how, "--zone=trusted", "--add-source="+p.String())...)...)
			}
		}
		commands = append(commands, finding.Say(`or add {"type": "firewall"} to the plugins in %s, and start its containers again`, n.File)...)
		list = append(list, found(firewalldNoZone, n.Name, commands, "firewalld runs, and %s of network %s is a source of no zone", texts(n.subnets()), n.Name))
	}
	lost, wrong := checkSources(ctx)
	return append(list, lost...), errors.Join(err, wrong)
}

// inZone reports whether the network's addresses are in a zone, or its bridge is.
func inZone(ctx context.Context, n *network) (bool, error) {
	if bridge := n.bridge(); bridge != "" {
		if zone, err := firewalld.ZoneOfInterface(ctx, bridge); err != nil || zone != "" {
			return zone != "", err
		}
	}
	for _, p := range n.subnets() {
		if zone, err := firewalld.ZoneOfNetwork(ctx, p); err != nil || zone == "" {
			return false, err
		}
	}
	return true, nil
}

var firewalldSourcesLost = codes.Declare(finding.Code{Name: "firewalld-sources-lost", Severity: finding.Error, Fixable: true, Brings: finding.Codes{repair.Broken},
	Meaning: "firewalld was reloaded or restarted, and rejects what these containers send through the host.",
	Remedy:  "`firewall-cmd --zone=ZONE --change-source=ADDRESS`"})

// checkSources looks for addresses that the firewall plugin made sources, and that firewalld has forgotten since.
func checkSources(ctx context.Context) (list []Finding, err error) {
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
