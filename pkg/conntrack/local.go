package conntrack

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// localAddresses tells which addresses are the host's own, as its routes say.
type localAddresses struct {
	conn  *netlink.Conn // nil until it is needed
	known map[netip.Addr]bool
}

func (l *localAddresses) close() {
	if l.conn != nil {
		l.conn.Close()
	}
}

func (l *localAddresses) has(a netip.Addr) (bool, error) {
	if local, ok := l.known[a]; ok {
		return local, nil
	}
	if l.conn == nil {
		conn, err := netlink.Dial(unix.NETLINK_ROUTE)
		if err != nil {
			return false, err
		}
		l.conn = conn
	}
	local, err := isLocal(l.conn, a)
	if err == nil {
		l.known[a] = local
	}
	return local, err
}

// isLocal asks the kernel what kind of route leads to the address.
func isLocal(conn *netlink.Conn, a netip.Addr) (local bool, err error) {
	var family byte = unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	b := &netlink.Batch{}
	b.Begin(unix.RTM_GETROUTE, unix.NLM_F_ACK, "look up the route to "+a.String())
	b.Header(family, byte(a.BitLen()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) // struct rtmsg
	b.Addr(unix.RTA_DST, a)
	b.End()
	err = conn.Do(b, func(m netlink.Message) {
		const typeOffset = 7
		local = len(m.Payload) > typeOffset && m.Payload[typeOffset] == unix.RTN_LOCAL
	})
	var refused *netlink.Error
	if errors.As(err, &refused) {
		return false, nil // no route (ENETUNREACH), or one that drops (EACCES, EHOSTUNREACH, EINVAL)
	}
	return local, err
}
