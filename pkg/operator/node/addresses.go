package node

import (
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// checkAddresses looks whether those who are alive have their addresses alone, and whether host-local would give them to others.
func (n *Node) checkAddresses() {
	alive := map[netip.Addr][]*Attachment{}
	for _, a := range n.Attachments {
		if a.State != Alive {
			continue
		}
		a.Unleased = n.unleased(a)
		for _, p := range a.Addresses {
			alive[p.Addr()] = append(alive[p.Addr()], a)
		}
	}
	for address, list := range alive {
		for _, a := range list {
			for _, b := range list {
				if !address.IsLoopback() && b.ContainerID != a.ContainerID && n.areBeside(a, b) {
					a.Twice = append(a.Twice, b.Owner)
				}
			}
			slices.Sort(a.Twice)
			a.Twice = slices.Compact(a.Twice)
		}
	}
}

// areBeside reports whether two attachments would get each other's packets if they had one address: they are on one network or behind one link,
// or the host has a route to each, as ptp makes it. A dummy link leads nowhere.
func (n *Node) areBeside(a, b *Attachment) bool {
	of, other := n.factsOf(a), n.factsOf(b)
	areRouted := isRouted(of) && isRouted(other)
	return !of.LeadsNowhere && !other.LeadsNowhere && (areRouted || a.Network == b.Network || a.Master != "" && a.Master == b.Master)
}

func isRouted(f plugin.Facts) bool { return f.HasHostEnd && f.Bridge == "" }

// factsOf returns what is true of the plugin that has made an attachment's link, if it is one of our plugins.
func (n *Node) factsOf(a *Attachment) plugin.Facts {
	if len(a.Plugins) == 0 {
		return plugin.Facts{}
	}
	return n.plugins.Find(a.Plugins[0]).Facts(nil)
}

// unleased returns the addresses that an attachment has from host-local, and no lease of. An ADD that is under way may have made the lease after
// those were read.
func (n *Node) unleased(a *Attachment) (list []netip.Addr) {
	if a.Result == nil || a.Result.Result == nil || a.IsYoung() || !a.DelBegan().IsZero() || !n.configuration(a.Result.Config).hasLeases {
		return nil
	}
	for _, ip := range result.AddressesOf(a.Result.Result, a.IfName) {
		address := result.Addr(ip.Address.IP)
		isHeld := slices.ContainsFunc(a.Held, func(t Holding) bool {
			l, ok := t.Held.Own.(lease.Lease)
			return ok && l.Address == address
		})
		if !isHeld {
			list = append(list, address)
		}
	}
	return list
}
