package doctor

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

var bridgeDown = codes.Declare(finding.Code{Name: "bridge-down", Severity: finding.Error, Fixable: true, Brings: finding.Codes{repair.Broken, packetLost},
	Meaning: "Nothing passes between the bridge's containers, or to and from them.",
	Remedy:  "`ip link set dev BRIDGE up`"})

// checkLinks looks at the links of networks on the host.
func checkLinks(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		list = append(list, s.checkMTU(n)...)
		list = append(list, s.checkMasters(n)...)
	}
	seen := map[string]bool{}
	for _, n := range s.made {
		bridge := s.Link(n.bridge())
		if bridge == nil || bridge.Kind != link.KindBridge {
			continue
		}
		list = append(list, s.checkPorts(n, bridge)...)
		if !bridge.Up && !seen[bridge.Name] { // else it is another network's, too
			// A link that goes down loses its IPv6 addresses.
			up := finding.Steps(finding.Run("ip", "link", "set", "dev", bridge.Name, "up"), addAddresses(s.lackingGateways(n), n.gatewayLink()))
			list = append(list, found(bridgeDown, n.Name, up, "%s, the bridge of %s of network %s, is down",
				bridge.Name, count(len(n.alive), "attachment", "attachments"), n.Name))
		}
		seen[bridge.Name] = true
	}
	counted := map[string]bool{}
	for _, n := range s.networks {
		if bridge := s.Link(n.bridge()); bridge != nil && bridge.Kind == link.KindBridge && !counted[bridge.Name] {
			counted[bridge.Name] = true
			list = append(list, s.countPorts(n, bridge)...)
		}
	}
	return list, nil
}

var masterDown = codes.Declare(finding.Code{Name: "master-down", Severity: finding.Error,
	Meaning: "The containers' links are made on a link of the host that is down: nothing passes to others.",
	Remedy:  "`ip link set dev MASTER up`"})

// checkMasters looks at the links of the host that a network's plugins make others on. An administrator may have set one down for a reason, so
// doctor sets none up.
func (s *subject) checkMasters(n *network) (list []Finding) {
	for _, p := range n.parts {
		if master := s.Link(p.Master()); master != nil && !master.Up {
			list = append(list, found(masterDown, n.Name, finding.Run("ip", "link", "set", "dev", master.Name, "up"),
				"%s, the master of network %s, is down", master.Name, n.Name))
		}
	}
	return list
}

var bridgePortLost = codes.Declare(finding.Code{Name: "bridge-port-lost", Severity: finding.Error, Fixable: true, Brings: finding.Codes{repair.Broken, packetLost},
	Meaning: "These containers are cut off: something has taken their host ends out of the bridge.",
	Remedy:  "`ip link set dev VETH master BRIDGE`"})

// checkPorts looks whether the host ends of a network's attachments are in its bridge.
func (s *subject) checkPorts(n *network, bridge *node.Link) []Finding {
	var names []string
	var commands finding.Remedy
	for _, a := range n.alive {
		if isOwn(a) && !repair.IsLeftAlone(a) && a.HostEnd.Master != bridge.Name {
			names = append(names, a.HostEnd.Name)
			commands = append(commands, finding.Run("ip", "link", "set", "dev", a.HostEnd.Name, "master", bridge.Name)...)
		}
	}
	if names == nil {
		return nil
	}
	p := n.find(isOnBridge)
	byHand := p.Config.Has("vlan") || p.Config.Has("vlanTrunk") || n.isOn("hairpinMode") || n.isOn("portIsolation")
	if byHand { // the port has to have more
		commands = finding.Run("cnictl", "repair", n.Name)
	}
	f := found(bridgePortLost, n.Name, commands, "%s of network %s should be in bridge %s, and %s not", some(names), n.Name, bridge.Name,
		map[bool]string{true: "is", false: "are"}[len(names) == 1])
	f.Fixable = f.Fixable && !byHand
	return []Finding{f}
}

var bridgeNearlyFull = codes.Declare(finding.Code{Name: "bridge-nearly-full", Severity: finding.Warning,
	Meaning: "The kernel gives a bridge 1,023 ports. The ADD after the last fails.",
	Remedy:  "remove ports that nobody needs, or use another network: one with another bridge, or of ptp"})

func (s *subject) countPorts(n *network, bridge *node.Link) []Finding {
	ports, unowned := 0, 0
	for _, l := range s.Links() {
		if l.Master == bridge.Name {
			ports++
			if l.Owner == "" {
				unowned++
			}
		}
	}
	if ports < link.MostPorts*9/10 {
		return nil
	}
	return []Finding{found(bridgeNearlyFull, n.Name, finding.Steps(finding.Say("remove ports that nobody needs, or put the next containers on a network with another bridge, or on one of ptp, which needs none"),
		finding.Run("bridge", "link", "show")), "bridge %s has %d ports of %d; %d of them belong to no attachment", bridge.Name, ports, link.MostPorts, unowned)}
}

// mtuOf returns the MTU that a network gives to its containers: the last that a plugin's configuration has.
func (n *network) mtuOf() int {
	mtu := 1500
	if p := n.find(needsSubnetFile); p != nil {
		if given, _ := p.Facts.Subnets.Read(); given.MTU > 0 {
			mtu = given.MTU
		}
	}
	for _, p := range n.parts {
		own := 0
		if p.Config.Int("mtu", &own); own > 0 {
			mtu = own
		}
	}
	return mtu
}

var mtuAboveUplink = codes.Declare(finding.Code{Name: "mtu-above-uplink", Severity: finding.Warning,
	Meaning: "Large packets are dropped on their way out where ICMP does not come back, so that connections hang.",
	Remedy:  "the uplink's MTU, by `sed -i …` in the network's file"})

// checkMTU compares what containers may send at once with what the way out of the host takes.
func (s *subject) checkMTU(n *network) []Finding {
	if !n.isRouted() {
		return nil
	}
	mtu := n.mtuOf()
	for _, up := range s.uplinks {
		if mtu <= up.MTU {
			continue
		}
		return []Finding{found(mtuAboveUplink, n.Name, finding.Steps(n.setMTU(up.MTU), finding.Say("then start the containers of network %s again", n.Name)),
			"network %s has an MTU of %d, and %s, which default routes leave by, of %d", n.Name, mtu, up.Name, up.MTU)}
	}
	return nil
}

var mtuKey = regexp.MustCompile(`"mtu": *[0-9]+`)

// setMTU returns the command that writes an MTU into the network's file.
func (n *network) setMTU(mtu int) finding.Remedy {
	text, err := os.ReadFile(n.File)
	p := n.find(hasHostEnd)
	kind := regexp.MustCompile(`"type": *"` + regexp.QuoteMeta(p.Named) + `"`)
	switch {
	case err == nil && mtuKey.Match(text):
		return finding.Run("sed", "-i", "-E", fmt.Sprintf(`s/"mtu": *[0-9]+/"mtu": %d/`, mtu), n.File)
	case err == nil && len(kind.FindAll(text, -1)) == 1 && !strings.ContainsAny(p.Named, `/\&.*[`):
		return finding.Run("sed", "-i", fmt.Sprintf(`s/"type": *"%s"/&, "mtu": %d/`, p.Named, mtu), n.File)
	}
	return finding.Say(`set "mtu" of plugin %s to %d, in %s`, p.Named, mtu, n.File)
}
