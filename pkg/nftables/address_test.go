package nftables

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// attribute is a netlink attribute.
func attribute(typ uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, typ), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func attribute32(typ uint16, value uint32) []byte {
	return attribute(typ, binary.BigEndian.AppendUint32(nil, value))
}

func attributeValue(typ uint16, value []byte) []byte {
	return attribute(typ, attribute(unix.NFTA_DATA_VALUE, value))
}

// read is an expression for an addressReader.
type read struct {
	name string
	data []byte
}

func loadField(offset, length uint32) read {
	return read{"payload", Join(
		attribute32(unix.NFTA_PAYLOAD_DREG, 1), attribute32(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER),
		attribute32(unix.NFTA_PAYLOAD_OFFSET, offset), attribute32(unix.NFTA_PAYLOAD_LEN, length))}
}

func compareField(op uint32, want []byte) read {
	return read{"cmp", Join(
		attribute32(unix.NFTA_CMP_SREG, 1), attribute32(unix.NFTA_CMP_OP, op), attributeValue(unix.NFTA_CMP_DATA, want))}
}

func constant(register uint32, value []byte) read {
	return read{"immediate", Join(attribute32(unix.NFTA_IMMEDIATE_DREG, register), attributeValue(unix.NFTA_IMMEDIATE_DATA, value))}
}

func translate(kind, register uint32) read {
	return read{"nat", Join(attribute32(unix.NFTA_NAT_TYPE, kind), attribute32(unix.NFTA_NAT_REG_ADDR_MIN, register))}
}

func TestAddresses(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("fd00::2")
	mask := read{"bitwise", attribute32(unix.NFTA_BITWISE_DREG, 1)}
	none := netip.Addr{}
	for _, tt := range []struct {
		name              string
		rule              []read
		destination, dnat netip.Addr
	}{
		{"destination 4", []read{loadField(16, 4), compareField(unix.NFT_CMP_EQ, v4.AsSlice())}, v4, none},
		{"destination 6", []read{loadField(24, 16), compareField(unix.NFT_CMP_EQ, v6.AsSlice())}, v6, none},
		{"source and destination 4 at once", []read{loadField(12, 8), compareField(unix.NFT_CMP_EQ, Join([]byte{127, 0, 0, 1}, v4.AsSlice()))}, v4, none},
		{"source 4", []read{loadField(12, 4), compareField(unix.NFT_CMP_EQ, v4.AsSlice())}, none, none},
		{"source 6", []read{loadField(8, 16), compareField(unix.NFT_CMP_EQ, v6.AsSlice())}, none, none},
		{"another destination", []read{loadField(16, 4), compareField(unix.NFT_CMP_NEQ, v4.AsSlice())}, none, none},
		{"a network", []read{loadField(16, 4), mask, compareField(unix.NFT_CMP_EQ, v4.AsSlice())}, none, none},
		{"a value too short", []read{loadField(16, 4), compareField(unix.NFT_CMP_EQ, []byte{10})}, none, none},
		{"DNAT 4", []read{constant(1, v4.AsSlice()), constant(2, []byte{0, 80}), translate(unix.NFT_NAT_DNAT, 1)}, none, v4},
		{"DNAT 6", []read{constant(1, v6.AsSlice()), translate(unix.NFT_NAT_DNAT, 1)}, none, v6},
		{"SNAT", []read{constant(1, v4.AsSlice()), translate(unix.NFT_NAT_SNAT, 1)}, none, none},
		{"DNAT by a map", []read{translate(unix.NFT_NAT_DNAT, 1)}, none, none},
		{"both", []read{loadField(16, 4), compareField(unix.NFT_CMP_EQ, v4.AsSlice()), constant(1, v4.Next().AsSlice()), translate(unix.NFT_NAT_DNAT, 1)}, v4, v4.Next()},
	} {
		var a addressReader
		for _, r := range tt.rule {
			a.read(r.name, r.data)
		}
		if a.destination != tt.destination || a.dnat != tt.dnat {
			t.Errorf("%s: destination %v, DNAT %v; want %v, %v", tt.name, a.destination, a.dnat, tt.destination, tt.dnat)
		}
	}
}

func FuzzAddressReader(f *testing.F) {
	f.Add(loadField(16, 4).data, compareField(unix.NFT_CMP_EQ, []byte{10, 88, 0, 2}).data, translate(unix.NFT_NAT_DNAT, 1).data)
	f.Add(loadField(1<<31, 1<<31).data, compareField(unix.NFT_CMP_EQ, nil).data, translate(unix.NFT_NAT_DNAT, 1).data)
	f.Fuzz(func(_ *testing.T, payload, cmp, nat []byte) {
		var a addressReader
		a.read("payload", payload)
		a.read("cmp", cmp)
		a.read("immediate", cmp)
		a.read("bitwise", payload)
		a.read("nat", nat)
	})
}
