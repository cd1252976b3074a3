// Package iface gives a container's interface the addresses and routes of a
// result, and checks that it still has them: what every main plugin does
// inside the container.
package iface

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// settleTime bounds the wait for duplicate address detection, which takes one
// to two seconds (RFC 4862: one probe, one second, and a random delay).
const settleTime = 5 * time.Second

// Options are what differs between the plugins.
type Options struct {
	// DAD makes the kernel look for other users of an IPv6 address on the
	// segment before it is used. Without it addresses work at once, which is
	// right for those that IPAM hands out once.
	DAD bool

	Announce bool // tell neighbours the IPv4 addresses whenever the link comes up
	Down     bool // leave the link down
}

// Configure gives the link called name, with an index in ns, the addresses and
// routes of a result, and sets it up. A route without a gateway goes by the
// first gateway of its family.
func Configure(ns *netns.NS, name string, index int, ips []*types100.IPConfig, routes []*types.Route, o Options) error {
	setup := link.Setup{Announce: o.Announce, Down: o.Down}
	for _, ip := range ips {
		a := link.Address{Prefix: plugin.Prefix(ip.Address)}
		if isIPv6(ip) && !o.DAD {
			a.Flags = unix.IFA_F_NODAD
		}
		setup.Addresses = append(setup.Addresses, a)
	}
	setup.Routes = resolve(routes, ips)
	c, err := open(ns, name, slices.ContainsFunc(ips, isIPv6), o)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Configure(index, setup); err != nil {
		return explain(err, name)
	}
	if o.DAD && slices.ContainsFunc(ips, isIPv6) {
		return settle(ns, index, name)
	}
	return nil
}

// open opens a socket in the namespace, and sets what only /proc/sys can set.
func open(ns *netns.NS, name string, ipv6 bool, o Options) (*link.Conn, error) {
	if ipv6 {
		if err := prepareIPv6(ns, name, o.DAD); err != nil {
			return nil, err
		}
	}
	return link.OpenIn(ns)
}

// prepareIPv6 sets what an interface with IPv6 addresses needs: IPv6 itself
// (runtimes make namespaces with it disabled), addresses that survive the link
// going down, and whether the link-local address is probed too.
func prepareIPv6(ns *netns.NS, name string, dad bool) error {
	tree, err := sysctl.OpenIn(ns)
	if err != nil {
		return err
	}
	defer tree.Close()
	for _, key := range []string{
		"net/ipv6/conf/lo/disable_ipv6", "net/ipv6/conf/" + name + "/disable_ipv6",
	} {
		if err := tree.Set(key, "0"); err != nil {
			return fmt.Errorf("enable IPv6 in the container: %w", err)
		}
	}
	if err := tree.Set("net/ipv6/conf/"+name+"/keep_addr_on_down", "1"); err != nil {
		return err
	}
	probe := "0"
	if dad {
		probe = "1"
		_ = tree.Set("net/ipv6/conf/"+name+"/enhanced_dad", "1") // absent before Linux 4.10
	}
	return tree.Set("net/ipv6/conf/"+name+"/accept_dad", probe)
}

// resolve fills in gateways, and leaves out routes that are there twice: IPAM
// and a plugin may both ask for the default route.
func resolve(routes []*types.Route, ips []*types100.IPConfig) []link.Route {
	var out []link.Route
	for _, r := range routes {
		k := link.Route{Dst: plugin.Prefix(r.Dst).Masked(), Gateway: nextHop(r, ips), Priority: r.Priority, MTU: r.MTU, AdvMSS: r.AdvMSS}
		if r.Table != nil {
			k.Table = *r.Table
		}
		if r.Scope != nil {
			k.Scope = *r.Scope
		}
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// nextHop returns a route's gateway: its own, or else the one of its family,
// unless the route says that there is none, by its scope or by 0.0.0.0 (as
// DHCP's option 121 does, RFC 3442).
func nextHop(r *types.Route, ips []*types100.IPConfig) netip.Addr {
	onLink := r.Scope != nil && *r.Scope >= unix.RT_SCOPE_LINK
	switch {
	case r.GW != nil && !r.GW.IsUnspecified():
		return plugin.Addr(r.GW)
	case onLink || r.GW != nil:
		return netip.Addr{}
	}
	return Gateway(ips, plugin.Addr(r.Dst.IP))
}

// Gateway returns the first gateway of an address's family, the zero Addr if
// there is none.
func Gateway(ips []*types100.IPConfig, family netip.Addr) netip.Addr {
	for _, ip := range ips {
		if gw := plugin.Addr(ip.Gateway); gw.IsValid() && gw.Is4() == family.Is4() {
			return gw
		}
	}
	return netip.Addr{}
}

func isIPv6(ip *types100.IPConfig) bool { return ip.Address.IP.To4() == nil }

// settle waits until the link has no address that is still being probed.
func settle(ns *netns.NS, index int, name string) error {
	return ns.Run(func() error {
		c, err := link.Open()
		if err != nil {
			return err
		}
		defer c.Close()
		failed, err := c.Settle(index, settleTime)
		if err != nil {
			return fmt.Errorf("%s: wait for duplicate address detection: %w", name, err)
		}
		if failed.IsValid() {
			return plugin.Errorf("take that address from the other host, or from the pool", "%s: duplicate address detection found another user of %s", name, failed.Addr())
		}
		return nil
	})
}

// explain adds what to do to the errors that configurations cause.
func explain(err error, name string) error {
	remedy := ""
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		remedy = "a route's gateway must be reachable through an address of the interface: correct the gateway or the subnet"
	case errors.Is(err, unix.EEXIST):
		remedy = "two addresses or routes of the configuration are the same to the kernel: remove one, or give it another priority or table"
	}
	return plugin.Errorf(remedy, "%s: %v", name, err)
}
