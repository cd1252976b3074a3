package nft

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// set is a set, or a map if it has data.
type set struct {
	name string
	key  []dataType
	data []dataType
}

// dataType is a type of nft's (include/datatype.h there), by which it prints
// and reads elements. The kernel keeps the number and does not look at it.
type dataType struct {
	number uint32
	size   int // bytes
	order  byteOrder
}

type byteOrder uint32

// What nft calls the orders (include/datatype.h there).
const (
	hostOrder    byteOrder = 1
	networkOrder byteOrder = 2
)

var (
	typeIPv4     = dataType{7, 4, networkOrder}
	typeIPv6     = dataType{8, 16, networkOrder}
	typeProtocol = dataType{12, 1, networkOrder}
	typePort     = dataType{13, 2, networkOrder}
	typeMark     = dataType{19, 4, hostOrder}
	typeLink     = dataType{41, unix.IFNAMSIZ, hostOrder}
)

// describe returns the number and length of a key or of data: of one type, or
// of several that follow one another, each aligned to a register.
func describe(types []dataType) (number uint32, length int) {
	if len(types) == 1 {
		return types[0].number, types[0].size
	}
	const bitsPerType = 6
	for _, t := range types {
		number = number<<bitsPerType | t.number
		length += 4 * words(t.size)
	}
	return number, length
}

// appendTo adds the creation of the set to a transaction.
func (s *set) appendTo(tx *transaction, at stage) {
	tx.sets++
	id := tx.sets
	tx.add(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE|unix.NLM_F_EXCL, at, "create set "+s.name, func(b *netlink.Batch) {
		b.String(unix.NFTA_SET_TABLE, TableName)
		b.String(unix.NFTA_SET_NAME, s.name)
		flags := uint32(0)
		if s.data != nil {
			flags = unix.NFT_SET_MAP
		}
		b.BE32(unix.NFTA_SET_FLAGS, flags)
		number, length := describe(s.key)
		b.BE32(unix.NFTA_SET_KEY_TYPE, number)
		b.BE32(unix.NFTA_SET_KEY_LEN, uint32(length))
		if s.data != nil {
			number, length := describe(s.data)
			b.BE32(unix.NFTA_SET_DATA_TYPE, number)
			b.BE32(unix.NFTA_SET_DATA_LEN, uint32(length))
		}
		b.BE32(unix.NFTA_SET_ID, id)
		b.Bytes(unix.NFTA_SET_USERDATA, s.userData())
	})
}

// userData tells nft in which order to print bytes (libnftnl's udata.h). A key
// or data of several types has no order of its own.
func (s *set) userData() []byte {
	const keyByteOrder, dataByteOrder = 0, 1
	out := append([]byte{keyByteOrder, 4}, native(orderOf(s.key))...)
	if s.data == nil {
		return out
	}
	return append(append(out, dataByteOrder, 4), native(orderOf(s.data))...)
}

func orderOf(types []dataType) uint32 {
	if len(types) == 1 {
		return uint32(types[0].order)
	}
	return 0
}

// The parts of keys and data, each filled up to whole registers.

func addrPart(a netip.Addr) []byte { return a.AsSlice() }

func protocolPart(p uint8) []byte { return []byte{p, 0, 0, 0} }

func portPart(p uint16) []byte { return []byte{byte(p >> 8), byte(p), 0, 0} }

func linkPart(name string) []byte {
	var b [unix.IFNAMSIZ]byte
	copy(b[:], name)
	return b[:]
}

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
