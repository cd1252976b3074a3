package bridge

import (
	"context"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Check compares the bridge, the veth pair, the container's addresses and routes, the masquerading and the lease with the result
// of ADD.
func (Plugin) Check(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	inside, err := attach.Check(ctx, r, &c.Config, "veth")
	if err != nil {
		return err
	}
	if err := checkHost(ctx, r, c, inside); err != nil {
		return err
	}
	return c.masquerade.Check(ctx, r)
}

// checkHost finds the veth's other end on the host and in its bridge.
func checkHost(ctx context.Context, r *plugin.Request, c *config, inside netlink.Link) error {
	bridge, err := r.Links().LinkByName(c.name)
	if err != nil {
		return attach.Different("bridge %s is not there: %v", c.name, err)
	}
	// The bridge's MAC address is not compared: one that the reference plugin made without isGateway changes it as other containers
	// come and go.
	if err := c.checkBridge(bridge); err != nil {
		return err
	}
	if c.promiscuous && bridge.Attrs().RawFlags&unix.IFF_PROMISC == 0 {
		return attach.Different("bridge %s is not promiscuous, the configuration has promiscMode", c.name)
	}
	if bridge.Attrs().RawFlags&unix.IFF_UP == 0 {
		return attach.Different("bridge %s is down", c.name)
	}
	if err := checkGateway(r, c, bridge, result.AddressesOf(r.PrevResult, r.IfName)); err != nil {
		return err
	}
	end, err := attach.CheckHostEnd(r, inside)
	if err != nil {
		return err
	}
	name := end.Attrs().Name
	if end.Attrs().MasterIndex != bridge.Attrs().Index {
		return attach.Different("veth %s is not in bridge %s", name, c.name)
	}
	hairpin, err := link.PortOption(name, nl.IFLA_BRPORT_MODE)
	if err != nil {
		return err
	}
	if hairpin != c.hairpin {
		return attach.Different("veth %s: hairpin_mode is %v, configured is %v", name, hairpin, c.hairpin)
	}
	if c.isolated { // one that is not configured may be the firewall plugin's
		isolated, err := link.PortOption(name, nl.IFLA_BRPORT_ISOLATED)
		if err != nil {
			return err
		}
		if !isolated {
			return attach.Different("veth %s is not isolated, the configuration has portIsolation", name)
		}
	}
	if err := checkVLANs(r.Links(), c, end); err != nil {
		return err
	}
	if c.spoofCheck {
		return checkSpoofCheck(r, name)
	}
	return nil
}

// Explain implements plugin.Explainer.
func (Plugin) Explain(o *conf.Object) []string {
	c := locate(&plugin.Request{Config: o})
	return c.masquerade.Explain(&c.Config)
}

// Status reports whether an ADD could be served: the configuration is valid, the bridge's name is free or a bridge's, the packet
// filter has what is needed, and the IPAM plugin is ready.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	l, err := r.Links().LinkByName(c.name)
	switch {
	case err == nil:
		if err := c.checkBridge(l); err != nil {
			return plugin.Unavailable(err)
		}
	case !link.IsNotFound(err):
		return err
	}
	if err := c.masquerade.Available(); err != nil {
		return err
	}
	if c.spoofCheck {
		if err := (netfilter.SpoofCheck{}).Available(); err != nil {
			return err
		}
	}
	return attach.Status(ctx, r, &c.Config)
}
