package vrf

import (
	"context"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/route"
)

// Check looks whether the interface is in the VRF, and the VRF has the routes of the result.
func (Plugin) Check(_ context.Context, r *plugin.Request) error {
	c, err := wanted(r)
	if err != nil {
		return err
	}
	h, err := r.LinksInside()
	if err != nil {
		return err
	}
	l, err := h.LinkByName(r.IfName)
	if err != nil {
		return noInterface(r, err)
	}
	v, err := c.find(h)
	switch {
	case link.IsNotFound(err):
		return different("there is no VRF %s", c.name)
	case err != nil:
		return err
	case l.Attrs().MasterIndex != v.Index:
		return different("interface %s is not in VRF %s", r.IfName, c.name)
	case v.RawFlags&unix.IFF_UP == 0:
		return different("VRF %s is down", c.name)
	}
	all, err := route.List(h)
	if err != nil {
		return err
	}
	routes := route.Of(all, l.Attrs().Index)
	for _, w := range r.PrevResult.Routes {
		has := func(rt netlink.Route) bool {
			return rt.Table == int(v.Table) && plugin.Prefix(*rt.Dst) == plugin.Prefix(w.Dst).Masked()
		}
		if w.Table == nil && !slices.ContainsFunc(routes, has) {
			return different("VRF %s has no route to %s by interface %s", c.name, &w.Dst, r.IfName)
		}
	}
	return nil
}

func different(format string, args ...any) error {
	return plugin.Errorf(attach.Repair, format, args...)
}
