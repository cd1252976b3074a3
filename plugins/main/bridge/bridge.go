// Package bridge connects containers to a bridge of the host by a veth pair, and makes the bridge their gateway if asked to.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// Plugin is the bridge plugin.
type Plugin struct{}

// Add makes the veth pair with its host end in the bridge, and what the configuration asks for around it.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r)
	if err != nil {
		return nil, err
	}
	a, err := attach.Begin(ctx, r, &c.Config)
	if err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	if err := a.Step(ctx, "bridge"); err != nil {
		return nil, err
	}
	bridge, err := ensureBridge(a.Request, c)
	if err != nil {
		return nil, err
	}
	port, err := a.MakeVeth(ctx, bridge.Attrs().Index)
	if err != nil {
		return nil, explainFull(c.name, err)
	}
	if err := setPort(a.Links(), c, bridge, port); err != nil {
		return nil, err
	}
	if err := checkSpoofing(ctx, a, c, port); err != nil {
		return nil, err
	}
	if err := a.Configure(ctx); err != nil {
		return nil, err
	}
	if err := a.Step(ctx, "gateway"); err != nil {
		return nil, err
	}
	gateway, err := ensureGateway(a.Request, c, bridge)
	if err != nil {
		return nil, fmt.Errorf("gateway %s: %w", c.gatewayLink(), err)
	}
	if err := forget(a.Links(), gateway, a.IPs); err != nil {
		return nil, err
	}
	if err := serveGateway(a.Request, c, gateway, a.IPs); err != nil {
		return nil, err
	}
	if err := c.masquerade.Add(ctx, a); err != nil {
		return nil, err
	}
	if !c.Down {
		if state, err := link.WaitUp(a.Links(), port.Attrs().Name); err != nil {
			return nil, plugin.Errorf("look at the port and the bridge with `ip -d link`", "bridge %s: its port is %s: %w", c.name, state, err)
		}
		if isOnBridge(gateway, bridge) { // it hears of the port after the bridge does
			if state, err := link.WaitUp(a.Links(), gateway.Attrs().Name); err != nil {
				return nil, plugin.Errorf("look at it and the bridge with `ip -d link`", "gateway %s: it is %s: %w", c.gatewayLink(), state, err)
			}
		}
		if err := a.AnnounceAddresses(); err != nil { // the port may have dropped what the kernel has announced
			return nil, err
		}
	}
	result := a.Result(bridge, port)
	if gateway != bridge {
		result.Interfaces = append(result.Interfaces, a.Describe(gateway))
	}
	return result, nil
}

// explainFull says what to do about a bridge that takes no more ports.
func explainFull(bridge string, err error) error {
	if !errors.Is(err, unix.EXFULL) {
		return err
	}
	return plugin.CodeErrorf(types.ErrTryAgainLater, "give some of the node's containers a network with another bridge, or one of ptp, which needs none; `bridge link show` lists the ports",
		"bridge %s has as many ports as a bridge can have, %d", bridge, link.MostPorts)
}

// setPort sets the options of the bridge's port.
func setPort(h *netlink.Handle, c *config, bridge, port netlink.Link) error {
	if c.hasVLANs() {
		if err := setVLANs(h, c, bridge, port, c.trunk); err != nil {
			return err
		}
	}
	if c.hairpin {
		if err := h.LinkSetHairpin(port, true); err != nil {
			return fmt.Errorf("set %s to hairpin mode: %w", port.Attrs().Name, err)
		}
	}
	if c.isolated {
		if err := h.LinkSetIsolated(port, true); err != nil {
			return fmt.Errorf("isolate %s: %w", port.Attrs().Name, err)
		}
	}
	return nil
}

// ensureBridge returns the network's bridge, up, made if it is not there.
func ensureBridge(r *plugin.Request, c *config) (netlink.Link, error) {
	h := r.Links()
	l, err := h.LinkByName(c.name)
	if link.IsNotFound(err) {
		r.Announce("make bridge " + c.name)
		l, err = createBridge(h, c)
	}
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", c.name, err)
	}
	if err := c.checkBridge(l); err != nil {
		return nil, err
	}
	if err := keepMAC(h, l); err != nil {
		return nil, err
	}
	if l.Attrs().RawFlags&unix.IFF_UP == 0 { // just made, or by an ADD that was killed
		r.Announce("set bridge " + c.name + " up")
		trustNoRouter(c, c.name)
		if err := h.LinkSetUp(l); err != nil {
			return nil, fmt.Errorf("set bridge %s up: %w", c.name, err)
		}
	}
	if c.promiscuous && l.Attrs().RawFlags&unix.IFF_PROMISC == 0 {
		r.Announce("make bridge " + c.name + " promiscuous")
		if err := h.SetPromiscOn(l); err != nil {
			return nil, fmt.Errorf("make bridge %s promiscuous: %w", c.name, err)
		}
	}
	return l, nil
}

