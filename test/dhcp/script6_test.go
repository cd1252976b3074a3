package dhcp

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// leased6 is the address that a script6 leases.
var leased6 = net.ParseIP(netlab.FirstLeased6)

// message6 is one that a client has sent to a script6.
type message6 struct{ *dhcpv6.Message }

// elapsed returns how long the client says that it has sent the message.
func (m message6) elapsed() time.Duration { return m.Options.ElapsedTime() }

// script6 is a server for DHCPv6 that leases leased6, for an hour, and does not answer some messages.
type script6 struct {
	silent func(m message6, again int) bool // again is how many of that transaction came before

	mu    sync.Mutex
	heard []message6
}

func serveScript6(t testing.TB, o *netlab.Outside, silent func(m message6, again int) bool) *script6 {
	t.Helper()
	s := &script6{silent: silent}
	var conn *socket.Conn
	o.Do(func() {
		link, err := net.InterfaceByName(netlab.UplinkName)
		if err == nil {
			conn, err = socket.Socket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP, "server", nil)
		}
		if err == nil {
			err = conn.Bind(&unix.SockaddrInet6{Port: dhcpv6.DefaultServerPort})
		}
		if err == nil {
			group := slices.Concat(dhcpv6.AllDHCPRelayAgentsAndServers, binary.NativeEndian.AppendUint32(nil, uint32(link.Index)))
			err = conn.SetsockoptBytes(unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, group) // struct ipv6_mreq
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	served := make(chan struct{})
	go func() {
		defer close(served)
		for b := make([]byte, 4096); ; {
			n, from, err := conn.Recvfrom(context.Background(), b, 0)
			if err != nil {
				return
			}
			if m, err := dhcpv6.MessageFromBytes(b[:n]); err == nil {
				if answer := s.serve(message6{m}); answer != nil {
					_ = conn.Sendto(context.Background(), answer, 0, from)
				}
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-served })
	return s
}

func (s *script6) serve(m message6) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := 0
	for _, other := range s.heard {
		if other.TransactionID == m.TransactionID {
			again++
		}
	}
	s.heard = append(s.heard, m)
	if s.silent(m, again) {
		return nil
	}
	address := dhcpv6.OptIAAddress{IPv6Addr: leased6, PreferredLifetime: time.Hour, ValidLifetime: time.Hour}
	modifiers := []dhcpv6.Modifier{
		dhcpv6.WithServerID(&dhcpv6.DUIDLL{LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}),
		dhcpv6.WithIAID(m.Options.OneIANA().IaId), dhcpv6.WithIANA(address),
	}
	reply := dhcpv6.NewReplyFromMessage
	if m.MessageType == dhcpv6.MessageTypeSolicit {
		reply = dhcpv6.NewAdvertiseFromSolicit
	}
	answer, err := reply(m.Message, modifiers...)
	if err != nil {
		return nil
	}
	return answer.ToBytes()
}

// got returns the messages of a type that clients have sent.
func (s *script6) got(kind dhcpv6.MessageType) (list []message6) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.heard {
		if m.MessageType == kind {
			list = append(list, m)
		}
	}
	return list
}

// TestElapsed6 is about how long a client says that it has sent a message: by this servers see that it needs an answer.
func TestElapsed6(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	s := serveScript6(t, outside, func(m message6, again int) bool { return m.MessageType != dhcpv6.MessageTypeRelease && again == 0 })
	host.StartDHCPDaemon(t)
	attach(t, host, network("macvlan", ipv6), "web")
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest} {
		list := s.got(kind)
		if len(list) < 2 || list[1].elapsed() < 500*time.Millisecond || list[1].elapsed() <= list[0].elapsed() {
			t.Errorf("%s: %d were sent, the first since %v, the last since %v; want about a second more", kind, len(list), list[0].elapsed(),
				list[len(list)-1].elapsed())
		}
	}
}

// TestReleasedAgain6 loses what a DEL sends: a RELEASE is sent again, and no more when it is answered. With nobody there to answer, DEL
// does not wait for long.
func TestReleasedAgain6(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lost, least, most int
		gone              bool // the namespace is, before DEL
	}{
		"none is lost":                       {lost: 0, least: 1, most: 3}, // on a busy machine the answer may be read late
		"all are lost":                       {lost: 9, least: 4, most: 4},
		"all are lost, and the namespace is": {lost: 9, least: 3, most: 3, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, outside := node(t, "macvlan")
			s := serveScript6(t, outside, func(m message6, again int) bool { return m.MessageType == dhcpv6.MessageTypeRelease && again < c.lost })
			host.StartDHCPDaemon(t)
			conflist := network("macvlan", ipv6)
			pod, _ := attach(t, host, conflist, "web")
			if c.gone {
				pod.Delete(t)
			}
			if err := host.DelList(conflist, pod.RuntimeConf(nil)); err != nil {
				t.Error("DEL:", err)
			}
			netlab.Until(t, "released", func() bool { return len(s.got(dhcpv6.MessageTypeRelease)) >= c.least })
			list := s.got(dhcpv6.MessageTypeRelease)
			if len(list) > c.most || !leased6.Equal(list[0].Options.OneIANA().Options.OneAddress().IPv6Addr) {
				t.Errorf("%d RELEASE, want %d to %d:\n%s", len(list), c.least, c.most, list[0].Summary())
			}
			for i, m := range list {
				if m.TransactionID != list[0].TransactionID || i > 0 && (m.elapsed() < 500*time.Millisecond || m.elapsed() < list[i-1].elapsed()) {
					t.Errorf("transaction %s since %v, the one before since %v, the first was %s", m.TransactionID, m.elapsed(), list[max(i, 1)-1].elapsed(), list[0].TransactionID)
				}
			}
		})
	}
}

// TestDeclined6 has another host use the address that is leased: the server is told so, and leases another one to the next ADD.
func TestDeclined6(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		if server.name == "kea" { // it never leases the same address to a client twice in a row
			continue
		}
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			host, outside := node(t, "macvlan")
			s := server.start(t, outside)
			host.StartDHCPDaemon(t)
			conflist := network("macvlan", ipv6)
			pod, result := attach(t, host, conflist, "web")
			if err := host.DelList(conflist, pod.RuntimeConf(nil)); err != nil {
				t.Fatal("DEL:", err)
			}
			taken := result.IPs[0].Address.IP
			other := host.NewPod(t, "other")
			host.MustRun(t, "ip", "link", "add", "other0", "link", netlab.UplinkName, "type", "macvlan", "mode", "bridge")
			host.MustRun(t, "ip", "link", "set", "other0", "netns", "other")
			other.MustRun(t, "ip", "link", "set", "other0", "up")
			other.MustRun(t, "ip", "address", "add", taken.String()+"/64", "dev", "other0", "nodad")
			if result, err := host.AddList(conflist, pod.RuntimeConf(nil)); err == nil {
				t.Fatalf("ADD succeeds with %v, another host has %s", result.IPs, taken)
			}
			netlab.Until(t, "declined", func() bool { return s.Declined() >= 1 })
			result, err := host.AddList(conflist, pod.RuntimeConf(nil))
			if err != nil || result.IPs[0].Address.IP.Equal(taken) {
				t.Errorf("the next ADD: %v, error %v", result, err)
			}
		})
	}
}
