package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// gatewayLink names the link that has the gateways' addresses in the place of the bridge, "" if the bridge has them. The name is the
// reference plugin's.
func (c *config) gatewayLink() string {
	if c.vlan == 0 || !c.Gateway || c.IPAM == "" {
		return ""
	}
	return vlanLink(c.name, c.vlan)
}

// vlanLink names a link for a VLAN of a bridge.
func vlanLink(bridge string, vlan int) string { return bridge + "." + strconv.Itoa(vlan) }

// ensureGateway returns the link that is to have the gateways' addresses: the bridge or, for a VLAN, a link of its own, up, made if it is not
// there. All containers of the VLAN share it, and it stays. One that is there and does not lead into the bridge is somebody's own, and is
// taken as it is.
func ensureGateway(r *plugin.Request, c *config, bridge netlink.Link) (netlink.Link, error) {
	name, h := c.gatewayLink(), r.Links()
	if name == "" {
		return bridge, nil
	}
	l, err := h.LinkByName(name)
	if link.IsNotFound(err) {
		r.Announce("make " + name + ", the gateway's link")
		l, err = createGatewayLink(h, c, bridge)
	}
	switch {
	case err != nil:
		return nil, err
	case isOnBridge(l, bridge) && l.Attrs().RawFlags&unix.IFF_UP == 0: // just made, or by an ADD that was killed
		trustNoRouter(c, name)
		return l, link.SetUpAs(l.Attrs().Index, "gateway on "+c.name)
	case l.Type() != "veth":
		return l, nil
	}
	port, err := h.LinkByIndex(l.Attrs().ParentIndex)
	if err != nil || l.Attrs().NetNsID >= 0 || port.Attrs().MasterIndex != 0 && port.Attrs().MasterIndex != bridge.Attrs().Index {
		return nil, plugin.ConfigError("remove that link, which is made again, or name another bridge", "its other end is no port of bridge %s", c.name)
	}
	if port.Attrs().MasterIndex != 0 && port.Attrs().OperState == netlink.OperUp {
		return l, nil
	}
	r.Announce("connect " + name + " to bridge " + c.name)
	return l, connectGateway(h, c, bridge, l, port)
}

// isOnBridge reports whether a link is a VLAN device on the bridge.
func isOnBridge(l, bridge netlink.Link) bool {
	return l.Type() == "vlan" && l.Attrs().ParentIndex == bridge.Attrs().Index
}

// createGatewayLink makes a VLAN device on the bridge, which is down yet; another ADD may do so at the same time. The reference plugin makes a
// veth pair with one end in the bridge, to which packets cross the bridge. A packet filter that looks into bridges masquerades them
// there, before the host gets them, and the host drops what comes in with an address of its own.
//
// A VLAN that the bridge itself is in without a tag, such as its default one, has no packets for a VLAN device. So it has a veth pair.
func createGatewayLink(h *netlink.Handle, c *config, bridge netlink.Link) (netlink.Link, error) {
	own, err := ownVLAN(h, c, bridge)
	if err != nil {
		return nil, err
	}
	attrs := netlink.LinkAttrs{Name: c.gatewayLink(), MTU: bridge.Attrs().MTU, TxQLen: -1}
	if own != nil && own.Flags&nl.BRIDGE_VLAN_INFO_UNTAGGED != 0 {
		attrs.HardwareAddr, attrs.NumTxQueues, attrs.NumRxQueues = attach.RandomMAC(), 1, 1
		other := attach.RandomMAC()
		err = h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: fmt.Sprintf("veth%x", []byte(other[2:])), PeerHardwareAddr: other})
	} else if err = joinVLAN(h, c, bridge); err == nil {
		attrs.ParentIndex = bridge.Attrs().Index
		err = h.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: c.vlan, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q})
	}
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, plugin.MissingLinkType("vlan", err)
	case err != nil && !errors.Is(err, unix.EEXIST):
		return nil, err
	}
	return h.LinkByName(attrs.Name)
}

// ownVLAN says how the bridge itself is in the VLAN, nil if it is not.
func ownVLAN(h *netlink.Handle, c *config, bridge netlink.Link) (*nl.BridgeVlanInfo, error) {
	vlans, err := link.Uninterrupted(h.BridgeVlanList)
	if err != nil {
		return nil, fmt.Errorf("list the VLANs of bridge %s: %w", c.name, err)
	}
	for _, v := range vlans[int32(bridge.Attrs().Index)] {
		if int(v.Vid) == c.vlan {
			return v, nil
		}
	}
	return nil, nil
}

// joinVLAN puts the bridge itself into the VLAN, with a tag, as a VLAN device on it needs.
func joinVLAN(h *netlink.Handle, c *config, bridge netlink.Link) error {
	return h.BridgeVlanAdd(bridge, uint16(c.vlan), false, false, true, false)
}

// connectGateway makes the other end of a veth pair a port in the VLAN, and sets both ends up, the gateway's last: so what is up is whole.
// Another ADD may do the same at the same time.
func connectGateway(h *netlink.Handle, c *config, bridge, gateway, port netlink.Link) error {
	err := link.SetUpHostEnd(port.Attrs().Index, "port of "+gateway.Attrs().Name, bridge.Attrs().Index)
	if err == nil {
		err = setVLANs(h, c, bridge, port, nil)
	}
	if err == nil {
		trustNoRouter(c, gateway.Attrs().Name)
		err = h.LinkSetUp(gateway)
	}
	if err == nil {
		_, err = link.WaitUp(h, port.Attrs().Name)
	}
	if err != nil && port.Attrs().MasterIndex == 0 {
		err = errors.Join(explainFull(c.name, err), link.Delete(h, gateway.Attrs().Index))
	}
	return err
}

