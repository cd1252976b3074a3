package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/ipam/dhcp"
)

// v4 is DHCPv4 (RFC 2131) for one attachment. All packets are sent and received below the container's IP, whose addresses, routes and
// packet filter are its own affair.
type v4 struct {
	*settings
	options   *dhcp.Options
	clientID  []byte
	broadcast bool // answers must be
}

func (f *v4) String() string { return "ipv4" }

// clientID returns the client identifier (option 61), which is the reference plugin's, so that servers know who it is.
func clientID(k plugin.Key) []byte {
	const most = 254
	text := k.ContainerID + "/" + k.Network + "/" + k.IfName
	return append([]byte{0}, text[:min(len(text), most)]...)
}

// message returns one that says who asks.
func (f *v4) message(mac net.HardwareAddr, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) (*dhcpv4.DHCPv4, error) {
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithMessageType(kind), dhcpv4.WithHwAddr(mac), dhcpv4.WithOption(dhcpv4.OptClientIdentifier(f.clientID)),
	}, more...)...)
	if err != nil {
		return nil, err
	}
	for code, value := range f.options.Provide {
		if identifies := code == 61; identifies || kind != dhcpv4.MessageTypeRelease {
			m.Options[code] = []byte(value)
		}
	}
	if kind != dhcpv4.MessageTypeRelease {
		m.Options[dhcpv4.OptionParameterRequestList.Code()] = f.options.Request
		m.UpdateOption(dhcpv4.OptMaxMessageSize(nclient4.MaxMessageSize))
	}
	return m, nil
}

// acquire asks all servers for an offer, and takes the first. If its server does not let it be taken, it starts over.
func (f *v4) acquire(ctx context.Context, in entry, wanted netip.Addr) (*holding, error) {
	s, err := f.open(in, nil, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return askUntilLeased(ctx, func() (*holding, error) { return f.tryAcquire(ctx, in, s, wanted) })
}

func (f *v4) tryAcquire(ctx context.Context, in entry, s *socket4, wanted netip.Addr) (*holding, error) {
	var asked []dhcpv4.Modifier
	if wanted.IsValid() {
		asked = append(asked, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(wanted.AsSlice())))
	}
	discover, err := f.message(s.mac, dhcpv4.MessageTypeDiscover, append(asked, dhcpv4.WithBroadcast(f.broadcast))...)
	if err != nil {
		return nil, err
	}
	offer, err := f.exchange(ctx, s, net.IPv4bcast, discover, func(m *dhcpv4.DHCPv4) bool {
		return m.MessageType() == dhcpv4.MessageTypeOffer && m.ServerIdentifier() != nil && !m.YourIPAddr.IsUnspecified()
	})
	if err != nil {
		return nil, err
	}
	from := s.frames.from
	request, err := f.message(s.mac, dhcpv4.MessageTypeRequest, dhcpv4.WithTransactionID(offer.TransactionID),
		dhcpv4.WithBroadcast(f.broadcast), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())))
	if err != nil {
		return nil, err
	}
	request.NumSeconds = discover.NumSeconds // by which a relay chooses the servers (RFC 2131, 3.1)
	short, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	h, err := f.request(short, s, net.IPv4bcast, request, nclient4.IsCorrectServer(offer.ServerIdentifier()))
	if err != nil && ctx.Err() != nil { // the server may have leased the address all the same
		_ = f.sendRelease(in, s.mac, &holding{packet: offer.ToBytes(), from: from})
	}
	return h, err
}

// extend asks for more time: the server of the lease, or any. A lease that is taken up is just extended, unless its time is over: the
// container has not been away, and this is no broadcast.
func (f *v4) extend(ctx context.Context, in entry, h *holding, how phase) (*holding, error) {
	ack, err := dhcpv4.FromBytes(h.packet)
	if err != nil {
		return nil, err
	}
	to, mac, match := net.IPv4bcast, net.HardwareAddr(nil), nclient4.Matcher(func(*dhcpv4.DHCPv4) bool { return true })
	if how == rebooting && h.phase(uptime()) != expired {
		how = renewing
	}
	own, from := dhcpv4.WithClientIP(ack.YourIPAddr), ack.YourIPAddr
	switch how {
	case renewing:
		to, mac, match = ack.ServerIdentifier(), h.from, nclient4.IsCorrectServer(ack.ServerIdentifier())
	case rebooting: // INIT-REBOOT
		own, from = dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ack.YourIPAddr)), nil
	}
	s, err := f.open(in, mac, from)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	s.begin = min(s.begin, h.since+h.renew)
	request, err := f.message(s.mac, dhcpv4.MessageTypeRequest, own, dhcpv4.WithBroadcast(f.broadcast))
	if err != nil {
		return nil, err
	}
	next, err := f.request(ctx, s, to, request, match)
	if err != nil {
		return nil, err
	}
	return next, next.complete(ack)
}

// complete adds what the server said before: some leave it out when they extend a lease.
func (h *holding) complete(before *dhcpv4.DHCPv4) error {
	m, err := dhcpv4.FromBytes(h.packet)
	if err != nil {
		return err
	}
	for code, value := range before.Options {
		if _, ok := m.Options[code]; !ok {
			m.Options[code] = value
		}
	}
	h.packet = m.ToBytes()
	return nil
}

