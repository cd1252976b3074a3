package link

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
	"github.com/cnibox/cnibox/pkg/netns"
)

// OperUp is the operational state (RFC 2863) of a link that passes packets.
const OperUp = 6

// skipStats is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h: no counters,
// which are slow to gather.
const skipStats = 1 << 3

// Link is what the kernel tells of a link.
type Link struct {
	Index     int
	Name      string
	Kind      string // "veth", "bridge"; "" for hardware
	MAC       [6]byte
	MTU       int // bytes
	TxQueue   int // packets
	Flags     uint32
	Master    int // index of the bridge or VRF it belongs to, 0 for none
	Peer      int // of a veth, the other end's index in its own namespace
	PeerNetns int // that namespace's id in this one (see NetnsID), -1 if it is this one
	OperState int
	Alias     string
	Hairpin   bool // of a bridge's port
	Isolated  bool // of a bridge's port

	RoutesLocalnet bool // routes 127.0.0.0/8 (the IPv4 option route_localnet)
}

// Up tells whether the link is set up.
func (l *Link) Up() bool { return l.Flags&unix.IFF_UP != 0 }

// ByName returns the link called name; the error is ErrNotFound if there is
// none.
func (c *Conn) ByName(name string) (*Link, error) {
	b := &netlink.Batch{}
	appendLookup(b, name)
	return c.one(b)
}

// ByIndex returns the link with an index; the error is ErrNotFound if there is
// none.
func (c *Conn) ByIndex(index int) (*Link, error) {
	b := &netlink.Batch{}
	appendLookupOf(b, index)
	return c.one(b)
}

// ByNameAndIndex looks up two links at once: the one called name, and the one
// with an index. One that is not there is nil, and then the error is ErrNotFound;
// that of the former, if both are not there.
func (c *Conn) ByNameAndIndex(name string, index int) (named, indexed *Link, err error) {
	b := &netlink.Batch{}
	appendLookup(b, name)
	appendLookupOf(b, index)
	err = c.Do(b, func(m netlink.Message) {
		switch {
		case m.Type != unix.RTM_NEWLINK:
		case m.Index == 0:
			named = parse(m.Payload)
		default:
			indexed = parse(m.Payload)
		}
	})
	if err == nil && (named == nil || indexed == nil) {
		err = ErrNotFound
	}
	return named, indexed, notFound(err)
}

func appendLookup(b *netlink.Batch, name string) {
	begin(b, unix.RTM_GETLINK, 0, "look up link "+name, info{})
	b.String(unix.IFLA_IFNAME, name)
	b.U32(unix.IFLA_EXT_MASK, skipStats)
	b.End()
}

func appendLookupOf(b *netlink.Batch, index int) {
	begin(b, unix.RTM_GETLINK, 0, "look up "+nameOf(index), info{index: index})
	b.U32(unix.IFLA_EXT_MASK, skipStats)
	b.End()
}

// nameOf names a link in an error message. Such texts are made for each message
// that is sent, so without package fmt, whose first use costs 25 us.
func nameOf(index int) string { return "link " + strconv.Itoa(index) }

// ByNames looks several links up at once. Those that are not there are left
// out.
func (c *Conn) ByNames(names ...string) ([]*Link, error) {
	const atOnce = 32 // their answers fit the socket's receive buffer
	var links []*Link
	for some := range slices.Chunk(names, atOnce) {
		b := &netlink.Batch{}
		for _, name := range some {
			appendLookup(b, name)
			b.Expect(unix.ENODEV)
		}
		err := c.Do(b, func(m netlink.Message) {
			if m.Type == unix.RTM_NEWLINK {
				links = append(links, parse(m.Payload))
			}
		})
		if err != nil {
			return links, err
		}
	}
	return links, nil
}

// List returns all links. It is for GC and people, not for ADD and DEL.
func (c *Conn) List() ([]*Link, error) {
	const tries = 5
	for try := 1; ; try++ {
		b := &netlink.Batch{}
		begin(b, unix.RTM_GETLINK, unix.NLM_F_DUMP, "list links", info{})
		b.U32(unix.IFLA_EXT_MASK, skipStats)
		b.End()
		var links []*Link
		err := c.Do(b, func(m netlink.Message) { links = append(links, parse(m.Payload)) })
		if err != netlink.ErrInterrupted || try == tries {
			return links, err
		}
	}
}

