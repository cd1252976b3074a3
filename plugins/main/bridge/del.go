package bridge

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Del removes what the packet filter has, then the veth pair, and gives back the addresses.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	c := locate(r)
	r.Deleter()
	return attach.Del(ctx, r, &c.Config, attach.Removal{
		Filter: func(ctx context.Context) error { return backend.Del(ctx, r.Key, r.PrevAddresses(), packetFilter(r)...) },
		Link:   func() error { return disconnect(r, c) },
	})
}

// disconnect deletes the attachment's veth pair. If there is none that is found by the key the container may still have an
// interface that the reference plugin made.
func disconnect(r *plugin.Request, c *config) error {
	end, err := attach.HostEnd(r)
	if end == nil && err == nil && r.NS() != nil {
		end, err = foreignHostEnd(r, c)
	}
	if end == nil {
		return err
	}
	return r.Deleter().Delete(r.Links(), end.Attrs().Index)
}

// foreignHostEnd returns the host end of the reference plugin's veth pair, nil if there is none. It has a random name and is found
// from the container's side. The namespace's path may be another container's by now, so the pair must look like what ADD reported,
// or else be on the network's bridge.
func foreignHostEnd(r *plugin.Request, c *config) (netlink.Link, error) {
	links, err := r.LinksInside()
	if err != nil {
		return nil, err
	}
	inside, err := links.LinkByName(r.IfName)
	if err != nil {
		return nil, link.IgnoreNotFound(err)
	}
	outside, err := r.Links().LinkByIndex(inside.Attrs().ParentIndex)
	if err != nil {
		return nil, link.IgnoreNotFound(err)
	}
	leads, err := attach.LeadsTo(outside, inside, r.NS())
	if err != nil || !leads || attach.IsHostEnd(outside) || !attach.Reported(r, inside) && !onBridge(r, outside, c.name) {
		return nil, err
	}
	return outside, nil
}

func onBridge(r *plugin.Request, l netlink.Link, bridge string) bool {
	b, err := r.Links().LinkByName(bridge)
	return err == nil && l.Attrs().MasterIndex == b.Attrs().Index
}

// GC removes what the packet filter, links and leases hold for the network's attachments that are not valid.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	return errors.Join(
		backend.GC(ctx, r.Network, r.ValidKeys(), packetFilter(r)...),
		attach.GC(ctx, r, &locate(r).Config))
}