// request sends a REQUEST, and returns what it has got.
func (f *v4) request(ctx context.Context, s *socket4, to net.IP, m *dhcpv4.DHCPv4, match nclient4.Matcher) (*holding, error) {
	answer, err := f.exchange(ctx, s, to, m,
		nclient4.IsAll(match, nclient4.IsMessageType(dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak)))
	if err != nil {
		return nil, err
	}
	if answer.MessageType() == dhcpv4.MessageTypeNak {
		return nil, fmt.Errorf("%w: DHCPNAK %s", errRefused, answer.Message())
	}
	h, err := f.parse(answer.ToBytes())
	if err != nil {
		return nil, err
	}
	h.since, h.from = uptime(), s.frames.from
	return h, nil
}

// parse reads a DHCPACK.
func (f *v4) parse(packet []byte) (*holding, error) {
	ack, err := dhcpv4.FromBytes(packet)
	if err != nil {
		return nil, err
	}
	h := &holding{packet: packet}
	h.address, _ = netip.AddrFromSlice(ack.YourIPAddr.To4())
	if !h.address.IsValid() || !h.address.IsGlobalUnicast() && !h.address.IsLinkLocalUnicast() {
		return nil, plugin.Errorf("correct the server's configuration", "the server leased %s, which is no host's address", h.address)
	}
	h.setTimes(ack.IPAddressRenewalTime(0), ack.IPAddressRebindingTime(0), ack.IPAddressLeaseTime(time.Hour))
	return h, nil
}

// release sends a DHCPRELEASE, through the host's link if the container's is gone. There is no answer to it.
func (f *v4) release(p *location, h *holding) error {
	err := f.sendRelease(p.enter, p.mac, h)
	if err == nil {
		return nil
	}
	return errors.Join(err, f.sendRelease(p.outside, p.mac, h))
}

func (f *v4) sendRelease(in entry, mac net.HardwareAddr, h *holding) error {
	ack, err := dhcpv4.FromBytes(h.packet)
	if err != nil {
		return err
	}
	s, err := f.open(in, h.from, ack.YourIPAddr)
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := f.message(mac, dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(ack.YourIPAddr),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ack.ServerIdentifier())))
	if err != nil {
		return err
	}
	_, err = s.WriteTo(m.ToBytes(), &net.UDPAddr{IP: ack.ServerIdentifier(), Port: nclient4.ServerPort})
	return err
}

// exchange sends a message until it is answered.
func (f *v4) exchange(ctx context.Context, s *socket4, to net.IP, m *dhcpv4.DHCPv4, match nclient4.Matcher) (*dhcpv4.DHCPv4, error) {
	message := func(time.Duration) []byte {
		if m.ServerIdentifier() == nil { // otherwise it says what the DISCOVER did
			m.NumSeconds = uint16(min((uptime()-s.begin)/time.Second, math.MaxUint16))
		}
		return m.ToBytes()
	}
	return exchange(ctx, f.resendMax, s, &net.UDPAddr{IP: to, Port: nclient4.ServerPort}, message, func(packet []byte) (*dhcpv4.DHCPv4, bool) {
		answer, err := dhcpv4.FromBytes(packet)
		return answer, err == nil && answer.OpCode == dhcpv4.OpcodeBootReply && answer.TransactionID == m.TransactionID &&
			bytes.Equal(answer.ClientHWAddr, s.mac) && match(answer)
	})
}

// socket4 sends and receives DHCPv4 messages on a link: it receives what comes to any address, and sends from one.
type socket4 struct {
	net.PacketConn // receives
	out            net.PacketConn
	frames         *frames // below both
	mac            net.HardwareAddr
	begin          time.Duration // when it was begun to ask for a lease, or for more time
}

func (s *socket4) WriteTo(b []byte, to net.Addr) (int, error) { return s.out.WriteTo(b, to) }

// frames is a packet socket that sends to one MAC address, and remembers who sent what was read last.
type frames struct {
	net.PacketConn
	to   packet.Addr
	from net.HardwareAddr
}

func (c *frames) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.PacketConn.ReadFrom(b)
	if a, ok := from.(*packet.Addr); ok && err == nil {
		c.from = a.HardwareAddr
	}
	return n, from, err
}

func (c *frames) WriteTo(b []byte, _ net.Addr) (int, error) { return c.PacketConn.WriteTo(b, &c.to) }

// open opens a socket that sends to a MAC address, nil is all, and from an IP address, nil is none.
func (f *v4) open(in entry, to net.HardwareAddr, from net.IP) (*socket4, error) {
	filter, err := bpf.Assemble(toClient())
	if err != nil {
		return nil, err
	}
	if to == nil {
		to = nclient4.BroadcastMac
	}
	s := &socket4{frames: &frames{to: packet.Addr{HardwareAddr: to}}, begin: uptime()}
	err = in(func(l netlink.Link) (err error) {
		s.mac = l.Attrs().HardwareAddr
		own := &net.Interface{Index: l.Attrs().Index, Name: l.Attrs().Name, HardwareAddr: s.mac}
		s.frames.PacketConn, err = packet.Listen(own, packet.Datagram, unix.ETH_P_IP, &packet.Config{Filter: filter})
		return err
	})
	if err != nil {
		return nil, err
	}
	s.PacketConn = nclient4.NewBroadcastUDPConn(s.frames, &net.UDPAddr{Port: nclient4.ClientPort})
	s.out = nclient4.NewBroadcastUDPConn(s.frames, &net.UDPAddr{IP: from, Port: nclient4.ClientPort})
	return s, nil
}

// toClient lets UDP packets to port 68 pass, and no fragments: a container may have much other traffic.
func toClient() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 9, Size: 1}, // the protocol
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 6},
		bpf.LoadAbsolute{Off: 6, Size: 2}, // the fragment's place
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 4},
		bpf.LoadMemShift{Off: 0},          // the header's length
		bpf.LoadIndirect{Off: 2, Size: 2}, // the port
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nclient4.ClientPort, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	}
}
