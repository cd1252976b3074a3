// Package bandwidth limits what a container receives and sends a second.
package bandwidth

import (
	"context"
	"errors"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/detach"
)

// Plugin is the bandwidth plugin.
type Plugin struct{}

// Add limits what the host end of the container's veth pair sends, and what it receives by way of an ifb, which is added to the result.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r.Config)
	if err != nil || c.isEmpty() {
		return r.PrevResult, err
	}
	end, err := hostEnd(r)
	if err == nil {
		err = c.fits(end)
	}
	if err != nil {
		return nil, err
	}
	if err := r.Step(ctx, "limit bandwidth"); err != nil {
		return nil, err
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	ifb, err := c.apply(r.Links(), r.Key, end, &undo)
	if err == nil && ifb != nil {
		r.PrevResult.Interfaces = append(r.PrevResult.Interfaces, &types100.Interface{Name: ifb.Name, Mac: ifb.HardwareAddr.String()})
	}
	return r.PrevResult, err
}

// fits makes sure that the largest packet of a link fits into the bursts: the kernel drops those that don't.
func (c *config) fits(l netlink.Link) error {
	packet := largestPacket(l)
	for key, limit := range map[string]limit{"ingressBurst": c.ingress, "egressBurst": c.egress} {
		if limit.rate > 0 && limit.burst < packet {
			return plugin.ConfigError(fmt.Sprintf("set it to at least %d, or the MTU of the network lower", packet*8),
				"%s is %d bytes, and packets of %s have up to %d: none of these would pass", key, limit.burst, l.Attrs().Name, packet)
		}
	}
	return nil
}

// largestPacket is how many bytes a packet of a link can have, with its Ethernet header.
func largestPacket(l netlink.Link) uint64 { return uint64(l.Attrs().MTU) + 14 }

// Del deletes the ifb. The rest goes with the veth pair.
func (Plugin) Del(_ context.Context, r *plugin.Request) error {
	r.Announce("delete the ifb")
	ifbs, err := findIFBs(r)
	errs := []error{err}
	for _, ifb := range ifbs {
		errs = append(errs, detach.Delete(r, ifb.Attrs().Index))
	}
	return errors.Join(errs...)
}

// Status reports whether the kernel has what the configuration's limits need. The limits that runtimes will ask for are not known.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	c, err := parse(r.Config)
	if err == nil {
		err = netns.CheckEntry()
	}
	if err != nil || c.isEmpty() {
		return err
	}
	return c.checkKernel(r.Links())
}

// Stores returns the ifbs.
func (Plugin) Stores(r *plugin.Request) []plugin.Store {
	return []plugin.Store{ifbs{held.Links{Kind: "ifb", Host: r.Links()}, r.Valid}}
}
