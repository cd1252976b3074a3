// Package bridge connects containers to a bridge of the host by a veth pair, and makes the bridge their gateway if asked to.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/kernel"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// Plugin is the bridge plugin.
type Plugin struct{}

// portTime bounds the wait for the bridge's new port to pass packets. The kernel takes milliseconds; a bridge with spanning tree
// takes longer, and is not waited for beyond this.
const portTime = 3 * time.Second

// attachment is one ADD on its way.
type attachment struct {
	*config
	bridge netlink.Link
	port   netlink.Link // the host end
}

// Add makes the veth pair, and what the configuration asks for around it.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	c, err := parse(r)
	if err != nil {
		return nil, err
	}
	a := &attachment{config: c}
	return attach.Add(ctx, r, &c.Config, attach.Link{Make: a.connect, Finish: a.finish})
}

// connect makes the veth pair, with its host end in the bridge.
func (a *attachment) connect(ctx context.Context, at *attach.Attachment) (err error) {
	if a.bridge, err = ensureBridge(at.Links(), a.config); err != nil {
		return err
	}
	if a.port, err = at.MakeVeth(a.bridge.Attrs().Index); err != nil {
		return explainFull(a.name, err)
	}
	if err := errors.Join(a.setPort(at.Links()), a.checkSpoofing(ctx, at)); err != nil {
		return errors.Join(err, link.Delete(at.Links(), a.port.Attrs().Index))
	}
	for _, l := range []netlink.Link{a.bridge, a.port} {
		at.Result.Interfaces = append(at.Result.Interfaces, at.Describe(l))
	}
	return nil
}

// explainFull says what to do about a bridge that takes no more ports.
func explainFull(bridge string, err error) error {
	if !errors.Is(err, unix.EXFULL) {
		return err
	}
	return plugin.Errorf("give some of the node's containers a network with another bridge; `bridge link show` lists the ports",
		"bridge %s has as many ports as a bridge can have, 1,023", bridge)
}

// setPort sets the options of the bridge's port.
func (a *attachment) setPort(h *netlink.Handle) error {
	if a.hasVLANs() {
		if err := setVLANs(h, a.config, a.bridge, a.port, a.trunk); err != nil {
			return err
		}
	}
	if a.hairpin {
		if err := h.LinkSetHairpin(a.port, true); err != nil {
			return fmt.Errorf("set %s to hairpin mode: %w", a.port.Attrs().Name, err)
		}
	}
	if a.isolated {
		if err := h.LinkSetIsolated(a.port, true); err != nil {
			return fmt.Errorf("isolate %s: %w", a.port.Attrs().Name, err)
		}
	}
	return nil
}

// finish makes the bridge the gateway, and masquerades what the container sends out of its network.
func (a *attachment) finish(ctx context.Context, at *attach.Attachment) error {
	if err := at.Step(ctx, "gateway"); err != nil {
		return err
	}
	gateway := a.bridge
	if name := a.gatewayLink(); name != "" {
		var err error
		if gateway, err = ensureGatewayLink(at.Links(), a.config, a.bridge); err != nil {
			return fmt.Errorf("gateway %s: %w", name, err)
		}
		at.Result.Interfaces = append(at.Result.Interfaces, at.Describe(gateway))
	}
	if err := serveGateway(at.Links(), a.config, gateway, at.Result.IPs); err != nil {
		return err
	}
	if err := a.masquerade.Add(ctx, at); err != nil {
		return err
	}
	if a.Down {
		return nil
	}
	state, err := link.WaitUp(at.Links(), a.port.Attrs().Name, portTime)
	if err != nil {
		return plugin.Errorf("look at the port and the bridge with `ip -d link`", "bridge %s: its port is %s: %v", a.name, state, err)
	}
	return at.Announce()
}

// ensureBridge returns the network's bridge, up, made if it is not there.
func ensureBridge(h *netlink.Handle, c *config) (netlink.Link, error) {
	l, err := h.LinkByName(c.name)
	if link.IsNotFound(err) {
		l, err = createBridge(h, c)
	}
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", c.name, err)
	}
	if wrong := c.checkBridge(l); wrong != nil {
		return nil, wrong
	}
	if err := link.KeepMAC(h, l); err != nil {
		return nil, err
	}
	if l.Attrs().RawFlags&unix.IFF_UP == 0 { // just made, or by an ADD that was killed
		trustNoRouter(c, c.name)
		if err := h.LinkSetUp(l); err != nil {
			return nil, fmt.Errorf("set bridge %s up: %w", c.name, err)
		}
	}
	if c.promiscuous && l.Attrs().RawFlags&unix.IFF_PROMISC == 0 {
		if err := h.SetPromiscOn(l); err != nil {
			return nil, fmt.Errorf("make bridge %s promiscuous: %w", c.name, err)
		}
	}
	return l, nil
}

// checkBridge refuses a link that can't be the network's bridge. The kernel puts ports of any bridge into VLANs, but one that does not
// filter them separates nothing.
func (c *config) checkBridge(l netlink.Link) *types.Error {
	bridge, ok := l.(*netlink.Bridge)
	switch {
	case !ok:
		return plugin.ConfigError("name another bridge, or remove that link", "bridge: %q already exists but is not a bridge (it is %s)", c.name, kind(l))
	case c.hasVLANs() && (bridge.VlanFiltering == nil || !*bridge.VlanFiltering):
		return plugin.ConfigError(
			fmt.Sprintf("use another bridge, or `ip link set dev %s type bridge vlan_filtering 1`: ports without a VLAN are in VLAN 1 then. "+
				"The kernel needs CONFIG_BRIDGE_VLAN_FILTERING", c.name),
			"bridge %s does not filter VLANs: it would not separate containers", c.name)
	}
	return nil
}

func kind(l netlink.Link) string {
	if l.Type() == "device" {
		return "hardware"
	}
	return "a " + l.Type()
}

// createBridge makes the bridge, which is down yet; another ADD may do so at the same time. Its MAC address is random: one derived
// from the name would be the same on all nodes, which may be on one segment.
func createBridge(h *netlink.Handle, c *config) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = c.name, link.RandomMAC(), c.MTU
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if c.filterVLANs {
		bridge.VlanFiltering = &c.filterVLANs
	}
	err := h.LinkAdd(bridge)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, kernel.MissingLink("bridge", err)
	case err != nil && !errors.Is(err, unix.EEXIST):
		return nil, plugin.Errorf(fmt.Sprintf("check the name and the mtu (%d)", c.MTU), "create it: %v", err)
	}
	return h.LinkByName(c.name)
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
