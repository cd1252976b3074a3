package vrf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// joinedAlias is the alias of a VRF that ADD has found and joined. One without it that is not ours the reference plugin has made.
const joinedAlias = "cnibox joined"

// findOrMake returns the VRF. Another call may make it at the same time.
func (c *config) findOrMake(h *netlink.Handle) (*netlink.Vrf, error) {
	v, err := c.find(h)
	if err == nil && !isOwn(v) && v.Alias == "" {
		err = h.LinkSetAlias(v, joinedAlias)
	}
	if !link.IsNotFound(err) {
		return v, err
	}
	if err := c.create(h); err != nil && !errors.Is(err, unix.EEXIST) {
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
		return nil, plugin.ConfigError(`name another "vrfname"`, "%s is not a VRF but %s", c.name, l.Type())
	case c.table != 0 && int(v.Table) != c.table:
		return nil, plugin.ConfigError(`name that table, or leave "table" out`,
			"VRF %s already exist with different routing table %d, not %d", c.name, v.Table, c.table)
	}
	return v, nil
}

// create makes the VRF, with a table that no other has.
func (c *config) create(h *netlink.Handle) error {
	table := cmp.Or(c.table, ownTable(c.name))
	links, err := link.List(h)
	if err != nil {
		return err
	}
	for _, l := range links {
		if v, ok := l.(*netlink.Vrf); ok && int(v.Table) == table && v.Name != c.name {
			return plugin.ConfigError(`name another "table"`, "VRF %s has routing table %d already", v.Name, table)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.Flags = c.name, ownMAC(c.name), net.FlagUp
	err = h.LinkAdd(&netlink.Vrf{LinkAttrs: attrs, Table: uint32(table)})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return plugin.MissingLinkType("vrf", err)
	}
	if err != nil {
		return fmt.Errorf("make VRF %s: %w", c.name, err)
	}
	return nil
}

// deleteUnused deletes a VRF that nothing is in, if this plugin has made it, or the reference plugin, whose DEL does so when it takes an
// interface out.
func deleteUnused(h *netlink.Handle, v *netlink.Vrf, hasLeft bool) error {
	links, err := link.List(h)
	isMember := func(l netlink.Link) bool { return l.Attrs().MasterIndex == v.Index }
	switch {
	case err != nil || slices.ContainsFunc(links, isMember):
		return err
	case isOwn(v) || hasLeft && v.Alias == "":
		return link.Delete(h, v.Index)
	case v.Alias == joinedAlias:
		return h.LinkSetAlias(v, "")
	}
	return nil
}

// asVRF returns a link that was looked up, if it was found and is a VRF.
func asVRF(l netlink.Link, err error) (*netlink.Vrf, error) {
	v, _ := l.(*netlink.Vrf)
	return v, link.IgnoreNotFound(err)
}

// isOwn reports whether this plugin has made a VRF.
func isOwn(v *netlink.Vrf) bool { return bytes.Equal(v.HardwareAddr, ownMAC(v.Name)) }

// ownMAC returns the MAC address of a VRF that this plugin has made, which DEL knows it by. No packet has it.
func ownMAC(name string) net.HardwareAddr { return plugin.MAC("vrf", name) }

// ownTable returns the number of the table that a VRF gets if the configuration names none. It is made from the name, so that two
// that are made at the same time get different ones, and far from the numbers that people choose.
func ownTable(name string) int {
	const first = 1 << 29
	return first | int(binary.BigEndian.Uint32(ownMAC(name)[2:])%first)
}
