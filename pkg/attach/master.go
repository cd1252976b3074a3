package attach

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Master says which link a container's link is made on.
type Master struct {
	Name        string // "" is the link of the default route
	InContainer bool   // it is in the container's namespace
}

// ReadMaster reads the keys "master" and "linkInContainer".
func ReadMaster(o *conf.Object) (m Master) {
	o.String("master", &m.Name)
	o.Bool("linkInContainer", &m.InContainer)
	return m
}

// links returns the links that the master is one of.
func (m Master) links(r *plugin.Request) (*netlink.Handle, error) {
	if m.InContainer {
		return r.LinksInside()
	}
	return r.Links(), nil
}

// Find looks the master up.
func (m Master) Find(r *plugin.Request) (netlink.Link, error) {
	links, err := m.links(r)
	if err != nil {
		return nil, err
	}
	where := "on the host"
	if m.InContainer {
		where = "in the container"
	}
	if m.Name == "" {
		return m.ofDefaultRoute(links, where)
	}
	l, err := links.LinkByName(m.Name)
	if link.IsNotFound(err) {
		return nil, plugin.ConfigError("name a link that `ip link` lists there", "master: there is no link %q %s", m.Name, where)
	}
	return l, err
}

func (m Master) ofDefaultRoute(links *netlink.Handle, where string) (netlink.Link, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := links.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
		if err != nil {
			return nil, fmt.Errorf("list the default routes %s: %w", where, err)
		}
		for _, route := range routes {
			index := route.LinkIndex
			if len(route.MultiPath) > 0 {
				index = route.MultiPath[0].LinkIndex
			}
			if index != 0 {
				return links.LinkByIndex(index)
			}
		}
	}
	return nil, plugin.ConfigError(`name the link with "master"`, "no default route %s tells which link is the master", where)
}

// LimitMTU refuses an MTU that the master can't carry.
func (c *Config) LimitMTU(master netlink.Link) error {
	if most := master.Attrs().MTU; c.MTU > most {
		return plugin.ConfigError("use one that its packets fit in, or leave it out", "mtu: %d is more than the %d of %s", c.MTU, most, master.Attrs().Name)
	}
	return nil
}

// OnMaster returns what links that are made on a master have in common: they are born in the container, under their final name.
func (a *Attachment) OnMaster(m Master, l netlink.Link) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex, attrs.MTU = a.IfName, l.Attrs().Index, a.MTU
	if !m.InContainer {
		attrs.Namespace = netlink.NsFd(int(a.NS().Fd()))
	}
	return attrs
}

// MakeOn makes a link on a master.
func (a *Attachment) MakeOn(m Master, l netlink.Link) error {
	links, err := m.links(a.Request)
	if err != nil {
		return err
	}
	return a.explainMake(l, links.LinkAdd(l))
}

// explainMake says what to do about an error of making a link in the container.
func (a *Attachment) explainMake(l netlink.Link, err error) error {
	remedy := ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EEXIST):
		remedy = fmt.Sprintf("the container already has an interface %s: give the attachment another CNI_IFNAME, or remove that interface", a.IfName)
	case errors.Is(err, unix.EOPNOTSUPP):
		remedy = fmt.Sprintf("the kernel needs links of type %s, or must be able to load the module for them", l.Type())
	case errors.Is(err, unix.EBUSY):
		remedy = "the master is in use for links of another kind: a macvlan and an ipvlan can't have the same, and a bridge's port can be no master of theirs"
	}
	return plugin.Errorf(remedy, "make %s %s: %v", l.Type(), a.IfName, err)
}

// CheckMaster compares the master of the container's link.
func CheckMaster(l, master netlink.Link) error {
	if l.Attrs().ParentIndex != master.Attrs().Index {
		return different("%s is not made on %s", l.Attrs().Name, master.Attrs().Name)
	}
	return nil
}
