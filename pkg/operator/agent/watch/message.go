package watch

import (
	"encoding/binary"
	"iter"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// message is one of netlink, with the number of who asked for what it tells: mostly that process's, 0 for the kernel itself.
type message struct {
	kind uint16
	from uint32
	data []byte
}

// messages returns the messages in what was read from a socket, up to one that is cut off.
func messages(b []byte) iter.Seq[message] {
	return func(yield func(message) bool) {
		for len(b) >= unix.NLMSG_HDRLEN {
			length := int(binary.NativeEndian.Uint32(b))
			if length < unix.NLMSG_HDRLEN || length > len(b) {
				return
			}
			m := message{binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[12:]), b[unix.NLMSG_HDRLEN:length]}
			if !yield(m) {
				return
			}
			b = b[min(aligned(length), len(b)):]
		}
	}
}

// attributes returns the attributes that follow a header of some bytes, up to one that is cut off.
func attributes(b []byte, header int) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for b := b[min(header, len(b)):]; len(b) >= unix.NLA_HDRLEN; {
			length := int(binary.NativeEndian.Uint16(b))
			if length < unix.NLA_HDRLEN || length > len(b) {
				return
			}
			number := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(number, b[unix.NLA_HDRLEN:length]) {
				return
			}
			b = b[min(aligned(length), len(b)):]
		}
	}
}

// attribute returns the value of one of them, nil if there is none.
func attribute(b []byte, header int, number uint16) []byte {
	for n, value := range attributes(b, header) {
		if n == number {
			return value
		}
	}
	return nil
}

// aligned returns the length with what fills it up to the next message or attribute.
func aligned(length int) int { return (length + 3) &^ 3 }

// number reads one of the host's byte order, 0 if there is none.
func number(b []byte) int32 {
	if len(b) < 4 {
		return 0
	}
	return int32(binary.NativeEndian.Uint32(b))
}

// text reads a text that ends in a zero.
func text(b []byte) string { return unix.ByteSliceToString(b) }

// harmless returns a name, which may be anybody's choice, without what would not be printed as it is.
func harmless(name string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsGraphic(c) || c == unicode.ReplacementChar {
			return '?'
		}
		return c
	}, name)
}
