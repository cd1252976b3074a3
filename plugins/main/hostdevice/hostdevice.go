// Package hostdevice gives containers devices of the host.
package hostdevice

import (
	"context"
	"errors"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/request"
)

// Plugin is the host-device plugin.
type Plugin struct{}

// Add moves the device into the container and gives it IPAM's addresses.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r)
	if err != nil {
		return nil, err
	}
	if c.dpdk {
		return c.addLease(ctx, r)
	}
	device, err := c.find(r.Links())
	if err != nil {
		return nil, err
	}
	if err := attach.RefuseSecond(r); err != nil {
		return nil, err
	}
	addresses, err := link.Addresses(r.Links(), device, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	a, err := attach.Begin(ctx, r, &c.Config)
	if err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	if err := a.Step(ctx, "link"); err != nil {
		return nil, err
	}
	a.Undo.Push("give back the device's addresses", func(context.Context) error {
		return giveAddresses(r.Links(), device.Attrs().Name, addresses)
	})
	if err := moveIn(r, device); err != nil {
		return nil, err
	}
	if err := a.Made(func(context.Context) error { return giveBack(r) }); err != nil {
		return nil, err
	}
	if err := a.Configure(ctx); err != nil {
		return nil, err
	}
	setPCI(a, c.pciID(device))
	return a.Result(), nil
}

// addLease is Add for a device that a program in the container drives: the kernel has no link of it.
func (c *config) addLease(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	a, err := attach.Begin(ctx, r, &c.Config)
	if err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	if err := a.AskIPAM(ctx); err != nil {
		return nil, err
	}
	a.Interface = &types100.Interface{Name: r.IfName, Sandbox: r.Netns}
	setPCI(a, c.pci)
	return a.Result(), nil
}

// setPCI puts a PCI address into the result, if its version has that.
func setPCI(a *attach.Attachment, id string) {
	if plugin.AtLeast(a.Version, "1.1.0") {
		a.Interface.PciID = id
	}
}

// Del moves the device back to the host and gives back its addresses.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	d := attach.BeginDel(ctx, r, attach.Locate(r.Config))
	return d.End(ctx, giveBack(r))
}

// Mend looks at the device and its addresses. Of one that a program drives there is only the lease, and without a link it can't be told whether
// a DEL is under way.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	if c.dpdk {
		return attach.CheckLease(ctx, r, &c.Config)
	}
	a, err := attach.BeginMend(ctx, r, &c.Config, "", m)
	if err != nil {
		return err
	}
	if err := checkOwner(r); err != nil { // whose addresses it has, which stay
		return err
	}
	return a.Mend(ctx)
}

// checkOwner returns an error if the device in the container is that of another attachment.
func checkOwner(r *plugin.Request) error {
	list, err := notes()
	for _, n := range list {
		if n.Key != r.Key && n.IfName == r.IfName && n.isOwn(r.NS()) {
			return plugin.Errorf("check it under that name", "the device %s in the container is that of %s", r.IfName, n.Key)
		}
	}
	return err
}

// Status reports whether an ADD could be served: the device is on the host, or a container has it for the time being.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	if c.isSet() && !c.dpdk && c.holder() == nil {
		if _, err := c.find(r.Links()); err != nil {
			return plugin.Unavailable(err)
		}
	}
	return attach.Status(ctx, r, &c.Config)
}

// Stores returns where it is noted which devices containers have.
func (Plugin) Stores(r *plugin.Request) []plugin.Store { return []plugin.Store{devices{r}} }

// GC gives back what attachments hold that are not valid: devices, and addresses. One whose device is not back keeps its address.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	err := held.GC(ctx, r, devices{r})
	left, _ := devices{r}.Held(ctx, r.Network) // GC has just said what can't be read
	return errors.Join(err, attach.GC(ctx, keeping(r, left), attach.Locate(r.Config)))
}

// keeping returns the request with more attachments that GC must leave alone, for an IPAM plugin that is another program too.
func keeping(r *plugin.Request, left []plugin.Held) *plugin.Request {
	own := r.For(plugin.GC)
	own.Valid = slices.Clone(r.Valid)
	for _, h := range left {
		if h.Key.Network == r.Network {
			own.Valid = append(own.Valid, h.Key)
		}
	}
	var list []*conf.Object
	for _, a := range own.Valid {
		o := conf.New()
		o.Set("containerID", a.ContainerID)
		o.Set("ifname", a.IfName)
		list = append(list, o)
	}
	own.Config = r.Config.Copy().Lenient()
	own.Config.Set(request.ValidKey, list)
	return own
}
