package purge

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/known"
)

// ownLink is a link that goes.
type ownLink struct {
	name  string
	index int
}

// Remove removes the link, unless another one has its name by now, or it has got ports.
func (l ownLink) Remove(context.Context) error {
	var now node.Host
	if err := now.ReadLinks(); err != nil {
		return err
	}
	if own := now.Link(l.name); own == nil || own.Link.Attrs().Index != l.index {
		return nil
	}
	for _, other := range now.Links() {
		if other.Link.Attrs().MasterIndex == l.index {
			return plugin.CodeErrorf(types.ErrTryAgainLater, "repeat this", "it has got the port %s", other.Name)
		}
	}
	return link.Delete(&netlink.Handle{}, l.index)
}

// addLinks finds the bridges that networks name, with the gateways' links of their VLANs, and ifbs.
func (p *Plan) addLinks(n *node.Node) {
	bridges, own := bridgesOf(n), subnets(n)
	for _, l := range n.Links() {
		bridge, _, isVLAN := strings.Cut(l.Name, ".")
		isGateway := isVLAN && bridges[bridge] && (isGatewayOn(l, bridge) || isPortOf(n, l, bridge))
		if isGateway || l.Kind == "ifb" && ifbName.MatchString(l.Name) && !isHeld(n, l) {
			p.Goes = append(p.Goes, Item{What: "link " + l.Name, remover: ownLink{l.Name, l.Link.Attrs().Index}})
		}
	}
	for _, l := range n.Links() { // after the links that are their ports
		if l.Kind == link.KindBridge && bridges[l.Name] {
			p.addBridge(n, l, own)
		}
	}
}

// ifbName is how the bandwidth plugins call ifbs.
var ifbName = regexp.MustCompile("^bwp[0-9a-f]{12}$")

// isGatewayOn reports whether a link is the VLAN device on the bridge that the plugin makes.
func isGatewayOn(l *node.Link, bridge string) bool {
	return l.Kind == link.KindVLAN && l.Parent == bridge && l.Link.Attrs().Alias == "gateway on "+bridge
}

// isPortOf reports whether the other end of the gateway's link is a port of the bridge.
func isPortOf(n *node.Node, gateway *node.Link, bridge string) bool {
	other := otherEnd(n, gateway)
	return other != nil && other.Master == bridge && other.Link.Attrs().Alias == "port of "+gateway.Name
}

// otherEnd returns the other end of a veth pair, nil if it is in another namespace.
func otherEnd(n *node.Node, l *node.Link) *node.Link {
	for _, other := range n.Links() {
		if l.Kind == "veth" && l.Link.Attrs().NetNsID < 0 && other.Link.Attrs().Index == l.Link.Attrs().ParentIndex {
			return other
		}
	}
	return nil
}

// addBridge decides about a bridge that a network names. A bridge with a port or an address of others is not the one that the plugin has made.
func (p *Plan) addBridge(n *node.Node, bridge *node.Link, own []netip.Prefix) {
	for _, l := range n.Links() {
		leadsInside := l.Kind == "veth" && l.Link.Attrs().NetNsID >= 0
		switch {
		case isGatewayOn(l, bridge.Name):
		case l.Parent == bridge.Name:
			p.stay("bridge "+bridge.Name, "link "+l.Name+" is made on it")
			return
		case l.Master != bridge.Name:
		case leadsInside && !isKnown(n, l):
			p.refused("bridge "+bridge.Name, "its port "+l.Name+" leads into a network namespace, and is no attachment that is known")
			return
		case leadsInside: // of an attachment
		case otherEnd(n, l) == nil || !isPortOf(n, otherEnd(n, l), bridge.Name):
			p.stay("bridge "+bridge.Name, "it has the port "+l.Name)
			return
		}
	}
	for _, a := range bridge.Addresses {
		isOwn := a.Addr().IsLinkLocalUnicast() || slices.ContainsFunc(own, func(s netip.Prefix) bool { return s.Contains(a.Addr()) })
		if !isOwn {
			p.stay("bridge "+bridge.Name, fmt.Sprintf("it has the address %s, which is in none of its networks; if it is not needed: ip link delete %s", a, bridge.Name))
			return
		}
	}
	p.Goes = append(p.Goes, Item{What: "bridge " + bridge.Name, remover: ownLink{bridge.Name, bridge.Link.Attrs().Index}})
}

// parts returns what networks and results have configurations of. Of a plugin that is somebody else's nothing goes.
func parts(n *node.Node) (list []*netconf.Part) {
	ours := pluginfile.Rows(known.Plugins, nil)
	for _, p := range n.Parts() {
		list = append(list, netconf.NewPart(p.Config, ours))
	}
	return list
}

// bridgesOf returns the names of the bridges that networks and results name.
func bridgesOf(n *node.Node) map[string]bool {
	names := map[string]bool{}
	for _, p := range parts(n) {
		if d := p.Delegate(); d != nil {
			p = d
		}
		if name := p.Facts.Bridge; name != "" {
			names[name] = true
		}
	}
	return names
}

// subnets returns those of the networks of this node: of pools, of what attachments have and have had, and what other programs have given it.
func subnets(n *node.Node) (list []netip.Prefix) {
	for _, w := range n.Networks {
		for _, pool := range w.Pools {
			if s, err := netip.ParsePrefix(pool.Subnet); err == nil {
				list = append(list, s)
			}
		}
	}
	for _, a := range n.Attachments {
		for _, prefix := range a.Addresses {
			list = append(list, prefix.Masked())
		}
	}
	for _, p := range parts(n) {
		if s := p.Facts.Subnets; s != nil {
			given, _ := s.Read() // none if there is no daemon
			list = append(list, given.Own...)
		}
	}
	return list
}

// refuseStrangers looks for host ends as ptp makes them, which have a gateway's address alone, that are no attachments that are known. A
// bridge says so of its ports.
func (p *Plan) refuseStrangers(n *node.Node) {
	own := subnets(n)
	for _, l := range n.Links() {
		if l.Kind != "veth" || l.Link.Attrs().NetNsID < 0 || isKnown(n, l) {
			continue
		}
		for _, a := range l.Addresses {
			if a.IsSingleIP() && slices.ContainsFunc(own, func(s netip.Prefix) bool { return s.Contains(a.Addr()) }) {
				p.refused("link "+l.Name, fmt.Sprintf("it leads into a network namespace, has the address %s of one of the node's networks, and is no attachment that is known", a))
			}
		}
	}
}

// isKnown reports whether a link is the host end of an attachment that is known.
func isKnown(n *node.Node, l *node.Link) bool {
	return l.Owner != "" || slices.ContainsFunc(n.Attachments, func(a *node.Attachment) bool { return a.HostEnd == l })
}

// isHeld reports whether somebody who is known holds a link, or nobody does.
func isHeld(n *node.Node, l *node.Link) bool {
	isLink := func(t node.Holding) bool { return t.What == "link "+l.Name }
	return slices.ContainsFunc(n.Unowned, isLink) || slices.ContainsFunc(n.Attachments, func(a *node.Attachment) bool { return slices.ContainsFunc(a.Held, isLink) })
}
