package doctor

import (
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// network is a network as the checks need it: that of a file, or that of an ADD's configuration.
type network struct {
	*node.Network
	parts []part
	alive []*node.Attachment
}

// part is one plugin of a network: an entry of its list, or what such an entry calls.
type part struct {
	named  string // as the configuration has it
	kind   string // our own plugin's name, else as it is named
	config *conf.Object
	facts  plugin.Facts
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
			config, err := conf.Parse(a.Result.Config)
			if err != nil {
				continue
			}
			made[key] = &network{Network: s.Network(a.Network)}
			list = append(list, made[key])
			if config = config.Lenient(); config.Has("plugins") {
				config.Objects("plugins", func(p *conf.Object) { made[key].parts = append(made[key].parts, s.calledBy(p, "")...) })
			} else { // one plugin alone, in the old form
				made[key].parts = s.calledBy(config, "")
			}
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

func (s *subject) partsOf(w *node.Network) (list []part) {
	for _, p := range w.List.Plugins {
		if config, err := conf.Parse(p.Bytes); err == nil { // libcni has parsed it
			list = append(list, s.calledBy(config.Lenient(), "")...)
		}
	}
	return list
}

// calledBy returns a plugin, and those that it calls. usual is its type if the configuration names none.
func (s *subject) calledBy(config *conf.Object, usual string) (list []part) {
	p := part{named: usual, config: config}
	if config.String("type", &p.named); p.named == "" {
		return nil
	}
	row := s.row(p.named)
	p.kind, p.facts = p.named, row.Facts(config)
	if row != nil {
		p.kind = row.Name
	}
	list = append(list, p)
	switch {
	case p.facts.PluginsKey != "":
		config.Objects(p.facts.PluginsKey, func(e *conf.Object) { list = append(list, s.calledBy(e, "")...) })
	case p.facts.DelegateKey != "":
		delegate := config.Object(p.facts.DelegateKey).Copy()
		if !delegate.Has("isGateway") {
			delegate.Set("isGateway", new(true))
		}
		list = append(list, s.calledBy(delegate, p.facts.DelegateType)...)
		list = append(list, s.calledBy(config.Object("ipam"), p.facts.IPAMType)...)
	case config.Has("ipam"):
		list = append(list, s.calledBy(config.Object("ipam"), "")...)
	}
	return list
}

// find returns the network's first plugin of which something is true, nil if it has none.
func (n *network) find(is func(f plugin.Facts) bool) *part {
	for i := range n.parts {
		if is(n.parts[i].facts) {
			return &n.parts[i]
		}
	}
	return nil
}

// bridge returns the name of the bridge that the network's containers are in, "" if they are in none.
func (n *network) bridge() string {
	if p := n.find(isOnBridge); p != nil {
		return p.facts.Bridge
	}
	return ""
}

// What is asked of plugins.
func isOnBridge(f plugin.Facts) bool      { return f.Bridge != "" }
func isGateway(f plugin.Facts) bool       { return f.IsGateway }
func hasHostEnd(f plugin.Facts) bool      { return f.HasHostEnd }
func opensFirewall(f plugin.Facts) bool   { return f.OpensFirewall }
func routesBySource(f plugin.Facts) bool  { return f.RoutesBySource }
func publishesPorts(f plugin.Facts) bool  { return f.PublishesPorts }
func needsSubnetFile(f plugin.Facts) bool { return f.Subnets != nil }

// isRouted reports whether the host is the gateway of the network's containers.
func (n *network) isRouted() bool { return n.find(isGateway) != nil }

// isOn reports whether a key of one of the plugins is true.
func (n *network) isOn(key string) bool {
	return slices.ContainsFunc(n.parts, func(p part) (on bool) {
		p.config.Bool(key, &on)
		return on
	})
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
	if p := n.find(needsSubnetFile); p != nil {
		given, _ := p.facts.Subnets.Read()
		list = append(list, given.Own...)
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
