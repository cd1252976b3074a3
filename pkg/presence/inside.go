package presence

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
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

// How many addresses and routes are kept: a container can make as many as it likes.
const (
	mostAddresses = 100_000
	mostRoutes    = 200
)

// Interfaces looks into a namespace. Of the addresses it keeps those that are wanted.
func (s *Namespace) Interfaces(isWanted func(netip.Addr) bool) ([]Interface, error) {
	return s.interfaces(isWanted, mostAddresses)
}

// AnyAddress is for who wants all addresses.
func AnyAddress(netip.Addr) bool { return true }

func (s *Namespace) interfaces(isWanted func(netip.Addr) bool, mostAddresses int) (list []Interface, err error) {
	ns, err := s.open()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
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
		attrs := l.Attrs()
		list[i] = Interface{Name: attrs.Name, Kind: l.Type(), MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU, Up: attrs.Flags&net.FlagUp != 0, Addresses: []netip.Prefix{}, Routes: []Route{}}
		list[i].Elsewhere = unclear == nil && l.Attrs().NetNsID >= 0 && l.Attrs().NetNsID != hostID
		byIndex[l.Attrs().Index] = &list[i]
	}
	count := 0
	err = ns.Inside(func() error {
		return link.EachPrefix(0, func(index int, p netip.Prefix) bool {
			if i := byIndex[index]; i != nil && isWanted(p.Addr()) {
				i.Addresses = append(i.Addresses, p)
				count++
			}
			return count <= mostAddresses
		})
	})
	if ignoreInterrupted(err) != nil {
		return nil, err
	}
	if count > mostAddresses {
		return nil, fmt.Errorf("it has more than %d addresses", mostAddresses)
	}
	count = 0
	err = h.RouteListFilteredIter(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
		if i := byIndex[r.LinkIndex]; i != nil && r.Dst != nil && r.Protocol != unix.RTPROT_KERNEL {
			i.Routes = append(i.Routes, newRoute(r))
			count++
		}
		return count < mostRoutes
	})
	return list, ignoreInterrupted(err)
}

// has reports whether the namespace has an attachment's interface: by the index that is made from the key, or with the MAC address that ADD
// reported. One that has none goes by the name alone.
func (s *Namespace) has(c Claim) (bool, error) {
	ns, err := s.open()
	if err != nil {
		return false, err
	}
	defer ns.Close()
	h, err := ns.LinksInside()
	if err != nil {
		return false, err
	}
	l, err := h.LinkByName(c.IfName)
	if err != nil {
		return false, link.IgnoreNotFound(err)
	}
	attrs := l.Attrs()
	hasNone := c.MAC == "" || c.MAC == noMAC
	return attrs.Index == c.LinkIndex() || hasNone || strings.EqualFold(c.MAC, attrs.HardwareAddr.String()), nil
}

// noMAC is what a result says of lo, and of others that have no MAC address.
const noMAC = "00:00:00:00:00:00"

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

// Is reports whether a name is the namespace's: its path or the end of that, its inode number, /proc/PID/ns/net.
func (s *Namespace) Is(name string) bool {
	return slices.ContainsFunc(s.Paths, func(p string) bool { return p == name || strings.HasSuffix(p, "/"+name) }) ||
		s.PID > 0 && "/proc/"+strconv.Itoa(s.PID)+"/ns/net" == name || strconv.FormatUint(s.Inode, 10) == name
}
