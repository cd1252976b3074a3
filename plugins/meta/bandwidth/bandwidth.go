// Package bandwidth limits what a container receives and sends a second.
package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/detach"
	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
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

// Status reports whether the kernel has what the configuration's limits need. What runtimes will ask for is not known.
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

// Check compares the limits that the kernel has with the configuration.
func (Plugin) Check(_ context.Context, r *plugin.Request) error {
	c, err := parse(r.Config)
	if err != nil || c.isEmpty() {
		return err
	}
	end, err := hostEnd(r)
	if err != nil {
		return err
	}
	if c.ingress.rate > 0 {
		err = c.checkTBF(c.ingress, end)
	}
	if err != nil || c.egress.rate == 0 {
		return err
	}
	ifb, err := usedIFB(r, end)
	if err != nil {
		return err
	}
	return c.checkTBF(c.egress, ifb)
}

// usedIFB returns the attachment's ifb that what the host end receives is sent through.
func usedIFB(r *plugin.Request, end netlink.Link) (netlink.Link, error) {
	ifbs, err := findIFBs(r)
	if err != nil {
		return nil, err
	}
	to, err := targetsOf(r.Links(), end.Attrs().Index)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(ifbs, func(l netlink.Link) bool { return slices.Contains(to, l.Attrs().Index) })
	if at < 0 {
		return nil, attach.Different("what %s receives is not sent through an ifb of the attachment", end.Attrs().Name)
	}
	if ifbs[at].Attrs().RawFlags&unix.IFF_UP == 0 {
		return nil, attach.Different("ifb %s is down", ifbs[at].Attrs().Name)
	}
	return ifbs[at], nil
}

// checkTBF compares what limits what a link sends.
func (c *config) checkTBF(want limit, l netlink.Link) error {
	name, index := l.Attrs().Name, l.Attrs().Index
	_, is, err := rootQdisc(index)
	switch {
	case err != nil:
		return fmt.Errorf("look up the qdisc of %s: %w", name, err)
	case is == nil:
		return attach.Different("nothing limits what %s sends", name)
	case !c.isTBF(is, want):
		tbf := c.tbf(want, index)
		return attach.Different("%s sends %d bytes a second with a burst of %d ticks and a queue of %d bytes, and it should be %d, %d and %d",
			name, is.Rate, is.Buffer, is.Limit, tbf.Rate, tbf.Buffer, tbf.Limit)
	case uint64(is.Buffer) < limit{is.Rate, largestPacket(l)}.ticks():
		return attach.Different("%s drops its largest packets: the burst of %d ticks has no room for %d bytes", name, is.Buffer, largestPacket(l))
	}
	return nil
}
