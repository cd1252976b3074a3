package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/mdlayher/socket"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// v6 is stateful DHCPv6 (RFC 8415) for one attachment, with one address.
type v6 struct {
	*settings
	duid dhcpv6.DUID
	iaid [4]byte
}

// newV6 makes the identity that servers know an attachment by of its key.
func newV6(s *settings, k plugin.Key) *v6 {
	id := k.ID("dhcpv6")
	return &v6{settings: s, duid: &dhcpv6.DUIDUUID{UUID: id}, iaid: [4]byte(id[12:])}
}

func (f *v6) String() string { return "ipv6" }

// message returns one that says who asks, for which address, and of which server; nil is any.
func (f *v6) message(kind dhcpv6.MessageType, address netip.Addr, server dhcpv6.DUID) (*dhcpv6.Message, error) {
	m, err := dhcpv6.NewMessage(dhcpv6.WithClientID(f.duid), dhcpv6.WithIAID(f.iaid))
	if err != nil {
		return nil, err
	}
	m.MessageType = kind
	if address.IsValid() {
		dhcpv6.WithIANA(dhcpv6.OptIAAddress{IPv6Addr: address.AsSlice()})(m)
	}
	if server != nil {
		m.AddOption(dhcpv6.OptServerID(server))
	}
	if kind != dhcpv6.MessageTypeRelease && kind != dhcpv6.MessageTypeDecline {
		m.AddOption(dhcpv6.OptRequestedOption(dhcpv6.OptionDNSRecursiveNameServer, dhcpv6.OptionDomainSearchList))
	}
	return m, nil
}

// acquire solicits all servers, and takes the first address that one advertises.
func (f *v6) acquire(ctx context.Context, in entry, wanted netip.Addr) (*holding, error) {
	s, err := f.open(in)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return askUntilLeased(ctx, func() (*holding, error) { return f.tryAcquire(ctx, s, wanted) })
}

func (f *v6) tryAcquire(ctx context.Context, s *socket6, wanted netip.Addr) (*holding, error) {
	solicit, err := f.message(dhcpv6.MessageTypeSolicit, wanted, nil)
	if err != nil {
		return nil, err
	}
	advertise, err := f.exchange(ctx, s, solicit, dhcpv6.MessageTypeAdvertise)
	if err != nil {
		return nil, err
	}
	offered, err := f.addressIn(advertise)
	if err != nil {
		return nil, err
	}
	address, _ := netip.AddrFromSlice(offered.IPv6Addr)
	request, err := f.message(dhcpv6.MessageTypeRequest, address, advertise.Options.ServerID())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	return f.request(ctx, s, request)
}

// extend asks for more time: the server of the lease, or any. A lease that is taken up is confirmed, and extended when its time comes.
func (f *v6) extend(ctx context.Context, in entry, h *holding, how phase) (*holding, error) {
	before, err := dhcpv6.MessageFromBytes(h.packet)
	if err != nil {
		return nil, err
	}
	kind, server := dhcpv6.MessageTypeRebind, dhcpv6.DUID(nil)
	switch how {
	case renewing:
		kind, server = dhcpv6.MessageTypeRenew, before.Options.ServerID()
	case rebooting:
		kind = dhcpv6.MessageTypeConfirm
	}
	m, err := f.message(kind, h.address, server)
	if err != nil {
		return nil, err
	}
	s, err := f.open(in)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if how == rebooting {
		reply, err := f.exchange(ctx, s, m, dhcpv6.MessageTypeReply)
		if err != nil {
			return nil, err
		}
		return h, refusal(reply.Options.Status())
	}
	return f.request(ctx, s, m)
}

// request sends a message that a lease is the answer to.
func (f *v6) request(ctx context.Context, s *socket6, m *dhcpv6.Message) (*holding, error) {
	reply, err := f.exchange(ctx, s, m, dhcpv6.MessageTypeReply)
	if err != nil {
		return nil, err
	}
	h, err := f.parse(reply.ToBytes())
	if err != nil {
		return nil, err
	}
	h.since = uptime()
	return h, nil
}

