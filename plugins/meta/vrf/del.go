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

// Del takes the interface out of the VRF, which is deleted if ADD has made it and nothing else is in it. What is in a namespace that is
// gone went with it.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	if r.NS() == nil {
		return nil
	}
	h, err := r.LinksInside()
	if err != nil {
		return err
	}
	v, err := joined(r, h)
	if v == nil || err != nil {
		return err
	}
	r.Announce("leave VRF " + v.Name)
	_, err = leave(ctx, r, h, v) // a route whose address or gateway has gone since ADD leads nowhere
	return err
}

// joined returns the VRF that the interface is in, if we have made it or the configuration names it. Without an interface in a VRF it is
// that which the configuration names; nil if there is none.
func joined(r *plugin.Request, h *netlink.Handle) (*netlink.Vrf, error) {
	name := locate(r.Config).name
	l, err := h.LinkByName(r.IfName)
	switch {
	case err == nil && isOther(r, l):
		return nil, nil
	case err == nil && l.Attrs().MasterIndex != 0:
		v, err := vrf(h.LinkByIndex(l.Attrs().MasterIndex))
		if v != nil && v.Name != name && !isOwn(v) {
			return nil, nil
		}
		return v, err
	case link.IgnoreNotFound(err) != nil:
		return nil, err
	case !link.IsName(name):
		return nil, nil
	}
	return vrf(h.LinkByName(name))
}

// vrf returns a link that was looked up, if it was found and is a VRF.
func vrf(l netlink.Link, err error) (*netlink.Vrf, error) {
	v, _ := l.(*netlink.Vrf)
	return v, link.IgnoreNotFound(err)
}

// isOther reports whether the interface is not the attachment's: the path of the namespace may be another container's by now.
func isOther(r *plugin.Request, l netlink.Link) bool {
	if r.PrevResult == nil {
		return !attach.IsOwn(r, l)
	}
	f := plugin.ContainerInterface(r.PrevResult, r.IfName, r.Netns)
	return f != nil && f.Mac != "" && !attach.IsOwn(r, l)
}

// isOwn reports whether this plugin has made a VRF.
func isOwn(v *netlink.Vrf) bool { return bytes.Equal(v.HardwareAddr, ownMAC(v.Name)) }

// leave takes the interface out of the VRF, if it is there, and deletes that if it is ours and empty. It returns which routes and addresses
// the interface has lost, and what could not be done.
func leave(ctx context.Context, r *plugin.Request, h *netlink.Handle, v *netlink.Vrf) (lost, err error) {
	l, err := h.LinkByName(r.IfName)
	if link.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err == nil && l.Attrs().MasterIndex == v.Index {
		if lost, err = move(ctx, r, l, 0, int(v.Table), route.Main); err != nil {
			return lost, err
		}
	}
	if !isOwn(v) {
		return lost, nil
	}
	links, err := link.List(h)
	if err != nil || slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Attrs().MasterIndex == v.Index }) {
		return lost, err
	}
	return lost, link.Delete(h, v.Index)
}
