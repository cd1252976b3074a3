package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// lastVLAN is the highest VLAN ID (IEEE 802.1Q).
const lastVLAN = 4094

// vlanRange is one VLAN, or all from first to last.
type vlanRange struct{ first, last uint16 } // last is 0 for one

// readVLANs reads the keys "vlan", "vlanTrunk" and "preserveDefaultVlan".
func (c *config) readVLANs(o *conf.Object) (err error) {
	o.Int("vlan", &c.vlan)
	o.Bool("preserveDefaultVlan", &c.keepDefaultVLAN)
	o.Objects("vlanTrunk", func(e *conf.Object) {
		ranges, wrong := readTrunk(e)
		c.trunk, err = append(c.trunk, ranges...), cmp.Or(err, wrong)
	})
	c.filterVLANs = c.vlan != 0 || o.Has("vlanTrunk")
	if c.vlan < 0 || c.vlan > lastVLAN {
		return plugin.ConfigError("use 1 to 4094, or 0 for none", "vlan: invalid VLAN ID %d (must be between 0 and 4094)", c.vlan)
	}
	return err
}

// readTrunk returns the VLANs of an entry of vlanTrunk: a range, one, or both.
func readTrunk(e *conf.Object) (ranges []vlanRange, err error) {
	var first, last, id *int
	e.OptionalInt("minID", &first)
	e.OptionalInt("maxID", &last)
	e.OptionalInt("id", &id)
	wrong := func(key, text string) ([]vlanRange, error) {
		return nil, plugin.ConfigError("use minID and maxID together, or id, each from 1 to 4094", "%s: %s", e.Path(key), text)
	}
	switch {
	case first == nil && last == nil:
	case first == nil:
		return wrong("minID", "minID and maxID should be configured simultaneously, minID is missing")
	case last == nil:
		return wrong("maxID", "minID and maxID should be configured simultaneously, maxID is missing")
	case !isVLAN(*first):
		return wrong("minID", fmt.Sprintf("incorrect trunk minID parameter: %d", *first))
	case !isVLAN(*last):
		return wrong("maxID", fmt.Sprintf("incorrect trunk maxID parameter: %d", *last))
	case *first > *last:
		return wrong("minID", fmt.Sprintf("minID is greater than maxID in trunk parameter: %d, %d", *first, *last))
	case *first == *last:
		ranges = []vlanRange{{first: uint16(*first)}}
	default:
		ranges = []vlanRange{{uint16(*first), uint16(*last)}}
	}
	switch {
	case id == nil:
		return ranges, nil
	case !isVLAN(*id):
		return wrong("id", fmt.Sprintf("incorrect trunk id parameter: %d", *id))
	}
	return append(ranges, vlanRange{first: uint16(*id)}), nil
}

func isVLAN(id int) bool { return id >= 1 && id <= lastVLAN }

// hasVLANs reports whether the container's port must be in VLANs.
func (c *config) hasVLANs() bool { return c.vlan != 0 || len(c.trunk) > 0 }

// untagged returns the VLAN of what a port takes and gives without a tag.
func (c *config) untagged() uint16 { return uint16(cmp.Or(c.vlan, 1)) }

// setVLANs puts a new port of the bridge into VLANs, after it has taken it out of the one that the bridge puts all ports into. One that
// is tagged and untagged is untagged.
func setVLANs(h *netlink.Handle, c *config, bridge, port netlink.Link, tagged []vlanRange) error {
	var errs []error
	first := bridge.(*netlink.Bridge).VlanDefaultPVID
	if !c.keepDefaultVLAN && first != nil && *first != 0 && *first != c.untagged() {
		errs = append(errs, h.BridgeVlanDel(port, *first, false, false, false, true))
	}
	for _, r := range tagged {
		errs = append(errs, h.BridgeVlanAddRange(port, r.first, r.last, false, false, false, true))
	}
	errs = append(errs, h.BridgeVlanAdd(port, c.untagged(), true, true, false, true))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set the VLANs of port %s: %w", port.Attrs().Name, err)
	}
	return nil
}

// differentVLANs returns the VLANs that the container's port is in and should not be, as it is in them, and those that it is not in.
func differentVLANs(h *netlink.Handle, c *config, port netlink.Link) (unwanted, missing []uint16, err error) {
	if !c.hasVLANs() {
		return nil, nil, nil
	}
	vlans, err := link.Uninterrupted(h.BridgeVlanList)
	if err != nil {
		return nil, nil, fmt.Errorf("list the VLANs of ports: %w", err)
	}
	want := map[uint16]uint16{}
	for _, r := range c.trunk {
		for id := r.first; id <= max(r.first, r.last); id++ {
			want[id] = 0
		}
	}
	want[c.untagged()] = nl.BRIDGE_VLAN_INFO_PVID | nl.BRIDGE_VLAN_INFO_UNTAGGED
	for _, has := range vlans[int32(port.Attrs().Index)] {
		flags, wanted := want[has.Vid]
		if wanted && flags != has.Flags || !wanted && !c.keepDefaultVLAN {
			unwanted = append(unwanted, has.Vid)
		}
		if flags == has.Flags {
			delete(want, has.Vid)
		}
	}
	return unwanted, slices.Sorted(maps.Keys(want)), nil
}

// mendVLANs looks whether the container's port is in its VLANs, and in no other.
func mendVLANs(r *plugin.Request, c *config, bridge, port netlink.Link, m *plugin.Mender) error {
	unwanted, missing, err := differentVLANs(r.Links(), c, port)
	name, found := port.Attrs().Name, error(nil)
	switch {
	case len(unwanted) > 0:
		found = attach.Different("port %s is in VLAN %d, which is not as configured", name, unwanted[0])
	case len(missing) > 0:
		found = attach.Different("port %s is not in VLAN %d", name, missing[0])
	}
	m.Mend(found, "put port "+name+" into its VLANs", func() error {
		var errs []error
		for _, id := range unwanted {
			if !slices.Contains(missing, id) { // which is put into it in the right way
				errs = append(errs, r.Links().BridgeVlanDel(port, id, false, false, false, true))
			}
		}
		return errors.Join(append(errs, setVLANs(r.Links(), c, bridge, port, c.trunk))...)
	})
	return err
}
