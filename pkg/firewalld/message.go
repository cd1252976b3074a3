package firewalld

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Types of messages (D-Bus specification, "Message Format").
const (
	typeCall   = 1
	typeReturn = 2
	typeError  = 3
)

// Fields of a message's header.
const (
	fieldPath        = 1
	fieldInterface   = 2
	fieldMember      = 3
	fieldErrorName   = 4
	fieldReplySerial = 5
	fieldDestination = 6
	fieldSignature   = 8
)

// noAutoStart is the flag of a call that must not make the bus start the
// program that it is for.
const noAutoStart = 2

// call is a call of a method whose arguments are strings.
type call struct {
	destination, path, iface, member string
	args                             []string
}

// marshal returns the message, in little-endian form.
func (c call) marshal(serial uint32) []byte {
	e := &encoder{}
	signature := ""
	for _, arg := range c.args {
		e.str(arg)
		signature += "s"
	}
	body := e.bytes

	e = &encoder{bytes: []byte{'l', typeCall, noAutoStart, 1}}
	e.u32(uint32(len(body)))
	e.u32(serial)
	e.u32(0) // the length of the fields
	start := len(e.bytes)
	e.field(fieldPath, "o", c.path)
	e.field(fieldInterface, "s", c.iface)
	e.field(fieldMember, "s", c.member)
	e.field(fieldDestination, "s", c.destination)
	if signature != "" {
		e.field(fieldSignature, "g", signature)
	}
	binary.LittleEndian.PutUint32(e.bytes[start-4:], uint32(len(e.bytes)-start))
	e.pad(8)
	return append(e.bytes, body...)
}

// encoder appends values in D-Bus's form.
type encoder struct {
	bytes []byte
}

func (e *encoder) pad(n int) {
	for len(e.bytes)%n != 0 {
		e.bytes = append(e.bytes, 0)
	}
}

func (e *encoder) u32(v uint32) {
	e.pad(4)
	e.bytes = binary.LittleEndian.AppendUint32(e.bytes, v)
}

func (e *encoder) str(s string) {
	e.u32(uint32(len(s)))
	e.bytes = append(append(e.bytes, s...), 0)
}

func (e *encoder) signature(s string) {
	e.bytes = append(e.bytes, byte(len(s)))
	e.bytes = append(append(e.bytes, s...), 0)
}

// field appends a field of the header: its number and a variant.
func (e *encoder) field(number byte, typ, value string) {
	e.pad(8)
	e.bytes = append(e.bytes, number)
	e.signature(typ)
	if typ == "g" {
		e.signature(value)
		return
	}
	e.str(value)
}

// message is what came in.
type message struct {
	typ         byte
	replySerial uint32
	errorName   string
	signature   string
	body        decoder
}

// maxMessage bounds a message, in bytes. Answers are a word or a sentence.
const maxMessage = 64 << 10

// fixedHeader is the length of the part of the header that every message has,
// up to the length of the fields.
const fixedHeader = 16

var errMalformed = errors.New("malformed D-Bus message")

// readMessage reads one message.
func readMessage(r io.Reader) (message, error) {
	fixed := make([]byte, fixedHeader)
	if _, err := io.ReadFull(r, fixed); err != nil {
		return message{}, err
	}
	order, err := byteOrder(fixed[0])
	if err != nil {
		return message{}, err
	}
	body, fields := uint64(order.Uint32(fixed[4:])), uint64(order.Uint32(fixed[12:]))
	size := fixedHeader + (fields+7)&^7 + body
	if size > maxMessage {
		return message{}, fmt.Errorf("%w: %d bytes long", errMalformed, size)
	}
	data := make([]byte, size)
	copy(data, fixed)
	if _, err := io.ReadFull(r, data[fixedHeader:]); err != nil {
		return message{}, err
	}
	return parseMessage(data)
}

// parseMessage reads a whole message, whose lengths add up.
func parseMessage(data []byte) (m message, err error) {
	if len(data) < fixedHeader {
		return m, errMalformed
	}
	order, err := byteOrder(data[0])
	if err != nil {
		return m, err
	}
	m.typ = data[1]
	fields := uint64(order.Uint32(data[12:]))
	end := fixedHeader + (fields+7)&^7
	if fixedHeader+fields > uint64(len(data)) || end > uint64(len(data)) {
		return m, errMalformed
	}
	// Values are aligned to the start of the message; that of the body is a
	// multiple of 8.
	d := &decoder{order: order, data: data[:fixedHeader+fields], at: fixedHeader}
	for d.err == nil && d.at < len(d.data) {
		m.field(d)
	}
	m.body = decoder{order: order, data: data[end:]}
	return m, d.err
}

func byteOrder(mark byte) (binary.ByteOrder, error) {
	switch mark {
	case 'l':
		return binary.LittleEndian, nil
	case 'B':
		return binary.BigEndian, nil
	}
	return nil, errMalformed
}

// field reads one field of the header.
func (m *message) field(d *decoder) {
	d.align(8)
	number, typ := d.u8(), d.signature()
	switch {
	case number == fieldErrorName && typ == "s":
		m.errorName = d.str()
	case number == fieldReplySerial && typ == "u":
		m.replySerial = d.u32()
	case number == fieldSignature && typ == "g":
		m.signature = d.signature()
	default:
		d.skip(typ)
	}
}

// decoder reads values in D-Bus's form. After the first that is malformed it
// reads zeros.
type decoder struct {
	order binary.ByteOrder
	data  []byte
	at    int
	err   error
}

// take returns the next n bytes, nil if there are not that many.
func (d *decoder) take(n uint32) []byte {
	if d.err != nil || uint64(n) > uint64(len(d.data)-d.at) {
		d.err = errMalformed
		return nil
	}
	b := d.data[d.at : d.at+int(n)]
	d.at += int(n)
	return b
}

func (d *decoder) align(n int) {
	if rest := d.at % n; rest != 0 {
		d.take(uint32(n - rest))
	}
}

func (d *decoder) u8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	d.align(4)
	if b := d.take(4); b != nil {
		return d.order.Uint32(b)
	}
	return 0
}

func (d *decoder) str() string { return d.text(d.u32()) }

func (d *decoder) signature() string { return d.text(uint32(d.u8())) }

// text reads n bytes and the zero behind them.
func (d *decoder) text(n uint32) string {
	s := string(d.take(n))
	if d.u8() != 0 {
		d.err = errMalformed
	}
	return s
}

// skip reads a value that is not looked at. All that headers have are of these
// types.
func (d *decoder) skip(typ string) {
	switch typ {
	case "y":
		d.u8()
	case "s", "o":
		d.str()
	case "g":
		d.signature()
	case "u", "i", "b", "h":
		d.u32()
	default:
		d.err = errMalformed
	}
}
