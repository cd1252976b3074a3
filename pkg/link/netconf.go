package link

import (
	"errors"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// Forwards tells whether the host forwards packets of a family, unix.AF_INET or
// unix.AF_INET6: what the sysctls net/ipv4/ip_forward and
// net/ipv6/conf/all/forwarding hold. The error is unix.EOPNOTSUPP without IPv6.
//
// On a socket that is open it takes 6 us, whatever there is on the node. Reading
// the sysctl takes 20, and 870 with 1,000 network namespaces (see pkg/sysctl).
func (c *Conn) Forwards(family uint8) (bool, error) {
	b := &netlink.Batch{}
	b.Begin(rtmGetNetconf, 0, "ask whether the host forwards packets")
	b.Header(family)
	b.U32(netconfIndex, netconfAll)
	b.End()
	on, found := false, false
	err := c.Do(b, func(m netlink.Message) {
		if m.Type != rtmNewNetconf || len(m.Payload) < netconfHeader {
			return
		}
		value := netlink.Attr(m.Payload[netconfHeader:], netconfForwarding)
		on, found = number(value) != 0, value != nil
	})
	if err == nil && !found {
		err = errors.New("ask whether the host forwards packets: the kernel's answer does not tell")
	}
	return on, err
}

// Of linux/rtnetlink.h and linux/netconf.h.
const (
	rtmNewNetconf     = 80 // RTM_NEWNETCONF
	rtmGetNetconf     = 82 // RTM_GETNETCONF
	netconfHeader     = 4  // struct netconfmsg, padded
	netconfIndex      = 1  // NETCONFA_IFINDEX
	netconfForwarding = 2  // NETCONFA_FORWARDING
	netconfAll        = 1<<32 - 1
)
