package netlink

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// twoMessages is a batch with an attribute of every kind.
func twoMessages() *Batch {
	b := &Batch{}
	b.Begin(unix.RTM_NEWLINK, unix.NLM_F_ACK|unix.NLM_F_CREATE, "first")
	b.Header(make([]byte, unix.SizeofIfInfomsg)...)
	b.String(unix.IFLA_IFNAME, "eth0")
	b.Bytes(unix.IFLA_ADDRESS, []byte{2, 0, 0, 0, 0, 1})
	b.U8(unix.IFLA_OPERSTATE, 6)
	b.U16(100, 0x0102)
	b.U32(unix.IFLA_MTU, 1500)
	b.BE32(101, 0x01020304)
	b.BE64(102, 0x0102030405060708)
	b.Addr(103, netip.MustParseAddr("10.0.0.1"))
	b.Addr(104, netip.MustParseAddr("fd00::1"))
	b.Nest(unix.IFLA_LINKINFO, func() {
		b.Bytes(unix.IFLA_INFO_KIND, []byte("veth"))
		b.Nest(unix.IFLA_INFO_DATA, func() {})
		b.U8(3, 1)
	})
	b.End()
	b.Begin(unix.RTM_GETLINK, 0, "second")
	b.Header(1, 2, 3)
	b.End()
	return b
}

