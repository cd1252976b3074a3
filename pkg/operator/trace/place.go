package trace

import (
	"fmt"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
)

// place is a namespace on a packet's way.
type place struct {
	name  string   // of the container; "host" for the node itself
	netns ns.NetNS // nil: the node's
	*tracer
}

func openPlace(name, path string) (*place, error) {
	n, err := netns.Open(path)
	if err != nil {
		return nil, fmt.Errorf("enter the network namespace of %s: %w", name, err)
	}
	return &place{name: name, netns: n}, nil
}

// do does something in the place.
func (p *place) do(f func() error) error {
	if p.netns == nil {
		return f()
	}
	return p.netns.Do(func(ns.NetNS) error { return f() })
}

// route asks the place's kernel where it sends a packet.
func (p *place) route(to, from netip.Addr, in int, mark uint32) (r route) {
	if err := p.do(func() error { r = routeOf(to, from, in, mark); return nil }); err != nil {
		r.err = err
	}
	return r
}

func (p *place) link(index int) (l netlink.Link) {
	_ = p.do(func() (err error) { l, err = netlink.LinkByIndex(index); return err })
	return l
}

func (p *place) linkName(index int) (name string) {
	_ = p.do(func() error { name = linkName(index); return nil })
	return name
}

func (p *place) isHost() bool { return p.netns == nil }

func (p *place) String() string { return p.name }

// way is the links of the host by which a container's packets come in and go out.
type way struct {
	inside  netlink.Link // the container's own
	hostEnd netlink.Link // nil if it is no veth
	bridge  netlink.Link // nil if the host end is no port of one
	parent  netlink.Link // what a macvlan, ipvlan or VLAN is made on; nil if it is none
}

// wayOf looks by which links a container's packets to an address go. If that can't be asked, as of one whose own link is down, it is what ADD has made.
func (p *place) wayOf(c *Container, to netip.Addr) (w way) {
	if r := p.route(to, netip.Addr{}, 0, 0); r.err == nil && !r.local {
		w.inside = p.link(r.link)
	}
	for i := 0; w.inside == nil && i < len(c.Attachments); i++ {
		if end := c.Attachments[i].HostEnd; end != nil {
			w.hostEnd, _ = netlink.LinkByIndex(end.Link.Attrs().Index)
			_ = p.do(func() (err error) { w.inside, err = netlink.LinkByName(c.Attachments[i].IfName); return err })
		}
	}
	if w.inside == nil {
		return w
	}
	outer, err := netlink.LinkByIndex(w.inside.Attrs().ParentIndex)
	switch {
	case err != nil || w.inside.Attrs().ParentIndex == 0:
	case w.inside.Type() != "veth":
		w.parent = outer
	case outer.Type() == "veth" && outer.Attrs().ParentIndex == w.inside.Attrs().Index:
		w.hostEnd, w.bridge = outer, bridgeAbove(outer)
	}
	return w
}

// bridgeAbove is the bridge of which a link is a port, nil if there is none.
func bridgeAbove(port netlink.Link) netlink.Link {
	master, err := netlink.LinkByIndex(port.Attrs().MasterIndex)
	if err != nil || master.Type() != link.KindBridge {
		return nil
	}
	return master
}

// links are those of the host, by name.
func (w way) links() (names []string) {
	for _, l := range []netlink.Link{w.hostEnd, w.bridge, w.parent} {
		if l != nil {
			names = append(names, l.Attrs().Name)
		}
	}
	return names
}
