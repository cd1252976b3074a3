// Package capture reads packets from links, and says in a line what each of them is.
package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/mdlayher/socket"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// AllLinks stands for every link of a namespace.
const AllLinks = 0

// maxFrame is more than any packet has that a link hands over at once, headers included.
const maxFrame = 256 << 10

// Frame is a packet as a link has it.
type Frame struct {
	Time     time.Time
	Link     int  // index
	Out      bool // leaves by the link
	Ethernet bool // begins with an Ethernet header; otherwise with that of IP
	Length   int  // of which Data may be the beginning
	Data     []byte
}

// Socket reads the packets of a link, or of all.
type Socket struct {
	Stats
	conn        *socket.Conn
	buffer, oob []byte
	read        int  // packets that Next has returned
	stopped     bool // only what had come before is left
}

// Stats counts packets. It is filled in when the capture is stopped.
type Stats struct {
	Packets int `json:"packets"` // that passed the filter
	Dropped int `json:"dropped"` // of these, that came while the buffer was full
}

// Listen begins to read what a filter lets pass, in the network namespace of the calling thread. Of each packet it reads at most so many
// bytes; 0 is all.
func Listen(link int, filter []bpf.RawInstruction, bytes int) (*Socket, error) {
	if bytes == 0 {
		bytes = maxFrame
	}
	// The socket gets nothing before it is bound, so that nothing passes by the filter.
	conn, err := socket.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0, "packet", nil)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket (needs root): %w", err)
	}
	s := &Socket{conn: conn, buffer: make([]byte, bytes), oob: make([]byte, 256)}
	if filter != nil {
		err = conn.SetBPF(filter)
	}
	const largeBuffer = 8 << 20
	err = errors.Join(err, conn.SetReadBuffer(largeBuffer), conn.SetsockoptInt(unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		conn.SetsockoptInt(unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		conn.Bind(&unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: link}))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture on a link: %w", err), conn.Close())
	}
	return s, nil
}

// KeepTime has the kernel note when packets come, until the file is closed. It takes the kernel some milliseconds to begin with that, in which
// the times of packets are those at which they are read.
func KeepTime() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "time"), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
}

func networkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// ErrStopped is what Next returns in the end.
var ErrStopped = errors.New("the capture was stopped")

// Next waits for a packet. Its data is good until the next one. After Stop it returns what had come before, and then ErrStopped.
func (s *Socket) Next() (Frame, error) {
	if s.stopped && s.read >= s.Packets-s.Dropped {
		return Frame{}, ErrStopped
	}
	n, oobn, _, from, err := s.conn.Recvmsg(context.Background(), s.buffer, s.oob, unix.MSG_TRUNC)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.stopped = true
		if err := errors.Join(s.Count(), s.conn.SetReadDeadline(time.Time{})); err != nil {
			return Frame{}, err
		}
		return s.Next()
	}
	if err != nil {
		return Frame{}, fmt.Errorf("read from a packet socket: %w", err)
	}
	s.read++
	return s.frame(n, oobn, from), nil
}

// Stop may be called while Next waits.
func (s *Socket) Stop() error { return s.conn.SetReadDeadline(time.Unix(1, 0)) }

// Close ends the capture.
func (s *Socket) Close() error { return s.conn.Close() }

// Count fills in the counters. Stopping does it, too.
func (s *Socket) Count() error {
	stats, err := s.conn.GetsockoptTpacketStats(unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return fmt.Errorf("count packets: %w", err)
	}
	s.Packets += int(stats.Packets) // since it was asked last
	s.Dropped += int(stats.Drops)
	return nil
}

func (s *Socket) frame(length, oobLength int, from unix.Sockaddr) Frame {
	f := Frame{Time: time.Now(), Length: length, Data: s.buffer[:min(length, len(s.buffer))]}
	if link, ok := from.(*unix.SockaddrLinklayer); ok {
		f.Link, f.Out = link.Ifindex, link.Pkttype == unix.PACKET_OUTGOING
		f.Ethernet = link.Hatype == unix.ARPHRD_ETHER || link.Hatype == unix.ARPHRD_LOOPBACK
	}
	messages, _ := unix.ParseSocketControlMessage(s.oob[:oobLength])
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})):
			f.Time = time.Unix((*unix.Timespec)(unsafe.Pointer(&m.Data[0])).Unix())
		case m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= int(unsafe.Sizeof(unix.TpacketAuxdata{})):
			f.tag((*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0])))
		}
	}
	return f
}

// tag puts a VLAN tag back that the kernel has taken out of a packet.
func (f *Frame) tag(aux *unix.TpacketAuxdata) {
	const addresses = 12
	if aux.Status&unix.TP_STATUS_VLAN_VALID == 0 || !f.Ethernet || len(f.Data) < addresses {
		return
	}
	protocol := uint16(unix.ETH_P_8021Q)
	if aux.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		protocol = aux.Vlan_tpid
	}
	tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, protocol), aux.Vlan_tci)
	f.Data = append(append(append([]byte{}, f.Data[:addresses]...), tag...), f.Data[addresses:]...)
	f.Length += len(tag)
}

// Packet decodes the headers of a packet.
func (f Frame) Packet() gopacket.Packet {
	first := layers.LayerTypeEthernet
	switch {
	case f.Ethernet:
	case len(f.Data) > 0 && f.Data[0]>>4 == 6:
		first = layers.LayerTypeIPv6
	default:
		first = layers.LayerTypeIPv4
	}
	return gopacket.NewPacket(f.Data, first, gopacket.Default) // which copies the data
}
