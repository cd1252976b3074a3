package firewalld

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/godbus/dbus/v5"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// fakeBus makes a host, where a system bus hands each connection to serve.
func fakeBus(t *testing.T, serve func(net.Conn)) lab {
	t.Helper()
	h := netlab.NewHost(t)
	firewalldtest.Bus(t, h, serve)
	return lab{Host: h}
}

// logIn answers a client's login.
func logIn(conn net.Conn) *bufio.Reader {
	in := bufio.NewReader(conn)
	_, _ = in.ReadString('\n')
	_, _ = conn.Write([]byte("REJECTED EXTERNAL\r\n"))
	_, _ = in.ReadString('\n')
	_, _ = conn.Write([]byte("OK 0123456789abcdef\r\n"))
	_, _ = in.ReadString('\n') // NEGOTIATE_UNIX_FD
	_, _ = conn.Write([]byte("ERROR\r\n"))
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
			if n == 0 {
				reply = returns(":1.1")
			} else {
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

// The bus is where every system has it, whatever the runtime's environment says.
func TestBusThatMisbehaves(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus")
	for want, serve := range map[string]func(net.Conn){
		"log in to the D-Bus system bus: ": func(net.Conn) {}, // it hangs up
		"dbus.Store: type mismatch":        answering(func(string) *dbus.Message { return returns("yes") }),
		"not you":                          answering(func(string) *dbus.Message { return fails("org.freedesktop.DBus.Error.AccessDenied", "not you") }),
	} {
		l := fakeBus(t, serve)
		err := l.in(func() error { return Zone("trusted").Add(ctx, keyOf("web"), addresses("10.88.0.2")) })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
		l.wantRecorded(t, 0) // so that DEL does not ask it
	}
}

// A bus that is silent is waited for until the context ends, and nothing of the
// connection stays.
func TestSilentBus(t *testing.T) {
	silent := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	for name, serve := range map[string]func(net.Conn){
		"at login": silent, "at a call": answering(func(string) *dbus.Message { return nil }),
	} {
		t.Run(name, func(t *testing.T) {
			l := fakeBus(t, serve)
			before := runtime.NumGoroutine()
			gone := errors.New("the caller went home")
			const silence = 10 * time.Millisecond
			l.Do(func() {
				cancelled, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(silence, func() { cancel(gone) })
				if _, err := Running(cancelled); !errors.Is(err, gone) {
					t.Errorf("cancelled: error %v", err)
				}
				late, cancelLate := context.WithTimeout(ctx, silence)
				defer cancelLate()
				if _, err := Running(late); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("too late: error %v", err)
				}
			})
			netlab.Eventually(t, func() error {
				left := runtime.NumGoroutine()
				if left <= before {
					return nil
				}
				stacks := make([]byte, 1<<16)
				return fmt.Errorf("%d goroutines, before %d:\n%s", left, before, stacks[:runtime.Stack(stacks, true)])
			})
		})
	}
}

// Nobody waits for another one's answer, and what can't be removed is an error.
func TestSilentBusForMany(t *testing.T) {
	t.Parallel()
	var asking atomic.Int32
	isBeside := atomic.Bool{}
	l := fakeBus(t, func(c net.Conn) {
		if asking.Add(1) > 1 {
			isBeside.Store(true)
		}
		defer asking.Add(-1)
		_, _ = io.Copy(io.Discard, c)
	})
	l.record(t, holding{web, "trusted", keyOf("one")}, holding{web.Next(), "trusted", keyOf("two")})
	var wait sync.WaitGroup
	for _, name := range []string{"one", "two"} {
		wait.Go(func() {
			err := l.in(func() error { return Zone("trusted").Del(ctx, keyOf(name), nil) })
			wantError(t, err, types.ErrTryAgainLater, "has not answered", "systemctl status dbus")
		})
	}
	wait.Wait()
	if !isBeside.Load() {
		t.Error("one asked after the other")
	}
	l.wantRecorded(t, 2)
}

// Between two calls firewalld leaves, and takes its sources with it.
func TestFirewalldLeaves(t *testing.T) {
	t.Parallel()
	withFirewalld(t, fails("org.freedesktop.DBus.Error.ServiceUnknown", "The name is not provided by any .service files"), func() {
		_, queried := zoneOf(ctx, web)
		for _, err := range []error{addSource(ctx, "trusted", web), queried} {
			if !errors.Is(err, errNotRunning) {
				t.Errorf("error %v, want errNotRunning", err)
			}
		}
		if err := removeSource(ctx, "trusted", web); err != nil {
			t.Error(err)
		}
	})
}

// What firewalld says of itself is told.
func TestFirewalldFails(t *testing.T) {
	t.Parallel()
	withFirewalld(t, fails(BusName+".Exception", "COMMAND_FAILED: nft is on fire"), func() {
		wantError(t, addSource(ctx, "trusted", web), types.ErrInternal,
			"add 10.88.0.2/32 in firewalld's zone trusted: COMMAND_FAILED: nft is on fire (org.fedoraproject.FirewallD1.Exception)", "firewall-cmd --state")
		wantError(t, removeSource(ctx, "trusted", web), types.ErrInternal, "remove 10.88.0.2/32 in firewalld's zone trusted")
	})
}

var web = netip.MustParseAddr("10.88.0.2")

// withFirewalld calls f on a host with a firewalld that answers everything by
// one answer.
func withFirewalld(t *testing.T, answer *dbus.Message, f func()) {
	t.Helper()
	l := fakeBus(t, answering(func(member string) *dbus.Message {
		if member == "NameHasOwner" {
			return returns(true)
		}
		return answer
	}))
	l.Do(f)
}

// A firewalld that refuses: what it did not take is not written down, and what it does not let go stays so.
func TestFirewalldRefuses(t *testing.T) {
	t.Parallel()
	for zone, left := range map[string]int{"": 0, "trusted": 1} {
		l := fakeBus(t, answering(func(member string) *dbus.Message {
			switch member {
			case "NameHasOwner":
				return returns(true)
			case "getZoneOfSource":
				return returns(zone)
			}
			return fails(BusName+".NotAuthorizedException", "Not Authorized")
		}))
		err := l.in(func() error { return Zone("trusted").Add(ctx, keyOf("web"), addresses("10.88.0.2")) })
		if !errors.Is(err, ErrRefused) {
			t.Errorf("ADD: error %v", err)
		}
		l.wantRecorded(t, 0)
		l.record(t, holding{web, "trusted", keyOf("old")})
		err = l.in(func() error { return Zone("trusted").Del(ctx, keyOf("old"), nil) })
		if errors.Is(err, ErrRefused) != (zone == "trusted") {
			t.Errorf("DEL of what is in zone %q: error %v", zone, err)
		}
		l.wantRecorded(t, left)
	}
}
