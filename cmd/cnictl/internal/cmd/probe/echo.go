package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// icmp is the number of the protocol.
func (t *Test) icmp() int {
	if t.target.Addr().Is6() {
		return unix.IPPROTO_ICMPV6
	}
	return unix.IPPROTO_ICMP
}

func (t *Test) echoReply() icmp.Type {
	if t.target.Addr().Is6() {
		return ipv6.ICMPTypeEchoReply
	}
	return ipv4.ICMPTypeEchoReply
}

// echoRequest is a packet of ICMP with so many bytes after the test's question.
func (t *Test) echoRequest(more int) []byte {
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Data: append(bytes.Clone(t.question), make([]byte, more)...)}}
	if t.target.Addr().Is6() {
		m.Type = ipv6.ICMPTypeEchoRequest // of which the kernel makes the checksum
	}
	packet, err := m.Marshal(nil)
	if err != nil {
		return nil
	}
	return packet
}

// tryEcho sends a small packet, or one as large as the link takes it. Where the way takes smaller ones only, somebody on it has to say so,
// and they are tried.
func (t *Test) tryEcho(ctx context.Context) error {
	network := fmt.Sprintf("ip:%d", t.icmp())
	conn, err := t.dial(ctx, net.Dialer{Control: t.forbidFragments}, network, t.target.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if t.size == 0 {
		return t.ask(ctx, conn, t.echoRequest(0))
	}
	for size := t.size; ; {
		headers := familyOf(t.target.Addr()).header + len(t.echoRequest(0))
		err := t.ask(ctx, conn, t.echoRequest(max(size-headers, 0)))
		if err == nil {
			if t.Bytes = size; size < t.size {
				t.Note = fmt.Sprintf("the link takes %d bytes, the whole way %d: the sender was told so", t.size, size)
			}
			return nil
		}
		known := t.pathMTU()
		if !errors.Is(err, syscall.EMSGSIZE) || known >= size {
			return err
		}
		size = known
	}
}

// forbidFragments is called with the socket before it is used.
func (t *Test) forbidFragments(_, _ string, raw syscall.RawConn) (err error) {
	if t.size == 0 {
		return nil
	}
	failed := raw.Control(func(fd uintptr) {
		if t.target.Addr().Is4() {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			return
		}
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1))
	})
	return errors.Join(failed, err)
}

// pathMTU is what the sender's kernel knows of the way to the target.
func (t *Test) pathMTU() (mtu int) {
	mtu = t.size
	_ = t.from.inside(func() error {
		routes, err := netlink.RouteGet(t.target.Addr().AsSlice())
		if err == nil && len(routes) > 0 && routes[0].MTU > 0 {
			mtu = routes[0].MTU
		}
		return err
	})
	return mtu
}
