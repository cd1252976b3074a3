// Package bandwidth limits what a container receives and sends a second.
package bandwidth

import (
	"context"
	"errors"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is the bandwidth plugin.
type Plugin struct{}

// Add limits what the host end of the container's veth pair sends, and what it receives by way of an ifb, which is added to the
// result.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := wanted(r)
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

// wanted returns what the configuration asks for of what a plugin before has made.
func wanted(r *plugin.Request) (*config, error) {
	c, err := parse(r.Config)
	if err == nil && r.PrevResult == nil {
		err = plugin.ConfigError("bandwidth is for what a plugin before it in the chain made: list it behind one that makes an interface",
			"must be called as chained plugin: prevResult is missing")
	}
	return c, err
}

// fits makes sure that the largest packet of a link fits into the bursts: the kernel drops those that don't.
func (c *config) fits(l netlink.Link) error {
	const header = 14 // of Ethernet
	packet := uint64(l.Attrs().MTU + header)
	for key, limit := range map[string]limit{"ingressBurst": c.ingress, "egressBurst": c.egress} {
		if limit.rate > 0 && limit.burst < packet {
			return plugin.ConfigError(fmt.Sprintf("set it to at least %d, or the MTU of the network lower", packet*8),
				"%s is %d bytes, and packets of %s have up to %d: none of these would pass", key, limit.burst, l.Attrs().Name, packet)
		}
	}
	return nil
}

// Del deletes the ifb. The rest goes with the veth pair.
func (Plugin) Del(_ context.Context, r *plugin.Request) error {
	r.Announce("delete the ifb")
	ifbs, err := findIFBs(r)
	errs := []error{err}
	for _, ifb := range ifbs {
		errs = append(errs, r.Deleter().Delete(r.Links(), ifb.Attrs().Index))
	}
	return errors.Join(errs...)
}

// Status reports whether the kernel can limit what the configuration asks for, by doing it in a network namespace that is gone
// afterwards. What runtimes will ask for is not known.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	c, err := parse(r.Config)
	if err == nil {
		err = netns.CheckEntry()
	}
	if err != nil || c.isEmpty() {
		return err
	}
	return netns.InNew(func() error {
		h := &netlink.Handle{}
		lo, err := h.LinkByName("lo")
		if err == nil {
			_, err = c.apply(h, r.Key, lo, &plugin.Undo{})
		}
		return err
	})
}

// GC deletes the ifbs of attachments that are not valid.
func (Plugin) GC(_ context.Context, r *plugin.Request) error {
	stale, err := staleIFBs(r)
	return errors.Join(err, link.DeleteAll(r.Links(), stale))
}
