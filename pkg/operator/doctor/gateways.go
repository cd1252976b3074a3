package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

var (
	bridgeOtherSubnet = codes.Declare(finding.Code{Name: "bridge-other-subnet", Severity: finding.Error,
		Meaning: "The next ADD fails with \"already has an IP address different from\": the subnet was changed, or flannel has leased another one.",
		Remedy:  "`ip address delete ADDRESS dev BRIDGE`"})
	gatewayGone = codes.Declare(finding.Code{Name: "gateway-gone", Severity: finding.Error, Fixable: true, Brings: finding.Codes{repair.Broken},
		Meaning: "These containers don't reach their gateway, and so nothing outside of their bridge.",
		Remedy:  "`ip address add GATEWAY dev BRIDGE`"})
)

// checkGateways looks whether bridges have the gateways' addresses of their containers, and none that keeps the next container out.
func checkGateways(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		at := n.gatewayLink()
		if !n.isRouted() || s.Link(n.bridge()) == nil || s.Link(at) == nil {
			continue
		}
		if others := n.otherSubnets(s.addressesOf(at)); others != nil {
			list = append(list, found(bridgeOtherSubnet, n.Name, s.giveUp(n, others), "%s has the address %s, and network %s hands out addresses of %s",
				at, texts(others), n.Name, texts(n.handedOut())))
		}
	}
	for _, n := range s.made {
		at := n.gatewayLink()
		if !n.isRouted() || s.Link(n.bridge()) == nil || s.Link(at) == nil {
			continue
		}
		lacking := s.lackingGateways(n)
		if lacking == nil || !s.Link(n.bridge()).Up { // that is what has to be mended first
			continue
		}
		remedy := addAddresses(lacking, at)
		if elsewhere := s.haveInstead(lacking, at); elsewhere != nil {
			remedy = finding.Say("%s would be in the way of %s on %s: take that away, or start the containers of network %s again on another subnet",
				strings.Join(elsewhere, ", "), texts(lacking), at, n.Name)
		}
		list = append(list, found(gatewayGone, n.Name, remedy, "%s lacks %s, the gateway of %s of network %s",
			at, texts(lacking), count(len(n.alive), "attachment", "attachments"), n.Name))
	}
	return list, nil
}

// haveInstead returns the links and containers that have a lost gateway's address or subnet by now.
func (s *subject) haveInstead(lacking []netip.Prefix, at string) (list []string) {
	for _, g := range lacking {
		for _, l := range s.Links() {
			meets := func(p netip.Prefix) bool { return p.Overlaps(g) }
			if l.Name != at && slices.ContainsFunc(l.Addresses, meets) {
				list = append(list, "link "+l.Name)
			}
		}
		for _, a := range s.Attachments {
			has := func(p netip.Prefix) bool { return p.Addr() == g.Addr() }
			if a.State == node.Alive && slices.ContainsFunc(a.Addresses, has) {
				list = append(list, "container "+a.ContainerID)
			}
		}
	}
	return list
}

// mayBeUsed says why others than a network could need an address of its bridge, "" if nobody does.
func (s *subject) mayBeUsed(n *network, p netip.Prefix) string {
	at := n.gatewayLink()
	for _, other := range s.networks {
		if other.Name != n.Name && other.gatewayLink() == at && slices.Contains(other.handedOut(), p.Masked()) {
			return fmt.Sprintf("%s is of the subnet of network %s", p.Addr(), other.Name)
		}
	}
	if slices.Contains(s.uplinks, s.Link(at)) { // a VLAN's, on the bridge
		return fmt.Sprintf("a default route of the host leaves by %s", at)
	}
	return s.otherUse(n.bridge())
}

// otherUse says what the host has a bridge for besides containers, "" if it is nothing.
func (s *subject) otherUse(bridge string) string {
	if slices.Contains(s.uplinks, s.Link(bridge)) {
		return fmt.Sprintf("a default route of the host leaves by %s", bridge)
	}
	for _, l := range s.Links() {
		if l.Master == bridge && l.Owner == "" {
			return fmt.Sprintf("%s is in %s, and no container's", l.Name, bridge)
		}
	}
	return ""
}

// giveUp returns the commands that take addresses from a network's bridge, but for those that are the gateway of a container.
func (s *subject) giveUp(n *network, others []netip.Prefix) (commands finding.Remedy) {
	at := n.gatewayLink()
	for _, p := range others {
		var users []string
		for _, m := range s.made {
			if m.gatewayLink() == at && slices.Contains(m.gateways(), p) {
				users = append(users, m.Name)
			}
		}
		if users != nil {
			slices.Sort(users)
			commands = append(commands, finding.Say("%s is the gateway of containers of %s: give network %s another bridge or its former subnet, in %s, or end them first",
				p.Addr(), strings.Join(slices.Compact(users), ", "), n.Name, n.File)...)
			continue
		}
		if why := s.mayBeUsed(n, p); why != "" {
			commands = append(commands, finding.Say("%s: give network %s another bridge, in %s, or take %s from %s if nobody needs it", why, n.Name, n.File, p, at)...)
			continue
		}
		commands = finding.Steps(commands, finding.Run("ip", "address", "delete", p.String(), "dev", at), finding.Say("the next container gives %s its own", at))
	}
	return commands
}

// lackingGateways returns the addresses that attachments have for gateways, and the host does not have.
func (s *subject) lackingGateways(n *network) (list []netip.Prefix) {
	has := s.addressesOf(n.gatewayLink())
	for _, g := range n.gateways() {
		if !slices.Contains(has, g) {
			list = append(list, g)
		}
	}
	return list
}

func addAddresses(list []netip.Prefix, link string) (commands finding.Remedy) {
	for _, p := range list {
		words := []string{"ip", "address", "add", p.String(), "dev", link}
		if p.Addr().Is6() {
			words = append(words, "nodad")
		}
		commands = append(commands, finding.Run(words...)...)
	}
	return commands
}

// gatewayLink returns the link that has the gateways' addresses: the bridge, or the one that a VLAN has in its place.
func (n *network) gatewayLink() string {
	if p := n.find(isOnBridge); p != nil {
		return p.Facts.GatewayLink
	}
	return ""
}

func (s *subject) addressesOf(link string) []netip.Prefix {
	if l := s.Link(link); l != nil {
		return l.Global
	}
	return nil
}

// otherSubnets returns the addresses of a bridge that keep the next ADD from giving it the gateway's, as the bridge plugin decides that.
func (n *network) otherSubnets(has []netip.Prefix) (list []netip.Prefix) {
	subnets := n.handedOut()
	is4 := func(p netip.Prefix) bool { return p.Addr().Is4() }
	if n.isOn("forceAddress") || !slices.ContainsFunc(subnets, is4) {
		return nil
	}
	for _, p := range has {
		if is4(p) && !slices.Contains(subnets, p.Masked()) {
			list = append(list, p)
		}
	}
	return list
}

// gateways returns those of the attachments that are alive.
func (n *network) gateways() (list []netip.Prefix) {
	for _, a := range n.alive {
		for _, g := range a.Gateways {
			for _, p := range a.Addresses {
				if own := netip.PrefixFrom(g, p.Bits()); p.Masked().Contains(g) && !slices.Contains(list, own) {
					list = append(list, own)
				}
			}
		}
	}
	return list
}

func texts(list []netip.Prefix) string {
	var all []string
	for _, p := range list {
		all = append(all, p.String())
	}
	return strings.Join(all, ", ")
}
