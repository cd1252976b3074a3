// Package vrf puts the interface that a plugin before it in the chain made into a VRF of the container: a domain that has routes of
// its own (virtual routing and forwarding).
package vrf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/route"
)

// Plugin is the vrf plugin.
type Plugin struct{}

// Add makes the VRF, unless it is there, and the interface a member of it.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r.Config)
	if err != nil {
		return nil, err
	}
	h, l, err := attach.Interface(r)
	if err != nil {
		return nil, err
	}
	if index := l.Attrs().MasterIndex; index != 0 {
		master, err := h.LinkByIndex(index)
		if err != nil {
			return nil, err
		}
		return nil, plugin.ConfigError("an interface is in one VRF or bridge at most: call DEL before a second ADD, or take it out",
			"interface %s has already a master set: %s", r.IfName, master.Attrs().Name)
	}
	before, err := holdingsOf(ctx, h, l)
	if err != nil {
		return nil, err
	}

	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	if err := r.Step(ctx, "VRF "+c.name); err != nil {
		return nil, err
	}
	v, err := c.findOrMake(h)
	if err != nil {
		return nil, err
	}
	undo.Push("delete VRF "+c.name, func(context.Context) error { return deleteUnused(h, v, false) })
	if err := r.Step(ctx, "join VRF "+c.name); err != nil {
		return nil, err
	}
	undo.Push("leave VRF "+c.name, func(ctx context.Context) error {
		return errors.Join(h.LinkSetNoMaster(l), before.putBack(ctx, r, h, l, route.Main))
	})
	if err := h.LinkSetMasterByIndex(l, v.Index); err != nil {
		return nil, fmt.Errorf("join VRF %s: %w", c.name, err)
	}
	if err := before.putBack(ctx, r, h, l, int(v.Table)); err != nil {
		return nil, plugin.Errorf("a route in a table that is not the VRF's can't have a source in the VRF: so don't list sbr before vrf",
			"join VRF %s: the kernel does not let the interface have what it had: %w", c.name, err)
	}
	return r.PrevResult, nil
}

// Del takes the interface out of the VRF, which is deleted if nothing else is in it, unless it was there before ADD. The interface's routes
// go with it, when the plugin before in the chain deletes it next.
func (Plugin) Del(_ context.Context, r *plugin.Request) error {
	if r.NS() == nil {
		return nil
	}
	h, err := r.LinksInside()
	if err != nil {
		return err
	}
	r.Announce("leave the VRF")
	r.WarnOf(leave(h, r))
	return nil
}

// leave leaves an interface alone that is in a VRF which we have not made and the configuration does not name.
func leave(h *netlink.Handle, r *plugin.Request) error {
	name := ""
	r.Config.String("vrfname", &name)
	l, err := h.LinkByName(r.IfName)
	switch {
	case err == nil && !attach.IsOwn(r, l):
		return nil
	case err == nil && l.Attrs().MasterIndex != 0:
		v, err := asVRF(h.LinkByIndex(l.Attrs().MasterIndex))
		if v == nil || v.Name != name && !isOwn(v) {
			return err
		}
		if err := h.LinkSetNoMaster(l); err != nil {
			return fmt.Errorf("leave VRF %s: %w", v.Name, err)
		}
		return deleteUnused(h, v, true)
	case link.IgnoreNotFound(err) != nil || link.ValidateName(name) != nil:
		return link.IgnoreNotFound(err)
	}
	v, err := asVRF(h.LinkByName(name))
	if v != nil {
		err = deleteUnused(h, v, false)
	}
	return err
}

// Status reports whether containers can be entered.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	if _, err := parse(r.Config); err != nil {
		return err
	}
	return netns.CheckEntry()
}

// Mend looks whether the interface is in the VRF, and the VRF has the routes of the result. An interface that is in another VRF, or in a bridge,
// stays there.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	if r.HostSide {
		return nil
	}
	c, err := parse(r.Config)
	if err != nil {
		return err
	}
	h, l, err := attach.Interface(r)
	if err != nil {
		return err
	}
	var before holdings
	if m.Repairs() {
		if before, err = holdingsOf(ctx, h, l); err != nil {
			return err
		}
	}
	v, err := c.find(h)
	if link.IsNotFound(err) {
		isMade := m.Mend(attach.Different("there is no VRF %s", c.name), "make VRF "+c.name, func() (err error) {
			v, err = c.findOrMake(h)
			return err
		})
		if !isMade {
			return nil
		}
	} else if err != nil {
		return err
	}
	if v.RawFlags&unix.IFF_UP == 0 {
		m.Mend(attach.Different("VRF %s is down", c.name), "set VRF "+c.name+" up", func() error { return h.LinkSetUp(v) })
	}
	putBack := func() error { return before.putBack(ctx, r, h, l, int(v.Table)) }
	switch l.Attrs().MasterIndex {
	case v.Index:
	case 0:
		isIn := m.Mend(attach.Different("interface %s is not in VRF %s", r.IfName, c.name), "join VRF "+c.name, func() error {
			if _, err := c.findOrMake(h); err != nil { // DEL must not delete one that others have made
				return err
			}
			if err := h.LinkSetMasterByIndex(l, v.Index); err != nil {
				return fmt.Errorf("join VRF %s: %w", c.name, err)
			}
			return putBack()
		})
		if !isIn { // so that its routes must stay where they are
			return nil
		}
	default:
		return attach.Different("interface %s is not in VRF %s, but has another master", r.IfName, c.name)
	}
	routes, err := route.OfLink(ctx, h, l.Attrs().Index)
	if err != nil {
		return err
	}
	for _, w := range r.PrevResult.Routes {
		if w.Table == nil && !route.Has(routes, int(v.Table), w.Dst) {
			m.Mend(attach.Different("VRF %s has no route to %s by interface %s", c.name, &w.Dst, r.IfName), "", putBack)
			putBack = func() error { return nil } // it puts back all
		}
	}
	return nil
}

// config is what the vrf plugin reads of a configuration; docs/plugins/vrf.md explains each key.
type config struct {
	name  string
	table int // 0 is any
}

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(o *conf.Object) (*config, error) {
	c := &config{}
	o.String("vrfname", &c.name)
	o.Int("table", &c.table)
	if c.table < 0 || int64(c.table) > math.MaxUint32 || c.table >= unix.RT_TABLE_DEFAULT && c.table <= unix.RT_TABLE_LOCAL {
		const want = "the number of a routing table, from 1 to %d, but 253 to 255, which the kernel has a use for"
		o.Fail("table", fmt.Sprintf(want, uint32(math.MaxUint32)), strconv.Itoa(c.table))
	}
	if err := o.Err(); err != nil {
		return nil, err
	}
	if link.ValidateName(c.name) != nil {
		return nil, plugin.ConfigError(`name the VRF in "vrfname", in 1 to 15 characters`,
			"configuration is expected to have a valid vrf name: %q is none", c.name)
	}
	return c, nil
}
