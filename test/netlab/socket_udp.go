package netlab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// ServeUDP is ServeTCP for datagrams: each is answered by one with the line "NAME saw ADDRESS", from the address it was
// sent to.
func (n *Namespace) ServeUDP(t testing.TB, address string) netip.AddrPort {
	t.Helper()
	if err := checkLiteral(address); err != nil {
		t.Fatal(err)
	}
	var conn *net.UDPConn
	err := n.do(func() error {
		config := net.ListenConfig{Control: reportDestination}
		packets, err := config.ListenPacket(context.Background(), "udp", address)
		if err != nil {
			return err
		}
		conn = packets.(*net.UDPConn)
		return nil
	})
	if err != nil {
		t.Fatalf("serve UDP in %s: %v", n.name, err)
	}
	n.node.kept.Store(n.netns, true)
	t.Cleanup(func() { _ = conn.Close() })
	go n.greetDatagrams(conn)
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

func (n *Namespace) greetDatagrams(conn *net.UDPConn) {
	payload, control := make([]byte, 512), make([]byte, 512)
	for {
		_, length, _, peer, err := conn.ReadMsgUDPAddrPort(payload, control)
		if err != nil {
			return // the test has ended
		}
		_, _, _ = conn.WriteMsgUDPAddrPort([]byte(n.banner(peer)), answerFrom(control[:length]), peer)
	}
}

// reportDestination asks the kernel to tell where each datagram was sent to. A socket that listens on all addresses would
// otherwise answer from whichever one the route prefers, and a client that sent to another would not take the answer.
func reportDestination(network, _ string, raw syscall.RawConn) error {
	if network != "udp6" {
		return nil // one IPv4 address: all addresses means an IPv6 socket
	}
	var set error
	err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
	if err != nil {
		return err
	}
	if set != nil {
		return fmt.Errorf("set IPV6_RECVPKTINFO: %w", set)
	}
	return nil
}

// answerFrom returns the control message that sends an answer from the address a datagram was sent to, given the control
// messages that came with it.
func answerFrom(control []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16 {
			// Without the interface: the route decides.
			return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])})
		}
	}
	return nil
}