// Delete removes a link, and with a veth its other end.
func (c *Conn) Delete(index int) error {
	b := &netlink.Batch{}
	begin(b, unix.RTM_DELLINK, unix.NLM_F_ACK, "delete "+nameOf(index), info{index: index})
	b.End()
	return notFound(c.Do(b, nil))
}

// SetUp sets a link up.
func (c *Conn) SetUp(index int) error {
	b := &netlink.Batch{}
	appendUp(b, index, "set "+nameOf(index)+" up")
	b.Ack()
	return notFound(c.Do(b, nil))
}

// SetDown sets a link down.
func (c *Conn) SetDown(index int) error {
	return c.change("set "+nameOf(index)+" down", info{index: index, change: unix.IFF_UP}, nil)
}

// SetFlag sets or clears one flag, such as unix.IFF_PROMISC.
func (c *Conn) SetFlag(index int, flag uint32, on bool) error {
	i := info{index: index, change: flag}
	if on {
		i.flags = flag
	}
	return c.change(fmt.Sprintf("set flag %#x of link %d to %v", flag, index, on), i, nil)
}

// SetMTU sets a link's MTU, in bytes.
func (c *Conn) SetMTU(index, mtu int) error {
	return c.change(fmt.Sprintf("set the MTU of link %d to %d", index, mtu), info{index: index}, func(b *netlink.Batch) {
		b.U32(unix.IFLA_MTU, uint32(mtu))
	})
}

// SetTxQueue sets the length of a link's transmit queue, in packets.
func (c *Conn) SetTxQueue(index, packets int) error {
	return c.change(fmt.Sprintf("set the queue length of link %d to %d", index, packets), info{index: index}, func(b *netlink.Batch) {
		b.U32(unix.IFLA_TXQLEN, uint32(packets))
	})
}

// SetMAC sets a link's hardware address.
func (c *Conn) SetMAC(index int, mac [6]byte) error {
	return c.change(fmt.Sprintf("set the MAC address of link %d to %s", index, MACText(mac)), info{index: index}, func(b *netlink.Batch) {
		b.Bytes(unix.IFLA_ADDRESS, mac[:])
	})
}

func appendUp(b *netlink.Batch, index int, op string) {
	begin(b, unix.RTM_NEWLINK, 0, op, info{index: index, flags: unix.IFF_UP, change: unix.IFF_UP})
	b.End()
}

func (c *Conn) change(op string, i info, attrs func(b *netlink.Batch)) error {
	b := &netlink.Batch{}
	begin(b, unix.RTM_NEWLINK, unix.NLM_F_ACK, op, i)
	if attrs != nil {
		attrs(b)
	}
	b.End()
	return notFound(c.Do(b, nil))
}

// NetnsID returns the id that a network namespace has in the socket's, -1 if it has none: then no link here has its peer there
// (RTM_GETNSID, rtnetlink(7)).
func (c *Conn) NetnsID(ns *netns.NS) (int, error) {
	b := &netlink.Batch{}
	b.Begin(unix.RTM_GETNSID, 0, "look up network namespace "+ns.Path())
	b.Header(unix.AF_UNSPEC, 0, 0, 0)
	b.U32(unix.NETNSA_FD, uint32(ns.FD()))
	b.End()
	id := -1
	err := c.Do(b, func(m netlink.Message) {
		if m.Type == unix.RTM_NEWNSID {
			id = int(int32(number(netlink.Attr(m.Payload[4:], unix.NETNSA_NSID)))) // behind struct rtgenmsg
		}
	})
	return id, err
}

// one returns the link that a batch of one lookup answers with.
func (c *Conn) one(b *netlink.Batch) (*Link, error) {
	var l *Link
	err := c.Do(b, func(m netlink.Message) {
		if m.Type == unix.RTM_NEWLINK {
			l = parse(m.Payload)
		}
	})
	if err != nil {
		return nil, notFound(err)
	}
	if l == nil {
		return nil, ErrNotFound
	}
	return l, nil
}

