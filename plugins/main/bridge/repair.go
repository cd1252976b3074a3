package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Repair implements plugin.Repairer. It takes no address from the bridge to make room for the gateway's: another network may need that.
func (Plugin) Repair(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	if c.masquerade.IsLost(r) { // which CHECK asks for last: all else is right
		return c.masquerade.Repair(ctx, r)
	}
	c.forceAddress = false
	for _, f := range r.PrevResult.Interfaces {
		if f.Name == c.name && f.Sandbox == "" {
			c.bridgeMAC, _ = net.ParseMAC(f.Mac) // which containers know
		}
	}
	a, err := attach.BeginRepair(r, &c.Config, "veth")
	if err != nil {
		return err
	}
	end, err := a.RepairHostEnd()
	if end == nil {
		return err
	}
	errs := []error{err}
	bridge, err := ensureBridge(r, c)
	if err == nil {
		errs = append(errs, repairPort(r, c, bridge, end), repairGateway(r, c, bridge, a))
	}
	if c.spoofCheck {
		errs = append(errs, repairSpoofCheck(ctx, r, end.Attrs().Name))
	}
	return errors.Join(append(errs, err, a.Repair(ctx), c.masquerade.Repair(ctx, r))...)
}

// repairPort makes the host end a port of the bridge again, with the port's options.
func repairPort(r *plugin.Request, c *config, bridge, port netlink.Link) error {
	name, h := port.Attrs().Name, r.Links()
	if port.Attrs().MasterIndex != bridge.Attrs().Index {
		r.Announce("make " + name + " a port of bridge " + c.name)
		if err := h.LinkSetMaster(port, bridge); err != nil {
			return explainFull(c.name, fmt.Errorf("make %s a port of bridge %s: %w", name, c.name, err))
		}
	}
	errs := []error{repairVLANs(r, c, bridge, port)}
	hairpin, err := link.PortOption(name, nl.IFLA_BRPORT_MODE)
	if err == nil && hairpin != c.hairpin {
		r.Announce(fmt.Sprintf("set hairpin_mode of %s to %v", name, c.hairpin))
		err = h.LinkSetHairpin(port, c.hairpin)
	}
	errs = append(errs, err)
	if c.isolated {
		isolated, err := link.PortOption(name, nl.IFLA_BRPORT_ISOLATED)
		if err == nil && !isolated {
			r.Announce("isolate " + name)
			err = h.LinkSetIsolated(port, true)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func repairGateway(r *plugin.Request, c *config, bridge netlink.Link, a *attach.Attachment) error {
	gateway, err := ensureGateway(r, c, bridge)
	if err != nil {
		return fmt.Errorf("gateway %s: %w", c.gatewayLink(), err)
	}
	if gateway != bridge && gateway.Attrs().RawFlags&unix.IFF_UP == 0 {
		r.Announce("set " + gateway.Attrs().Name + " up")
		if err := r.Links().LinkSetUp(gateway); err != nil {
			return err
		}
	}
	if isOnBridge(gateway, bridge) {
		own, err := ownVLAN(r.Links(), c, bridge)
		if err == nil && own == nil {
			r.Announce(fmt.Sprintf("put bridge %s itself into VLAN %d", c.name, c.vlan))
			err = joinVLAN(r.Links(), c, bridge)
		}
		if err != nil {
			return err
		}
	}
	if err := serveGateway(r, c, gateway, a.IPs); err != nil {
		return err
	}
	return checkWay(r, c, gateway, a.IPs)
}