// parse reads a REPLY.
func (f *v6) parse(packet []byte) (*holding, error) {
	m, err := dhcpv6.MessageFromBytes(packet)
	if err != nil {
		return nil, err
	}
	leased, err := f.addressIn(m)
	if err != nil {
		return nil, err
	}
	h := &holding{packet: packet}
	h.address, _ = netip.AddrFromSlice(leased.IPv6Addr)
	ia := m.Options.OneIANA()
	h.setTimes(ia.T1, ia.T2, leased.ValidLifetime)
	return h, nil
}

// addressIn returns the address that a server offers or leases.
func (f *v6) addressIn(m *dhcpv6.Message) (*dhcpv6.OptIAAddress, error) {
	if err := refusal(m.Options.Status()); err != nil {
		return nil, err
	}
	ia := m.Options.OneIANA()
	if ia == nil || ia.IaId != f.iaid {
		return nil, fmt.Errorf("%w: it says nothing of an address", errRefused)
	}
	if err := refusal(ia.Options.Status()); err != nil {
		return nil, err
	}
	a := ia.Options.OneAddress()
	if a == nil || a.ValidLifetime == 0 {
		return nil, fmt.Errorf("%w: it leases none", errRefused)
	}
	if ip, ok := netip.AddrFromSlice(a.IPv6Addr); !ok || !ip.IsGlobalUnicast() || ip.Is4In6() {
		return nil, plugin.Errorf("correct the server's configuration", "the server leased %s, which is no host's address", a.IPv6Addr)
	}
	return a, nil
}

// refusal returns what a status says, if that is no.
func refusal(s *dhcpv6.OptStatusCode) error {
	if s == nil || s.StatusCode == iana.StatusSuccess {
		return nil
	}
	return fmt.Errorf("%w: %s %s", errRefused, s.StatusCode, s.StatusMessage)
}

// release sends a RELEASE, or a DECLINE of an address that another host was found to have, and waits a moment for the answer. A message
// without an answer is sent again through the host's link, since the container's goes (four times in all: RFC 8415, REL_MAX_RC). Answers to
// that are not heard: the host may have a client of its own.
func (f *v6) release(p *location, h *holding) error {
	reply, err := dhcpv6.MessageFromBytes(h.packet)
	if err != nil {
		return err
	}
	m, err := f.message(dhcpv6.MessageTypeRelease, h.address, reply.Options.ServerID())
	if err != nil {
		return err
	}
	begin := time.Now()
	if err = f.releaseInside(p, h, m); err == nil {
		return nil
	}
	if again := sendOutside(p, m, begin); again != nil {
		return errors.Join(err, again)
	}
	go func() {
		for _, pause := range []time.Duration{2 * firstPause, 4 * firstPause} {
			time.Sleep(pause)
			_ = sendOutside(p, m, begin)
		}
	}()
	return nil
}

// releaseInside sends the message through the container's link, and hears whether it is answered.
func (f *v6) releaseInside(p *location, h *holding, m *dhcpv6.Message) error {
	var s *socket6
	err := p.enter(func(l netlink.Link) (err error) {
		if isDuplicate(l, h.address) {
			m.MessageType = dhcpv6.MessageTypeDecline
		}
		if s, err = newSocket6(l); err == nil {
			_ = s.Bind(&unix.SockaddrInet6{Port: dhcpv6.DefaultClientPort}) // if a client of the container has the port, nothing is heard
		}
		return err
	})
	if err != nil {
		return err
	}
	defer s.Close()
	const once = firstPause * 9 / 10 // it is not sent again in there
	ctx, cancel := context.WithTimeoutCause(context.Background(), once, errors.New("the server does not answer"))
	defer cancel()
	_, err = f.exchange(ctx, s, m, dhcpv6.MessageTypeReply)
	return err
}

// sendOutside sends a message, which has been sent since begin, through the host's link.
func sendOutside(p *location, m *dhcpv6.Message, begin time.Time) error {
	return p.outside(func(l netlink.Link) error {
		s, err := newSocket6(l)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.WriteTo(bytesOf(m, time.Since(begin)), nil)
		return err
	})
}

