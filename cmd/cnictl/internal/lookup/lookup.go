// Package lookup finds what a name means on a node, and all about it.
package lookup

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// Found is all that has a name.
type Found struct {
	Name    string        `json:"name"`
	Matches []Match       `json:"matches"`
	Unread  []node.Unread `json:"unread"`
}

// Match is something that has the name. One of the sheets says what.
type Match struct {
	By         string      `json:"by"` // what of it the name is
	Attachment *Attachment `json:"attachment,omitempty"`
	Network    *Network    `json:"network,omitempty"`
	Link       *Link       `json:"link,omitempty"`
	Namespace  *Namespace  `json:"namespace,omitempty"`
	Subnet     *Subnet     `json:"subnet,omitempty"`
	Address    *Address    `json:"address,omitempty"` // one that no attachment has
}

// Find finds all that a name may mean.
func Find(n *node.Node, name string) (*Found, error) {
	s := &Found{Name: name, Matches: []Match{}, Unread: slices.Clone(n.Unread)}
	for _, m := range n.Find(name) {
		s.Matches = append(s.Matches, Match{By: m.By, Attachment: newAttachmentSheet(n, m.Attachment)})
	}
	if w := n.Network(name); w != nil {
		s.Matches = append(s.Matches, Match{By: "network", Network: newNetworkSheet(n, w)})
	}
	s.Matches = append(s.Matches, findLinks(n, name, s.Matches)...)
	for _, ns := range n.Namespaces {
		if ns.Is(name) && attachmentsIn(n, ns) == nil {
			s.Matches = append(s.Matches, Match{By: "namespace", Namespace: newNamespaceSheet(ns)})
		}
	}
	if prefix, err := netip.ParsePrefix(name); err == nil && prefix == prefix.Masked() && !prefix.IsSingleIP() {
		s.Matches = append(s.Matches, findSubnet(n, prefix)...)
	}
	if len(s.Matches) == 0 {
		s.findElsewhere(n)
	}
	if len(s.Matches) == 0 {
		return nil, Unknown(n, name)
	}
	return s, nil
}

// findLinks finds links of the host. A host end is a part of its attachment.
func findLinks(n *node.Node, name string, found []Match) (list []Match) {
	address, _ := netip.ParseAddr(name)
	for _, l := range n.Links() {
		by := ""
		switch {
		case slices.ContainsFunc(found, func(m Match) bool { return m.Attachment != nil && m.Attachment.HostEnd == l }):
		case l.Name == name:
			by = "link"
		case l.MAC != "" && strings.EqualFold(l.MAC, name):
			by = "MAC address"
		case slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == address }):
			by = "address"
		}
		if by != "" {
			list = append(list, Match{By: by, Link: newLinkSheet(n, l)})
		}
	}
	return list
}

// findSubnet finds the pools that have addresses of a subnet, and the attachments in it.
func findSubnet(n *node.Node, subnet netip.Prefix) []Match {
	s := &Subnet{Subnet: subnet, Pools: []PoolOf{}, Attached: []*node.Attachment{}}
	for _, w := range n.Networks {
		for _, p := range w.Pools {
			if of, err := netip.ParsePrefix(p.Subnet); err == nil && of.Overlaps(subnet) {
				s.Pools = append(s.Pools, PoolOf{w.Name, p})
			}
		}
	}
	for _, a := range n.Attachments {
		if slices.ContainsFunc(a.Addresses, func(p netip.Prefix) bool { return subnet.Contains(p.Addr()) }) {
			s.Attached = append(s.Attached, a)
		}
	}
	if len(s.Pools)+len(s.Attached) == 0 {
		return nil
	}
	return []Match{{By: "subnet", Subnet: s}}
}

// findElsewhere looks for an address that no attachment has in the pools, and for one of either kind inside of the namespaces.
func (s *Found) findElsewhere(n *node.Node) {
	if address, err := netip.ParseAddr(s.Name); err == nil {
		for _, w := range n.Networks {
			for _, p := range w.Pools {
				if p.Contains(address) {
					s.Matches = append(s.Matches, Match{By: "pool", Address: newAddressSheet(n, address, w, p)})
				}
			}
		}
	} else if strings.Count(s.Name, ":") != 5 { // no MAC address
		return
	}
	seen, unread := n.FindInside(s.Name)
	s.Unread = append(s.Unread, unread...)
	for _, where := range seen {
		by := where.By + " inside, which no ADD gave"
		of := attachmentsIn(n, where.Namespace)
		for _, a := range of {
			s.Matches = append(s.Matches, Match{By: by, Attachment: newAttachmentSheet(n, a)})
		}
		if of == nil {
			s.Matches = append(s.Matches, Match{By: by, Namespace: newNamespaceSheet(where.Namespace)})
		}
	}
}

// attachmentsIn returns the attachments that have their interfaces in a namespace.
func attachmentsIn(n *node.Node, ns *node.Namespace) (list []*node.Attachment) {
	for _, a := range n.Attachments {
		if a.Namespace == ns {
			list = append(list, a)
		}
	}
	return list
}
