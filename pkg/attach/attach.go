// Package attach puts one link into a container, whatever its kind: it asks IPAM for addresses, gives them to the link with their
// routes, mends all of it, and removes it again in the order by which nothing is lost.
//
// A plugin calls it from top to bottom. docs/project/architecture.md shows how one is written.
package attach

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
	"github.com/cnibox/cnibox/pkg/process/delegate"
	"github.com/cnibox/cnibox/pkg/result"
)

// Attachment is one ADD on its way: Begin, then what makes the link, then Configure, then Result; or one Mend: BeginMend, then Mend.
type Attachment struct {
	*plugin.Request
	*Config
	Undo plugin.Undo

	// IPs and Routes are IPAM's. Without IPAM a plugin may set them before Configure.
	IPs    []*types100.IPConfig
	Routes []*types.Route

	// Interface is the container's, for the result.
	Interface *types100.Interface

	ipam  *delegate.Delegate // nil is layer 2 only
	asked bool               // ipam is
	dns   types.DNS          // ipam's
	link  netlink.Link       // the container's, when it is made

	mender   *plugin.Mender // of a Mend
	isLeased bool           // the attachment has its addresses still
}

// Begin begins an ADD. An address is asked for before anything is made, so that an empty pool costs nothing; an IPAM plugin that works
// through the link has to wait for it. The plugin has to defer Undo.OnError next, which takes back all that is made from here on.
func Begin(ctx context.Context, r *plugin.Request, c *Config) (_ *Attachment, err error) {
	a := &Attachment{Request: r, Config: c}
	if a.ipam, err = findIPAM(r, c); err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	isNoted := a.noteNamespace(false) // first: the lease of an ADD that is killed is known to be nobody's by that
	if a.ipam != nil && !a.ipam.NeedsLink {
		if err := a.AskIPAM(ctx); err != nil {
			return nil, err
		}
	}
	if !isNoted { // IPAM has not refused, so what was noted is of an attachment that has come to its end
		a.noteNamespace(true)
	}
	return a, nil
}

// noteNamespace notes which namespace the attachment is in, by which it is known to be gone. It returns false if another is noted, and may not be
// replaced. Where it can't be written ADD goes on: pkg/presence knows less then.
func (a *Attachment) noteNamespace(mayReplace bool) bool {
	isNew, err := presence.DefaultNotes.Write(a.Key, a.Netns, a.Pair, mayReplace)
	switch {
	case errors.Is(err, fs.ErrExist):
		return false
	case err != nil:
		a.Announce("the network namespace is not noted: " + err.Error())
	case isNew:
		a.Undo.Push("forget the network namespace", func(context.Context) error { return presence.DefaultNotes.Remove(a.Key) })
	}
	return true
}

func findIPAM(r *plugin.Request, c *Config) (*delegate.Delegate, error) {
	if c.IPAM == "" {
		return nil, nil
	}
	return delegate.FindIPAM(r, c.IPAM)
}

// AskIPAM asks the IPAM plugin for addresses, if that has not been done, and completes what it answers.
func (a *Attachment) AskIPAM(ctx context.Context) error {
	if a.ipam == nil || a.asked {
		return nil
	}
	if err := a.Step(ctx, "ipam"); err != nil {
		return err
	}
	leased, err := a.ipam.Add(ctx, a.Request)
	if err != nil {
		return err
	}
	a.asked = true
	a.Undo.Push("give back the address", func(ctx context.Context) error { return a.ipam.Del(ctx, a.Request) })
	if len(leased.IPs) == 0 {
		return plugin.ConfigError("give it addresses to hand out, or remove the ipam section for a layer 2 network", "IPAM plugin %s returned no address", a.IPAM)
	}
	a.IPs, a.Routes, a.dns = leased.IPs, leased.Routes, leased.DNS
	for _, ip := range a.IPs {
		if network := result.Prefix(ip.Address).Masked(); ip.Gateway == nil && a.Gateway && !network.IsSingleIP() {
			ip.Gateway = network.Addr().Next().AsSlice()
		}
		if ip.Gateway == nil && a.DefaultRoute {
			return plugin.ConfigError("name a gateway in the ipam section, or hand out addresses of a larger subnet",
				"the address %s has no gateway for the default route: its subnet has no other address", &ip.Address)
		}
	}
	if a.DefaultRoute {
		a.Routes = withDefaultRoutes(a.Routes, a.IPs)
	}
	return nil
}

// withDefaultRoutes adds a default route for each family that has a gateway and no default route yet.
func withDefaultRoutes(routes []*types.Route, ips []*types100.IPConfig) []*types.Route {
	for _, unspecified := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		dst := netip.PrefixFrom(unspecified, 0)
		gw := gatewayOf(ips, unspecified.Is4())
		there := slices.ContainsFunc(routes, func(r *types.Route) bool { return result.Prefix(r.Dst) == dst })
		if gw != nil && !there {
			routes = append(routes, &types.Route{Dst: result.IPNet(dst), GW: gw})
		}
	}
	return routes
}

// gatewayOf returns the first gateway of a family, nil if there is none.
func gatewayOf(ips []*types100.IPConfig, v4 bool) net.IP {
	for _, ip := range ips {
		if ip.Gateway != nil && (ip.Gateway.To4() != nil) == v4 {
			return ip.Gateway
		}
	}
	return nil
}

// Made says that the container's link is there, down, under the request's interface name, and what takes it back. Others on its
// segment can't make themselves its router, unless that is wished.
func (a *Attachment) Made(remove func(context.Context) error) error {
	a.Undo.Push("remove "+a.IfName, remove)
	err := a.RefuseRouters()
	if err != nil {
		return err
	}
	if _, a.link, err = lookUp(a.Request); err != nil {
		return fmt.Errorf("look up %s, which was just made: %w", a.IfName, err)
	}
	a.Interface = a.Describe(a.link)
	a.Interface.Sandbox = a.Netns
	return nil
}

// DeleteLink deletes the container's link.
func (a *Attachment) DeleteLink(context.Context) error {
	inside, l, err := lookUp(a.Request)
	if err != nil {
		return link.IgnoreNotFound(err)
	}
	return link.Delete(inside, l.Attrs().Index)
}

// Result returns the result: links of the host, the container's behind them, and what that has.
func (a *Attachment) Result(host ...netlink.Link) *types100.Result {
	r := &types100.Result{IPs: a.IPs, Routes: a.Routes, DNS: a.dns}
	for _, l := range host {
		r.Interfaces = append(r.Interfaces, a.Describe(l))
	}
	r.Interfaces = append(r.Interfaces, a.Interface)
	for _, ip := range r.IPs {
		ip.Interface = types100.Int(len(host))
	}
	if a.replacesDNS() {
		r.DNS = a.DNS
	}
	return r
}

// Describe describes a link for the result, by what the result's version has.
func (a *Attachment) Describe(l netlink.Link) *types100.Interface {
	i := &types100.Interface{Name: l.Attrs().Name, Mac: l.Attrs().HardwareAddr.String()}
	if plugin.AtLeast(a.Version, "1.1.0") {
		i.Mtu = l.Attrs().MTU
	}
	return i
}

// Status reports whether containers can be entered and the IPAM plugin is ready for an ADD.
func Status(ctx context.Context, r *plugin.Request, c *Config) error {
	ipam, err := findIPAM(r, c)
	if err == nil {
		err = netns.CheckEntry()
	}
	if err != nil || ipam == nil {
		return err
	}
	return ipam.Status(ctx, r)
}