// isDuplicate reports whether the kernel has found that another host has an address of a link.
func isDuplicate(l netlink.Link, address netip.Addr) bool {
	list, _ := netlink.AddrList(l, unix.AF_INET6)
	return slices.ContainsFunc(list, func(a netlink.Addr) bool {
		return a.IP.Equal(address.AsSlice()) && a.Flags&unix.IFA_F_DADFAILED != 0
	})
}

// bytesOf returns a message that says for how long it has been sent (RFC 8415, 21.9).
func bytesOf(m *dhcpv6.Message, elapsed time.Duration) []byte {
	const most = math.MaxUint16 * 10 * time.Millisecond
	m.UpdateOption(dhcpv6.OptElapsedTime(min(elapsed, most)))
	return m.ToBytes()
}

// exchange sends a message until it is answered.
func (f *v6) exchange(ctx context.Context, s *socket6, m *dhcpv6.Message, kind dhcpv6.MessageType) (*dhcpv6.Message, error) {
	message := func(elapsed time.Duration) []byte { return bytesOf(m, elapsed) }
	return exchange(ctx, f.resendMax, s, nil, message, func(packet []byte) (*dhcpv6.Message, bool) {
		answer, err := dhcpv6.MessageFromBytes(packet)
		if err != nil || answer.MessageType != kind || answer.TransactionID != m.TransactionID || answer.Options.ServerID() == nil {
			return nil, false
		}
		client := answer.Options.ClientID()
		return answer, client != nil && bytes.Equal(client.ToBytes(), f.duid.ToBytes())
	})
}

// open makes the container's link ready for IPv6, and opens a socket on it.
func (f *v6) open(in entry) (*socket6, error) {
	var s *socket6
	err := in(func(l netlink.Link) error {
		own, err := linkLocal(l)
		if err != nil {
			return err
		}
		if s, err = newSocket6(l); err != nil {
			return err
		}
		if err := s.Bind(&unix.SockaddrInet6{Port: dhcpv6.DefaultClientPort, Addr: own.As16(), ZoneId: uint32(s.index)}); err != nil {
			return errors.Join(fmt.Errorf("bind to %s: %w", own, err), s.Close())
		}
		return nil
	})
	return s, err
}

// linkLocal returns a link's own address that is made of its MAC address. It is added if the kernel has not, and used at once: whoever
// has a MAC address of its own has this.
func linkLocal(l netlink.Link) (netip.Addr, error) {
	mac := l.Attrs().HardwareAddr
	if len(mac) != 6 {
		return netip.Addr{}, fmt.Errorf("%s has the MAC address %q, want six bytes", l.Attrs().Name, mac)
	}
	own := netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
	if err := sysctl.Set("net/ipv6/conf/"+l.Attrs().Name+"/disable_ipv6", "0"); err != nil {
		return own, err
	}
	network := result.IPNet(netip.PrefixFrom(own, 64))
	err := netlink.AddrAdd(l, &netlink.Addr{IPNet: &network, Flags: unix.IFA_F_NODAD, Scope: unix.RT_SCOPE_LINK})
	if errors.Is(err, unix.EEXIST) {
		if _, err = link.WaitForAddresses(l); err != nil {
			err = fmt.Errorf("wait for duplicate address detection: %w", err)
		}
	}
	return own, err
}

// socket6 is a UDP socket on one link. Package net would look the link's name up in another namespace.
type socket6 struct {
	*socket.Conn
	index int
}

func newSocket6(l netlink.Link) (*socket6, error) {
	c, err := socket.Socket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP, "dhcpv6", nil)
	return &socket6{c, l.Attrs().Index}, err
}

func (s *socket6) ReadFrom(b []byte) (int, net.Addr, error) {
	n, _, err := s.Recvfrom(context.Background(), b, 0)
	return n, nil, err
}

// WriteTo sends to all servers, which is where all messages go (RFC 8415, 16).
func (s *socket6) WriteTo(b []byte, _ net.Addr) (int, error) {
	to := &unix.SockaddrInet6{Port: dhcpv6.DefaultServerPort, Addr: [16]byte(dhcpv6.AllDHCPRelayAgentsAndServers), ZoneId: uint32(s.index)}
	err := s.Sendto(context.Background(), b, 0, to)
	return len(b), err
}
