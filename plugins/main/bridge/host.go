package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// hostEnd is the use a key's MAC address is derived for.
const hostEnd = "host end"

// hostMAC returns the MAC address of the attachment's host end. It is higher than others, because a bridge whose own address
// nobody has set takes the lowest of its ports.
func hostMAC(k plugin.Key) [6]byte {
	mac := k.MAC(hostEnd)
	mac[0] = 0xfe // locally administered, unicast
	return mac
}

// aliasPrefix starts the alias of every host end. What follows is the key, for
// `ip link` to show and for GC to read.
const aliasPrefix = "cnibox "

func alias(k plugin.Key) string { return aliasPrefix + k.String() }

// unfiltered ends the alias of a host end whose attachment was made without
// anything in the packet filter: no masquerade, no spoof check. DEL does not ask
// the packet filter about it, which takes 0.2 ms of 4.
const unfiltered = " unfiltered"

func isFiltered(l *link.Link) bool { return !strings.HasSuffix(l.Alias, unfiltered) }

// owner is the alias without more than whose the link is.
func owner(l *link.Link) string { return strings.TrimSuffix(l.Alias, unfiltered) }

// ensureBridge returns the network's bridge, made if it is not there.
func ensureBridge(c *link.Conn, conf *config) (*link.Link, error) {
	l, err := c.Bridge(conf.bridge)
	if errors.Is(err, link.ErrNotFound) {
		l, err = createBridge(c, conf)
	}
	if err != nil {
		return nil, err
	}
	if l.Kind != "bridge" {
		return nil, plugin.ConfigError("name another bridge, or remove that link",
			"bridge: %q already exists but is not a bridge (it is %s)", conf.bridge, kind(l))
	}
	if err := keepMAC(c, l); err != nil {
		return nil, err
	}
	if !l.Up() {
		if err := c.SetUp(l.Index); err != nil {
			return nil, err
		}
	}
	if conf.promiscuous && l.Flags&unix.IFF_PROMISC == 0 {
		return l, c.SetFlag(l.Index, unix.IFF_PROMISC, true)
	}
	return l, nil
}

// keepMAC sets the bridge's MAC address to what it is, unless somebody has set it: the kernel would change it as ports come and
// go, and who knows the old one would be cut off.
func keepMAC(c *link.Conn, bridge *link.Link) error {
	const set = "3" // NET_ADDR_SET of linux/netdevice.h
	how, err := os.ReadFile("/sys/class/net/" + bridge.Name + "/addr_assign_type")
	if err == nil && strings.TrimSpace(string(how)) == set {
		return nil
	}
	return c.SetMAC(bridge.Index, bridge.MAC)
}

func kind(l *link.Link) string {
	if l.Kind == "" {
		return "hardware"
	}
	return "a " + l.Kind
}

// createBridge makes the bridge, which is down yet; another ADD may do so at the same time. Its
// MAC address is random: one derived from the name would be the same on all
// nodes, which may be on one segment.
func createBridge(c *link.Conn, conf *config) (*link.Link, error) {
	mac := [6]byte{0x02}
	if _, err := unix.Getrandom(mac[1:], 0); err != nil {
		return nil, plugin.Errorf("", "bridge %s: choose a MAC address: %v", conf.bridge, err)
	}
	err := c.CreateBridge(conf.bridge, mac, conf.mtu)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, plugin.Errorf(fmt.Sprintf("bridge: check the name and the mtu (%d)", conf.mtu), "%v", err)
	}
	// Both are absent without IPv6. A gateway must not take router
	// advertisements from its own containers, and while its link-local address
	// is probed, for one to two seconds, the kernel looks for no neighbour: the
	// first packets to the first container would be lost.
	_ = sysctl.Set("net/ipv6/conf/"+conf.bridge+"/accept_ra", "0")
	if conf.gateway {
		_ = sysctl.Set("net/ipv6/conf/"+conf.bridge+"/accept_dad", "0")
	}
	return c.ByName(conf.bridge)
}

