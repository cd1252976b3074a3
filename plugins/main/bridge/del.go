package bridge

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/detach"
	"github.com/cnibox/cnibox/pkg/result"
)

// Del removes what the packet filter has, then the veth pair, and gives back the addresses.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	c := locate(r)
	detach.Start(r)
	r.Announce("packet filter")
	filter := netfilter.Del(ctx, r, result.PrefixesOf(r.PrevResult, r.IfName), packetFilter()...)
	d := attach.BeginDel(ctx, r, &c.Config)
	end, certain, err := attach.FindHostEnd(r)
	if end != nil && (certain || isPort(r.Links(), end, c.name)) {
		err = detach.Delete(r, end.Attrs().Index)
	}
	return errors.Join(filter, d.End(ctx, err))
}

func isPort(h *netlink.Handle, l netlink.Link, bridge string) bool {
	b, err := h.LinkByName(bridge)
	return err == nil && l.Attrs().MasterIndex == b.Attrs().Index
}

// GC removes what the packet filter, links and leases hold for the network's attachments that are not valid.
func (p Plugin) GC(ctx context.Context, r *plugin.Request) error {
	return attach.GC(ctx, r, &locate(r).Config, p.Stores(r)...)
}

// Stores returns where the packet filter holds something for attachments, and the host ends.
func (Plugin) Stores(r *plugin.Request) []plugin.Store {
	return append(netfilter.Stores(r, packetFilter()...), attach.HostEnds(r))
}
