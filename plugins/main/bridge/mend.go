package bridge

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Mend looks at the bridge, the veth pair, the container's addresses and routes, the masquerading and the lease. It takes no address from the
// bridge to make room for the gateway's: another network may need that.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	c.forceAddress = false
	for _, f := range r.PrevResult.Interfaces {
		if f.Name == c.name && f.Sandbox == "" {
			c.bridgeMAC, _ = net.ParseMAC(f.Mac) // which containers know
		}
	}
	a, err := attach.BeginMend(ctx, r, &c.Config, "veth", m)
	if err != nil {
		return err
	}
	end, err := a.MendHostEnd()
	if err != nil {
		return err
	}
	a.MendHostMTU(end)
	bridge, err := mendBridge(r, c, end, m)
	if m.Fail(err); bridge != nil {
		m.Fail(mendPort(r, c, bridge, end, m))
		m.Fail(mendGateway(r, c, bridge, a.IPs, m))
	}
	m.Fail(mendSpoofCheck(ctx, r, c, end.Attrs().Name, m))
	m.Fail(a.Mend(ctx))
	c.masquerade.Mend(ctx, r, m)
	return nil
}

// mendBridge returns the bridge, nil if it is not there. One that goes by another name still has the port and the gateway's address: beside it none is made. Its MAC address is not looked at: one that the reference plugin made without isGateway
// changes it as other containers come and go.
func mendBridge(r *plugin.Request, c *config, port netlink.Link, m *plugin.Mender) (bridge netlink.Link, err error) {
	h := r.Links()
	bridge, err = h.LinkByName(c.name)
	if link.IsNotFound(err) && port.Attrs().MasterIndex != 0 {
		if other, err := h.LinkByIndex(port.Attrs().MasterIndex); err == nil {
			back := fmt.Sprintf("if it was renamed, rename it back: `ip link set %[1]s down; ip link set %[1]s name %[2]s; ip link set %[2]s up; cnictl repair`", other.Attrs().Name, c.name)
			m.Fail(plugin.Errorf(back, "bridge %s is not there, and veth %s is a port of %s", c.name, port.Attrs().Name, other.Attrs().Name))
			return nil, nil
		}
	}
	if link.IsNotFound(err) {
		isMade := m.Mend(attach.Different("bridge %s is not there: %v", c.name, err), "make bridge "+c.name, func() (err error) {
			if bridge, err = createBridge(h, c); err != nil {
				err = fmt.Errorf("bridge %s: %w", c.name, err)
			}
			return err
		})
		if !isMade {
			return nil, nil
		}
	} else if err != nil {
		return nil, err
	}
	if err := c.checkBridge(bridge); err != nil {
		return nil, err
	}
	flags := bridge.Attrs().RawFlags
	if flags&unix.IFF_UP == 0 {
		m.Mend(attach.Different("bridge %s is down", c.name), "set bridge "+c.name+" up", func() error {
			trustNoRouter(c, c.name)
			return h.LinkSetUp(bridge)
		})
	}
	if c.promiscuous && flags&unix.IFF_PROMISC == 0 {
		m.Mend(attach.Different("bridge %s is not promiscuous, the configuration has promiscMode", c.name), "make bridge "+c.name+" promiscuous",
			func() error { return h.SetPromiscOn(bridge) })
	}
	return bridge, nil
}

