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
	var deleter *link.Deleter
	if r.MayDetach() {
		if d, err := link.StartDeleter(); err == nil { // early, to be ready when it is needed; without one this process waits
			deleter = d
			defer d.Close()
		}
	}
	return attach.Del(ctx, r, &c.Config, attach.Removal{
		Filter: func(ctx context.Context) error { return backend.DelBridge(ctx, r.Key, r.PrevAddresses()) },
		Link:   func() error { return disconnect(r, c, deleter) },
	})
}

// disconnect deletes the attachment's veth pair. If there is none that is found by the key the container may still have an
// interface that the reference plugin made.
func disconnect(r *plugin.Request, c *config, deleter *link.Deleter) error {
	ends, err := attach.HostEnds(r.Key)
	if len(ends) > 0 {
		return errors.Join(err, attach.DeleteHostEnds(r.Key, deleter))
	}
	if err != nil || r.NS() == nil {
		return err
	}
	return disconnectForeign(r, c, deleter)
}

// disconnectForeign deletes a veth pair of the reference plugin, whose host end has a random name: it is found from the
// container's side. The namespace's path may be another container's by now, so the pair must look like what ADD reported, or else
// be on the network's bridge.
func disconnectForeign(r *plugin.Request, c *config, deleter *link.Deleter) error {
	var inside netlink.Link
	err := r.Inside(func() (err error) {
		inside, err = netlink.LinkByName(r.IfName)
		return err
	})
	if link.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	outside, err := netlink.LinkByIndex(inside.Attrs().ParentIndex)
	if link.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	leads, err := attach.LeadsTo(outside, inside, r.NS())
	if err != nil || !leads || attach.IsHostEnd(outside) || !attach.Reported(r, inside) && !onBridge(outside, c.name) {
		return err
	}
	return attach.Delete(outside, deleter)
}

func onBridge(l netlink.Link, bridge string) bool {
	b, err := netlink.LinkByName(bridge)
	return err == nil && l.Attrs().MasterIndex == b.Attrs().Index
}

// GC removes what the packet filter, links and leases hold for the network's attachments that are not valid.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	return errors.Join(
		backend.GCMasquerade(ctx, r.Network, r.ValidKeys()), backend.GCSpoofCheck(ctx, r.Results, r.Network, r.ValidKeys()),
		attach.GC(ctx, r, &locate(r).Config))
}
