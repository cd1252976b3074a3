// Package netlink talks to the kernel over netlink (netlink(7)): it builds
// messages, sends a batch of them in one call, and reads the answers. It knows
// nothing of any family; pkg/link and pkg/netfilter/nft do.
//
// It exists beside the field's libraries because of what they cost in a
// process of one or two milliseconds: a tenth for their package
// initialisation, and a round trip for each message.
package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Patience bounds the wait for one message, unless SetTimeout does. The kernel
// answers at once; only a bug or a lost message makes it this long.
const Patience = 20 * time.Second

// Conn is a netlink socket. It belongs to the network namespace in which it
// was opened, whatever thread uses it later. One goroutine at a time.
type Conn struct {
	fd     int
	seq    uint32
	port   uint32  // our address, known once the socket hears multicasts
	buffer *buffer // taken when first needed

	// Sends counts the messages sent, for budgets held by tests.
	Sends int
}

// Dial opens a socket of a netlink family, such as unix.NETLINK_ROUTE.
func Dial(family int) (*Conn, error) { return DialBy(unix.Socket, family) }

// DialBy is Dial with a function in the place of socket(2), such as one that makes
// sockets in another namespace.
func DialBy(socket func(domain, typ, protocol int) (int, error), family int) (*Conn, error) {
	fd, err := socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket of family %d: %w", family, err)
	}
	c := &Conn{fd: fd}
	timeout := unix.NsecToTimeval(Patience.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
	)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("set up netlink socket: %w", err)
	}
	return c, nil
}

// Close closes the socket. It can't be used any more, even when its number is
// used again.
func (c *Conn) Close() {
	_ = unix.Close(c.fd)
	c.fd = -1
	c.buffer.release()
	c.buffer = nil
}

// FD returns the socket, for options of one family.
func (c *Conn) FD() int { return c.fd }

// Error is the kernel's refusal of a message.
type Error struct {
	Op    string     // what the message was to do, on what
	Index int        // which message of the batch it was, from 0
	Errno unix.Errno // errors.Is finds it
	Text  string     // the kernel's own words, if it gave any (extended ACK)
}

func (e *Error) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Errno)
	}
	return fmt.Sprintf("%s: %v (kernel: %s)", e.Op, e.Errno, e.Text)
}

// Unwrap returns the error number.
func (e *Error) Unwrap() error { return e.Errno }

// Message is one message from the kernel.
type Message struct {
	Type    uint16
	Flags   uint16
	Index   int // which message of the batch it answers, from 0; -1 for none
	Payload []byte

	port uint32
}

// ErrInterrupted says that what a dump lists changed while it was listed.
var ErrInterrupted = errors.New("netlink dump interrupted")

// Do sends the batch and reads until the last message that asked for an answer
// (by NLM_F_ACK; if none did the last message, which then must be a question or
// a dump) is answered. Answers other than acknowledgements go to each, which
// must not keep the payload. Messages are processed in order, and all of them
// even when one fails; the error is that of the first that failed. Of messages
// without NLM_F_ACK refusals are told too, so that one at the end of the batch
// is enough: each costs the kernel a message and us a read, 2 us.
//
// An empty batch does nothing. One that asks for more answers than the socket's
// receive buffer holds (some hundred acknowledgements, fewer links) is
// unix.ENOBUFS, with an unknown part of it done.
func (c *Conn) Do(b *Batch, each func(Message)) error {
	if b.err != nil {
		return b.err
	}
	if len(b.sent) == 0 {
		return nil
	}
	base := c.seq
	if err := c.send(c.Number(b)); err != nil {
		return err
	}
	last := b.lastAnswered()
	var first error
	for {
		data, err := c.read()
		if err != nil {
			return errors.Join(first, err)
		}
		for len(data) >= unix.SizeofNlMsghdr {
			m, rest, err := split(data)
			if err != nil {
				return err
			}
			data = rest
			m.Index -= int(base) + 1
			if m.Index < 0 || m.Index >= len(b.sent) || c.port != 0 && m.port != c.port {
				continue // of an earlier batch or a multicast
			}
			if m.Flags&unix.NLM_F_DUMP_INTR != 0 && first == nil {
				first = ErrInterrupted
			}
			switch m.Type {
			case unix.NLMSG_ERROR:
				err := b.failure(m)
				if b.expected(m, err) {
					err = nil
					if each != nil {
						each(m)
					}
				}
				if err != nil && first == nil {
					first = err
				}
				// A batch whose opening message is refused is not looked at further.
				if m.Index == last || first != nil && b.sent[m.Index].typ == unix.NFNL_MSG_BATCH_BEGIN {
					return first
				}
			case unix.NLMSG_DONE:
				// What goes wrong in a dump is told at its end.
				if err := b.failure(m); err != nil && first == nil {
					first = err
				}
				if m.Index == last {
					return first
				}
			default:
				if each != nil {
					each(m)
				}
				// A question is answered by one message, unless it was a dump.
				if m.Index == last && !b.sent[last].ack && m.Flags&unix.NLM_F_MULTI == 0 {
					return first
				}
			}
		}
	}
}

