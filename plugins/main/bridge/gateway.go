package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// serveGateway gives the bridge the gateways' addresses and lets the host forward packets. What it does is shared by all
// attachments of the bridge and stays, as it does with the reference plugin. The host forgets what it knew of the container's
// addresses, which others may have had a moment ago.
func serveGateway(h *netlink.Handle, c *config, bridge netlink.Link, ips []*types100.IPConfig) error {
	for _, ip := range ips {
		err := h.NeighDel(&netlink.Neigh{LinkIndex: bridge.Attrs().Index, IP: ip.Address.IP})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("forget the neighbour %s of %s: %w", ip.Address.IP, c.name, err)
		}
	}
	gateways := gatewaysOf(c, ips)
	var added []netip.Prefix
	for _, g := range gateways {
		err := attach.AddAddress(h, bridge, g)
		switch {
		case err == nil:
			added = append(added, g)
		case !errors.Is(err, unix.EEXIST):
			return errors.Join(fmt.Errorf("give bridge %s the address %s: %w", c.name, g, err), withdraw(h, bridge, added))
		}
	}
	if len(added) > 0 {
		if err := resolveConflicts(h, c, bridge, gateways, added); err != nil {
			return errors.Join(err, withdraw(h, bridge, added))
		}
	}
	return attach.Forward(gateways)
}

// gatewaysOf returns the addresses that the bridge itself must have.
func gatewaysOf(c *config, ips []*types100.IPConfig) []netip.Prefix {
	var list []netip.Prefix
	for _, ip := range ips {
		if c.Gateway && ip.Gateway != nil {
			list = append(list, netip.PrefixFrom(plugin.Addr(ip.Gateway), plugin.Prefix(ip.Address).Bits()))
		}
	}
	return list
}

func deleteAddress(h *netlink.Handle, bridge netlink.Link, p netip.Prefix) error {
	network := plugin.IPNet(p)
	err := h.AddrDel(bridge, &netlink.Addr{IPNet: &network})
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

// withdraw takes back the gateways' addresses that were added.
func withdraw(h *netlink.Handle, bridge netlink.Link, added []netip.Prefix) error {
	var errs []error
	for _, g := range added {
		errs = append(errs, deleteAddress(h, bridge, g))
	}
	return errors.Join(errs...)
}

// resolveConflicts looks for other addresses of the bridge that stand against the gateways' that were just added. They are removed
// by force, or else are an error.
func resolveConflicts(h *netlink.Handle, c *config, bridge netlink.Link, gateways, added []netip.Prefix) error {
	addresses, err := h.AddrList(bridge, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list the addresses of bridge %s: %w", c.name, err)
	}
	for _, want := range added {
		for _, a := range addresses {
			have := plugin.Prefix(*a.IPNet)
			if slices.Contains(gateways, have) || !conflict(want, have) {
				continue
			}
			if !c.forceAddress {
				return plugin.ConfigError("remove that address, set forceAddress, or use another bridge for this network",
					"bridge %s already has an IP address different from %s: %s", c.name, want, have)
			}
			if err := deleteAddress(h, bridge, have); err != nil {
				return fmt.Errorf("take the address %s from bridge %s: %w", have, c.name, err)
			}
		}
	}
	return nil
}

// conflict reports whether a bridge that is the one gateway can't have the other address too: for IPv4 any, for IPv6 one whose
// network overlaps.
func conflict(gateway, other netip.Prefix) bool {
	return gateway.Addr().Is4() == other.Addr().Is4() && (gateway.Addr().Is4() || other.Overlaps(gateway))
}
