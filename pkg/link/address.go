package link

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// Address is an address of a link.
type Address struct {
	Prefix netip.Prefix // the address and its prefix length
	Flags  uint32       // IFA_F_…, such as unix.IFA_F_NODAD
	Host   bool         // of scope host or link, not for others to reach
}

// AddAddress gives a link an address. An address that is there already is
// unix.EEXIST.
func (c *Conn) AddAddress(index int, a Address) error {
	b := &netlink.Batch{}
	appendAddress(b, index, a)
	b.Ack()
	return c.Do(b, nil)
}

func appendAddress(b *netlink.Batch, index int, a Address) {
	ip := a.Prefix.Addr()
	b.Begin(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add address "+a.Prefix.String()+" to "+nameOf(index))
	b.Header(addressHeader(index, a.Prefix)...)
	b.Addr(unix.IFA_LOCAL, ip)
	b.Addr(unix.IFA_ADDRESS, ip)
	if ip.Is4() && a.Prefix.Bits() <= 30 {
		b.Addr(unix.IFA_BROADCAST, broadcast(a.Prefix))
	}
	if a.Flags != 0 {
		b.U32(unix.IFA_FLAGS, a.Flags)
	}
	b.End()
}

// DeleteAddress takes an address from a link.
func (c *Conn) DeleteAddress(index int, prefix netip.Prefix) error {
	b := &netlink.Batch{}
	b.Begin(unix.RTM_DELADDR, unix.NLM_F_ACK, "remove address "+prefix.String()+" from "+nameOf(index))
	b.Header(addressHeader(index, prefix)...)
	b.Addr(unix.IFA_LOCAL, prefix.Addr())
	b.End()
	return c.Do(b, nil)
}

// Addresses returns the addresses of one link.
func (c *Conn) Addresses(index int) ([]Address, error) {
	// Strict checking makes the kernel look at this link only. Before Linux
	// 4.20 it lists the addresses of all links, which are left out below.
	_ = unix.SetsockoptInt(c.FD(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	b := &netlink.Batch{}
	b.Begin(unix.RTM_GETADDR, unix.NLM_F_DUMP, "list addresses of "+nameOf(index))
	b.Header(addressHeader(index, netip.Prefix{})...)
	b.End()
	var list []Address
	err := c.Do(b, func(m netlink.Message) {
		if a, ok := parseAddress(m.Payload, index); ok {
			list = append(list, a)
		}
	})
	return list, err
}

// addressHeader is struct ifaddrmsg; the scope follows from the address.
func addressHeader(index int, p netip.Prefix) []byte {
	family, bits := byte(unix.AF_UNSPEC), 0
	if p.IsValid() {
		family, bits = familyOf(p.Addr()), p.Bits()
	}
	return binary.NativeEndian.AppendUint32([]byte{family, byte(bits), 0, unix.RT_SCOPE_UNIVERSE}, uint32(index))
}

func parseAddress(payload []byte, index int) (Address, bool) {
	if len(payload) < unix.SizeofIfAddrmsg || int(binary.NativeEndian.Uint32(payload[4:])) != index {
		return Address{}, false
	}
	a := Address{Flags: uint32(payload[2]), Host: payload[3] != unix.RT_SCOPE_UNIVERSE}
	attrs := payload[unix.SizeofIfAddrmsg:]
	raw := netlink.Attr(attrs, unix.IFA_LOCAL)
	if raw == nil {
		raw = netlink.Attr(attrs, unix.IFA_ADDRESS)
	}
	if flags := netlink.Attr(attrs, unix.IFA_FLAGS); flags != nil {
		a.Flags = uint32(number(flags))
	}
	ip, ok := netip.AddrFromSlice(raw)
	a.Prefix = netip.PrefixFrom(ip, int(payload[1]))
	return a, ok
}

func familyOf(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// broadcast returns the last address of an IPv4 network.
func broadcast(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	n := binary.BigEndian.Uint32(b[:]) | (1<<(32-p.Bits()) - 1)
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}
