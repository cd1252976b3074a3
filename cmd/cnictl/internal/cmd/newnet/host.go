package newnet

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/plugins/known"
)

// Host is what is on this node that a new network must not collide with.
type Host struct {
	Links    []Link
	Uplink   string       // of the default route
	Gateways []netip.Addr // of the default routes, one of a family
	Networks []Network    // of the directories of all runtimes
	Taken    []Taken
}

// Link is a link of the host.
type Link struct {
	Name      string
	Addresses []netip.Prefix
	Card      bool // a network card, or another device
	WiFi      bool
	Up        bool
	Master    bool // it is a port of a bridge or so
	VLAN      int  // for a VLAN link, its number
	Parent    string
}

// Taken is a subnet that somebody has.
type Taken struct {
	Subnet netip.Prefix
	Who    string
}

// Network is a network that is there already.
type Network struct {
	Name, File string
	Bridges    []string
	VLANs      []string // master and number
}

// ReadHost looks at the node. The networks are those of directories.
func ReadHost(dirs []string) (*Host, error) {
	h, host := &Host{}, &node.Host{}
	if err := errors.Join(h.readLinks(host), h.readRoutes(host)); err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if err := h.readNetworks(dir); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *Host) readLinks(host *node.Host) error {
	for _, l := range host.Links() {
		own := Link{Name: l.Name, Up: l.Up, Master: l.Link.Attrs().MasterIndex != 0, Card: l.IsCard(), WiFi: l.IsWiFi()}
		if v, is := l.Link.(*netlink.Vlan); is {
			own.VLAN, own.Parent = v.VlanId, l.Parent
		}
		for _, p := range l.Addresses {
			if !p.Addr().IsLinkLocalUnicast() && !p.Addr().IsLoopback() {
				own.Addresses = append(own.Addresses, p)
				h.Taken = append(h.Taken, Taken{p.Masked(), "the address " + p.String() + " of " + l.Name})
			}
		}
		h.Links = append(h.Links, own)
	}
	return host.ReadLinks()
}

// readRoutes reads the routes of all tables.
func (h *Host) readRoutes(host *node.Host) error {
	routes, err := host.Routes()
	for _, r := range routes {
		if node.IsDefault(r) {
			continue
		}
		if p := result.Prefix(*r.Dst).Masked(); !p.Addr().IsLinkLocalUnicast() && !p.Addr().IsMulticast() && !p.Addr().IsLoopback() {
			h.Taken = append(h.Taken, Taken{p, "the route to " + p.String()})
		}
	}
	if uplinks, _ := host.Uplinks(); len(uplinks) > 0 {
		h.Uplink = uplinks[0].Name
	}
	h.Gateways, _ = host.Gateways()
	return err
}

// readNetworks notes what networks of a directory have: every subnet in their files, whatever plugin it is for, and bridges and VLANs.
func (h *Host) readNetworks(dir string) error {
	networks, _, err := node.Load(dir)
	for _, n := range networks {
		own := Network{Name: n.Name, File: n.File}
		for _, p := range netconf.Of(n.List, n.File, pluginfile.Rows(known.Plugins, nil)).Inside() {
			h.readPart(&own, p)
		}
		h.Networks = append(h.Networks, own)
	}
	return err
}

func (h *Host) readPart(n *Network, p *netconf.Part) {
	for _, key := range p.Config.Keys() {
		texts := []string{""}
		p.Config.String(key, &texts[0])
		p.Config.Strings(key, &texts)
		for _, text := range texts {
			if s, err := netip.ParsePrefix(text); err == nil && s.Bits() > 0 && !s.Addr().IsLinkLocalUnicast() {
				h.Taken = append(h.Taken, Taken{s.Masked(), "network " + n.Name + " in " + n.File})
			}
		}
	}
	var bridge, master string
	p.Config.String(bridgeWord, &bridge) // others' plugins have it too
	p.Config.String("master", &master)
	bridge = cmp.Or(bridge, p.Facts.Bridge)
	if d := p.Delegate(); d != nil {
		bridge = d.Facts.Bridge
	}
	if bridge != "" {
		n.Bridges = append(n.Bridges, bridge)
	}
	if vlan := 0; p.Config.Has("vlanId") {
		p.Config.Int("vlanId", &vlan)
		n.VLANs = append(n.VLANs, fmt.Sprint(master, " ", vlan))
	}
}

// usualBridge returns the bridge that a plugin makes, itself or by the one it calls, unless it is told another; "" if it makes none.
func usualBridge(kind string) string {
	f := row(kind).Facts(nil)
	return cmp.Or(f.Bridge, row(f.DelegateType).Facts(nil).Bridge)
}

// taken returns the subnets that somebody has.
func (h *Host) taken() (list []netip.Prefix) {
	for _, t := range h.Taken {
		list = append(list, t.Subnet)
	}
	return list
}

// whoHas returns who has addresses of a subnet, "" if nobody has.
func (h *Host) whoHas(p netip.Prefix) string {
	for _, t := range h.Taken {
		if t.Subnet.Overlaps(p) {
			return t.Who
		}
	}
	return ""
}

// link returns the host's link called name, nil if there is none.
func (h *Host) link(name string) *Link {
	for i := range h.Links {
		if h.Links[i].Name == name {
			return &h.Links[i]
		}
	}
	return nil
}

// network returns the network called name, nil if there is none.
func (h *Host) network(name string) *Network {
	for i := range h.Networks {
		if h.Networks[i].Name == name {
			return &h.Networks[i]
		}
	}
	return nil
}

// bridgeOf returns the network that has a bridge, nil if none has.
func (h *Host) bridgeOf(name string) *Network {
	for i := range h.Networks {
		if slices.Contains(h.Networks[i].Bridges, name) {
			return &h.Networks[i]
		}
	}
	return nil
}
