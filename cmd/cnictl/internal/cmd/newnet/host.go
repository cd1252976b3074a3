package newnet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/result"
)

// Host is what is on this node that a new network must not collide with.
type Host struct {
	Links    []Link
	Uplink   string       // of the default route
	Gateways []netip.Addr // of the default routes, one of a family
	Networks []Network    // of the directories of all runtimes
	Taken    []Taken
}

// Link is a link of the host.
type Link struct {
	Name      string
	Addresses []netip.Prefix
	Card      bool // a network card, or another device
	WiFi      bool
	Up        bool
	Master    bool // it is a port of a bridge or so
	VLAN      int  // for a VLAN link, its number
	Parent    string
}

// Taken is a subnet that somebody has.
type Taken struct {
	Subnet netip.Prefix
	Who    string
}

// Network is a network that is there already.
type Network struct {
	Name, File string
	Bridges    []string
	VLANs      []string // master and number
}

// ReadHost looks at the node. The networks are those of directories.
func ReadHost(dirs []string) (*Host, error) {
	h := &Host{}
	if err := errors.Join(h.readLinks(), h.readRoutes()); err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if err := h.readNetworks(dir); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *Host) readLinks() error {
	all, err := link.List(&netlink.Handle{})
	addresses, err2 := link.Addresses(&netlink.Handle{}, nil, netlink.FAMILY_ALL)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("list the links of the host: %w", err)
	}
	names := map[int]string{}
	for _, l := range all {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	for _, l := range all {
		a := l.Attrs()
		own := Link{Name: a.Name, Up: a.Flags&net.FlagUp != 0, Master: a.MasterIndex != 0, Card: has(a.Name, "device"), WiFi: has(a.Name, "phy80211")}
		if v, is := l.(*netlink.Vlan); is {
			own.VLAN, own.Parent = v.VlanId, names[a.ParentIndex]
		}
		for _, address := range addresses {
			if p := result.Prefix(*address.IPNet); address.LinkIndex == a.Index && !p.Addr().IsLinkLocalUnicast() && !p.Addr().IsLoopback() {
				own.Addresses = append(own.Addresses, p)
				h.Taken = append(h.Taken, Taken{p.Masked(), "the address " + p.String() + " of " + a.Name})
			}
		}
		h.Links = append(h.Links, own)
	}
	return nil
}

// has reports whether the kernel says that a link has something.
func has(name, what string) bool {
	_, err := os.Lstat(filepath.Join("/sys/class/net", name, what))
	return err == nil
}

// readRoutes reads the routes of all tables.
func (h *Host) readRoutes() error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := link.Routes(&netlink.Handle{}, family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("list the routes of the host: %w", err)
		}
		slices.SortStableFunc(routes, func(a, b netlink.Route) int { return cmp.Compare(a.Priority, b.Priority) })
		gateway := false
		for _, r := range routes {
			isDefault := r.Dst == nil || result.Prefix(*r.Dst).Bits() == 0
			switch {
			case !isDefault:
				if p := result.Prefix(*r.Dst).Masked(); !p.Addr().IsLinkLocalUnicast() && !p.Addr().IsMulticast() && !p.Addr().IsLoopback() {
					h.Taken = append(h.Taken, Taken{p, "the route to " + p.String()})
				}
			case r.Table == unix.RT_TABLE_MAIN && r.Type == unix.RTN_UNICAST && !gateway:
				gateway = true
				h.addUplink(r)
			}
		}
	}
	return nil
}

func (h *Host) addUplink(r netlink.Route) {
	index, gateway := r.LinkIndex, r.Gw
	if len(r.MultiPath) > 0 {
		index, gateway = r.MultiPath[0].LinkIndex, r.MultiPath[0].Gw
	}
	if l, err := netlink.LinkByIndex(index); err == nil {
		h.Uplink = cmp.Or(h.Uplink, l.Attrs().Name)
	}
	if a := result.Addr(gateway); a.IsValid() {
		h.Gateways = append(h.Gateways, a)
	}
}

// readNetworks notes what networks of a directory have: every subnet in their files, whatever plugin it is for, and bridges and VLANs.
func (h *Host) readNetworks(dir string) error {
	networks, _, err := node.Load(dir)
	for _, n := range networks {
		own := Network{Name: n.Name, File: n.File}
		for _, p := range n.List.Plugins {
			var config any
			if json.Unmarshal(p.Bytes, &config) == nil { // libcni has parsed it
				h.readConfig(&own, config)
			}
		}
		h.Networks = append(h.Networks, own)
	}
	return err
}

func (h *Host) readConfig(n *Network, value any) {
	switch v := value.(type) {
	case string:
		if p, err := netip.ParsePrefix(v); err == nil && p.Bits() > 0 && !p.Addr().IsLinkLocalUnicast() {
			h.Taken = append(h.Taken, Taken{p.Masked(), "network " + n.Name + " in " + n.File})
		}
	case []any:
		for _, e := range v {
			h.readConfig(n, e)
		}
	case map[string]any:
		bridge, _ := v[bridgeWord].(string)
		kind, _ := v["type"].(string)
		if bridge = cmp.Or(bridge, usualBridge(kind)); bridge != "" {
			n.Bridges = append(n.Bridges, bridge)
		}
		if number, is := v["vlanId"].(float64); is {
			n.VLANs = append(n.VLANs, fmt.Sprint(v["master"], " ", int(number)))
		}
		for _, e := range v {
			h.readConfig(n, e)
		}
	}
}

// usualBridge returns the bridge that a plugin makes, itself or by the one it calls, unless it is told another; "" if it makes none.
func usualBridge(kind string) string {
	f := row(kind).Facts(nil)
	return cmp.Or(f.Bridge, row(f.DelegateType).Facts(nil).Bridge)
}

// taken returns the subnets that somebody has.
func (h *Host) taken() (list []netip.Prefix) {
	for _, t := range h.Taken {
		list = append(list, t.Subnet)
	}
	return list
}

// whoHas returns who has addresses of a subnet, "" if nobody has.
func (h *Host) whoHas(p netip.Prefix) string {
	for _, t := range h.Taken {
		if t.Subnet.Overlaps(p) {
			return t.Who
		}
	}
	return ""
}

// link returns the host's link called name, nil if there is none.
func (h *Host) link(name string) *Link {
	for i := range h.Links {
		if h.Links[i].Name == name {
			return &h.Links[i]
		}
	}
	return nil
}

// network returns the network called name, nil if there is none.
func (h *Host) network(name string) *Network {
	for i := range h.Networks {
		if h.Networks[i].Name == name {
			return &h.Networks[i]
		}
	}
	return nil
}

// bridgeOf returns the network that has a bridge, nil if none has.
func (h *Host) bridgeOf(name string) *Network {
	for i := range h.Networks {
		if slices.Contains(h.Networks[i].Bridges, name) {
			return &h.Networks[i]
		}
	}
	return nil
}