// forget has the host forget what it knew of the container's addresses, which others may have had a moment ago.
func forget(h *netlink.Handle, gateway netlink.Link, ips []*types100.IPConfig) error {
	for _, ip := range ips {
		err := h.NeighDel(&netlink.Neigh{LinkIndex: gateway.Attrs().Index, IP: ip.Address.IP})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("forget the neighbour %s of %s: %w", ip.Address.IP, gateway.Attrs().Name, err)
		}
	}
	return nil
}

// serveGateway gives the gateway its addresses, and lets the host forward packets. All attachments of the bridge share this, and it
// stays, as it does with the reference plugin.
func serveGateway(r *plugin.Request, c *config, gateway netlink.Link, ips []*types100.IPConfig) error {
	gateways := gatewaysOf(c, ips)
	if err := giveAddresses(r, c, gateway, gateways); err != nil {
		return err
	}
	return attach.EnableForwarding(r, gateways)
}

// giveAddresses gives the bridge, or the link that is the gateway in its place, the gateways' addresses.
func giveAddresses(r *plugin.Request, c *config, gateway netlink.Link, gateways []netip.Prefix) error {
	h, added := r.Links(), []netip.Prefix(nil)
	for _, g := range gateways {
		err := attach.AddAddress(r, gateway, g)
		switch {
		case err == nil:
			r.Announce("give " + gateway.Attrs().Name + " the address " + g.String())
			added = append(added, g)
		case !errors.Is(err, unix.EEXIST):
			return errors.Join(fmt.Errorf("give %s the address %s: %w", gateway.Attrs().Name, g, err), withdraw(h, gateway, added))
		}
	}
	if len(added) == 0 {
		return nil
	}
	if err := resolveConflicts(h, c, gateway, gateways, added); err != nil {
		return errors.Join(err, withdraw(h, gateway, added))
	}
	return nil
}

// checkWay looks whether the host reaches the container by the gateway's link. One that is in a VRF has routes of its own.
func checkWay(r *plugin.Request, c *config, gateway netlink.Link, ips []*types100.IPConfig) error {
	for _, ip := range ips {
		if !c.Gateway || ip.Gateway == nil || gateway.Attrs().MasterIndex != 0 {
			continue
		}
		if err := attach.CheckWay(r, gateway, ip.Address.IP); err != nil && !sharesSubnet(r, ip.Address) {
			return err
		}
	}
	return nil
}

// gatewaysOf returns the addresses that the gateway must have.
func gatewaysOf(c *config, ips []*types100.IPConfig) []netip.Prefix {
	var list []netip.Prefix
	for _, ip := range ips {
		if c.Gateway && ip.Gateway != nil {
			list = append(list, netip.PrefixFrom(result.Addr(ip.Gateway), result.Prefix(ip.Address).Bits()))
		}
	}
	return list
}

func deleteAddress(h *netlink.Handle, gateway netlink.Link, p netip.Prefix) error {
	network := result.IPNet(p)
	err := h.AddrDel(gateway, &netlink.Addr{IPNet: &network})
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

// withdraw takes back the gateways' addresses that were added.
func withdraw(h *netlink.Handle, gateway netlink.Link, added []netip.Prefix) error {
	var errs []error
	for _, g := range added {
		errs = append(errs, deleteAddress(h, gateway, g))
	}
	return errors.Join(errs...)
}

// resolveConflicts looks for other addresses of the gateway that stand against the gateways' that were just added. They are removed
// by force, or else are an error.
func resolveConflicts(h *netlink.Handle, c *config, gateway netlink.Link, gateways, added []netip.Prefix) error {
	addresses, err := link.Prefixes(gateway)
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", gateway.Attrs().Name, err)
	}
	for _, want := range added {
		for _, have := range addresses {
			if slices.Contains(gateways, have) || !conflict(want, have) {
				continue
			}
			if !c.forceAddress {
				return plugin.ConfigError("remove that address, set forceAddress, or use another bridge for this network",
					"%s already has an IP address different from %s: %s", gateway.Attrs().Name, want, have)
			}
			if err := deleteAddress(h, gateway, have); err != nil {
				return fmt.Errorf("take the address %s from %s: %w", have, gateway.Attrs().Name, err)
			}
		}
	}
	return nil
}

// conflict reports whether a link that is the one gateway can't have the other address too: for IPv4 any, for IPv6 one whose
// network overlaps.
func conflict(own, other netip.Prefix) bool {
	return own.Addr().Is4() == other.Addr().Is4() && (own.Addr().Is4() || other.Overlaps(own))
}

// sharesSubnet reports whether the host sends packets for an address by the route of its subnet. That of another link with the same subnet, which came
// first, is in nobody's way.
func sharesSubnet(r *plugin.Request, address net.IPNet) bool {
	routes, err := r.Links().RouteGetWithOptions(address.IP, &netlink.RouteGetOptions{FIBMatch: true})
	return err == nil && slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return r.Dst != nil && r.Dst.Mask.String() == address.Mask.String() && r.Table == unix.RT_TABLE_MAIN
	})
}
