package firewalld

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
)

var calls = map[string]call{
	"hello":  busCall("Hello"),
	"owner":  busCall("NameHasOwner", busName),
	"add":    zoneCall("addSource", "trusted", "10.88.0.2/32"),
	"remove": zoneCall("removeSource", "", "fd00::2/128"),
	"zone":   zoneCall("getZoneOfSource", "10.88.0.2/32"),
}

func TestMarshalBytes(t *testing.T) {
	const want = "6c01020100000000" + "01000000" + "6d000000" + // little-endian call, no body, serial 1, 109 bytes of fields
		"01016f0015000000" + "2f6f72672f667265656465736b746f702f4442757300" + "0000" + // /org/freedesktop/DBus
		"0201730014000000" + "6f72672e667265656465736b746f702e4442757300" + "000000" + // org.freedesktop.DBus
		"0301730005000000" + "48656c6c6f00" + "0000" + // Hello
		"0601730014000000" + "6f72672e667265656465736b746f702e4442757300" + "000000" // org.freedesktop.DBus
	if got := hex.EncodeToString(calls["hello"].marshal(1)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The fields of a header have no order, and the field's client puts them in a
// random one: what can be compared with its bytes is all the rest.
func TestMarshalLikeTheField(t *testing.T) {
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			theirs := &dbus.Message{
				Type: dbus.TypeMethodCall, Flags: dbus.FlagNoAutoStart,
				Headers: map[dbus.HeaderField]dbus.Variant{
					dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath(c.path)),
					dbus.FieldInterface:   dbus.MakeVariant(c.iface),
					dbus.FieldMember:      dbus.MakeVariant(c.member),
					dbus.FieldDestination: dbus.MakeVariant(c.destination),
				},
			}
			for _, arg := range c.args {
				theirs.Body = append(theirs.Body, arg)
			}
			if len(c.args) > 0 {
				theirs.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(theirs.Body...))
			}
			ours := c.marshal(7)
			decoded, err := dbus.DecodeMessage(bytes.NewReader(ours))
			if err != nil {
				t.Fatal(err)
			}
			if err := decoded.IsValid(); err != nil {
				t.Error(err)
			}
			if decoded.Serial() != 7 || decoded.Type != theirs.Type || decoded.Flags != theirs.Flags {
				t.Errorf("decoded as %v", decoded)
			}
			if diff := cmp.Diff(theirs.Headers, decoded.Headers, compareVariants); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(theirs.Body, decoded.Body); diff != "" {
				t.Error(diff)
			}
			body := encode(t, theirs, binary.LittleEndian)
			n := int(binary.LittleEndian.Uint32(body[4:]))
			if !bytes.Equal(ours[len(ours)-n:], body[len(body)-n:]) || !bytes.Equal(ours[4:8], body[4:8]) {
				t.Errorf("our body\n%x\ntheirs\n%x", ours[len(ours)-n:], body[len(body)-n:])
			}
		})
	}
}

var compareVariants = cmp.Comparer(func(a, b dbus.Variant) bool { return a.String() == b.String() })

func encode(t testing.TB, m *dbus.Message, order binary.ByteOrder) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.EncodeTo(&b, order); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// answers are messages that a bus sends.
func answers() map[string]*dbus.Message {
	headers := func(more map[dbus.HeaderField]any) map[dbus.HeaderField]dbus.Variant {
		list := map[dbus.HeaderField]dbus.Variant{
			dbus.FieldSender:      dbus.MakeVariant(":1.4711"),
			dbus.FieldDestination: dbus.MakeVariant(":1.5"),
		}
		for k, v := range more {
			list[k] = dbus.MakeVariant(v)
		}
		return list
	}
	str, truth := dbus.SignatureOf(""), dbus.SignatureOf(true)
	return map[string]*dbus.Message{
		"string": {Type: dbus.TypeMethodReply, Body: []any{"trusted"},
			Headers: headers(map[dbus.HeaderField]any{dbus.FieldReplySerial: uint32(7), dbus.FieldSignature: str})},
		"true": {Type: dbus.TypeMethodReply, Body: []any{true},
			Headers: headers(map[dbus.HeaderField]any{dbus.FieldReplySerial: uint32(7), dbus.FieldSignature: truth, dbus.FieldUnixFDs: uint32(0)})},
		"error": {Type: dbus.TypeError, Body: []any{"INVALID_ZONE: nowhere"},
			Headers: headers(map[dbus.HeaderField]any{dbus.FieldReplySerial: uint32(7), dbus.FieldSignature: str, dbus.FieldErrorName: "org.example.Exception"})},
		"signal": {Type: dbus.TypeSignal, Body: []any{":1.5"},
			Headers: headers(map[dbus.HeaderField]any{
				dbus.FieldPath: dbus.ObjectPath("/org/freedesktop/DBus"), dbus.FieldInterface: "org.freedesktop.DBus",
				dbus.FieldMember: "NameAcquired", dbus.FieldSignature: str})},
	}
}

