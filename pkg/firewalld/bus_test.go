package firewalld

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/godbus/dbus/v5"

	"github.com/cnibox/cnibox/pkg/firewalld/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// fakeBus listens where the environment says that the system bus is, and hands
// each connection to serve.
func fakeBus(t *testing.T, serve func(net.Conn)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bus")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus;unix:path="+path)
}

// logIn answers a client's login.
func logIn(conn net.Conn) *bufio.Reader {
	in := bufio.NewReader(conn)
	_, _ = in.ReadString('\n')
	_, _ = conn.Write([]byte("OK 0123456789abcdef\r\n"))
	_, _ = in.ReadString('\n') // BEGIN
	return in
}

// answering is a bus that answers each call, but the first which is Hello, by
// what answer returns.
func answering(answer func(member string) *dbus.Message) func(net.Conn) {
	return func(conn net.Conn) {
		in := logIn(conn)
		for n := 0; ; n++ {
			asked, err := dbus.DecodeMessage(in)
			if err != nil {
				return
			}
			reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{}}
			if n > 0 {
				reply = answer(asked.Headers[dbus.FieldMember].Value().(string))
			}
			if reply == nil {
				continue
			}
			reply.Headers[dbus.FieldReplySerial] = dbus.MakeVariant(asked.Serial())
			if len(reply.Body) > 0 {
				reply.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(reply.Body...))
			}
			if reply.EncodeTo(conn, binary.BigEndian) != nil {
				return
			}
		}
	}
}

func returns(values ...any) *dbus.Message {
	return &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{}, Body: values}
}

func fails(name string, values ...any) *dbus.Message {
	m := returns(values...)
	m.Type = dbus.TypeError
	m.Headers[dbus.FieldErrorName] = dbus.MakeVariant(name)
	return m
}

func TestBusThatMisbehaves(t *testing.T) {
	tests := []struct {
		name  string
		serve func(net.Conn)
		want  string
	}{
		{"hangs up at once", func(net.Conn) {}, "log in to the D-Bus system bus: "},
		{"refuses the user", func(c net.Conn) {
			_, _ = bufio.NewReader(c).ReadString('\n')
			_, _ = c.Write([]byte("REJECTED ANONYMOUS\r\n"))
		}, `user 0 is refused: "REJECTED ANONYMOUS"`},
		{"never ends its line", func(c net.Conn) {
			_, _ = bufio.NewReader(c).ReadString('\n')
			_, _ = c.Write([]byte(strings.Repeat("x", 2*maxLine)))
		}, "a line of more than 1024 bytes"},
		{"answers with a huge message", func(c net.Conn) {
			_, _ = logIn(c), binary.Write(c, binary.LittleEndian, []byte("l\x02\x01\x01\xff\xff\xff\x07\x01\x00\x00\x00\x00\x00\x00\x00"))
			_, _ = c.Read(make([]byte, 1))
		}, "malformed D-Bus message: 134217743 bytes long"},
		{"answers with another type", answering(func(string) *dbus.Message { return returns("yes") }), `malformed D-Bus message: returns "s"`},
		{"answers with nothing", answering(func(string) *dbus.Message { return returns() }), `malformed D-Bus message: returns ""`},
		{"denies", answering(func(string) *dbus.Message { return fails("org.freedesktop.DBus.Error.AccessDenied", "not you") }),
			"not you (org.freedesktop.DBus.Error.AccessDenied)"},
		{"denies without a word", answering(func(string) *dbus.Message { return fails("org.example.No") }), "org.example.No"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fakeBus(t, tt.serve)
			_, err := Running(ctx)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

// A bus that is silent is waited for until the context ends.
func TestSilentBus(t *testing.T) {
	silent := func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<10)); _, _ = c.Read(make([]byte, 1)) }
	for name, serve := range map[string]func(net.Conn){
		"at login": silent, "at a call": answering(func(string) *dbus.Message { return nil }),
	} {
		t.Run(name, func(t *testing.T) {
			fakeBus(t, serve)
			gone := errors.New("the caller went home")
			cancelled, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(10*time.Millisecond, func() { cancel(gone) })
			if _, err := Running(cancelled); !errors.Is(err, gone) {
				t.Errorf("cancelled: error %v", err)
			}
			if _, err := Running(cancelled); !errors.Is(err, gone) {
				t.Errorf("cancelled before: error %v", err)
			}
			late, cancelLate := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancelLate()
			if _, err := Running(late); !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "no answer in time") {
				t.Errorf("too late: error %v", err)
			}
		})
	}
}

// A firewalld that leaves between two calls.
func TestFirewalldLeaves(t *testing.T) {
	fakeBus(t, answering(func(member string) *dbus.Message {
		if member == "NameHasOwner" {
			return returns(true)
		}
		return fails("org.freedesktop.DBus.Error.ServiceUnknown", "The name is not provided by any .service files")
	}))
	c, err := Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, queried := c.QuerySource("trusted", "10.88.0.2/32")
	for _, err := range []error{c.AddSource("trusted", "10.88.0.2/32"), c.RemoveSource("trusted", "10.88.0.2/32"), queried} {
		if !errors.Is(err, ErrNotRunning) {
			t.Errorf("error %v, want ErrNotRunning", err)
		}
	}
}

// What firewalld says of itself is told.
func TestFirewalldFails(t *testing.T) {
	fakeBus(t, answering(func(member string) *dbus.Message {
		if member == "NameHasOwner" {
			return returns(true)
		}
		return fails(busName+".Exception", "COMMAND_FAILED: nft is on fire")
	}))
	c, err := Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wantError(t, c.AddSource("trusted", "10.88.0.2/32"), types.ErrInternal, "add 10.88.0.2/32 in firewalld's zone trusted: COMMAND_FAILED: nft is on fire", "firewall-cmd --state")
	wantError(t, c.RemoveSource("trusted", "10.88.0.2/32"), types.ErrInternal, "remove 10.88.0.2/32 in firewalld's zone trusted")
}

func TestNoSuchBus(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "tcp:host=localhost,port=1")
	if _, err := Running(ctx); err == nil || !strings.Contains(err.Error(), `no address of a unix socket in DBUS_SYSTEM_BUS_ADDRESS="tcp:host=localhost,port=1"`) {
		t.Errorf("error %v", err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:abstract=/cnibox/no/bus")
	if is, err := Running(ctx); is || err != nil {
		t.Errorf("%v, error %v, want that it does not run", is, err)
	}
}

// A bus that listens at an abstract address, which belongs to a network
// namespace.
func TestAbstractAddress(t *testing.T) {
	h := netlab.NewHost(t)
	firewalldtest.StartBusAt(t, h, "unix:abstract=/cnibox/bus")
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:abstract=%2fcnibox/bus")
	h.Do(func() {
		if is, err := Running(ctx); is || err != nil {
			t.Errorf("%v, error %v, want that it does not run", is, err)
		}
	})
}
