package nftables

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// Set is a set, or a map if it has data.
type Set struct {
	Table Table
	Name  string
	Key   []Type
	Data  []Type

	// Expiring sets are those whose elements ExpireElements is for. Once a
	// second the kernel walks the set for what has expired, at 0.13 µs an
	// element, and frees it. (nft 1.0.6 does not load a map with another
	// interval.)
	Expiring bool
}

// Type is a data type of nft's (include/datatype.h there), by which it prints
// and reads elements: its number, its size in bytes and its byte order. The
// kernel keeps the number and does not look at it.
type Type uint32

// The types in use. nft knows byte orders 1 (the host's) and 2 (the network's).
const (
	TypeIPv4     Type = 7 | 4<<8 | 2<<24
	TypeIPv6     Type = 8 | 16<<8 | 2<<24
	TypeEther    Type = 9 | 6<<8 | 2<<24
	TypeProtocol Type = 12 | 1<<8 | 2<<24
	TypePort     Type = 13 | 2<<8 | 2<<24
	TypeMark     Type = 19 | 4<<8 | 1<<24
	TypeLink     Type = 41 | unix.IFNAMSIZ<<8 | 1<<24
)

func (t Type) number() uint32 { return uint32(t) & 0xff }
func (t Type) order() uint32  { return uint32(t) >> 24 }

// Size returns how many bytes a value has.
func (t Type) Size() int { return int(t >> 8 & 0xffff) }

// describe returns the number and length of a key or of data: of one type, or
// of several that follow one another, each aligned to a register.
func describe(types []Type) (number uint32, length int) {
	if len(types) == 1 {
		return types[0].number(), types[0].Size()
	}
	const bitsPerType = 6
	for _, t := range types {
		number = number<<bitsPerType | t.number()
		length += 4 * words(t.Size())
	}
	return number, length
}

// CreateSet creates a set; one that is there is EEXIST.
func (tx *Transaction) CreateSet(at Stage, s *Set) {
	tx.sets++
	id := tx.sets
	tx.add(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE|unix.NLM_F_EXCL, s.Table.Family, at, "create set "+s.Name, func(b *netlink.Batch) {
		b.String(unix.NFTA_SET_TABLE, s.Table.Name)
		b.String(unix.NFTA_SET_NAME, s.Name)
		flags := uint32(0)
		if s.Data != nil {
			flags = unix.NFT_SET_MAP
		}
		if s.Expiring {
			flags |= unix.NFT_SET_TIMEOUT
		}
		b.BE32(unix.NFTA_SET_FLAGS, flags)
		number, length := describe(s.Key)
		b.BE32(unix.NFTA_SET_KEY_TYPE, number)
		b.BE32(unix.NFTA_SET_KEY_LEN, uint32(length))
		if s.Data != nil {
			number, length := describe(s.Data)
			b.BE32(unix.NFTA_SET_DATA_TYPE, number)
			b.BE32(unix.NFTA_SET_DATA_LEN, uint32(length))
		}
		b.BE32(unix.NFTA_SET_ID, id)
		b.Bytes(unix.NFTA_SET_USERDATA, s.userData())
	})
}

// RemoveSet removes a set that no rule looks anything up in.
func (tx *Transaction) RemoveSet(at Stage, t Table, name string) {
	tx.add(unix.NFT_MSG_DELSET, 0, t.Family, at, "remove set "+name, func(b *netlink.Batch) {
		b.String(unix.NFTA_SET_TABLE, t.Name)
		b.String(unix.NFTA_SET_NAME, name)
	})
}

// RemoveEmptySet removes a set without elements. One that has any is EBUSY.
func (tx *Transaction) RemoveEmptySet(at Stage, s *Set) {
	tx.add(unix.NFT_MSG_DELSET, unix.NLM_F_NONREC, s.Table.Family, at, "remove empty set "+s.Name, func(b *netlink.Batch) {
		b.String(unix.NFTA_SET_TABLE, s.Table.Name)
		b.String(unix.NFTA_SET_NAME, s.Name)
	})
}

// HasSet tells whether a set is there. Unlike the other questions it fails if
// the kernel has no nf_tables.
func (c *Conn) HasSet(s *Set) (bool, error) {
	b := &netlink.Batch{}
	getSet(b, s)
	err := c.Do(b, nil)
	if notThere(err) {
		return false, nil
	}
	return err == nil, err
}

func getSet(b *netlink.Batch, s *Set) {
	get(b, s.Table.Family, unix.NFT_MSG_GETSET, unix.NLM_F_ACK, "look up "+s.Name, func() {
		b.String(unix.NFTA_SET_TABLE, s.Table.Name)
		b.String(unix.NFTA_SET_NAME, s.Name)
	})
}

// Sets lists the names of a table's sets that begin with prefix.
func (c *Conn) Sets(t Table, prefix string) ([]string, error) {
	var names []string
	err := c.dump(t.Family, unix.NFT_MSG_GETSET, "list the sets of table "+t.String(), func(b *netlink.Batch) {
		b.String(unix.NFTA_SET_TABLE, t.Name)
	}, func(m netlink.Message) {
		name := text(netlink.Attr(attributes(m), unix.NFTA_SET_NAME))
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	})
	return names, err
}

// userData tells nft in which order to print bytes (libnftnl's udata.h). A key
// or data of several types has no order of its own.
func (s *Set) userData() []byte {
	const keyByteOrder, dataByteOrder = 0, 1
	out := append([]byte{keyByteOrder, 4}, Native(orderOf(s.Key))...)
	if s.Data == nil {
		return out
	}
	return append(append(out, dataByteOrder, 4), Native(orderOf(s.Data))...)
}

func orderOf(types []Type) uint32 {
	if len(types) == 1 {
		return types[0].order()
	}
	return 0
}

// The parts of keys and data, each filled up to whole registers.

// Addr is an address, of TypeIPv4 or TypeIPv6.
func Addr(a netip.Addr) []byte { return a.AsSlice() }

// Ether is a MAC address.
func Ether(mac [6]byte) []byte { return append(mac[:], 0, 0) }

// Protocol is an IP protocol.
func Protocol(p uint8) []byte { return []byte{p, 0, 0, 0} }

// Port is a port of TCP, UDP or SCTP.
func Port(p uint16) []byte { return []byte{byte(p >> 8), byte(p), 0, 0} }

// Link is a link's name.
func Link(name string) []byte {
	var b [unix.IFNAMSIZ]byte
	copy(b[:], name)
	return b[:]
}

// Native is a number as it stands in a register of a packet's mark.
func Native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// Join puts parts behind one another.
func Join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