func TestReadMessage(t *testing.T) {
	want := map[string]message{
		"string": {typ: typeReturn, replySerial: 7, signature: "s"},
		"true":   {typ: typeReturn, replySerial: 7, signature: "b"},
		"error":  {typ: typeError, replySerial: 7, signature: "s", errorName: "org.example.Exception"},
		"signal": {typ: 4, signature: "s"},
	}
	for name, m := range answers() {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			got, err := readMessage(bytes.NewReader(encode(t, m, order)))
			if err != nil {
				t.Errorf("%s, %v: %v", name, order, err)
				continue
			}
			w := want[name]
			if got.typ != w.typ || got.replySerial != w.replySerial || got.signature != w.signature || got.errorName != w.errorName {
				t.Errorf("%s, %v: got %+v, want %+v", name, order, got, w)
			}
			if w.signature == "b" {
				if got.body.u32() != 1 || got.body.err != nil {
					t.Errorf("%s, %v: body %x", name, order, got.body.data)
				}
			} else if s := got.body.str(); s != m.Body[0] || got.body.err != nil {
				t.Errorf("%s, %v: body %q, error %v", name, order, s, got.body.err)
			}
		}
	}
}

func TestReadMalformedMessage(t *testing.T) {
	good := encode(t, answers()["string"], binary.LittleEndian)
	set := func(at int, v uint32) []byte {
		data := bytes.Clone(good)
		binary.LittleEndian.PutUint32(data[at:], v)
		return data
	}
	tests := []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, io.EOF},
		{"half a header", good[:12], io.ErrUnexpectedEOF},
		{"half a message", good[:len(good)-1], io.ErrUnexpectedEOF},
		{"no byte order", append([]byte{'x'}, good[1:]...), errMalformed},
		{"a body too long", set(4, maxMessage), errMalformed},
		{"a body too long to count", set(4, 1<<32-1), errMalformed},
		{"fields too long to count", set(12, 1<<32-1), errMalformed},
		{"fields that end in the middle", set(12, 20), errMalformed},
	}
	for _, tt := range tests {
		if _, err := readMessage(bytes.NewReader(tt.data)); !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
	}
}

func FuzzReadMessage(f *testing.F) {
	for _, m := range answers() {
		f.Add(encode(f, m, binary.LittleEndian))
		f.Add(encode(f, m, binary.BigEndian))
	}
	for _, c := range calls {
		f.Add(c.marshal(7))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readMessage(bytes.NewReader(data))
		if err != nil {
			return
		}
		if len(m.errorName)+len(m.signature)+len(m.body.data) > min(len(data), maxMessage) {
			t.Errorf("%d bytes became %+v", len(data), m)
		}
		_ = m.body.str()
		_ = m.body.u32()
	})
}

func TestParseAddresses(t *testing.T) {
	tests := []struct{ text, want string }{
		{"unix:path=/run/dbus/system_bus_socket", "/run/dbus/system_bus_socket"},
		{"unix:path=/a,guid=0123;unix:abstract=/b;tcp:host=h,port=1;unix:runtime=yes", "/a @/b"},
		{"unix:guid=0123,path=/a%20b%2Cc", "/a b,c"},
		{"unix:path=/a%2;unix:path=/b%zz;unix:path=;unix:path=/c%00", ""},
		{"unixexec:path=/bin/sh", ""},
		{"", ""},
		{";;:", ""},
	}
	for _, tt := range tests {
		sockets, err := parseAddresses(tt.text)
		var names []string
		for _, s := range sockets {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %s, error %v; want %s", tt.text, got, err, tt.want)
		}
	}
}

func FuzzParseAddresses(f *testing.F) {
	f.Add("unix:path=/run/dbus/system_bus_socket")
	f.Add("unix:abstract=/a%20,guid=0;unix:path=%")
	f.Fuzz(func(t *testing.T, text string) {
		sockets, err := parseAddresses(text)
		if (len(sockets) == 0) != (err != nil) {
			t.Errorf("%d sockets, error %v", len(sockets), err)
		}
		for _, s := range sockets {
			if s.Name == "" || len(s.Name) > len(text)+1 || strings.ContainsRune(s.Name, 0) {
				t.Errorf("socket %q", s.Name)
			}
		}
	})
}
