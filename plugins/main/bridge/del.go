package bridge

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/detach"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Del removes what the packet filter has, then the veth pair, and gives back the addresses.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	c := locate(r)
	detach.Start(r)
	return attach.Del(ctx, r, &c.Config, attach.Removal{
		Filter: func(ctx context.Context) error {
			return backend.Del(ctx, r.Key, result.PrefixesOf(r.PrevResult, r.IfName), packetFilter(r)...)
		},
		Link: func() error {
			return attach.DelVeth(r, func(end netlink.Link) bool { return onBridge(r, end, c.name) })
		},
	})
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
