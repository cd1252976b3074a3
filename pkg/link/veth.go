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

// Pair is the indexes of a veth's ends, each in its own namespace.
type Pair struct {
	Host      int
	Container int
}

// CreateVeth makes a veth pair with its ends on the host (up, in its bridge)
// and in ns (down). Both MAC addresses are set, so that udev leaves them alone
// (systemd.link(5), MACAddressPolicy). That a name is taken on either side is
// unix.EEXIST.
//
// One message makes all of it but for the alias, which the kernel ignores there,
// and the port's options. They are sent only after the first succeeded, or they
// would change the link that had the name already, and before the host end is
// set up: to change the alias of a link that is up is an event that has the
// kernel walk all IPv6 routes, 1 ms of 3 where the bridge has 900 ports, and
// nothing where it has none. One queue is asked for in so many words: otherwise
// the kernel makes one for each CPU and then waits for RCU to take them away
// again (0.1 ms with two CPUs). (Medians of 60, Linux 6.18.)
func (c *Conn) CreateVeth(v Veth, ns *netns.NS) (Pair, error) {
	b := &netlink.Batch{}
	begin(b, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ECHO|unix.NLM_F_ACK, "create veth "+v.Host, info{})
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
	var pair Pair
	err := c.Do(b, func(m netlink.Message) {
		if m.Type == unix.RTM_NEWLINK {
			host := parse(m.Payload)
			pair = Pair{Host: host.Index, Container: host.Peer}
		}
	})
	if err == nil && pair.Host == 0 {
		pair, err = c.pair(v.Host)
	}
	if err != nil {
		return Pair{}, err
	}
	if err := c.finish(pair.Host, v); err != nil {
		return Pair{}, errors.Join(err, c.Delete(pair.Host))
	}
	return pair, nil
}

// pair looks up the ends of a veth that was just made: before Linux 6.2 the
// kernel does not echo a new link.
func (c *Conn) pair(host string) (Pair, error) {
	l, err := c.ByName(host)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Host: l.Index, Container: l.Peer}, nil
}

// finish sets what a new host end can't be born with, and sets it up.
func (c *Conn) finish(index int, v Veth) error {
	b := &netlink.Batch{}
	begin(b, unix.RTM_NEWLINK, 0, "set alias and port options of "+v.Host, info{index: index})
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
	if v.Master != 0 {
		appendNoLinkLocal(b, index, v.Host)
	}
	appendUp(b, index, "set "+v.Host+" up")
	b.Ack()
	return c.Do(b, nil)
}

// appendNoLinkLocal keeps the kernel from giving a bridge's port an IPv6 address
// of its own: nobody could reach it, as the bridge takes the port's packets. Each
// would be three routes more, and the kernel walks all of them whenever a link
// goes down.
func appendNoLinkLocal(b *netlink.Batch, index int, name string) {
	const (
		addrGenMode = 8 // IFLA_INET6_ADDR_GEN_MODE
		none        = 1 // IN6_ADDR_GEN_MODE_NONE
	)
	begin(b, unix.RTM_NEWLINK, 0, "keep IPv6 addresses off "+name, info{index: index})
	b.Nest(unix.IFLA_AF_SPEC, func() {
		b.Nest(unix.AF_INET6, func() { b.U8(addrGenMode, none) })
	})
	b.End()
	b.Expect(unix.EAFNOSUPPORT) // a host without IPv6
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
