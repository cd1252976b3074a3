package doctor

import (
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// network is a network as the checks need it: from a file, or from an ADD's configuration.
type network struct {
	*node.Network
	parts []*netconf.Part
	alive []*node.Attachment
}

// readMade returns the networks as those who are alive were attached to them: one for each configuration that their ADDs had. A file that was
// edited since says nothing of them.
func (s *subject) readMade() (list []*network) {
	made := map[string]*network{}
	for _, a := range s.Attachments {
		if !isWhole(a) || a.Result == nil {
			continue
		}
		key := a.Network + "\n" + string(a.Result.Config)
		if made[key] == nil {
			config, err := netconf.Parse("", a.Result.Config, s.row)
			if err != nil {
				continue
			}
			made[key] = &network{Network: s.Network(a.Network), parts: named(config.All())}
			list = append(list, made[key])
		}
		made[key].alive = append(made[key].alive, a)
	}
	return list
}

// readNetworks returns the networks that are in files.
func (s *subject) readNetworks() (list []*network) {
	for _, w := range s.Networks {
		if w.List == nil {
			continue
		}
		n := &network{Network: w, parts: s.partsOf(w)}
		for _, a := range s.Attachments {
			if a.Network == w.Name && isWhole(a) {
				n.alive = append(n.alive, a)
			}
		}
		list = append(list, n)
	}
	return list
}

// isWhole reports whether an attachment is alive, and no DEL has begun to take it away.
func isWhole(a *node.Attachment) bool { return a.State == node.Alive && a.DelBegan().IsZero() }

func (s *subject) partsOf(w *node.Network) []*netconf.Part {
	return named(netconf.Of(w.List, w.File, s.row).All())
}

// named returns the parts that name a plugin.
func named(list []*netconf.Part) []*netconf.Part {
	return slices.DeleteFunc(list, func(p *netconf.Part) bool { return p.Named == "" })
}

// find returns the network's first plugin of which something is true, nil if it has none.
func (n *network) find(is func(f plugin.Facts) bool) *netconf.Part {
	if i := slices.IndexFunc(n.parts, func(p *netconf.Part) bool { return is(p.Facts) }); i >= 0 {
		return n.parts[i]
	}
	return nil
}

// bridge returns the name of the bridge that the network's containers are in, "" if they are in none.
func (n *network) bridge() string {
	if p := n.find(isOnBridge); p != nil {
		return p.Facts.Bridge
	}
	return ""
}

// Questions about plugins.
func isOnBridge(f plugin.Facts) bool      { return f.Bridge != "" }
func isGateway(f plugin.Facts) bool       { return f.IsGateway }
func hasHostEnd(f plugin.Facts) bool      { return f.HasHostEnd }
func routesBySource(f plugin.Facts) bool  { return f.RoutesBySource }
func publishesPorts(f plugin.Facts) bool  { return f.PublishesPorts }
func needsSubnetFile(f plugin.Facts) bool { return f.Subnets != nil }

// isRouted reports whether the host is the gateway of the network's containers.
func (n *network) isRouted() bool { return n.find(isGateway) != nil }

// isOn reports whether a key of one of the plugins is true.
func (n *network) isOn(key string) bool {
	return slices.ContainsFunc(n.parts, func(p *netconf.Part) bool { return p.IsOn(key) })
}

// subnets returns the networks of the addresses that are handed out, and of those that attachments have.
func (n *network) subnets() (list []netip.Prefix) {
	for _, p := range slices.Concat(n.handedOut(), n.addresses()) {
		if p = p.Masked(); p.IsValid() && !p.IsSingleIP() && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// handedOut returns the subnets that the configuration names, or another program's file.
func (n *network) handedOut() (list []netip.Prefix) {
	for _, pool := range n.Pools {
		if p, err := netip.ParsePrefix(pool.Subnet); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// addresses returns those of the attachments that are alive.
func (n *network) addresses() (list []netip.Prefix) {
	for _, a := range n.alive {
		list = append(list, a.Addresses...)
	}
	return list
}

// families reports whether the network has addresses of IPv4 and IPv6.
func (n *network) families() (v4, v6 bool) {
	for _, p := range slices.Concat(n.handedOut(), n.addresses()) {
		v4, v6 = v4 || p.Addr().Is4(), v6 || p.Addr().Is6()
	}
	return v4, v6
}
