package attach

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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
func EnableForwarding(gateways []netip.Prefix) error {
	for _, g := range gateways {
		key := "net/ipv4/ip_forward"
		if g.Addr().Is6() {
			key = "net/ipv6/conf/all/forwarding"
		}
		if err := sysctl.Set(key, "1"); err != nil {
			return fmt.Errorf("let the host forward packets: %w", err)
		}
	}
	return nil
}
