package link

import (
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// CreateBridge makes a bridge, which is down. Its MAC address is given at birth:
// a bridge without one takes the lowest of its ports' addresses and changes it
// as they come and go. A link of that name is unix.EEXIST.
func (c *Conn) CreateBridge(name string, mac [6]byte, mtu int) error {
	b := &netlink.Batch{}
	begin(b, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, "create bridge "+name, info{})
	b.String(unix.IFLA_IFNAME, name)
	b.Bytes(unix.IFLA_ADDRESS, mac[:])
	if mtu > 0 {
		b.U32(unix.IFLA_MTU, uint32(mtu))
	}
	b.Nest(unix.IFLA_LINKINFO, func() { b.Bytes(unix.IFLA_INFO_KIND, []byte("bridge")) })
	b.End()
	return c.Do(b, nil)
}
