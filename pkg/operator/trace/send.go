package trace

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// sender sends the packet from where the flow begins, by a socket.
type sender struct {
	flow  Flow
	size  int      // of the whole packet, which nobody may fragment; 0: a small one
	conn  net.Conn // nil for TCP, of which making the connection sends it
	place *place
}

// prepare makes what sends in the sender's namespace, and so finds the address and the port from which it sends.
func (p *place) prepare(f Flow, size int) (*sender, error) {
	s := &sender{flow: f, size: size, place: p}
	err := p.do(func() (err error) {
		if !f.From.IsValid() {
			if r := routeOf(f.To, netip.Addr{}, 0, 0); r.err == nil && r.from.IsValid() {
				s.flow.From = r.from
			}
		}
		switch f.Protocol {
		case TCP:
			l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: s.flow.From.AsSlice()})
			if err != nil {
				return err
			}
			s.flow.Port = uint16(l.Addr().(*net.TCPAddr).Port)
			return l.Close()
		case UDP:
			conn, err := net.ListenUDP("udp"+f.version(), &net.UDPAddr{IP: s.flow.From.AsSlice()})
			if err != nil {
				return err
			}
			s.flow.Port, s.conn = uint16(conn.LocalAddr().(*net.UDPAddr).Port), conn
			return s.forbidFragments(conn)
		}
		id := make([]byte, 2)
		_, _ = rand.Read(id) // never fails
		s.flow.Port = binary.BigEndian.Uint16(id) | 1
		conn, err := net.ListenIP(fmt.Sprintf("ip%s:%d", f.version(), f.icmp()), &net.IPAddr{IP: s.flow.From.AsSlice()})
		if err != nil {
			return err
		}
		s.conn = conn
		return s.forbidFragments(conn)
	})
	if err != nil {
		return nil, fmt.Errorf("send from %s: %w", p.name, err)
	}
	return s, nil
}

// send sends the packet. The error is that of the sender's own kernel.
func (s *sender) send(ctx context.Context) error {
	if s.flow.Protocol == TCP {
		return s.connect(ctx)
	}
	var err error
	if conn, is := s.conn.(*net.UDPConn); is {
		_, err = conn.WriteToUDPAddrPort(s.payload(8), netip.AddrPortFrom(s.flow.To, s.flow.ToPort))
	} else {
		_, err = s.conn.(*net.IPConn).WriteToIP(s.echo(), &net.IPAddr{IP: s.flow.To.AsSlice()})
	}
	return err
}

// connect begins a connection, and ends it at once if it is answered.
func (s *sender) connect(ctx context.Context) error {
	var conn net.Conn
	err := s.place.do(func() (err error) {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(s.flow.From, s.flow.Port))}
		conn, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(s.flow.To, s.flow.ToPort).String())
		return err
	})
	if err != nil {
		return err
	}
	return conn.Close()
}

func (s *sender) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

// payload is what is in the packet behind headers of IP and of so many bytes: for a name server a question.
func (s *sender) payload(header int) []byte {
	ip := 20
	if s.flow.is6() {
		ip = 40
	}
	const domain = 53
	if s.flow.ToPort == domain {
		return question()
	}
	const text = "cnictl trace"
	return append([]byte(text), make([]byte, max(s.size-ip-header-len(text), 0))...)
}

func question() []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("localhost."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	packed, _ := m.Pack()
	return packed
}

// echo is a packet of ICMP. Its checksum is the kernel's with IPv6.
func (s *sender) echo() []byte {
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: int(s.flow.Port), Seq: 1, Data: s.payload(8)}}
	if s.flow.is6() {
		m.Type = ipv6.ICMPTypeEchoRequest
	}
	packet, _ := m.Marshal(nil)
	return packet
}

func (s *sender) forbidFragments(conn syscall.Conn) error {
	if s.size == 0 {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		if !s.flow.is6() {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
			return
		}
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1))
	})
	return errors.Join(failed, err)
}
