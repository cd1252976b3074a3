package probe

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/capture"
)

// traces are the packets that were seen, in the containers and on the host.
type traces struct {
	sockets []*capture.Socket
	readers sync.WaitGroup
	mutex   sync.Mutex
	sights  []sight
	err     error
}

// sight is a packet at a place.
type sight struct {
	in   *Container
	link int
	out  bool
	at   time.Time

	kind             kind
	from, to         netip.Addr
	fromPort, toPort uint16
	payload          []byte
	tcp              *layers.TCP
	rejection        string     // what a packet of ICMP says became of the one that it quotes
	about            netip.Addr // whose link address is asked for or told
	sender           string     // link address
}

type kind int

const (
	other      kind = iota
	datagram        // UDP
	connection      // TCP
	request         // echo
	reply
	rejected // an error by ICMP
	whoHas   // ARP, or its like of IPv6
	isAt
)

// watch begins to note what is seen of the tests' packets.
func (w *subject) watch(tests []*Test) (*traces, error) {
	ports := map[uint16]bool{servedPort: true}
	for _, t := range tests {
		if t.target.Port() != 0 {
			ports[t.target.Port()] = true
		}
	}
	filter, err := capture.Traces(slices.Sorted(maps.Keys(ports)))
	if err != nil {
		return nil, err
	}
	seen := &traces{}
	open := func(in *Container) error {
		const headers = 512 // and a question
		s, err := capture.Listen(capture.AllLinks, filter, headers)
		if err == nil {
			seen.sockets = append(seen.sockets, s)
			seen.readers.Go(func() { seen.read(s, in) })
		}
		return err
	}
	err = open(nil)
	for _, c := range []*Container{w.a, w.b} {
		if err == nil {
			err = c.inside(func() error { return open(c) })
		}
	}
	if err != nil {
		return nil, errors.Join(err, seen.stop())
	}
	return seen, nil
}

func (s *traces) read(socket *capture.Socket, in *Container) {
	for {
		f, err := socket.Next()
		if errors.Is(err, capture.ErrStopped) {
			return
		}
		s.mutex.Lock()
		const most = 200_000 // on a host where much else goes on
		if err == nil && len(s.sights) < most {
			s.sights = append(s.sights, look(f, in))
		}
		s.err = errors.Join(s.err, err)
		s.mutex.Unlock()
		if err != nil {
			return
		}
	}
}

// stop ends the watch; what has come until then is in the sights.
func (s *traces) stop() (err error) {
	for _, socket := range s.sockets {
		err = errors.Join(err, socket.Stop())
	}
	s.readers.Wait()
	for _, socket := range s.sockets {
		err = errors.Join(err, socket.Close())
	}
	return errors.Join(err, s.err)
}

// look says what a packet is.
func look(f capture.Frame, in *Container) sight {
	s := sight{in: in, link: f.Link, out: f.Out, at: f.Time}
	for _, layer := range f.Packet().Layers() {
		switch l := layer.(type) {
		case *layers.Ethernet:
			s.sender = l.SrcMAC.String()
		case *layers.IPv4:
			s.from, s.to = address(l.SrcIP), address(l.DstIP)
		case *layers.IPv6:
			s.from, s.to = address(l.SrcIP), address(l.DstIP)
		case *layers.TCP:
			s.kind, s.tcp, s.fromPort, s.toPort = connection, l, uint16(l.SrcPort), uint16(l.DstPort)
		case *layers.UDP:
			s.kind, s.fromPort, s.toPort, s.payload = datagram, uint16(l.SrcPort), uint16(l.DstPort), l.Payload
		case *layers.ARP:
			s.kind, s.about = whoHas, address(l.DstProtAddress)
			if l.Operation == layers.ARPReply {
				s.kind, s.about = isAt, address(l.SourceProtAddress)
			}
		case *layers.ICMPv6NeighborSolicitation:
			s.kind, s.about = whoHas, address(l.TargetAddress)
		case *layers.ICMPv6NeighborAdvertisement:
			s.kind, s.about = isAt, address(l.TargetAddress)
		case *layers.ICMPv4:
			s.lookICMP4(l)
		case *layers.ICMPv6:
			s.lookICMP6(l)
		}
	}
	return s
}

func (s *sight) lookICMP4(l *layers.ICMPv4) {
	s.payload = l.Payload
	switch l.TypeCode.Type() {
	case layers.ICMPv4TypeEchoRequest:
		s.kind = request
	case layers.ICMPv4TypeEchoReply:
		s.kind = reply
	case layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4TypeTimeExceeded:
		s.kind, s.rejection = rejected, l.TypeCode.String()
	}
}

func (s *sight) lookICMP6(l *layers.ICMPv6) {
	s.payload = l.Payload
	switch l.TypeCode.Type() {
	case layers.ICMPv6TypeEchoRequest:
		s.kind = request
	case layers.ICMPv6TypeEchoReply:
		s.kind = reply
	case layers.ICMPv6TypeDestinationUnreachable, layers.ICMPv6TypePacketTooBig, layers.ICMPv6TypeTimeExceeded:
		s.kind, s.rejection = rejected, l.TypeCode.String()
	}
}

// isAt reports whether the packet was seen at a place.
func (s sight) isAt(p point) bool { return s.in == p.in && s.link == p.link && s.out == p.out }