// mendPort looks whether the host end is a port of the bridge, with the port's options.
func mendPort(r *plugin.Request, c *config, bridge, port netlink.Link, m *plugin.Mender) error {
	name, h := port.Attrs().Name, r.Links()
	if port.Attrs().MasterIndex != bridge.Attrs().Index {
		isPort := m.Mend(attach.Different("veth %s is not in bridge %s", name, c.name), "make "+name+" a port of bridge "+c.name, func() error {
			if err := keepMAC(h, bridge); err != nil { // of one that somebody else has made again
				return err
			}
			if err := h.LinkSetMaster(port, bridge); err != nil {
				return explainFull(c.name, fmt.Errorf("make %s a port of bridge %s: %w", name, c.name, err))
			}
			return nil
		})
		if !isPort {
			return nil
		}
	}
	m.Fail(mendVLANs(r, c, bridge, port, m))
	hairpin, err := link.PortOption(name, nl.IFLA_BRPORT_MODE)
	if err != nil {
		return err
	}
	if hairpin != c.hairpin {
		m.Mend(attach.Different("veth %s: hairpin_mode is %v, configured is %v", name, hairpin, c.hairpin), fmt.Sprintf("set hairpin_mode of %s to %v", name, c.hairpin),
			func() error { return h.LinkSetHairpin(port, c.hairpin) })
	}
	if !c.isolated { // one that is not configured may be the firewall plugin's
		return nil
	}
	isolated, err := link.PortOption(name, nl.IFLA_BRPORT_ISOLATED)
	if err == nil && !isolated {
		m.Mend(attach.Different("veth %s is not isolated, the configuration has portIsolation", name), "isolate "+name,
			func() error { return h.LinkSetIsolated(port, true) })
	}
	return err
}

// mendGateway looks at the gateways' addresses, and whether the host forwards packets, and reaches the container.
func mendGateway(r *plugin.Request, c *config, bridge netlink.Link, ips []*types100.IPConfig, m *plugin.Mender) error {
	gateways := gatewaysOf(c, ips)
	if len(gateways) == 0 {
		return nil
	}
	gateway, err := mendGatewayLink(r, c, bridge, m)
	if gateway == nil {
		return err
	}
	name := gateway.Attrs().Name
	if gateway != bridge && gateway.Attrs().RawFlags&unix.IFF_UP == 0 {
		m.Mend(attach.Different("%s, the gateway, is down", name), "set "+name+" up", func() error {
			if _, err := ensureGateway(r, c, bridge); err != nil { // one that is up is whole, and one that an ADD was killed at is not
				return fmt.Errorf("gateway %s: %w", name, err)
			}
			trustNoRouter(c, name)
			return r.Links().LinkSetUp(gateway)
		})
	}
	has, err := link.Prefixes(gateway)
	if err != nil {
		return err
	}
	lacks := error(nil)
	if i := slices.IndexFunc(gateways, func(g netip.Prefix) bool { return !slices.Contains(has, g) }); i >= 0 {
		lacks = attach.Different("%s lacks the gateway's address %s", name, gateways[i])
	}
	isServed := m.Mend(lacks, "", func() error { return giveAddresses(r, c, gateway, gateways) })
	attach.MendForwarding(r, gateways, m)
	if !isServed { // so that nothing leads to the container
		return nil
	}
	return checkWay(r, c, gateway, ips)
}

// mendGatewayLink returns the link that is to have the gateways' addresses, nil if it is not there.
func mendGatewayLink(r *plugin.Request, c *config, bridge netlink.Link, m *plugin.Mender) (netlink.Link, error) {
	h, name := r.Links(), c.gatewayLink()
	if name == "" {
		return bridge, nil
	}
	l, err := h.LinkByName(name)
	found := error(nil)
	switch {
	case err != nil:
		found = attach.Different("the gateway's link %s is not there: %v", name, err)
	case l.Type() == "veth":
		if port, err := h.LinkByIndex(l.Attrs().ParentIndex); err != nil || port.Attrs().MasterIndex != bridge.Attrs().Index {
			found = attach.Different("the other end of %s, the gateway's link, is not in bridge %s", name, c.name)
		}
	}
	isThere := m.Mend(found, "", func() (err error) {
		if l, err = ensureGateway(r, c, bridge); err != nil {
			return fmt.Errorf("gateway %s: %w", name, err)
		}
		return nil
	})
	switch {
	case !isThere:
		return nil, nil
	case !isOnBridge(l, bridge):
		return l, nil
	}
	own, err := ownVLAN(h, c, bridge)
	if err == nil && own == nil {
		m.Mend(attach.Different("bridge %s itself is not in VLAN %d, so that nothing reaches %s, the gateway's link", c.name, c.vlan, name),
			fmt.Sprintf("put bridge %s itself into VLAN %d", c.name, c.vlan), func() error { return joinVLAN(h, c, bridge) })
	}
	return l, err
}
