package probe

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
)

// point is where a packet can be seen: at a link, on its way in or out.
type point struct {
	in     *Container // in whose namespace; nil is the host
	link   int
	name   string
	out    bool
	router bool // the host takes packets in here, to send them on, or sends them out
}

func (p point) String() string {
	if p.in != nil {
		return p.name + " of " + p.in.Name
	}
	return p.name
}

func hostPlace(link netlink.Link, out bool) point {
	return point{link: link.Attrs().Index, name: link.Attrs().Name, out: out}
}

// look returns the link of a place as it is now.
func (p point) look() (link netlink.Link, err error) {
	find := func() error {
		link, err = netlink.LinkByIndex(p.link)
		return err
	}
	if p.in != nil {
		return link, p.in.inside(find)
	}
	return link, find()
}

// reversed is the way of an answer.
func reversed(way []point) (back []point) {
	for _, p := range slices.Backward(way) {
		back = append(back, p.back())
	}
	return back
}

// back is the place for the answer to what is seen at a place.
func (p point) back() point {
	p.out = !p.out
	return p
}

// hostEnd returns the host's end of a container's veth pair, nil if it has none.
func (c *Container) hostEnd() netlink.Link {
	if c.link.Type() != "veth" {
		return nil
	}
	end, err := netlink.LinkByIndex(c.link.Attrs().ParentIndex)
	if err != nil || end.Type() != "veth" || end.Attrs().ParentIndex != c.link.Attrs().Index {
		return nil
	}
	return end
}

// master returns the link that a container's macvlan, ipvlan or VLAN is on, nil if it is none of these.
func (c *Container) master() netlink.Link {
	if c.link.Type() == "veth" || c.link.Attrs().ParentIndex == 0 {
		return nil
	}
	master, err := netlink.LinkByIndex(c.link.Attrs().ParentIndex)
	if err != nil {
		return nil
	}
	return master
}

// bridge returns the bridge that a container's host end is a port of, nil if there is none.
func (c *Container) bridge() netlink.Link {
	end := c.hostEnd()
	if end == nil || end.Attrs().MasterIndex == 0 {
		return nil
	}
	bridge, err := netlink.LinkByIndex(end.Attrs().MasterIndex)
	if err != nil || bridge.Type() != link.KindBridge {
		return nil
	}
	return bridge
}

// leave is the way of a packet from a container to the host, or as far as the host can see it.
func (c *Container) leave(f family) []point {
	way := []point{{in: c, link: c.link.Attrs().Index, name: ifName, out: true}}
	if master := c.master(); master != nil {
		return append(way, hostPlace(master, true))
	}
	end := c.hostEnd()
	if end == nil {
		return way
	}
	way = append(way, hostPlace(end, false))
	// The host takes packets in at the link by which it reaches the container: a bridge, a VLAN on one, the host end itself.
	router := routeTo(c.address(f))
	if bridge := c.bridge(); bridge != nil && (router.link == nil || router.next.IsValid()) {
		router.link = bridge
	}
	if router.link != nil && router.link.Attrs().Index != end.Attrs().Index {
		way = append(way, hostPlace(router.link, false))
	}
	way[len(way)-1].router = true
	return way
}

// enter is the way of a packet from the host to a container.
func (c *Container) enter(f family) []point { return reversed(c.leave(f)) }

// route is what the calling thread's namespace does with packets for an address.
type route struct {
	local bool
	link  netlink.Link // nil: there is no route
	next  netip.Addr   // the gateway; invalid if the address is on the link
	from  netip.Addr   // the host's address that is preferred
}

func routeTo(to netip.Addr) (r route) {
	if !to.IsValid() {
		return r
	}
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return r
	}
	r.local = routes[0].Type == unix.RTN_LOCAL
	r.next, r.from = address(routes[0].Gw), address(routes[0].Src)
	if link, err := netlink.LinkByIndex(routes[0].LinkIndex); err == nil {
		r.link = link
	}
	return r
}

// address is one of the kernel's or of a packet's; an invalid one if there is none.
func address(bytes []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(bytes)
	return a.Unmap()
}
