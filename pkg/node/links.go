package node

import (
	"cmp"
	"maps"
	"net"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/link"
)

// Link is a link of the host.
type Link struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	MAC    string `json:"mac,omitempty"`
	MTU    int    `json:"mtu"`
	Up     bool   `json:"up"`
	Master string `json:"master,omitempty"` // the bridge or VRF that it is a port of
	Parent string `json:"parent,omitempty"` // the link that it is made on
	Owner  string `json:"owner,omitempty"`  // by its alias, the attachment that it was made for

	Link netlink.Link `json:"-"`
}

// links are the host's, by name and by index.
type links struct {
	byName  map[string]*Link
	byIndex map[int]*Link
}

// Links returns the links of the host, in the order in which they were made.
func (n *Node) Links() []*Link {
	return slices.SortedFunc(maps.Values(n.links.byIndex), func(a, b *Link) int { return cmp.Compare(a.Link.Attrs().Index, b.Link.Attrs().Index) })
}

// Link returns the host's link called name, nil if there is none.
func (n *Node) Link(name string) *Link { return n.links.byName[name] }

func (n *Node) readLinks() {
	n.links = links{map[string]*Link{}, map[int]*Link{}}
	all, err := link.List(&netlink.Handle{})
	if err != nil {
		n.couldNot("links of the host", err, "")
	}
	for _, l := range all {
		own := newLink(l)
		n.links.byName[own.Name], n.links.byIndex[l.Attrs().Index] = own, own
	}
	for _, l := range n.links.byIndex {
		if master := n.links.byIndex[l.Link.Attrs().MasterIndex]; master != nil {
			l.Master = master.Name
		}
		if parent := n.links.byIndex[l.Link.Attrs().ParentIndex]; parent != nil && l.Kind != "veth" {
			l.Parent = parent.Name
		}
	}
}

func newLink(l netlink.Link) *Link {
	a := l.Attrs()
	return &Link{
		Name: a.Name, Kind: l.Type(), MAC: a.HardwareAddr.String(), MTU: a.MTU, Up: a.Flags&net.FlagUp != 0,
		Owner: held.OwnerOf(l), Link: l,
	}
}
