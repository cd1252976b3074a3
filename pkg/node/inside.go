package node

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/result"
)

// Interface is a link inside a namespace. All of it was written by the container, names and addresses too.
type Interface struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	MAC       string         `json:"mac,omitempty"`
	MTU       int            `json:"mtu"`
	Up        bool           `json:"up"`
	Addresses []netip.Prefix `json:"addresses"`
	Elsewhere bool           `json:"-"`      // the kernel says that its other end, or the link that it is made on, is neither in here nor on the host
	Routes    []Route        `json:"routes"` // of the main table, but for those that follow from the addresses; the first of many
}

// Route is a route inside a namespace.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
}

// mostRoutes is how many routes are read: a container can make as many as it likes.
const mostRoutes = 200

// Interfaces looks into a namespace.
func (s *Namespace) Interfaces() (list []Interface, err error) {
	ns := netns.NewPair(s.Path(), false)
	defer ns.Close()
	if err := ns.Err(); err != nil {
		return nil, err
	}
	h, err := ns.LinksInside()
	if err != nil {
		return nil, err
	}
	links, err := h.LinkList()
	if ignoreInterrupted(err) != nil {
		return nil, err
	}
	hostID, unclear := idOfOwn(h)
	list = make([]Interface, len(links))
	byIndex := map[int]*Interface{}
	for i, l := range links {
		own := newLink(l)
		list[i] = Interface{Name: own.Name, Kind: own.Kind, MAC: own.MAC, MTU: own.MTU, Up: own.Up, Addresses: []netip.Prefix{}, Routes: []Route{}}
		list[i].Elsewhere = unclear == nil && l.Attrs().NetNsID >= 0 && l.Attrs().NetNsID != hostID
		byIndex[l.Attrs().Index] = &list[i]
	}
	addresses, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if ignoreInterrupted(err) != nil {
		return nil, err
	}
	for _, a := range addresses {
		if i := byIndex[a.LinkIndex]; i != nil {
			i.Addresses = append(i.Addresses, result.Prefix(*a.IPNet))
		}
	}
	count := 0
	err = h.RouteListFilteredIter(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
		if i := byIndex[r.LinkIndex]; i != nil && r.Dst != nil && r.Protocol != unix.RTPROT_KERNEL {
			i.Routes = append(i.Routes, newRoute(r))
			count++
		}
		return count < mostRoutes
	})
	return list, ignoreInterrupted(err)
}

// idOfOwn returns the number by which another namespace knows our own, -1 if it knows it by none.
func idOfOwn(inside *netlink.Handle) (int, error) {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return -1, err
	}
	defer own.Close()
	return inside.GetNetNsIdByFd(int(own.Fd()))
}

func newRoute(r netlink.Route) Route {
	route := Route{Destination: result.Prefix(*r.Dst)}
	if r.Gw != nil {
		route.Gateway = result.Addr(r.Gw)
	}
	return route
}

// ignoreInterrupted returns an error unless it says that something has changed meanwhile: what is inside may change all the time.
func ignoreInterrupted(err error) error {
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	return err
}

// Command returns the name of the first process in the namespace, "" if there is none. The process may call itself as it likes.
func (s *Namespace) Command() string {
	if s.PID == 0 {
		return ""
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", s.PID))
	return strings.TrimSpace(string(name))
}

// Seen is what somebody looked for and was found inside a namespace, where the container may have put it.
type Seen struct {
	By        string // what it is there: address or MAC address
	Namespace *Namespace
	Interface Interface
}

// FindInside looks for an address or a MAC address inside of all namespaces, and returns what could not be looked at. It says what
// containers claim, not whose the address is.
func (n *Node) FindInside(name string) (list []Seen, unread []Unread) {
	address, _ := netip.ParseAddr(name)
	for _, s := range n.Namespaces {
		interfaces, err := s.Interfaces()
		if err != nil {
			unread = append(unread, Unread{What: s.Path(), Why: err.Error()})
			continue
		}
		for _, i := range interfaces {
			switch {
			case slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == address }):
				list = append(list, Seen{"address", s, i})
			case i.MAC != "" && strings.EqualFold(i.MAC, name):
				list = append(list, Seen{"MAC address", s, i})
			}
		}
	}
	return list, unread
}