func TestBatchIsReadByTheStandardLibrary(t *testing.T) {
	b := twoMessages()
	messages, err := syscall.ParseNetlinkMessage(b.bytes)
	if err != nil {
		t.Fatal(err)
	}
	if len(messages) != 2 {
		t.Fatalf("%d messages, want 2", len(messages))
	}
	first, second := messages[0], messages[1]
	if first.Header.Type != unix.RTM_NEWLINK || first.Header.Flags != unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE || first.Header.Pid != 0 {
		t.Errorf("first header %+v", first.Header)
	}
	if second.Header.Type != unix.RTM_GETLINK || second.Header.Flags != unix.NLM_F_REQUEST || second.Header.Len != unix.SizeofNlMsghdr+4 {
		t.Errorf("second header %+v", second.Header)
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(&first)
	if err != nil {
		t.Fatal(err)
	}
	u16 := binary.NativeEndian.AppendUint16(nil, 0x0102)
	mtu := binary.NativeEndian.AppendUint32(nil, 1500)
	want := []struct {
		typ   uint16
		value []byte
	}{
		{unix.IFLA_IFNAME, []byte("eth0\x00")},
		{unix.IFLA_ADDRESS, []byte{2, 0, 0, 0, 0, 1}},
		{unix.IFLA_OPERSTATE, []byte{6}},
		{100, u16},
		{unix.IFLA_MTU, mtu},
		{101, []byte{1, 2, 3, 4}},
		{102, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{103, []byte{10, 0, 0, 1}},
		{104, []byte{0xfd, 15: 1}},
		{unix.IFLA_LINKINFO | unix.NLA_F_NESTED, nil},
	}
	if len(attrs) != len(want) {
		t.Fatalf("%d attributes, want %d", len(attrs), len(want))
	}
	for i, w := range want {
		if attrs[i].Attr.Type != w.typ || w.value != nil && !bytes.Equal(attrs[i].Value, w.value) {
			t.Errorf("attribute %d is %+v, want %+v", i, attrs[i], w)
		}
	}
}

func TestNestIsReadByTheField(t *testing.T) {
	b := twoMessages()
	info := Attr(b.bytes[unix.SizeofNlMsghdr+unix.SizeofIfInfomsg:], unix.IFLA_LINKINFO)
	attrs, err := nl.ParseRouteAttr(info)
	if err != nil {
		t.Fatal(err)
	}
	if len(attrs) != 3 || string(attrs[0].Value) != "veth" ||
		attrs[1].Attr.Type != unix.IFLA_INFO_DATA|unix.NLA_F_NESTED || len(attrs[1].Value) != 0 ||
		attrs[2].Attr.Type != 3 || attrs[2].Value[0] != 1 {
		t.Errorf("nested attributes %+v", attrs)
	}
}

func TestBatchBytes(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes below are those of a little-endian machine")
	}
	b := &Batch{}
	b.Begin(0x10, unix.NLM_F_ACK, "op")
	b.Header(0xaa, 0xbb, 0xcc, 0xdd)
	b.String(3, "ab")
	b.Nest(18, func() { b.U8(1, 0xff) })
	if n := b.MessageLen(); n != 16+4+8+12 {
		t.Errorf("MessageLen = %d", n)
	}
	b.End()
	const want = "28000000" + "1000" + "0500" + "01000000" + "00000000" + // length, type, flags, number, port
		"aabbccdd" +
		"07000300" + "61620000" +
		"0c001280" + "05000100" + "ff000000"
	if got := hex.EncodeToString((&Conn{}).Number(b)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if b.Len() != len(want)/2 {
		t.Errorf("Len = %d", b.Len())
	}
}

func TestAttributeTooLongIsRefused(t *testing.T) {
	long := make([]byte, 40<<10)
	tests := map[string]func(b *Batch){
		"one":  func(b *Batch) { b.Bytes(1, make([]byte, 1<<16)) },
		"nest": func(b *Batch) { b.Nest(1, func() { b.Bytes(1, long); b.Bytes(2, long) }) },
	}
	for name, build := range tests {
		b := &Batch{}
		b.Begin(unix.RTM_NEWLINK, unix.NLM_F_ACK, "add 2000 elements")
		build(b)
		b.End()
		err := (&Conn{fd: -1}).Do(b, nil)
		if err == nil || !strings.Contains(err.Error(), "add 2000 elements: an attribute of ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestAttrsStopsAtBadLengths(t *testing.T) {
	good := []byte{8, 0, 1, 0, 1, 2, 3, 4}
	if binary.NativeEndian.Uint16(good) != 8 {
		t.Skip("the bytes here are those of a little-endian machine")
	}
	tests := []struct {
		name string
		data []byte
		want int
	}{
		{"none", nil, 0},
		{"one", good, 1},
		{"one and a rest too short for a header", append(bytes.Clone(good), 8, 0, 1), 1},
		{"length below that of the header", append(bytes.Clone(good), 3, 0, 1, 0), 1},
		{"length above what is there", append(bytes.Clone(good), 9, 0, 1, 0, 5, 6, 7, 8), 1},
		{"padding missing at the end", append(bytes.Clone(good), 5, 0, 1, 0, 9), 2},
		{"empty value", append(bytes.Clone(good), 4, 0, 1, 0), 2},
	}
	for _, tt := range tests {
		n := 0
		Attrs(tt.data, func(uint16, []byte) { n++ })
		if n != tt.want {
			t.Errorf("%s: %d attributes, want %d", tt.name, n, tt.want)
		}
	}
}

func TestAttrTellsEmptyFromMissing(t *testing.T) {
	b := &Batch{}
	b.Bytes(7|unix.NLA_F_NESTED, nil)
	b.U8(7, 1)
	if v := Attr(b.bytes, 7); v == nil || len(v) != 0 {
		t.Errorf("first of type 7: %v, want an empty one", v)
	}
	if v := Attr(b.bytes, 8); v != nil {
		t.Errorf("type 8: %v, want none", v)
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(twoMessages().bytes)
	f.Add([]byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		for len(data) >= unix.SizeofNlMsghdr {
			m, rest, err := split(data)
			if err != nil {
				return
			}
			if len(rest) >= len(data) {
				t.Fatal("no progress")
			}
			Attrs(m.Payload, func(_ uint16, v []byte) { Attrs(v, func(uint16, []byte) {}) })
			for i := range 24 {
				extendedText(m.Payload, i)
			}
			data = rest
		}
	})
}