// info is struct ifinfomsg (rtnetlink(7)).
type info struct {
	family byte
	index  int
	flags  uint32
	change uint32
}

func begin(b *netlink.Batch, typ, flags uint16, op string, i info) {
	b.Begin(typ, flags, op)
	b.Header(i.bytes()...)
}

func (i info) bytes() []byte {
	out := []byte{i.family, 0, 0, 0}
	out = binary.NativeEndian.AppendUint32(out, uint32(i.index))
	out = binary.NativeEndian.AppendUint32(out, i.flags)
	return binary.NativeEndian.AppendUint32(out, i.change)
}

// indexOf returns which link a message is about.
func indexOf(payload []byte) int {
	if len(payload) < unix.SizeofIfInfomsg {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(payload[4:])))
}

func parse(payload []byte) *Link {
	l := &Link{Index: indexOf(payload), PeerNetns: -1}
	if len(payload) < unix.SizeofIfInfomsg {
		return l
	}
	l.Flags = binary.NativeEndian.Uint32(payload[8:])
	netlink.Attrs(payload[unix.SizeofIfInfomsg:], func(typ uint16, v []byte) {
		switch typ {
		case unix.IFLA_IFNAME:
			l.Name = text(v)
		case unix.IFLA_ADDRESS:
			copy(l.MAC[:], v)
		case unix.IFLA_MTU:
			l.MTU = number(v)
		case unix.IFLA_TXQLEN:
			l.TxQueue = number(v)
		case unix.IFLA_MASTER:
			l.Master = number(v)
		case unix.IFLA_LINK:
			l.Peer = number(v)
		case unix.IFLA_LINK_NETNSID:
			l.PeerNetns = number(v)
		case unix.IFLA_OPERSTATE:
			l.OperState = int(first(v))
		case unix.IFLA_IFALIAS:
			l.Alias = text(v)
		case unix.IFLA_AF_SPEC:
			l.RoutesLocalnet = routesLocalnet(v)
		case unix.IFLA_LINKINFO:
			l.parseInfo(v)
		}
	})
	return l
}

func (l *Link) parseInfo(data []byte) {
	netlink.Attrs(data, func(typ uint16, v []byte) {
		switch typ {
		case unix.IFLA_INFO_KIND:
			l.Kind = text(v)
		case unix.IFLA_INFO_SLAVE_DATA:
			l.Hairpin = flag(netlink.Attr(v, unix.IFLA_BRPORT_MODE))
			l.Isolated = flag(netlink.Attr(v, unix.IFLA_BRPORT_ISOLATED))
		}
	})
}

func text(v []byte) string { return strings.TrimRight(string(v), "\x00") }

func first(v []byte) byte {
	if len(v) == 0 {
		return 0
	}
	return v[0]
}

func flag(v []byte) bool { return first(v) != 0 }

func number(v []byte) int {
	if len(v) < 4 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(v))
}

// MACText returns a hardware address as the kernel's tools print it.
func MACText(mac [6]byte) string {
	const digits = "0123456789abcdef"
	text := make([]byte, 0, 3*len(mac))
	for _, b := range mac {
		text = append(text, digits[b>>4], digits[b&15], ':')
	}
	return string(text[:len(text)-1])
}

// ParseMAC reads a hardware address of six bytes, separated by colons or dashes.
func ParseMAC(s string) (mac [6]byte, err error) {
	parts := strings.Split(strings.ReplaceAll(s, "-", ":"), ":")
	if len(parts) != len(mac) {
		return mac, fmt.Errorf("%q is no MAC address: want six bytes, such as 02:00:00:12:34:56", s)
	}
	for i, p := range parts {
		var n byte
		for _, digit := range []byte(strings.ToLower(p)) {
			at := strings.IndexByte("0123456789abcdef", digit)
			if at < 0 {
				return mac, fmt.Errorf("%q is no MAC address: %q is no hex digit", s, digit)
			}
			n = n<<4 | byte(at)
		}
		if len(p) != 2 {
			return mac, fmt.Errorf("%q is no MAC address: %q is not two hex digits", s, p)
		}
		mac[i] = n
	}
	return mac, nil
}