// checkBridge refuses a link that can't be the network's bridge. The kernel puts ports of any bridge into VLANs, but one that does not
// filter them separates nothing.
func (c *config) checkBridge(l netlink.Link) error {
	bridge, ok := l.(*netlink.Bridge)
	switch {
	case !ok:
		return plugin.ConfigError("name another bridge, or remove that link", "bridge: %q already exists but is not a bridge (it is of type %s)", c.name, l.Type())
	case c.hasVLANs() && (bridge.VlanFiltering == nil || !*bridge.VlanFiltering):
		return plugin.ConfigError(
			fmt.Sprintf("use another bridge, or `ip link set dev %s type bridge vlan_filtering 1`: ports without a VLAN are in VLAN 1 then. "+
				"The kernel needs CONFIG_BRIDGE_VLAN_FILTERING", c.name),
			"bridge %s does not filter VLANs: it would not separate containers", c.name)
	}
	return nil
}

// createBridge makes the bridge, which is down yet; another ADD may do so at the same time. Its MAC address is random: one derived
// from the name would be the same on all nodes, which may be on one segment. One that is made again has that of before.
func createBridge(h *netlink.Handle, c *config) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = c.name, c.bridgeMAC, c.MTU
	if c.bridgeMAC == nil {
		attrs.HardwareAddr = attach.RandomMAC()
	}
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if c.filterVLANs {
		bridge.VlanFiltering = &c.filterVLANs
	}
	err := h.LinkAdd(bridge)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) && c.filterVLANs:
		return nil, &plugin.MissingFeature{Name: "bridges that filter VLANs", Option: "CONFIG_BRIDGE_VLAN_FILTERING", Err: err}
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, plugin.MissingLinkType("bridge", err)
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("create it: %w", err)
	case err != nil && !errors.Is(err, unix.EEXIST):
		return nil, plugin.Errorf(fmt.Sprintf("check the name and the mtu (%d)", c.MTU), "create it: %w", err)
	}
	return h.LinkByName(c.name)
}

// keepMAC sets a bridge's MAC address to what it is, unless somebody has set it. The kernel gives a bridge whose address nobody has
// set the lowest of its ports', and changes it as they come and go: who knows the old one would be cut off. Without ports it has
// none, or one that is not in its id: set to that, Linux 5.10 delivers nothing to the host, as only another address enters its tables.
func keepMAC(h *netlink.Handle, bridge netlink.Link) error {
	const set = "3" // NET_ADDR_SET of linux/netdevice.h
	attrs := bridge.Attrs()
	sys := "/sys/class/net/" + attrs.Name
	how, err := os.ReadFile(sys + "/addr_assign_type")
	if err == nil && strings.TrimSpace(string(how)) == set {
		return nil
	}
	mac := attrs.HardwareAddr
	if slices.Equal(mac, make(net.HardwareAddr, len(mac))) {
		mac = attach.RandomMAC()
	}
	addresses := []net.HardwareAddr{mac}
	id, err := os.ReadFile(sys + "/bridge/bridge_id") // such as 8000.0a580a2c0001
	if err == nil && strings.HasSuffix(strings.TrimSpace(string(id)), ".000000000000") {
		other := slices.Clone(mac)
		other[5] ^= 1
		addresses = []net.HardwareAddr{other, mac}
	}
	for _, address := range addresses {
		if err := h.LinkSetHardwareAddr(bridge, address); err != nil {
			return fmt.Errorf("keep the MAC address of %s: %w", attrs.Name, err)
		}
	}
	attrs.HardwareAddr = mac
	return nil
}

// trustNoRouter sets sysctls that are absent without IPv6. A gateway must not take router advertisements from its own containers, and
// while its link-local address is looked for elsewhere the kernel looks for no neighbour: the first packets to the first container
// would be lost.
func trustNoRouter(c *config, name string) {
	_ = sysctl.Set("net/ipv6/conf/"+name+"/accept_ra", "0")
	if c.Gateway {
		_ = sysctl.Set("net/ipv6/conf/"+name+"/accept_dad", "0")
	}
}
