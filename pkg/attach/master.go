package attach

import (
	"context"
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
	MTU         int    // it must carry packets of that size; 0 is any
}

// ReadMaster reads the keys "master" and "linkInContainer".
func ReadMaster(o *conf.Object) (m Master) {
	o.String("master", &m.Name)
	o.Bool("linkInContainer", &m.InContainer)
	return m
}

// BeginOn is Begin for a link on a master. It returns what such links have in common: they are born in the container, under their
// final name. Older kernels, such as 6.1, look for one that has no index on the host first, by its name.
func BeginOn(ctx context.Context, r *plugin.Request, c *Config, m Master) (*Attachment, netlink.LinkAttrs, error) {
	master, err := m.find(r)
	if err != nil {
		return nil, netlink.LinkAttrs{}, err
	}
	a, err := Begin(ctx, r, c)
	if err != nil {
		return nil, netlink.LinkAttrs{}, err
	}
	attrs := a.Attrs()
	attrs.ParentIndex = master.Attrs().Index
	if !m.InContainer {
		attrs.Namespace = netlink.NsFd(int(r.NS().Fd()))
	}
	return a, attrs, nil
}

// find looks the master up, and refuses one that can't carry what it must.
func (m Master) find(r *plugin.Request) (l netlink.Link, err error) {
	links, where := r.Links(), "on the host"
	if m.InContainer {
		where = "in the container"
		if links, err = r.LinksInside(); err != nil {
			return nil, err
		}
	}
	if m.Name == "" {
		l, err = masterByDefault(links, where)
	} else {
		l, err = links.LinkByName(m.Name)
	}
	switch {
	case link.IsNotFound(err):
		return nil, plugin.ConfigError("name a link that `ip link` lists there", "master: there is no link %q %s", m.Name, where)
	case err != nil:
		return nil, err
	case m.MTU > l.Attrs().MTU:
		return nil, plugin.ConfigError("use one that its packets fit in, or leave it out",
			"invalid MTU %d, must be [0, master MTU(%d)] of %s", m.MTU, l.Attrs().MTU, l.Attrs().Name)
	}
	return l, nil
}

// masterByDefault returns the link of the default route.
func masterByDefault(links *netlink.Handle, where string) (netlink.Link, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := link.Routes(links, family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
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

// StatusOn is Status for links on a master. Whether the kernel has links of a kind can't be known without making one.
func StatusOn(ctx context.Context, r *plugin.Request, c *Config, m Master) error {
	if !m.InContainer { // there is no container yet
		if _, err := m.find(r); err != nil {
			return plugin.Unavailable(err)
		}
	}
	return Status(ctx, r, c)
}
