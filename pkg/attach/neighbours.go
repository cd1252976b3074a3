package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// setSysctls sets what the link's addresses need: IPv6 itself, which runtimes disable in new namespaces, and that addresses are looked for
// elsewhere first where that is wished. As far as sysctls can be set, it also has neighbours told of addresses whose MAC address they may not
// know, and IPv6 addresses survive the link going down.
func (a *Attachment) setSysctls() error {
	own, announce := "net/ipv6/conf/"+a.IfName+"/", "0"
	if a.needsAnnouncement() {
		announce = "1"
		_ = sysctl.Set("net/ipv4/conf/"+a.IfName+"/arp_notify", announce) // otherwise neighbours ask by themselves, later
	}
	if !a.HasIPv6() {
		return nil
	}
	_ = sysctl.Set(own+"ndisc_notify", announce)
	_ = sysctl.Set(own+"keep_addr_on_down", "1")
	needed := [][2]string{{"net/ipv6/conf/lo/disable_ipv6", "0"}, {own + "disable_ipv6", "0"}}
	if a.needsDAD() {
		needed = append(needed, [2]string{own + "accept_dad", "1"}, [2]string{own + "enhanced_dad", "1"})
	} else {
		_ = sysctl.Set(own+"accept_dad", "0")
	}
	for _, s := range needed {
		if err := sysctl.Set(s[0], s[1]); err != nil {
			return fmt.Errorf("prepare the container for its addresses: %w", err)
		}
	}
	return nil
}

// RefuseRouters has the container's link obey no router, unless it has no addresses, or that is wished.
func (a *Attachment) RefuseRouters() error {
	if a.AcceptRA || a.ipam == nil && len(a.IPs) == 0 {
		return nil
	}
	return a.Inside(func() error { return RefuseRouters(a.Request, a.IfName) })
}

// RefuseRouters keeps others on a link's segment from making themselves a router, whatever families it has addresses of
// (CVE-2020-10749). Without IPv6 there is nothing to refuse. Where sysctls can't be set the link stays as the kernel makes it, which the trace
// and doctor say.
func RefuseRouters(r *plugin.Request, link string) error {
	for _, name := range []string{"accept_ra", "autoconf"} {
		err := sysctl.Set("net/ipv6/conf/"+link+"/"+name, "0")
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
		case sysctl.IsForbidden(err):
			r.Announce("router advertisements are not refused: " + err.Error())
		default:
			return fmt.Errorf("refuse router advertisements: %w", err)
		}
	}
	return nil
}

// needsDAD reports whether another host may have an IPv6 address of the container: on a shared segment, unless IPAM hands out each
// address once.
func (a *Attachment) needsDAD() bool {
	return a.DAD || a.Segment && (a.ipam == nil || !a.ipam.AddressesUniqueToNode)
}

func isIPv6(ip *types100.IPConfig) bool { return ip.Address.IP.To4() == nil }

// HasIPv6 reports whether the container has an IPv6 address.
func (a *Attachment) HasIPv6() bool { return slices.ContainsFunc(a.IPs, isIPv6) }

// needsAnnouncement reports whether neighbours may not know the MAC address that an address has: it is not made from that, or others
// had it before.
func (a *Attachment) needsAnnouncement() bool {
	return len(a.IPs) > 0 && (a.MAC != nil || a.Segment || a.ipam == nil || a.ipam.NeedsLink)
}

// AnnounceAddresses tells neighbours of addresses whose MAC address they may not know. The kernel has done so when the link came up, but
// a port that does not pass packets yet drops it. To set the MAC address that the link has makes the kernel do it again.
func (a *Attachment) AnnounceAddresses() error {
	if !a.needsAnnouncement() {
		return nil
	}
	inside, err := a.LinksInside()
	if err != nil {
		return err
	}
	return inside.LinkSetHardwareAddr(a.link, a.link.Attrs().HardwareAddr)
}

// waitForDAD waits until no address of the link is still looked for elsewhere.
func (a *Attachment) waitForDAD() error {
	failed, err := link.WaitForAddresses(a.link)
	switch {
	case err != nil && a.lacksCarrier(): // nobody is there to be asked
		return nil
	case err != nil:
		return fmt.Errorf("wait for duplicate address detection: %w", err)
	case failed != nil:
		return plugin.CodeErrorf(types.ErrTryAgainLater, "take that address from the other host, or from the pool", "duplicate address detection found another user of %s", failed)
	}
	return nil
}

// lacksCarrier reports whether nothing is on the other end of the container's link.
func (a *Attachment) lacksCarrier() bool {
	l, err := netlink.LinkByName(a.IfName)
	return err == nil && l.Attrs().RawFlags&unix.IFF_LOWER_UP == 0
}
