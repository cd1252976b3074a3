package bridge

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/delegate"
	"github.com/cnibox/cnibox/pkg/iface"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/plugin"
)

const repeat = "something changed the network after ADD: restart the container, or put it back by hand"

// Check compares the bridge, the veth pair, the container's addresses and
// routes, the masquerading and the lease with the result of ADD.
func (Plugin) Check(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	if r.PrevResult == nil {
		return plugin.ConfigError("the runtime must pass the result of ADD to CHECK", "required prevResult missing")
	}
	if c.ipam != "" {
		ipam, err := delegate.Find(r, c.ipam)
		if err != nil {
			return err
		}
		if err := ipam.Check(ctx, r); err != nil {
			return err
		}
	}
	inside, ips, err := checkContainer(r)
	if err != nil {
		return err
	}
	if err := checkHost(ctx, r, c, inside); err != nil {
		return err
	}
	if !c.masquerade || len(ips) == 0 {
		return nil
	}
	return backend.CheckMasquerade(ctx, c.masqueradeBy, r.Key, prefixes(ips))
}

func checkContainer(r *plugin.Request) (*link.Link, []plugin.IP, error) {
	_, want := r.PrevResult.ContainerInterface(r.IfName, r.Netns)
	if want == nil {
		return nil, nil, plugin.Errorf("prevResult has no interface %s in %s", r.IfName, r.Netns).
			WithDetails("the runtime must pass the result of this attachment's ADD, with the same CNI_NETNS and CNI_IFNAME")
	}
	pod, err := link.OpenIn(r.NS())
	if err != nil {
		return nil, nil, err
	}
	defer pod.Close()
	ips := r.PrevResult.AddressesOf(r.IfName)
	var routes []plugin.Route
	if len(ips) > 0 {
		routes = r.PrevResult.Routes
	}
	l, err := iface.Check(pod, *want, ips, routes)
	if err == nil && l.Kind != "veth" {
		err = plugin.Errorf("interface %s of the container is not a veth but %s", l.Name, kind(l)).WithDetails(repeat)
	}
	return l, ips, err
}

// checkHost finds the veth's other end on the host and in its bridge.
func checkHost(ctx context.Context, r *plugin.Request, c *config, inside *link.Link) error {
	host, err := link.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	bridge, end, err := host.ByNameAndIndex(c.bridge, inside.Peer)
	if bridge == nil {
		return plugin.Errorf("bridge %s is not there: %v", c.bridge, err).WithDetails(repeat)
	}
	if err := checkBridge(c, bridge); err != nil {
		return err
	}
	switch {
	case errors.Is(err, link.ErrNotFound):
		return plugin.Errorf("the other end of %s is not on this host", r.IfName).WithDetails(repeat)
	case err != nil:
		return err
	case end.Kind != "veth":
		return plugin.Errorf("the other end of %s is %s, not a veth but %s", r.IfName, end.Name, kind(end)).WithDetails(repeat)
	case end.Master != bridge.Index:
		return plugin.Errorf("veth %s is not in bridge %s", end.Name, c.bridge).WithDetails(repeat)
	case end.Hairpin != c.port.Hairpin || c.port.Isolated && !end.Isolated: // the firewall plugin isolates ports too
		return plugin.Errorf("veth %s: hairpin is %v and isolated is %v, configured are %v and %v",
			end.Name, end.Hairpin, end.Isolated, c.port.Hairpin, c.port.Isolated).WithDetails(repeat)
	}
	if c.spoofCheck {
		if err := checkSpoofCheck(r, end.Name); err != nil {
			return err
		}
	}
	for _, f := range r.PrevResult.Interfaces {
		if f.Name == end.Name && f.Sandbox == "" {
			return sameMAC(f, end)
		}
	}
	return plugin.Errorf("veth %s, the other end of %s, is not in prevResult", end.Name, r.IfName).WithDetails(repeat)
}

// checkBridge does not compare the bridge's MAC address: one that the reference
// plugin made without isGateway changes it as other containers come and go.
func checkBridge(c *config, bridge *link.Link) error {
	if bridge.Kind != "bridge" {
		return plugin.Errorf("%s is not a bridge but %s", bridge.Name, kind(bridge)).WithDetails(repeat)
	}
	if promiscuous := bridge.Flags&unix.IFF_PROMISC != 0; c.promiscuous && !promiscuous {
		return plugin.Errorf("bridge %s is not promiscuous, the configuration has promiscMode", bridge.Name).WithDetails(repeat)
	}
	return nil
}

func sameMAC(want plugin.Interface, l *link.Link) error {
	if have := link.MACText(l.MAC); have != want.MAC {
		return plugin.Errorf("%s has the MAC address %s, ADD reported %s", l.Name, have, want.MAC).WithDetails(repeat)
	}
	return nil
}

// Explain implements plugin.Explainer.
func (Plugin) Explain(o *conf.Object) []string {
	c := locate(&plugin.Request{Config: o})
	if !c.masquerade || c.ipam == "" {
		return nil
	}
	return []string{backend.Explain("masquerades", c.masqueradeBy)}
}

// Status tells whether an ADD could be served: the configuration is valid, the
// bridge's name is free or a bridge's, nftables is there if needed, and the
// IPAM plugin is ready.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	host, err := link.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	l, err := host.ByName(c.bridge)
	if err == nil && l.Kind != "bridge" {
		return &plugin.Error{Code: plugin.CodeNotAvailable, Msg: c.bridge + " exists and is not a bridge but " + kind(l),
			Details: "name another bridge, or remove that link"}
	}
	if gone(err) != nil {
		return err
	}
	if c.masquerade {
		if err := backend.Available(c.masqueradeBy); err != nil {
			return err
		}
	}
	if c.spoofCheck {
		if err := backend.SpoofCheckAvailable(); err != nil {
			return err
		}
	}
	if c.ipam == "" {
		return nil
	}
	ipam, err := delegate.Find(r, c.ipam)
	if err != nil {
		return err
	}
	return ipam.Status(ctx, r)
}
