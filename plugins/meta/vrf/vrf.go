// Package vrf puts the interface that a plugin before it in the chain made into a VRF of the container: a domain that has routes of
// its own (virtual routing and forwarding).
package vrf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/kernel"
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
	if master := l.Attrs().MasterIndex; master != 0 {
		return nil, plugin.Errorf("an interface is in one VRF or bridge at most: call DEL before a second ADD, or take it out",
			"interface %s has already a master set: %s", r.IfName, nameOf(h, master))
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
	undo.Push("delete VRF "+c.name, func(context.Context) error { return leaveUnused(h, v, false) })
	was, err := holdingsOf(h, l)
	if err != nil {
		return nil, err
	}
	if err := r.Step(ctx, "join VRF "+c.name); err != nil {
		return nil, err
	}
	undo.Push("leave VRF "+c.name, func(ctx context.Context) error { return errors.Join(was.keptBy(ctx, r, l, 0)) })
	lost, err := was.moved(route.Main, int(v.Table)).keptBy(ctx, r, l, v.Index)
	if lost != nil {
		err = plugin.Errorf("a route in a table that is not the VRF's can't have a source in the VRF: so don't list sbr before vrf",
			"join VRF %s: the kernel does not let the interface have what it had: %v", c.name, lost)
	}
	return r.PrevResult, err
}

func nameOf(h *netlink.Handle, index int) string {
	l, err := h.LinkByIndex(index)
	if err != nil {
		return fmt.Sprint("link ", index)
	}
	return l.Attrs().Name
}

// findOrMake returns the VRF. Another call may make it at the same time.
func (c *config) findOrMake(h *netlink.Handle) (*netlink.Vrf, error) {
	v, err := c.find(h)
	if err == nil && !isOwn(v) && v.Alias == "" {
		err = h.LinkSetAlias(v, joinedAlias)
	}
	if !link.IsNotFound(err) {
		return v, err
	}
	if err := c.make(h); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	return c.find(h)
}

// find looks for the VRF that the configuration asks for.
func (c *config) find(h *netlink.Handle) (*netlink.Vrf, error) {
	l, err := h.LinkByName(c.name)
	if err != nil {
		return nil, err
	}
	v, ok := l.(*netlink.Vrf)
	switch {
	case !ok:
		return nil, plugin.Errorf(`name another "vrfname"`, "%s is not a VRF but %s", c.name, l.Type())
	case c.table != 0 && int(v.Table) != c.table:
		return nil, plugin.Errorf(`name that table, or leave "table" out`,
			"VRF %s already exist with different routing table %d, not %d", c.name, v.Table, c.table)
	}
	return v, nil
}

// make makes the VRF, with a table that no other has.
func (c *config) make(h *netlink.Handle) error {
	table := c.table
	if table == 0 {
		table = ownTable(c.name)
	}
	links, err := link.List(h)
	if err != nil {
		return err
	}
	for _, l := range links {
		if v, ok := l.(*netlink.Vrf); ok && int(v.Table) == table && v.Name != c.name {
			return plugin.Errorf(`name another "table"`, "VRF %s has routing table %d already", v.Name, table)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.Flags = c.name, ownMAC(c.name), net.FlagUp
	err = h.LinkAdd(&netlink.Vrf{LinkAttrs: attrs, Table: uint32(table)})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return kernel.MissingLink("vrf", err)
	}
	if err != nil {
		return fmt.Errorf("make VRF %s: %w", c.name, err)
	}
	return nil
}

// Status reports whether containers can be entered.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	if _, err := parse(r.Config); err != nil {
		return err
	}
	return netns.CheckEntry()
}

// Check looks whether the interface is in the VRF, and the VRF has the routes of the result.
func (Plugin) Check(_ context.Context, r *plugin.Request) error {
	c, err := parse(r.Config)
	if err != nil {
		return err
	}
	h, l, err := attach.Interface(r)
	if err != nil {
		return err
	}
	v, err := c.find(h)
	switch {
	case link.IsNotFound(err):
		return plugin.Errorf(attach.Repair, "there is no VRF %s", c.name)
	case err != nil:
		return err
	case l.Attrs().MasterIndex != v.Index:
		return plugin.Errorf(attach.Repair, "interface %s is not in VRF %s", r.IfName, c.name)
	case v.RawFlags&unix.IFF_UP == 0:
		return plugin.Errorf(attach.Repair, "VRF %s is down", c.name)
	}
	routes, err := routesOf(h, l)
	if err != nil {
		return err
	}
	for _, w := range r.PrevResult.Routes {
		if w.Table == nil && !route.Has(routes, int(v.Table), w.Dst) {
			return plugin.Errorf(attach.Repair, "VRF %s has no route to %s by interface %s", c.name, &w.Dst, r.IfName)
		}
	}
	return nil
}

// config is what the vrf plugin reads of a configuration; docs/vrf.md explains each key.
type config struct {
	name  string
	table int // 0 is any
}

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(o *conf.Object) (*config, error) {
	c := locate(o)
	if c.table < 0 || c.table > math.MaxUint32 || c.table >= unix.RT_TABLE_DEFAULT && c.table <= unix.RT_TABLE_LOCAL {
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

// locate reads what DEL needs.
func locate(o *conf.Object) *config {
	c := &config{}
	o.String("vrfname", &c.name)
	o.Int("table", &c.table)
	return c
}

// ownMAC returns the MAC address of a VRF that this plugin has made, which DEL knows it by. No packet has it.
func ownMAC(name string) net.HardwareAddr {
	mac := plugin.MAC("vrf", name)
	return mac[:]
}

// ownTable returns the number of the table that a VRF gets if the configuration names none. It is made from the name, so that two
// that are made at the same time get different ones, and far from the numbers that people choose.
func ownTable(name string) int {
	const first = 1 << 29
	mac := ownMAC(name)
	return first | int(binary.BigEndian.Uint32(mac[2:])%first)
}
