package vrf

import (
	"bytes"
	"context"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/route"
)

// Del takes the interface out of the VRF, which is deleted if ADD has made it and nothing else is in it. What the container keeps it from
// goes with the namespace, as all of it does.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	if r.NS() == nil {
		return nil
	}
	h, err := r.LinksInside()
	if err != nil {
		return err
	}
	r.WarnOf(leave(ctx, r, h))
	return nil
}

func leave(ctx context.Context, r *plugin.Request, h *netlink.Handle) error {
	l, v, err := joined(r, h)
	if v == nil || err != nil {
		return err
	}
	r.Announce("leave VRF " + v.Name)
	if l != nil {
		held, err := holdingsOf(h, l)
		if err == nil { // what is lost had an address or a gateway that has gone since ADD
			_, err = held.moved(int(v.Table), route.Main).keptBy(ctx, r, l, 0)
		}
		if err != nil {
			return err
		}
	}
	return leaveUnused(h, v, l != nil)
}

// joined returns the interface with the VRF that it is in, if we have made that or the configuration names it. With no interface in any
// it returns the VRF that the configuration names. There may be none.
func joined(r *plugin.Request, h *netlink.Handle) (netlink.Link, *netlink.Vrf, error) {
	name := locate(r.Config).name
	l, err := h.LinkByName(r.IfName)
	switch {
	case err == nil && !attach.IsOwn(r, l):
		return nil, nil, nil
	case err == nil && l.Attrs().MasterIndex != 0:
		v, err := vrf(h.LinkByIndex(l.Attrs().MasterIndex))
		if v == nil || v.Name != name && !isOwn(v) {
			return nil, nil, err
		}
		return l, v, err
	case link.IgnoreNotFound(err) != nil || link.ValidateName(name) != nil:
		return nil, nil, link.IgnoreNotFound(err)
	}
	v, err := vrf(h.LinkByName(name))
	return nil, v, err
}

// vrf returns a link that was looked up, if it was found and is a VRF.
func vrf(l netlink.Link, err error) (*netlink.Vrf, error) {
	v, _ := l.(*netlink.Vrf)
	return v, link.IgnoreNotFound(err)
}

// isOwn reports whether this plugin has made a VRF.
func isOwn(v *netlink.Vrf) bool { return bytes.Equal(v.HardwareAddr, ownMAC(v.Name)) }

// joinedAlias is the alias of a VRF that ADD has found and joined. One without it that is not ours the reference plugin has made.
const joinedAlias = "cnibox joined"

// leaveUnused does with a VRF that nothing is in what is to be done: it deletes one that this plugin or the reference plugin has made. The
// latter's DEL does so when it takes an interface out.
func leaveUnused(h *netlink.Handle, v *netlink.Vrf, left bool) error {
	links, err := link.List(h)
	isMember := func(l netlink.Link) bool { return l.Attrs().MasterIndex == v.Index }
	switch {
	case err != nil || slices.ContainsFunc(links, isMember):
		return err
	case isOwn(v) || left && v.Alias == "":
		return link.Delete(h, v.Index)
	case v.Alias == joinedAlias:
		return h.LinkSetAlias(v, "")
	}
	return nil
}
