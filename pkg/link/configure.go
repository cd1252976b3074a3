package link

import (
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// Setup is what a link is given when it is brought up.
type Setup struct {
	Addresses []Address
	Routes    []Route
	Announce  bool // tell neighbours the link's IPv4 addresses whenever it comes up (arp_notify)
	Down      bool // leave the link down
}

// Configure gives a link its addresses, sets it up and adds routes through it,
// all in one send. Addresses come first, so that they are announced when the
// link comes up; routes need the link to be up.
func (c *Conn) Configure(index int, s Setup) error {
	b := &netlink.Batch{}
	if s.Announce {
		appendAnnounce(b, index)
	}
	for _, a := range s.Addresses {
		appendAddress(b, index, a)
	}
	if !s.Down {
		appendUp(b, index, "set the container's link up")
	}
	for _, r := range s.Routes {
		appendRoute(b, index, r)
	}
	if b.Len() == 0 {
		return nil
	}
	b.Ack()
	return c.Do(b, nil)
}

// appendAnnounce sets the IPv4 option arp_notify of a link without a detour
// over /proc/sys, whose first use in a namespace is slow on a full node.
func appendAnnounce(b *netlink.Batch, index int) {
	const (
		inetConf  = 1  // IFLA_INET_CONF
		arpNotify = 22 // IPV4_DEVCONF_ARP_NOTIFY
	)
	begin(b, unix.RTM_NEWLINK, 0, "set arp_notify", info{index: index})
	b.Nest(unix.IFLA_AF_SPEC, func() {
		b.Nest(unix.AF_INET, func() {
			b.Nest(inetConf, func() { b.U32(arpNotify, 1) })
		})
	})
	b.End()
}
