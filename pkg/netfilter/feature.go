package netfilter

import (
	"net/netip"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/firewalld"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Feature is something that attachments hold, by what it is in each backend, with what one of them is to have of it.
type Feature struct {
	does      string // in a sentence
	elements  nft.Wants
	kind      iptables.Kind // "" for what nftables alone can do
	rules     func(plugin.Key) iptables.Rules
	leftovers func(*plugin.Request) leftover // what the reference plugins left in nftables; nil if they have it in iptables alone

	addrs  []netip.Prefix   // what the reference plugins made will do if it is for all of them
	marked *iptables.Marked // has iptables accept what nftables marks, which can't accept a packet for good
	ports  spec.PortNeeds
	zone   *firewalld.Zone // that addresses can be in

	hasLists bool // attachments share lists, which go with the last of them
}

// Masquerade makes packets from addresses leave with the host's own address unless they go to the address's own network or are
// multicast. It takes over an address that another attachment held before.
func Masquerade(addrs []netip.Prefix) Feature {
	return Feature{
		does: "masquerades", elements: nft.ToMasquerade(addrs), addrs: addrs,
		kind: iptables.Masquerading, rules: func(key plugin.Key) iptables.Rules { return iptables.MasqueradeRules(key, addrs) },
		leftovers: func(r *plugin.Request) leftover { return reference.MasqueradeRules{Request: r} },
	}
}

// PortMaps publishes ports of containers on the host. Add fails if another attachment has one of them, with an error that names it, or takes
// the port over if that one is gone. It also cuts connections without a connection's end, such as UDP's, that were made before and would go
// on to lead elsewhere. Del cuts those to the container; a repair lets them be.
func PortMaps(ports spec.PortNeeds) Feature {
	t := Feature{
		does: "publishes ports", elements: nft.ToPublish(ports), ports: ports,
		kind: iptables.PortMapping, rules: func(key plugin.Key) iptables.Rules { return iptables.PortMapRules(key, ports) },
		leftovers: func(r *plugin.Request) leftover { return reference.PortRules{Request: r} },
	}
	for _, m := range ports.Maps {
		t.addrs = append(t.addrs, result.Single(m.Container.Addr()))
	}
	return t
}

// SpoofCheck has packets dropped that the host's end of the attachment's veth gets from any other MAC address.
func SpoofCheck(hostEnd string, mac [6]byte) Feature {
	return Feature{
		elements:  nft.ToCheckSpoofing(hostEnd, mac),
		leftovers: func(r *plugin.Request) leftover { return reference.SpoofChains{Request: r} },
	}
}

// tables are those of nf_tables in which there can be something to remove.
func (t Feature) tables() []nftables.Table {
	list := []nftables.Table{t.elements.Table}
	if t.kind != "" {
		list = append(list, t.kind.Tables()...)
	}
	if t.leftovers != nil {
		list = append(list, t.leftovers(nil).Tables()...)
	}
	return list
}

func (t Feature) stores(r *plugin.Request) []plugin.Store {
	list := []plugin.Store{t.elements.Purpose}
	if t.elements.Table == nft.Publishing.Table {
		list = append(list, nft.Unused{})
	}
	if t.hasLists {
		list = append(list, nft.UnusedLists{Table: t.elements.Table})
	}
	if t.kind != "" {
		list = append(list, t.kind)
	}
	if t.leftovers != nil {
		list = append(list, t.leftovers(r))
	}
	if t.zone != nil {
		list = append(list, firewalld.Sources{})
	}
	return list
}
