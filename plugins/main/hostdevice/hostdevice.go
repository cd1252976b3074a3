// Package hostdevice gives containers devices of the host.
package hostdevice

import (
	"context"
	"errors"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/request"
)

// Plugin is the host-device plugin.
type Plugin struct{}

// Add moves the device into the container and gives it IPAM's addresses. As with the reference plugin the DNS settings are the
// network's own, whatever IPAM has, and there are none without it.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	c, err := parse(r)
	if err != nil {
		return nil, err
	}
	result, err := add(ctx, r, c)
	if err != nil {
		return nil, err
	}
	result.DNS = types.DNS{}
	if c.IPAM != "" {
		result.DNS = c.DNS
	}
	return result, nil
}

func add(ctx context.Context, r *plugin.Request, c *config) (*types100.Result, error) {
	if c.dpdk {
		own := &types100.Interface{Name: r.IfName, Sandbox: r.Netns}
		setPCI(r, own, c.pci)
		return attach.Lease(ctx, r, &c.Config, own)
	}
	l, err := c.find(r.Links())
	if err != nil {
		return nil, err
	}
	if err := checkFree(r); err != nil {
		return nil, err
	}
	addresses, err := link.Addresses(r.Links(), l, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	untake := func() error {
		return errors.Join(giveBack(r), giveAddresses(r.Links(), l.Attrs().Name, addresses))
	}
	result, err := attach.Add(ctx, r, &c.Config, attach.Link{
		Make: func(context.Context, *attach.Attachment) error {
			if err := take(r, l); err != nil {
				return errors.Join(err, untake())
			}
			return nil
		},
		Remove: untake,
	})
	if err == nil {
		setPCI(r, result.Interfaces[0], c.pciID(l))
	}
	return result, err
}

// setPCI puts a PCI address into the result, if its version has that.
func setPCI(r *plugin.Request, own *types100.Interface, id string) {
	if plugin.AtLeast(r.Version, "1.1.0") {
		own.PciID = id
	}
}

// checkFree makes sure that the container has no link of the interface's name.
func checkFree(r *plugin.Request) error {
	inside, err := r.LinksInside()
	if err != nil {
		return err
	}
	_, err = inside.LinkByName(r.IfName)
	if err == nil {
		return plugin.Errorf("give the attachment another CNI_IFNAME, or remove that interface", "the container already has an interface %s", r.IfName)
	}
	return link.IgnoreNotFound(err)
}

// Del moves the device back to the host and gives back its addresses.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	d := attach.BeginDel(ctx, r, attach.Locate(r.Config))
	return d.End(ctx, giveBack(r))
}

// Check compares the device and its addresses with the result of ADD. Of one that a program drives there is only the lease.
func (Plugin) Check(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	if c.dpdk {
		return attach.CheckLease(ctx, r, &c.Config)
	}
	_, err = attach.Check(ctx, r, &c.Config, "")
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
			e := plugin.AsError(err)
			return types.NewError(types.ErrPluginNotAvailable, e.Msg, e.Details)
		}
	}
	return attach.Status(ctx, r, &c.Config)
}

// GC gives back what attachments hold that are not valid: devices, and addresses. One whose device can't be given back keeps its address.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	list, err := holdings()
	errs := []error{err}
	var kept []plugin.Attachment
	for _, h := range list {
		if h.Network != r.Network || slices.Contains(r.ValidKeys(), h.Key) {
			continue
		}
		if err := h.collect(r); err != nil {
			errs = append(errs, err)
			kept = append(kept, plugin.Attachment{ContainerID: h.ContainerID, IfName: h.IfName})
		}
	}
	if len(kept) > 0 {
		r = keeping(r, kept)
	}
	return errors.Join(append(errs, attach.GC(ctx, r, attach.Locate(r.Config)))...)
}

// keeping returns the request with more attachments that GC must leave alone, for an IPAM plugin that is another program too.
func keeping(r *plugin.Request, kept []plugin.Attachment) *plugin.Request {
	own := r.For(plugin.GC)
	own.Valid = slices.Concat(r.Valid, kept)
	var list []*conf.Object
	for _, a := range own.Valid {
		o := conf.New()
		o.Set("containerID", a.ContainerID)
		o.Set("ifname", a.IfName)
		list = append(list, o)
	}
	own.Config = r.Config.Copy()
	own.Config.Set(request.ValidKey, list)
	return own
}
