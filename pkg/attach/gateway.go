package attach

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// AddAddress gives a link of the host a gateway's address. An IPv6 one is not looked for elsewhere first: IPAM owns the network.
func AddAddress(r *plugin.Request, l netlink.Link, gateway netip.Prefix) error {
	network := result.IPNet(gateway)
	address := &netlink.Addr{IPNet: &network}
	if gateway.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	err := withoutIPv6(r.Links().AddrAdd(l, address), l, gateway)
	if err == nil && gateway.Addr().Is6() && r.Command != plugin.Add {
		err = restoreLinkLocal(r, l)
	}
	return err
}

// withoutIPv6 says in the kernel's refusal of an address what has to be switched on for it. That is the administrator's to decide: the host itself
// may be meant to have no IPv6.
func withoutIPv6(err error, l netlink.Link, gateway netip.Prefix) error {
	const takeOut = ", or take IPv6 out of the network's ranges"
	switch {
	case gateway.Addr().Is4():
	case errors.Is(err, unix.EACCES):
		own := "net.ipv6.conf." + strings.ReplaceAll(l.Attrs().Name, ".", "/") + ".disable_ipv6=0"
		return plugin.CodeErrorf(types.ErrInvalidNetworkConfig, "`sysctl -w net.ipv6.conf.default.disable_ipv6=0 "+own+"`, and the first of the two in a file of /etc/sysctl.d"+takeOut,
			"IPv6 is off on %s of the host: %w", l.Attrs().Name, err)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT):
		return plugin.CodeErrorf(types.ErrInvalidNetworkConfig, "boot the host without ipv6.disable=1 on the kernel's command line"+takeOut, "the kernel of the host has no IPv6: %w", err)
	}
	return err
}

// restoreLinkLocal gives a link the link-local address that the kernel made when the link was set up. Whoever flushed the link's addresses took
// that too, and without it the kernel asks for no neighbours of packets that it forwards.
func restoreLinkLocal(r *plugin.Request, l netlink.Link) error {
	name, mac := l.Attrs().Name, l.Attrs().HardwareAddr
	const none = "1" // somebody wants it to have none (addr_gen_mode, ip-sysctl of the kernel's documentation)
	if mode, err := sysctl.Get("net/ipv6/conf/" + name + "/addr_gen_mode"); err != nil || mode == none || len(mac) != 6 {
		return nil
	}
	has, err := link.Prefixes(l)
	if err != nil || slices.ContainsFunc(has, func(p netip.Prefix) bool { return p.Addr().IsLinkLocalUnicast() && p.Addr().Is6() }) {
		return err
	}
	own := netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}) // RFC 4291, appendix A
	r.Announce("give " + name + " the address " + own.String())
	network := result.IPNet(netip.PrefixFrom(own, 64))
	if err := r.Links().AddrAdd(l, &netlink.Addr{IPNet: &network, Flags: unix.IFA_F_NODAD}); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("give %s the address %s: %w", name, own, err)
	}
	return nil
}

// CheckWay makes sure that the host sends packets for an address of the container to a link. A route, a rule or an address of others may be in the
// way, which is theirs to remove.
func CheckWay(r *plugin.Request, l netlink.Link, address net.IP) error {
	routes, err := r.Links().RouteGet(address)
	if err == nil && slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.LinkIndex == l.Attrs().Index }) {
		return nil
	}
	return plugin.Errorf(fmt.Sprintf("`ip route get %s` shows where it sends them: remove that route, rule or address, unless it is another container's", address),
		"the host does not route %s to %s: %w", address, l.Attrs().Name, plugin.ErrInTheWay)
}

// EnableForwarding lets the host forward packets of the gateways' families. That is shared by all attachments and stays, as it does with
// the reference plugins.
func EnableForwarding(r *plugin.Request, gateways []netip.Prefix) error {
	for _, g := range gateways {
		if forwards(g) {
			continue
		}
		r.Announce("let the host forward packets")
		if err := sysctl.Set(forwarding(g), "1"); err != nil {
			return fmt.Errorf("let the host forward packets: %w", err)
		}
	}
	return nil
}

// MendForwarding looks whether the host does.
func MendForwarding(r *plugin.Request, gateways []netip.Prefix, m *plugin.Mender) {
	for _, g := range gateways {
		if !forwards(g) {
			lacks := Different("the host does not forward packets: sysctl %s is not 1", forwarding(g))
			m.Mend(lacks, "", func() error { return EnableForwarding(r, []netip.Prefix{g}) })
		}
	}
}

func forwards(g netip.Prefix) bool {
	value, err := sysctl.Get(forwarding(g))
	return err == nil && value == "1"
}

func forwarding(g netip.Prefix) string {
	if g.Addr().Is6() {
		return "net/ipv6/conf/all/forwarding"
	}
	return "net/ipv4/ip_forward"
}
