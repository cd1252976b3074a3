// Package firewalld lets containers' packets pass a host whose packet filter is firewalld's: it makes their addresses sources of
// one of firewalld's zones, as the reference plugins do.
package firewalld

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// errNotRunning says that there is no firewalld on the system bus, or no bus.
var errNotRunning = errors.New("firewalld is not running")

// ErrRefused says that the bus, or firewalld, does not serve this user, such as one without root's rights.
var ErrRefused = errors.New("firewalld refuses this user")

// Where firewalld is.
const (
	BusAddress = "unix:path=/run/dbus/system_bus_socket" // whatever the environment of the runtime says
	BusName    = "org.fedoraproject.FirewallD1"
)

const (
	objectPath = "/org/fedoraproject/FirewallD1"

	// longestChange bounds a change, which waits while firewalld serves others. A question is answered at once, or by nobody: such as when
	// systemd holds the bus's socket and the bus is down.
	longestChange   = 10 * time.Second
	longestQuestion = 2 * time.Second
)

// withQuestionTime bounds a question.
func withQuestionTime(ctx context.Context) (context.Context, context.CancelFunc) {
	silent := plugin.CodeErrorf(types.ErrTryAgainLater, "see `systemctl status dbus firewalld`", "the D-Bus system bus, or firewalld, has not answered for %v", longestQuestion)
	return context.WithTimeoutCause(ctx, longestQuestion, silent)
}

// Running reports whether there is a firewalld on the system bus. Without a bus there is none.
func Running(ctx context.Context) (running bool, err error) {
	ctx, cancel := withQuestionTime(ctx)
	defer cancel()
	err = call(ctx, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.NameHasOwner", &running, BusName)
	if errors.Is(err, errNotRunning) {
		return false, nil
	}
	return running, err
}

// call calls a method of an object on the bus, for which the bus starts no program, and stores what it returns.
func call(ctx context.Context, name string, object dbus.ObjectPath, method string, result any, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, longestChange)
	defer cancel()
	bus, err := dbus.Connect(BusAddress, dbus.WithContext(ctx))
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: no D-Bus system bus runs: %w", errNotRunning, err)
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: log in to the D-Bus system bus: %w", ErrRefused, err)
	case err != nil:
		return fmt.Errorf("log in to the D-Bus system bus: %w", context.Cause(ctx))
	}
	defer bus.Close()
	return causeOf(ctx, bus.Object(name, object).CallWithContext(ctx, method, dbus.FlagNoAutoStart, args...).Store(result))
}

// causeOf returns why the context ended, if it has, in place of an error that came of it.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// ask calls a method of firewalld about an address in a zone; what is for the error. refusal is the code with which firewalld says
// no, such as INVALID_ZONE.
func ask(ctx context.Context, what, method string, zone Zone, addr netip.Addr, args ...any) (result, refusal string, err error) {
	err = call(ctx, BusName, objectPath, BusName+".zone."+method, &result, args...)
	if err == nil || errors.Is(err, errNotRunning) {
		return result, "", err
	}
	what = fmt.Sprintf("%s %s in firewalld's zone %s", what, source(addr), zone)
	var answer dbus.Error
	if !errors.As(err, &answer) {
		return "", "", fmt.Errorf("%s: %w", what, err)
	}
	switch answer.Name { // of the bus in firewalld's place
	case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner", "org.freedesktop.DBus.Error.NoReply":
		return "", "", fmt.Errorf("%w: %w", errNotRunning, err)
	case "org.freedesktop.DBus.Error.AccessDenied", BusName + ".NotAuthorizedException":
		return "", "", plugin.Errorf(`leave "backend" out, and nftables is taken`, "%s: %w: %w", what, ErrRefused, err)
	}
	if strings.HasPrefix(answer.Name, BusName+".") {
		refusal, _, _ = strings.Cut(answer.Error(), ":")
	}
	return "", refusal, plugin.Errorf("see `firewall-cmd --state` and `journalctl -u firewalld`", "%s: %v (%s)", what, err, answer.Name)
}

// addSource makes packets from an address belong to a zone until firewalld is reloaded or restarted. That they do already is no
// error.
func addSource(ctx context.Context, zone Zone, addr netip.Addr) error {
	_, refusal, err := ask(ctx, "add", "addSource", zone, addr, string(zone), source(addr))
	switch refusal {
	case "ZONE_ALREADY_SET", "ALREADY_ENABLED":
		return nil
	case "ZONE_CONFLICT":
		other, err := zoneOf(ctx, addr)
		if err != nil {
			return err
		}
		remedy := fmt.Sprintf("an address is in one zone at most: remove it from that one with `firewall-cmd --zone=%s --remove-source=%s` "+
			"(and the same with --permanent), or have the network use that zone", other, source(addr))
		return plugin.ConfigError(remedy, "add %s to firewalld's zone %s: it is a source of zone %s", source(addr), zone, other)
	case "INVALID_ZONE":
		const remedy = "name one that `firewall-cmd --get-zones` lists; one that was added with --permanent is there after `firewall-cmd --reload`"
		return plugin.ConfigError(remedy, "firewalld has no zone %q", zone)
	}
	return err
}

// removeSource takes an address out of a zone. That it is not in it, or that there is no such zone, is no error, also where firewalld
// refuses to remove; nor that there is no firewalld: it has taken its sources with it.
func removeSource(ctx context.Context, zone Zone, addr netip.Addr) error {
	_, refusal, err := ask(ctx, "remove", "removeSource", zone, addr, string(zone), source(addr))
	if slices.Contains([]string{"UNKNOWN_SOURCE", "NOT_ENABLED", "ZONE_CONFLICT", "INVALID_ZONE"}, refusal) || errors.Is(err, errNotRunning) {
		return nil
	}
	if errors.Is(err, ErrRefused) {
		if is, unknown := zoneOf(ctx, addr); unknown == nil && is != zone {
			return nil
		}
	}
	return err
}

// zoneOf returns which zone an address is in, "" for none.
func zoneOf(ctx context.Context, addr netip.Addr) (Zone, error) {
	ctx, cancel := withQuestionTime(ctx)
	defer cancel()
	zone, _, err := ask(ctx, "look up", "getZoneOfSource", "any", addr, source(addr))
	return Zone(zone), err
}

// source is how the reference plugins write an address, which firewalld keeps apart from the same one written differently.
func source(a netip.Addr) string { return result.Single(a).String() }