// Receive waits for multicast messages and hands them to each, until each
// returns false. The error is unix.ENOBUFS when messages were lost, and
// unix.EAGAIN when none came for the time the socket waits.
func (c *Conn) Receive(each func(Message) bool) error {
	for {
		data, err := c.read()
		if err != nil {
			return err
		}
		for len(data) >= unix.SizeofNlMsghdr {
			m, rest, err := split(data)
			if err != nil {
				return err
			}
			data = rest
			m.Index = -1
			if !each(m) {
				return nil
			}
		}
	}
}

// Join makes the socket hear a multicast group of its family. From then on
// other programs' requests echo here with their own sequence numbers, so that
// answers to ours have to be told by our address.
func (c *Conn) Join(group int) error {
	if err := c.bind(); err != nil {
		return fmt.Errorf("join netlink group %d: %w", group, err)
	}
	if err := unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
		return fmt.Errorf("join netlink group %d: %w", group, err)
	}
	return nil
}

// bind gives the socket its address, unless it got one when it first sent. The
// kernel's own announcements pass by a socket without one: they are for all but
// address 0, the kernel's.
func (c *Conn) bind() error {
	port, err := c.address()
	if err != nil || port != 0 {
		c.port = port
		return err
	}
	if err := unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	c.port, err = c.address()
	return err
}

func (c *Conn) address() (uint32, error) {
	sa, err := unix.Getsockname(c.fd)
	if err != nil {
		return 0, err
	}
	return sa.(*unix.SockaddrNetlink).Pid, nil
}

// SetTimeout bounds each later wait for a message.
func (c *Conn) SetTimeout(d time.Duration) error {
	tv := unix.NsecToTimeval(max(d, time.Microsecond).Nanoseconds())
	return unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
}

// Number gives the batch's messages the socket's next sequence numbers, and returns
// them for a sender other than Do. What the kernel answers to them Receive reads, and
// Do passes over.
func (c *Conn) Number(b *Batch) []byte {
	at := 0
	for range b.sent {
		c.seq++
		binary.NativeEndian.PutUint32(b.bytes[at+8:], c.seq)
		at += align(int(binary.NativeEndian.Uint32(b.bytes[at:])))
	}
	return b.bytes
}

// send sends all messages of a batch at once.
func (c *Conn) send(data []byte) error {
	c.Sends++
	err := c.sendTo(data)
	if errors.Is(err, unix.EMSGSIZE) && c.growSendBuffer(2*len(data)) == nil {
		err = c.sendTo(data)
	}
	switch {
	case errors.Is(err, unix.EMSGSIZE):
		return fmt.Errorf("send netlink message (%d bytes): %w: the socket's send buffer can't be made large enough; "+
			"raise net.core.wmem_max, or give the process CAP_NET_ADMIN on the host", len(data), err)
	case err != nil:
		return fmt.Errorf("send netlink message (%d bytes): %w", len(data), err)
	}
	return nil
}

