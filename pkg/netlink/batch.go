package netlink

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Batch is a sequence of netlink messages that go to the kernel in one send.
// Messages are built in place: Begin, attributes, End.
type Batch struct {
	bytes []byte
	start int // of the message being built
	sent  []sent
	err   error // an attribute that is too long; Conn.Do returns it
}

// sent is what a batch remembers of a message to name it in an error.
type sent struct {
	typ    uint16
	ack    bool
	op     string
	expect unix.Errno // a refusal that is as good as done
}

// firstBytes and firstMessages are room for what a call usually sends, so that a
// batch does not grow step by step: each size that is allocated for the first
// time costs a process two page faults.
const firstBytes, firstMessages = 512, 8

// Begin starts a message. op says what it does, on what, for error messages:
// "create link veth0". NLM_F_REQUEST is added to the flags.
func (b *Batch) Begin(typ, flags uint16, op string) {
	if b.bytes == nil {
		b.bytes, b.sent = make([]byte, 0, firstBytes), make([]sent, 0, firstMessages)
	}
	b.start = len(b.bytes)
	b.sent = append(b.sent, sent{typ: typ, ack: flags&unix.NLM_F_ACK != 0, op: op})
	b.u32(0) // the length, set by End
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, typ)
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, flags|unix.NLM_F_REQUEST)
	b.u32(0) // the sequence number, which is the socket's
	b.u32(0)
}

// Expect makes a refusal of the last message by that error number no failure.
// Conn.Do hands it to its caller as a message of type NLMSG_ERROR.
func (b *Batch) Expect(errno unix.Errno) { b.sent[len(b.sent)-1].expect = errno }

// End finishes the message.
func (b *Batch) End() {
	binary.NativeEndian.PutUint32(b.bytes[b.start:], uint32(len(b.bytes)-b.start))
	b.pad()
}

// Ack makes the kernel acknowledge the last message.
func (b *Batch) Ack() {
	flags := b.bytes[b.start+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	b.sent[len(b.sent)-1].ack = true
}

// Len is the size of the batch in bytes.
func (b *Batch) Len() int { return len(b.bytes) }

// MessageLen is the size in bytes of the message being built.
func (b *Batch) MessageLen() int { return len(b.bytes) - b.start }

// Header appends a message's fixed header, such as struct ifinfomsg.
func (b *Batch) Header(raw ...byte) {
	b.bytes = append(b.bytes, raw...)
	b.pad()
}

// Bytes appends an attribute of raw bytes.
func (b *Batch) Bytes(typ uint16, value []byte) {
	b.attr(typ, len(value))
	b.bytes = append(b.bytes, value...)
	b.pad()
}

// String appends an attribute holding a zero-terminated string.
func (b *Batch) String(typ uint16, value string) {
	b.attr(typ, len(value)+1)
	b.bytes = append(b.bytes, value...)
	b.bytes = append(b.bytes, 0)
	b.pad()
}

// U8 appends an attribute of one byte.
func (b *Batch) U8(typ uint16, value uint8) {
	b.Bytes(typ, []byte{value})
}

// U16 appends a 16-bit attribute in the machine's byte order.
func (b *Batch) U16(typ uint16, value uint16) {
	b.Bytes(typ, binary.NativeEndian.AppendUint16(nil, value))
}

// U32 appends a 32-bit attribute in the machine's byte order.
func (b *Batch) U32(typ uint16, value uint32) {
	b.attr(typ, 4)
	b.u32(value)
}

// BE32 appends a 32-bit attribute in network byte order, as nfnetlink wants.
func (b *Batch) BE32(typ uint16, value uint32) {
	b.attr(typ, 4)
	b.bytes = binary.BigEndian.AppendUint32(b.bytes, value)
}

// BE64 appends a 64-bit attribute in network byte order.
func (b *Batch) BE64(typ uint16, value uint64) {
	b.attr(typ, 8)
	b.bytes = binary.BigEndian.AppendUint64(b.bytes, value)
}

// Addr appends an attribute of 4 or 16 bytes.
func (b *Batch) Addr(typ uint16, value netip.Addr) {
	b.Bytes(typ, value.AsSlice())
}

// maxAttr is the largest length that an attribute's header holds. The kernel
// would take what is above it for the next attribute, or drop it.
const maxAttr = 1<<16 - 1

// Nest appends an attribute whose attributes are what inside appends.
func (b *Batch) Nest(typ uint16, inside func()) {
	at := len(b.bytes)
	b.attr(typ|unix.NLA_F_NESTED, 0)
	inside()
	b.check(len(b.bytes) - at)
	binary.NativeEndian.PutUint16(b.bytes[at:], uint16(len(b.bytes)-at))
}

// attr appends an attribute's header; the length does not count padding.
func (b *Batch) attr(typ uint16, length int) {
	b.check(length + unix.SizeofNlAttr)
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, uint16(length+unix.SizeofNlAttr))
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, typ)
}

// check records an attribute that is too long for its header.
func (b *Batch) check(length int) {
	if length > maxAttr && b.err == nil {
		b.err = fmt.Errorf("%s: an attribute of %d bytes; netlink takes %d at most", b.sent[len(b.sent)-1].op, length, maxAttr)
	}
}

func (b *Batch) u32(v uint32) {
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, v)
}

func (b *Batch) pad() {
	for len(b.bytes)%unix.NLMSG_ALIGNTO != 0 {
		b.bytes = append(b.bytes, 0)
	}
}
