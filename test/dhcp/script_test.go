package dhcp

import (
	"context"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	netipv4 "golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// leased4 is the address that a script leases.
var leased4 = net.IPv4(192, 0, 2, 50)

// toClients is where answers go.
var toClients = &net.UDPAddr{IP: net.IPv4bcast, Port: 68}

// message is one that a client has sent to a script.
type message struct {
	*dhcpv4.DHCPv4
	unicast bool
	at      time.Time
}

// is reports whether it is a REQUEST that answers an offer, one for more time, or one that asks whether an address can still be used.
func (m message) selects() bool {
	return m.MessageType() == dhcpv4.MessageTypeRequest && m.ServerIdentifier() != nil
}
func (m message) extends() bool {
	return m.MessageType() == dhcpv4.MessageTypeRequest && !m.ClientIPAddr.IsUnspecified()
}
func (m message) reboots() bool   { return m.RequestedIPAddress() != nil && m.ServerIdentifier() == nil }
func (m message) discovers() bool { return m.MessageType() == dhcpv4.MessageTypeDiscover }

// script is a DHCP server that answers as a test says. Real servers can't be made to misbehave so.
type script struct {
	answer func(m message, send func([]byte)) // called for one message at a time

	mu    sync.Mutex
	heard []message
}

// serveScript starts one in the outside.
func serveScript(t testing.TB, o *netlab.Outside, answer func(m message, send func([]byte))) *script {
	t.Helper()
	s := &script{answer: answer}
	conn := listenOn(t, o, netlab.UplinkName, 67)
	packets := netipv4.NewPacketConn(conn)
	if err := packets.SetControlMessage(netipv4.FlagDst, true); err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for b := make([]byte, 4096); ; {
			n, to, _, err := packets.ReadFrom(b)
			if err != nil {
				return
			}
			if m, err := dhcpv4.FromBytes(slices.Clone(b[:n])); err == nil {
				s.serve(conn, message{m, !to.Dst.Equal(net.IPv4bcast), time.Now()})
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-served })
	return s
}

func (s *script) serve(conn net.PacketConn, m message) {
	s.mu.Lock()
	s.heard = append(s.heard, m)
	s.mu.Unlock()
	s.answer(m, func(b []byte) { _, _ = conn.WriteTo(b, toClients) })
}

// got returns the messages of a kind that clients have sent.
func (s *script) got(kind func(message) bool) (list []message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.heard {
		if kind(m) {
			list = append(list, m)
		}
	}
	return list
}

// awaits waits until clients have sent a number of messages of a kind, and returns them.
func (s *script) awaits(t testing.TB, what string, number int, kind func(message) bool) (list []message) {
	t.Helper()
	netlab.Until(t, what, func() bool {
		list = s.got(kind)
		return len(list) >= number
	})
	return list
}

// listenOn opens a UDP socket on a link of the outside that may broadcast.
func listenOn(t testing.TB, o *netlab.Outside, link string, port int) net.PacketConn {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		_ = c.Control(func(fd uintptr) {
			if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err == nil {
				err = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, link)
			}
		})
		return err
	}}
	var conn net.PacketConn
	o.Do(func() {
		var err error
		if conn, err = config.ListenPacket(context.Background(), "udp4", (&net.UDPAddr{Port: port}).String()); err != nil {
			t.Fatal(err)
		}
	})
	return conn
}

// lease returns the OFFER to a DISCOVER and the ACK to a REQUEST: of leased4 for an hour, with a mask, a router and a server, but for
// what is given besides.
func lease(m message, more ...dhcpv4.Modifier) []byte {
	return bare(m, append([]dhcpv4.Modifier{
		dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithRouter(net.ParseIP(netlab.OutsideIPv4)),
		dhcpv4.WithDNS(net.ParseIP(netlab.OutsideIPv4)), dhcpv4.WithLeaseTime(3600),
	}, more...)...)
}

// bare is lease without options.
func bare(m message, more ...dhcpv4.Modifier) []byte {
	kind := dhcpv4.MessageTypeAck
	if m.discovers() {
		kind = dhcpv4.MessageTypeOffer
	}
	answer, err := dhcpv4.NewReplyFromRequest(m.DHCPv4, append([]dhcpv4.Modifier{
		dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(leased4),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(netlab.OutsideIPv4))),
	}, more...)...)
	if err != nil {
		panic(err)
	}
	return answer.ToBytes()
}

// times are the options of a lease's times, in seconds.
func times(renew, rebind, end uint32) dhcpv4.Modifier {
	return func(m *dhcpv4.DHCPv4) {
		for code, seconds := range map[uint8]uint32{58: renew, 59: rebind, 51: end} {
			m.UpdateOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), []byte{byte(seconds >> 24), byte(seconds >> 16), byte(seconds >> 8), byte(seconds)}))
		}
	}
}
