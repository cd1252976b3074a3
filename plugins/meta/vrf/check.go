package vrf

import (
	"context"

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
	h, l, err := attach.Interface(r)
	if err != nil {
		return err
	}
	v, err := c.find(h)
	switch {
	case link.IsNotFound(err):
		return plugin.Errorf(attach.Repair, "there is no VRF %s", c.name)
	case err != nil:
		return err
	case l.Attrs().MasterIndex != v.Index:
		return plugin.Errorf(attach.Repair, "interface %s is not in VRF %s", r.IfName, c.name)
	case v.RawFlags&unix.IFF_UP == 0:
		return plugin.Errorf(attach.Repair, "VRF %s is down", c.name)
	}
	routes, err := routesOf(h, l)
	if err != nil {
		return err
	}
	for _, w := range r.PrevResult.Routes {
		if w.Table == nil && !route.Has(routes, int(v.Table), w.Dst) {
			return plugin.Errorf(attach.Repair, "VRF %s has no route to %s by interface %s", c.name, &w.Dst, r.IfName)
		}
	}
	return nil
}