// createVeth makes the pair under the first of the key's names that is free,
// which it stores in v.Host.
func createVeth(c *link.Conn, ns *netns.NS, k plugin.Key, v *link.Veth) (link.Pair, error) {
	for salt := range plugin.HostEnds {
		v.Host = k.HostEnd(salt)
		pair, err := c.CreateVeth(*v, ns)
		if !errors.Is(err, unix.EEXIST) {
			return pair, err
		}
		l, err := c.ByName(v.Host)
		switch {
		case errors.Is(err, link.ErrNotFound): // so it was the other end's name
			return pair, plugin.Errorf("give the attachment another CNI_IFNAME, or remove that interface", "the container already has an interface %s", k.IfName)
		case err != nil:
			return pair, err
		case owns(l, k):
			return pair, plugin.Errorf("call DEL before a second ADD", "container %s is already attached to network %s as %s (host end %s)", k.ContainerID, k.Network, k.IfName, v.Host)
		}
	}
	return link.Pair{}, plugin.Errorf("remove stale links: see `ip link show type veth`", "all %d names for the host end are taken, the last is %s", plugin.HostEnds, v.Host)
}

// owns tells whether a link with one of the key's names is the host end of its
// attachment. An ADD killed at the wrong moment leaves one without an alias.
func owns(l *link.Link, k plugin.Key) bool {
	return l.Kind == "veth" && (owner(l) == alias(k) || l.Alias == "" && l.MAC == hostMAC(k))
}

// hostEnds returns the links that are host ends of the key's attachment: one,
// or none. Nearly always it has the first of the key's names.
func hostEnds(c *link.Conn, k plugin.Key) ([]*link.Link, error) {
	names := make([]string, plugin.HostEnds)
	for salt := range names {
		names[salt] = k.HostEnd(salt)
	}
	const likely = 1
	for _, some := range [][]string{names[:likely], names[likely:]} {
		links, err := c.ByNames(some...)
		links = slices.DeleteFunc(links, func(l *link.Link) bool { return !owns(l, k) })
		if len(links) > 0 || err != nil {
			return links, err
		}
	}
	return nil, nil
}

// gatewayAddress is a gateway's address as the bridge has it.
func gatewayAddress(p netip.Prefix) link.Address {
	a := link.Address{Prefix: p}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // as the reference plugin does by accept_dad=0: IPAM owns the network
	}
	return a
}

// resolveConflicts looks for addresses of the bridge that stand against the
// gateways' that were just added. If there are any, they are removed by force,
// or else what was added is, and the error says why.
func resolveConflicts(c *link.Conn, bridge *link.Link, gateways []netip.Prefix, added []bool, force bool) error {
	if !slices.Contains(added, true) {
		return nil
	}
	have, err := c.Addresses(bridge.Index)
	if err != nil {
		return err
	}
	for i, want := range gateways {
		if !added[i] {
			continue
		}
		if err := resolveConflict(c, bridge, want, have, gateways, force); err != nil {
			return errors.Join(err, withdraw(c, bridge, gateways, added))
		}
	}
	return nil
}

// resolveConflict is about one gateway. Another address of the same family that
// is not among the network's gateways is a conflict: for IPv4 any, for IPv6 one
// whose network overlaps.
func resolveConflict(c *link.Conn, bridge *link.Link, want netip.Prefix, have []link.Address, gateways []netip.Prefix, force bool) error {
	for _, a := range have {
		conflict := a.Prefix.Addr().Is4() == want.Addr().Is4() &&
			(want.Addr().Is4() || a.Prefix.Overlaps(want)) && !slices.Contains(gateways, a.Prefix)
		switch {
		case !conflict:
		case force:
			if err := c.DeleteAddress(bridge.Index, a.Prefix); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return err
			}
		default:
			return plugin.ConfigError("remove that address, set forceAddress, or use another bridge for this network",
				"bridge %s already has an IP address different from %s: %s", bridge.Name, want, a.Prefix)
		}
	}
	return nil
}

// withdraw takes back the gateways' addresses that were added.
func withdraw(c *link.Conn, bridge *link.Link, gateways []netip.Prefix, added []bool) error {
	var errs []error
	for i, g := range gateways {
		if added[i] {
			errs = append(errs, c.DeleteAddress(bridge.Index, g))
		}
	}
	return errors.Join(errs...)
}

// gone forgives that a link is not there any more.
func gone(err error) error {
	if errors.Is(err, link.ErrNotFound) {
		return nil
	}
	return err
}
