package link

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
	"github.com/cnibox/cnibox/pkg/netns"
)

// Veth describes a veth pair, one end here, one in a container.
type Veth struct {
	Host         string // the name of the end on the host
	HostMAC      [6]byte
	Alias        string // of the host end, for people and GC
	Master       int    // index of the bridge the host end joins, 0 for none
	Container    string // the name of the end in the container
	ContainerMAC [6]byte
	MTU          int // bytes, of both ends; 0 is the kernel's default
	Port         Port
}

// Port is what can be set of a bridge's port.
type Port struct {
	Hairpin  bool // send packets back out where they came in
	Isolated bool // exchange packets with ports that are not isolated only
}

// ErrHostEndExists and ErrContainerEndExists tell which of the two names was
// taken when CreateVeth failed with EEXIST.
var (
	ErrHostEndExists      = errors.New("a link of that name exists on the host")
	ErrContainerEndExists = errors.New("a link of that name exists in the container")
)

// CreateVeth makes a veth pair with its ends on the host (up, in its bridge)
// and in ns (down). Both MAC addresses are set, so that udev leaves them alone
// (systemd.link(5), MACAddressPolicy). It returns the index of the container's
// end.
//
// One message makes all of it; a message of its own follows for the alias,
// which the kernel ignores in the first one, and for the port's settings. One
// queue is asked for in so many words: otherwise the kernel makes one for each
// CPU and then waits for RCU to take them away again.
func (c *Conn) CreateVeth(v Veth, ns *netns.NS) (container int, err error) {
	b := &netlink.Batch{}
	begin(b, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ECHO, "create veth "+v.Host,
		info{flags: unix.IFF_UP, change: unix.IFF_UP})
	end(b, v.Host, v.HostMAC, v.MTU)
	b.U32(unix.IFLA_TXQLEN, 0) // as the reference plugins: no queue on the host's end
	if v.Master != 0 {
		b.U32(unix.IFLA_MASTER, uint32(v.Master))
	}
	b.Nest(unix.IFLA_LINKINFO, func() {
		b.Bytes(unix.IFLA_INFO_KIND, []byte("veth"))
		b.Nest(unix.IFLA_INFO_DATA, func() {
			b.Nest(vethInfoPeer, func() {
				b.Header(info{}.bytes()...)
				end(b, v.Container, v.ContainerMAC, v.MTU)
				b.U32(unix.IFLA_NET_NS_FD, uint32(ns.FD()))
			})
		})
	})
	b.End()
	begin(b, unix.RTM_NEWLINK, unix.NLM_F_ACK, "set alias and port options of "+v.Host, info{})
	b.String(unix.IFLA_IFNAME, v.Host)
	b.Bytes(unix.IFLA_IFALIAS, []byte(v.Alias))
	if v.Port != (Port{}) {
		b.Nest(unix.IFLA_LINKINFO, func() {
			b.Bytes(unix.IFLA_INFO_SLAVE_KIND, []byte("bridge"))
			b.Nest(unix.IFLA_INFO_SLAVE_DATA, func() {
				b.U8(unix.IFLA_BRPORT_MODE, bit(v.Port.Hairpin))
				b.U8(unix.IFLA_BRPORT_ISOLATED, bit(v.Port.Isolated))
			})
		})
	}
	b.End()
	err = c.Do(b, func(m netlink.Message) {
		if m.Type == unix.RTM_NEWLINK && m.Index == 0 {
			container = parse(m.Payload).Peer
		}
	})
	return container, err
}

// vethInfoPeer is VETH_INFO_PEER of linux/veth.h.
const vethInfoPeer = 1

// end appends what both ends of a veth are given.
func end(b *netlink.Batch, name string, mac [6]byte, mtu int) {
	b.String(unix.IFLA_IFNAME, name)
	b.Bytes(unix.IFLA_ADDRESS, mac[:])
	if mtu > 0 {
		b.U32(unix.IFLA_MTU, uint32(mtu))
	}
	b.U32(unix.IFLA_NUM_TX_QUEUES, 1)
	b.U32(unix.IFLA_NUM_RX_QUEUES, 1)
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
