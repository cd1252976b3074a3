package doctor

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/result"
)

// checkGateways looks whether bridges have the gateways' addresses of their containers, and no others.
func checkGateways(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		at := n.gatewayLink()
		if !n.isRouted() || s.Link(n.bridge()) == nil || s.Link(at) == nil {
			continue
		}
		has := s.addressesOf(at)
		if others := n.otherSubnets(has); others != nil {
			var commands []string
			for _, p := range others {
				commands = append(commands, command("ip", "address", "delete", p.String(), "dev", at))
			}
			commands = append(commands, comment("the next container gives %s its own; containers with an address of the other subnet have to be started again", at))
			list = append(list, found("bridge-other-subnet", n.Name, lines(commands...), "%s has the address %s, and network %s hands out addresses of %s",
				at, texts(others), n.Name, texts(n.handedOut())))
			continue
		}
		lacking := s.lackingGateways(n)
		if lacking == nil || !s.Link(n.bridge()).Up { // that is what has to be mended first
			continue
		}
		list = append(list, found("gateway-gone", n.Name, lines(addAddresses(lacking, at)...), "%s lacks %s, the gateway of %s of network %s",
			at, texts(lacking), count(len(n.alive), "attachment", "attachments"), n.Name))
	}
	return list, nil
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

func addAddresses(list []netip.Prefix, link string) (commands []string) {
	for _, p := range list {
		words := []string{"ip", "address", "add", p.String(), "dev", link}
		if p.Addr().Is6() {
			words = append(words, "nodad")
		}
		commands = append(commands, command(words...))
	}
	return commands
}

// gatewayLink returns the link that has the gateways' addresses: the bridge, or the one that a VLAN has in its place.
func (n *network) gatewayLink() string {
	p, vlan := n.find("bridge"), 0
	if p != nil {
		p.config.Int("vlan", &vlan)
	}
	if vlan != 0 {
		return n.bridge() + "." + strconv.Itoa(vlan)
	}
	return n.bridge()
}

func (s *subject) addressesOf(link string) (list []netip.Prefix) {
	for _, a := range s.addresses {
		if l := s.Link(link); l != nil && a.LinkIndex == l.Link.Attrs().Index && a.Scope == int(netlink.SCOPE_UNIVERSE) {
			list = append(list, result.Prefix(*a.IPNet))
		}
	}
	return list
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
