package attach

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// ContainerMAC returns the MAC address for the container's link: the one that was asked for, else one made from the first IP
// address, so that whoever has that next has the address that neighbours remember, else one made from the key.
func (a *Attachment) ContainerMAC() net.HardwareAddr {
	switch {
	case a.MAC != nil:
		return a.MAC
	case len(a.IPs) > 0:
		return macOf(result.Addr(a.IPs[0].Address.IP))
	}
	return a.Key.MAC("container end")
}

// macOf returns the locally administered unicast address for the interface that has an IP address. Whoever holds the IP address
// next has it too, so that neighbours who remember it are right. That of an IPv4 address can be read: 0a:58 and its four bytes, as
// in the first CNI plugins and in ovn-kubernetes.
func macOf(a netip.Addr) net.HardwareAddr {
	if !a.Is4() {
		return plugin.MAC("address", a.String())
	}
	ip := a.As4()
	return net.HardwareAddr{0x0a, 0x58, ip[0], ip[1], ip[2], ip[3]}
}

// SetMAC gives the container's link another MAC address.
func (a *Attachment) SetMAC(mac net.HardwareAddr) error {
	inside, err := a.LinksInside()
	if err != nil {
		return err
	}
	if err := inside.LinkSetHardwareAddr(a.link, mac); err != nil {
		return fmt.Errorf("give %s the MAC address %s: %w", a.IfName, mac, err)
	}
	a.link.Attrs().HardwareAddr, a.Interface.Mac = mac, mac.String()
	return nil
}

// RandomMAC returns a locally administered unicast address.
func RandomMAC() net.HardwareAddr {
	mac := net.HardwareAddr{0x02, 0, 0, 0, 0, 0}
	_, _ = rand.Read(mac[1:]) // never fails
	return mac
}

// ParseMAC reads a MAC address that one Ethernet interface can have, in any form that people write one in.
func ParseMAC(text string) (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(text)
	switch {
	case err != nil || len(mac) != 6:
		return nil, fmt.Errorf("%q is no MAC address: want six bytes, such as 02:00:00:12:34:56", text)
	case mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00":
		return nil, fmt.Errorf("%q is no MAC address of one interface: its first byte is odd or all are zero", text)
	}
	return mac, nil
}
