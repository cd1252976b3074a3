// Package firewalld lets containers' packets pass a host whose packet filter is
// firewalld's: it makes their addresses sources of one of firewalld's zones, as
// the reference plugins do.
//
// firewalld is spoken to over D-Bus. The little of D-Bus that this takes is
// here because the field's client, github.com/godbus/dbus/v5, makes a process
// start 1.25 times as slowly as an empty one and 1.5 MB larger, and each call of
// each plugin would pay for that.
package firewalld

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// ErrNotRunning says that there is no firewalld on the system bus, or no bus.
var ErrNotRunning = errors.New("firewalld is not running")

// errConflict says that an address is a source of another zone.
var errConflict = errors.New("a source of another zone")

// firewalld's names on the bus.
const (
	busName       = "org.fedoraproject.FirewallD1"
	objectPath    = "/org/fedoraproject/FirewallD1"
	zoneInterface = "org.fedoraproject.FirewallD1.zone"
)

// Running tells whether there is a firewalld on the system bus. Without a bus
// there is none.
func Running(ctx context.Context) (bool, error) {
	b, err := dial(ctx)
	if errors.Is(err, errNoBus) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer b.close()
	return b.truth(busCall("NameHasOwner", busName))
}

// Client is a connection to firewalld. One goroutine at a time.
type Client struct {
	bus *bus
}

// Open connects to firewalld, until Close, the end of the context, or ten
// seconds have passed. The error is ErrNotRunning if there is none.
func Open(ctx context.Context) (*Client, error) {
	b, err := dial(ctx)
	if errors.Is(err, errNoBus) {
		return nil, fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	if err != nil {
		return nil, err
	}
	owned, err := b.truth(busCall("NameHasOwner", busName))
	if err == nil && !owned {
		err = ErrNotRunning
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return &Client{b}, nil
}

// Close closes the connection.
func (c *Client) Close() { c.bus.close() }

// AddSource makes packets from an address, such as 10.88.0.2/32, belong to a
// zone until firewalld is reloaded or restarted. That they do already is no
// error.
func (c *Client) AddSource(zone, addr string) error {
	_, err := c.bus.str(zoneCall("addSource", zone, addr))
	switch refusal(err) {
	case "":
		return c.failure(err, "add", zone, addr)
	case "ZONE_ALREADY_SET", "ALREADY_ENABLED":
		return nil
	case "ZONE_CONFLICT":
		return c.conflict(zone, addr)
	case "INVALID_ZONE":
		return plugin.ConfigError("name one that `firewall-cmd --get-zones` lists; one that was added with --permanent is there after `firewall-cmd --reload`",
			"firewalld has no zone %q", zone)
	}
	return c.failure(err, "add", zone, addr)
}

// conflictError is a types.Error that is errConflict too.
type conflictError struct {
	shown types.Error
	zone  string // that has the address
}

func (e *conflictError) Error() string   { return e.shown.Error() }
func (e *conflictError) Unwrap() []error { return []error{&e.shown, errConflict} }

func (c *Client) conflict(zone, addr string) error {
	other, err := c.ZoneOfSource(addr)
	if err != nil {
		return err
	}
	return &conflictError{
		shown: *plugin.Errorf(fmt.Sprintf("an address is in one zone at most: remove it from that one with `firewall-cmd --zone=%s --remove-source=%s` "+
			"(and the same with --permanent), or have the network use that zone", other, addr), "add %s to firewalld's zone %s: it is a source of zone %s", addr, zone, other),
		zone: other,
	}
}

// RemoveSource takes an address out of a zone. That it is not in it, or that
// there is no such zone, is no error.
func (c *Client) RemoveSource(zone, addr string) error {
	_, err := c.bus.str(zoneCall("removeSource", zone, addr))
	switch refusal(err) {
	case "UNKNOWN_SOURCE", "NOT_ENABLED", "ZONE_CONFLICT", "INVALID_ZONE":
		return nil
	}
	return c.failure(err, "remove", zone, addr)
}

// QuerySource tells whether an address is in a zone. In a zone that does not
// exist there is none.
func (c *Client) QuerySource(zone, addr string) (bool, error) {
	is, err := c.bus.truth(zoneCall("querySource", zone, addr))
	if refusal(err) == "INVALID_ZONE" {
		return false, nil
	}
	return is, c.failure(err, "look up", zone, addr)
}

// ZoneOfSource returns which zone an address is in, "" for none.
func (c *Client) ZoneOfSource(addr string) (string, error) {
	zone, err := c.bus.str(zoneCall("getZoneOfSource", addr))
	return zone, c.failure(err, "look up", "any", addr)
}

func zoneCall(member string, args ...string) call {
	return call{busName, objectPath, zoneInterface, member, args}
}

// refusal returns the code of an error of firewalld, which is the first word of
// its text: "INVALID_ZONE: nowhere".
func refusal(err error) string {
	var e *busError
	if !errors.As(err, &e) || !strings.HasPrefix(e.name, busName+".") {
		return ""
	}
	code, _, _ := strings.Cut(e.text, ":")
	return code
}

// failure says what a call was to do.
func (c *Client) failure(err error, what, zone, addr string) error {
	var e *busError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &e):
		return fmt.Errorf("%s %s in firewalld's zone %s: %w", what, addr, zone, err)
	case hasLeft(e.name):
		return fmt.Errorf("%w (any more): %w", ErrNotRunning, err)
	}
	return plugin.Errorf("see `firewall-cmd --state` and `journalctl -u firewalld`", "%s %s in firewalld's zone %s: %v", what, addr, zone, err)
}

// hasLeft tells whether the bus answered in firewalld's place.
func hasLeft(errorName string) bool {
	switch errorName {
	case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner", "org.freedesktop.DBus.Error.NoReply":
		return true
	}
	return false
}
