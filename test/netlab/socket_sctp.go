package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// DialSCTP is DialTCP for SCTP: it asks a ServeSCTP server. Unlike Go's own clients it blocks a thread. Its only address is the
// one that the route to the server prefers, as packets can't be translated that tell of more.
func (n *Namespace) DialSCTP(target string, timeout time.Duration) (answer string, err error) {
	to, err := netip.ParseAddrPort(target)
	if err != nil {
		return "", err
	}
	if err := n.do(func() error { answer, err = askSCTP(to, timeout); return err }); err != nil {
		return "", fmt.Errorf("from %s: sctp %s: %w", n.name, target, err)
	}
	return answer, nil
}

// askSCTP is to be called in the client's namespace.
func askSCTP(to netip.AddrPort, timeout time.Duration) (string, error) {
	from, err := sourceAddress(to)
	if err != nil {
		return "", err
	}
	fd, err := sctpSocket(netip.AddrPortFrom(from, 0), 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} { // the former is for connect, too
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return "", err
		}
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil {
		return "", asTimeout(err)
	}
	if _, err := unix.Write(fd, []byte("hello\n")); err != nil {
		return "", asTimeout(err)
	}
	answer := make([]byte, 512)
	length, err := unix.Read(fd, answer)
	if err != nil {
		return "", asTimeout(err)
	}
	return strings.TrimSuffix(string(answer[:length]), "\n"), nil
}

// asTimeout makes IsTimeout know the errors by which a blocking socket says that its time is over.
func asTimeout(err error) error {
	for _, over := range []error{unix.EAGAIN, unix.EINPROGRESS, unix.ETIMEDOUT} {
		if errors.Is(err, over) {
			return os.ErrDeadlineExceeded
		}
	}
	return err
}

// sourceAddress returns the address that packets to the target get. Connecting a UDP socket sends none.
func sourceAddress(to netip.AddrPort) (netip.Addr, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// sctpSocket returns a socket that is bound in the calling thread's namespace.
func sctpSocket(at netip.AddrPort, flags int) (int, error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, unix.IPPROTO_SCTP)
	if err != nil {
		return -1, fmt.Errorf("make an SCTP socket: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return -1, errors.Join(fmt.Errorf("bind to %v: %w", at, err), unix.Close(fd))
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// ServeSCTP is ServeTCP for SCTP. The address names an IP address, for the reason that DialSCTP tells, and a port.
func (n *Namespace) ServeSCTP(t testing.TB, address string) {
	t.Helper()
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	var listener *os.File
	err = n.do(func() error {
		fd, err := sctpSocket(at, unix.SOCK_NONBLOCK)
		if err != nil {
			return err
		}
		listener = os.NewFile(uintptr(fd), "sctp "+address)
		return unix.Listen(fd, 16)
	})
	if err != nil {
		t.Fatalf("serve SCTP in %s: %v", n.name, err)
	}
	n.node.kept.Store(n.netns, true)
	t.Cleanup(func() { _ = listener.Close() })
	go n.acceptSCTP(listener)
}

func (n *Namespace) acceptSCTP(listener *os.File) {
	raw, err := listener.SyscallConn()
	if err != nil {
		return // the test has ended
	}
	for {
		var fd int
		var peer unix.Sockaddr
		var accepted error
		err := raw.Read(func(l uintptr) bool {
			fd, peer, accepted = unix.Accept4(int(l), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			return accepted != unix.EAGAIN
		})
		if err != nil || accepted != nil {
			return // the test has ended
		}
		go n.greetSCTP(os.NewFile(uintptr(fd), "sctp client"), addressOf(peer))
	}
}

func (n *Namespace) greetSCTP(conn *os.File, peer netip.AddrPort) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 512)); err == nil {
		_, _ = conn.WriteString(n.banner(peer))
	}
}

func addressOf(peer unix.Sockaddr) netip.AddrPort {
	switch a := peer.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}
