// Package firewalld lets containers' packets pass a host whose packet filter is
// firewalld's: it makes their addresses sources of one of firewalld's zones, as
// the reference plugins do.
package firewalld

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// ErrNotRunning says that there is no firewalld on the system bus, or no bus.
var ErrNotRunning = errors.New("firewalld is not running")

const (
	busName    = "org.fedoraproject.FirewallD1"
	objectPath = "/org/fedoraproject/FirewallD1"

	// patience bounds the wait for one answer of the bus. A call takes some ten
	// milliseconds, and waits while firewalld serves others.
	patience = 10 * time.Second
)

// Running reports whether there is a firewalld on the system bus. Without a bus
// there is none.
func Running(ctx context.Context) (bool, error) {
	c, err := open(ctx)
	if errors.Is(err, ErrNotRunning) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.close()
	return true, nil
}

// client is a connection to firewalld, for one goroutine at a time.
type client struct {
	ctx    context.Context // its end ends the connection
	stop   func() bool
	socket net.Conn
	bus    *dbus.Conn
}

// open connects to firewalld until close. The error is ErrNotRunning if there
// is none.
func open(ctx context.Context) (*client, error) {
	socket, err := connect(ctx)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: no D-Bus system bus runs: %w", ErrNotRunning, err)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the D-Bus system bus: %w", err)
	}
	bus, err := dbus.NewConn(socket)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	c := &client{ctx, context.AfterFunc(ctx, func() { _ = socket.Close() }), socket, bus}
	running := false
	err = c.wait(func() error {
		if err := bus.Auth(nil); err != nil {
			return err
		}
		return bus.Hello()
	})
	if err != nil {
		err = fmt.Errorf("log in to the D-Bus system bus: %w", err)
	} else if err = c.call(bus.BusObject(), "org.freedesktop.DBus.NameHasOwner", &running, busName); err == nil && !running {
		err = ErrNotRunning
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// connect opens the system bus's socket, where every system has it or where it
// was before there was /run. While the bus's queue is full the kernel says EAGAIN.
func connect(ctx context.Context) (socket net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, path := range []string{"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket"} {
		socket, err = new(net.Dialer).DialContext(ctx, "unix", path)
		for errors.Is(err, unix.EAGAIN) && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			socket, err = new(net.Dialer).DialContext(ctx, "unix", path)
		}
		if !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return socket, err
}

func (c *client) close() {
	c.stop()
	_ = c.bus.Close()
}

// wait has f wait for answers no longer than patience, and says why it gave up
// if that is the context.
func (c *client) wait(f func() error) error {
	_ = c.socket.SetDeadline(time.Now().Add(patience))
	err := f()
	if cause := context.Cause(c.ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// call calls a method, for which the bus does not start firewalld, and stores
// what it returns.
func (c *client) call(object dbus.BusObject, method string, result any, args ...any) error {
	return c.wait(func() error { return object.Call(method, dbus.FlagNoAutoStart, args...).Store(result) })
}

// callZone calls a method of firewalld that is about zones. refusal is the code
// with which firewalld says no, such as INVALID_ZONE.
func (c *client) callZone(method string, args ...any) (result, refusal string, err error) {
	err = c.call(c.bus.Object(busName, objectPath), busName+".zone."+method, &result, args...)
	var answer dbus.Error
	if errors.As(err, &answer) && strings.HasPrefix(answer.Name, busName+".") {
		refusal, _, _ = strings.Cut(answer.Error(), ":")
	}
	return result, refusal, err
}

// addSource makes packets from an address belong to a zone until firewalld is
// reloaded or restarted. That they do already is no error.
func (c *client) addSource(zone string, addr netip.Addr) error {
	_, refusal, err := c.callZone("addSource", zone, source(addr))
	switch refusal {
	case "ZONE_ALREADY_SET", "ALREADY_ENABLED":
		return nil
	case "ZONE_CONFLICT":
		other, err := c.zoneOf(addr)
		if err != nil {
			return err
		}
		return plugin.Errorf(fmt.Sprintf("an address is in one zone at most: remove it from that one with `firewall-cmd --zone=%s --remove-source=%s` "+
			"(and the same with --permanent), or have the network use that zone", other, source(addr)), "add %s to firewalld's zone %s: it is a source of zone %s", source(addr), zone, other)
	case "INVALID_ZONE":
		return plugin.ConfigError("name one that `firewall-cmd --get-zones` lists; one that was added with --permanent is there after `firewall-cmd --reload`",
			"firewalld has no zone %q", zone)
	}
	return failure(err, "add", zone, addr)
}

// removeSource takes an address out of a zone. That it is not in it, or that
// there is no such zone, is no error; nor that there is no firewalld, for which
// c is nil: it has taken its sources with it.
func (c *client) removeSource(zone string, addr netip.Addr) error {
	if c == nil {
		return nil
	}
	_, refusal, err := c.callZone("removeSource", zone, source(addr))
	switch refusal {
	case "UNKNOWN_SOURCE", "NOT_ENABLED", "ZONE_CONFLICT", "INVALID_ZONE":
		return nil
	}
	if err = failure(err, "remove", zone, addr); errors.Is(err, ErrNotRunning) {
		return nil
	}
	return err
}

// zoneOf returns which zone an address is in, "" for none.
func (c *client) zoneOf(addr netip.Addr) (string, error) {
	zone, _, err := c.callZone("getZoneOfSource", source(addr))
	return zone, failure(err, "look up", "any", addr)
}

// source is how the reference plugins write an address, which firewalld keeps
// apart from the same one written differently.
func source(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

// failure says what a call was to do. Where the bus answers in firewalld's
// place, firewalld has gone meanwhile.
func failure(err error, what, zone string, addr netip.Addr) error {
	var answer dbus.Error
	if err == nil {
		return nil
	}
	if !errors.As(err, &answer) {
		return fmt.Errorf("%s %s in firewalld's zone %s: %w", what, source(addr), zone, err)
	}
	switch answer.Name {
	case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner", "org.freedesktop.DBus.Error.NoReply":
		return fmt.Errorf("%w (any more): %w", ErrNotRunning, err)
	}
	return plugin.Errorf("see `firewall-cmd --state` and `journalctl -u firewalld`", "%s %s in firewalld's zone %s: %v (%s)", what, source(addr), zone, err, answer.Name)
}
