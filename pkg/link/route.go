package link

import (
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// Route is a route through one link.
type Route struct {
	Dst      netip.Prefix
	Gateway  netip.Addr // the zero Addr: on the link itself
	Priority int        // metric; 0 is the kernel's choice
	Table    int        // 0 is main
	Scope    int        // rtnetlink(7); 0 is universe
	MTU      int        // bytes; 0 is the link's
	AdvMSS   int        // bytes; 0 is the kernel's choice
}

func (r Route) String() string {
	s := r.Dst.String()
	if r.Gateway.IsValid() {
		s += " via " + r.Gateway.String()
	}
	if r.Table != 0 {
		s += " table " + strconv.Itoa(r.Table)
	}
	return s
}

// AddRoute adds a route through a link. A route that is there already is
// unix.EEXIST.
func (c *Conn) AddRoute(index int, r Route) error {
	b := &netlink.Batch{}
	appendRoute(b, index, r)
	b.Ack()
	return c.Do(b, nil)
}

func appendRoute(b *netlink.Batch, index int, r Route) {
	table := r.Table
	if table == 0 {
		table = unix.RT_TABLE_MAIN
	}
	b.Begin(unix.RTM_NEWROUTE, unix.NLM_F_CREATE, "add route "+r.String()+" on "+nameOf(index))
	b.Header(familyOf(r.Dst.Addr()), byte(r.Dst.Bits()), 0, 0,
		unix.RT_TABLE_UNSPEC, // RTA_TABLE holds numbers above 255
		unix.RTPROT_BOOT, byte(r.Scope), unix.RTN_UNICAST, 0, 0, 0, 0)
	if r.Dst.Bits() > 0 {
		b.Addr(unix.RTA_DST, r.Dst.Masked().Addr())
	}
	if r.Gateway.IsValid() {
		b.Addr(unix.RTA_GATEWAY, r.Gateway)
	}
	b.U32(unix.RTA_OIF, uint32(index))
	b.U32(unix.RTA_TABLE, uint32(table))
	if r.Priority != 0 {
		b.U32(unix.RTA_PRIORITY, uint32(r.Priority))
	}
	if r.MTU != 0 || r.AdvMSS != 0 {
		b.Nest(unix.RTA_METRICS, func() {
			if r.MTU != 0 {
				b.U32(unix.RTAX_MTU, uint32(r.MTU))
			}
			if r.AdvMSS != 0 {
				b.U32(unix.RTAX_ADVMSS, uint32(r.AdvMSS))
			}
		})
	}
	b.End()
}

// Routes returns the routes through a link in all tables, without those the
// kernel keeps for local and broadcast addresses. It is for CHECK.
func (c *Conn) Routes(index int) ([]Route, error) {
	b := &netlink.Batch{}
	b.Begin(unix.RTM_GETROUTE, unix.NLM_F_DUMP, "list routes of "+nameOf(index))
	b.Header(routeQuery(unix.AF_UNSPEC, 0)...)
	b.End()
	var list []Route
	err := c.Do(b, func(m netlink.Message) {
		if r, oif, ok := parseRoute(m.Payload); ok && oif == index {
			list = append(list, r)
		}
	})
	return list, err
}

// LinkTo returns the index of the link that packets to an address leave by,
// that of lo for an address of our own; the error is unix.ENETUNREACH when
// there is no route.
func (c *Conn) LinkTo(a netip.Addr) (int, error) {
	b := &netlink.Batch{}
	b.Begin(unix.RTM_GETROUTE, 0, "look up the route to "+a.String())
	b.Header(routeQuery(familyOf(a), a.BitLen())...)
	b.Addr(unix.RTA_DST, a)
	b.End()
	oif := 0
	err := c.Do(b, func(m netlink.Message) {
		if len(m.Payload) >= unix.SizeofRtMsg {
			oif = number(netlink.Attr(m.Payload[unix.SizeofRtMsg:], unix.RTA_OIF))
		}
	})
	return oif, err
}

// routeQuery is struct rtmsg for a question. On a socket with strict checking,
// which Addresses turns on, anything else in it is refused, or limits the
// answer to routes that match it.
func routeQuery(family byte, bits int) []byte {
	return []byte{family, byte(bits), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
}

func parseRoute(payload []byte) (r Route, oif int, ok bool) {
	if len(payload) < unix.SizeofRtMsg || payload[7] != unix.RTN_UNICAST {
		return r, 0, false
	}
	attrs := payload[unix.SizeofRtMsg:]
	zero := netip.IPv4Unspecified()
	if payload[0] == unix.AF_INET6 {
		zero = netip.IPv6Unspecified()
	}
	r = Route{Dst: netip.PrefixFrom(zero, int(payload[1])), Table: int(payload[4]), Scope: int(payload[6])}
	netlink.Attrs(attrs, func(typ uint16, v []byte) {
		switch typ {
		case unix.RTA_DST:
			if a, good := netip.AddrFromSlice(v); good {
				r.Dst = netip.PrefixFrom(a, int(payload[1]))
			}
		case unix.RTA_GATEWAY:
			r.Gateway, _ = netip.AddrFromSlice(v)
		case unix.RTA_OIF:
			oif = number(v)
		case unix.RTA_TABLE:
			r.Table = number(v)
		case unix.RTA_PRIORITY:
			r.Priority = number(v)
		case unix.RTA_METRICS:
			r.MTU = number(netlink.Attr(v, unix.RTAX_MTU))
			r.AdvMSS = number(netlink.Attr(v, unix.RTAX_ADVMSS))
		}
	})
	return r, oif, true
}