func (c *Conn) sendTo(data []byte) error {
	return unix.Sendto(c.fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// growSendBuffer makes room for more than net.core.wmem_default. Without
// CAP_NET_ADMIN on the host, as in a user namespace, net.core.wmem_max is the
// limit, and what is above it is cut without an error.
func (c *Conn) growSendBuffer(size int) error {
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) == nil {
		return nil
	}
	return unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
}

func (c *Conn) read() ([]byte, error) {
	if c.buffer == nil {
		c.buffer = takeBuffer()
	}
	for {
		n, from, err := unix.Recvfrom(c.fd, c.buffer.bytes[:], 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fmt.Errorf("receive netlink message: %w", err)
		case !isKernel(from):
			// A process of the container with CAP_NET_ADMIN can send to a socket that was opened there.
		default:
			return c.buffer.bytes[:n], nil
		}
	}
}

// isKernel reports whether a message is the kernel's own (netlink(7)).
func isKernel(from unix.Sockaddr) bool {
	sa, ok := from.(*unix.SockaddrNetlink)
	return ok && sa.Pid == 0
}

// lastAnswered is the last message that the kernel answers even when all is
// well.
func (b *Batch) lastAnswered() int {
	for i := len(b.sent) - 1; i >= 0; i-- {
		if b.sent[i].ack {
			return i
		}
	}
	return len(b.sent) - 1
}

// expected tells whether an error is one that its message was sent with.
func (b *Batch) expected(m Message, err error) bool {
	errno := b.sent[m.Index].expect
	return errno != 0 && errors.Is(err, errno)
}

// failure turns an NLMSG_ERROR or NLMSG_DONE into an error, nil when all is
// well.
func (b *Batch) failure(m Message) error {
	if len(m.Payload) < 4 {
		return fmt.Errorf("%s: short answer from the kernel", b.sent[m.Index].op)
	}
	code := int32(binary.NativeEndian.Uint32(m.Payload))
	if code >= 0 {
		return nil
	}
	behind := 4 // the number; an error has the refused header behind it (NETLINK_CAP_ACK)
	if m.Type == unix.NLMSG_ERROR {
		behind += unix.SizeofNlMsghdr
	}
	return &Error{Op: b.sent[m.Index].op, Index: m.Index, Errno: unix.Errno(-code), Text: extendedText(m.Payload, behind)}
}

// extendedText finds the kernel's words in the attributes of an answer.
func extendedText(payload []byte, behind int) string {
	const nlmsgerrAttrMsg = 1
	if len(payload) <= behind {
		return ""
	}
	text := Attr(payload[behind:], nlmsgerrAttrMsg)
	return strings.TrimRight(string(text), "\x00")
}

// split takes the first message off data. Its Index is the raw sequence number.
func split(data []byte) (m Message, rest []byte, err error) {
	n := int(binary.NativeEndian.Uint32(data))
	if n < unix.SizeofNlMsghdr || n > len(data) {
		return m, nil, fmt.Errorf("receive netlink message: length %d in %d bytes", n, len(data))
	}
	m.Type = binary.NativeEndian.Uint16(data[4:])
	m.Flags = binary.NativeEndian.Uint16(data[6:])
	m.Index = int(binary.NativeEndian.Uint32(data[8:]))
	m.port = binary.NativeEndian.Uint32(data[12:])
	m.Payload = data[unix.SizeofNlMsghdr:n]
	return m, data[min(align(n), len(data)):], nil
}

// typeMask takes the flags (nested, byte order) off an attribute's type.
const typeMask = 0x3fff

// Attrs calls f for each attribute in data.
func Attrs(data []byte, f func(typ uint16, value []byte)) {
	for len(data) >= unix.SizeofNlAttr {
		n := int(binary.NativeEndian.Uint16(data))
		if n < unix.SizeofNlAttr || n > len(data) {
			return
		}
		f(binary.NativeEndian.Uint16(data[2:])&typeMask, data[unix.SizeofNlAttr:n])
		data = data[min(align(n), len(data)):]
	}
}

// Attr returns the value of the first attribute of a type, nil if there is none.
func Attr(data []byte, typ uint16) []byte {
	var found []byte
	Attrs(data, func(t uint16, value []byte) {
		if t == typ && found == nil {
			found = value
		}
	})
	return found
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
