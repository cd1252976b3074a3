package attach

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// AddAddress gives a link of the host a gateway's address. An IPv6 one is not looked for elsewhere first: IPAM owns the network.
func AddAddress(h *netlink.Handle, l netlink.Link, gateway netip.Prefix) error {
	network := result.IPNet(gateway)
	address := &netlink.Addr{IPNet: &network}
	if gateway.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	return h.AddrAdd(l, address)
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

// CheckForwarding makes sure that the host does.
func CheckForwarding(gateways []netip.Prefix) error {
	for _, g := range gateways {
		if !forwards(g) {
			return Different("the host does not forward packets: sysctl %s is not 1", forwarding(g))
		}
	}
	return nil
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
