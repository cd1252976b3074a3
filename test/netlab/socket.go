package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

// DialContext connects from the namespace, with the signature that net/http.Transport wants. The address must be a
// literal: nothing in a namespace answers DNS.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, err
	}
	// For a literal address the net package makes the socket on the calling thread; a socket stays in the namespace it
	// was made in.
	n.Do(func() { conn, err = new(net.Dialer).DialContext(ctx, network, address) })
	return conn, err
}

// DialTCP connects from the namespace to a ServeTCP server and returns the line it answers.
func (n *Namespace) DialTCP(target string, timeout time.Duration) (string, error) {
	return n.ask("tcp", target, timeout, n.DialContext)
}

// DialUDP sends one datagram from the namespace to a ServeUDP server and returns the line it answers. Nothing is sent
// again, so that a lost first packet shows.
func (n *Namespace) DialUDP(target string, timeout time.Duration) (string, error) {
	return n.ask("udp", target, timeout, n.DialContext)
}

// DialSCTP is DialTCP for SCTP: it asks a ServeSCTP server. Its only address is the one that the route to the server
// prefers, as packets can't be translated that tell of more.
func (n *Namespace) DialSCTP(target string, timeout time.Duration) (string, error) {
	return n.ask("sctp", target, timeout, n.dialSCTP)
}

func (n *Namespace) ask(network, target string, timeout time.Duration,
	dial func(ctx context.Context, network, target string) (net.Conn, error)) (answer string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("from %s over %s: %w", n.name, network, err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := dial(ctx, network, target)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return "", err
	}
	line := make([]byte, 512)
	length, err := conn.Read(line)
	return strings.TrimSuffix(string(line[:length]), "\n"), err
}

// PacketSocket returns a socket for whole frames on a link of the namespace, which lasts until the test ends.
func (n *Namespace) PacketSocket(t testing.TB, link string) (conn *packet.Conn) {
	t.Helper()
	n.Do(func() {
		i, err := net.InterfaceByName(link)
		if err == nil {
			conn, err = packet.Listen(i, packet.Raw, unix.ETH_P_ALL, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ServeTCP serves in the namespace until the test ends: a client gets the line "NAME saw ADDRESS", which tells whom it
// has reached and what its own address looks like from there. The address is a literal with a port, such as ":80",
// "10.1.0.2:80" or "[fd00::2]:80", and port 0 picks a free one. ServeTCP returns the address it listens on.
func (n *Namespace) ServeTCP(t testing.TB, address string) netip.AddrPort {
	t.Helper()
	return n.serveStreams(t, func() (net.Listener, error) { return net.Listen("tcp", address) })
}

// ServeSCTP is ServeTCP for SCTP. The address is an IPv4 one unless it says otherwise.
func (n *Namespace) ServeSCTP(t testing.TB, address string) {
	t.Helper()
	if strings.HasPrefix(address, ":") {
		address = "0.0.0.0" + address
	}
	n.serveStreams(t, func() (net.Listener, error) {
		socket, err := sctpSocket(address)
		if err != nil {
			return nil, err
		}
		defer socket.Close()
		if err := unix.Listen(int(socket.Fd()), 16); err != nil {
			return nil, err
		}
		return net.FileListener(socket) // takes any stream socket for one of TCP
	})
}

func (n *Namespace) serveStreams(t testing.TB, listen func() (net.Listener, error)) netip.AddrPort {
	t.Helper()
	var listener net.Listener
	if err := n.do(func() (err error) { listener, err = listen(); return err }); err != nil {
		t.Fatalf("serve in %s: %v", n.name, err)
	}
	n.node.serves(t, n.netns, listener)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go n.greet(conn)
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// greet answers one client. It hears the client out first: closing a socket with unread data resets the connection.
func (n *Namespace) greet(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	if _, err := conn.Read(make([]byte, 512)); err == nil {
		_, _ = conn.Write(n.banner(conn.RemoteAddr().(*net.TCPAddr).AddrPort()))
	}
}

// banner is the line a server answers.
func (n *Namespace) banner(peer netip.AddrPort) []byte {
	return fmt.Appendf(nil, "%s saw %s\n", n.name, peer.Addr().Unmap())
}

// ServeUDP is ServeTCP for datagrams: each is answered by one with the line "NAME saw ADDRESS", from the address it was
// sent to.
func (n *Namespace) ServeUDP(t testing.TB, address string) netip.AddrPort {
	t.Helper()
	var conn *net.UDPConn
	err := n.do(func() error {
		config := net.ListenConfig{Control: reportDestination}
		packets, err := config.ListenPacket(context.Background(), "udp", address)
		if err == nil {
			conn = packets.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		t.Fatalf("serve UDP in %s: %v", n.name, err)
	}
	n.node.serves(t, n.netns, conn)
	go func() {
		payload, control := make([]byte, 512), make([]byte, 512)
		for {
			_, length, _, peer, err := conn.ReadMsgUDPAddrPort(payload, control)
			if err != nil {
				return // the test has ended
			}
			_, _, _ = conn.WriteMsgUDPAddrPort(n.banner(peer), answerFrom(control[:length]), peer)
		}
	}()
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

// reportDestination asks the kernel to tell where each datagram was sent to. A socket that listens on all addresses, which
// is one of IPv6, would otherwise answer from whichever the route prefers, and a client that sent to another would not take
// the answer.
func reportDestination(network, _ string, raw syscall.RawConn) (err error) {
	if network != "udp6" {
		return nil
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
	return errors.Join(failed, err)
}

// answerFrom returns the control message that sends an answer from the address a datagram was sent to, given the control
// messages that came with it. The interface is left to the route.
func answerFrom(control []byte) []byte {
	messages, _ := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16 {
			return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])})
		}
	}
	return nil
}

func (n *Namespace) dialSCTP(ctx context.Context, _, target string) (conn net.Conn, err error) {
	to, err := netip.ParseAddrPort(target)
	if err != nil {
		return nil, err
	}
	err = n.do(func() error {
		// Connecting a UDP socket sends nothing, and tells the address that the route prefers.
		route, err := net.Dial("udp", target)
		if err != nil {
			return err
		}
		defer route.Close()
		from := route.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		socket, err := sctpSocket(netip.AddrPortFrom(from, 0).String())
		if err != nil {
			return err
		}
		defer socket.Close()
		deadline, _ := ctx.Deadline()
		limit := unix.NsecToTimeval(time.Until(deadline).Nanoseconds())
		if err := unix.SetsockoptTimeval(int(socket.Fd()), unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
			return err
		}
		if err := unix.Connect(int(socket.Fd()), sockaddr(to)); err != nil {
			return fmt.Errorf("connect to %s: %w", target, err)
		}
		conn, err = net.FileConn(socket)
		return err
	})
	return conn, err
}

// sctpSocket returns a socket that is bound to an address in the calling thread's namespace.
func sctpSocket(address string) (*os.File, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, fmt.Errorf("make an SCTP socket: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return nil, errors.Join(fmt.Errorf("bind to %v: %w", at, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "sctp"), nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}
