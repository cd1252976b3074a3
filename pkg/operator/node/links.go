package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/result"
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

	Addresses []netip.Prefix `json:"addresses,omitempty"`

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
	addresses, err := link.Addresses(&netlink.Handle{}, nil, netlink.FAMILY_ALL)
	if err != nil {
		n.couldNot("addresses of the host", err, "")
	}
	for _, a := range addresses {
		if l := n.links.byIndex[a.LinkIndex]; l != nil {
			l.Addresses = append(l.Addresses, result.Prefix(*a.IPNet))
		}
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

// Uplinks returns the links by which the host reaches the outside: those of its default routes, the one that counts first. It looks now.
func (n *Node) Uplinks() (list []*Link, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, failed := link.Routes(&netlink.Handle{}, family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("list the default routes of the host: %w", failed))
		}
		slices.SortStableFunc(routes, func(a, b netlink.Route) int { return cmp.Compare(a.Priority, b.Priority) })
		for _, r := range routes {
			for _, index := range append([]int{r.LinkIndex}, hops(r)...) {
				if l := n.links.byIndex[index]; l != nil && !slices.Contains(list, l) {
					list = append(list, l)
				}
			}
		}
	}
	return list, err
}

func hops(r netlink.Route) (indexes []int) {
	for _, hop := range r.MultiPath {
		indexes = append(indexes, hop.LinkIndex)
	}
	return indexes
}

func newLink(l netlink.Link) *Link {
	a := l.Attrs()
	return &Link{
		Name: a.Name, Kind: l.Type(), MAC: a.HardwareAddr.String(), MTU: a.MTU, Up: a.Flags&net.FlagUp != 0,
		Owner: held.OwnerOf(l), Link: l,
	}
}
