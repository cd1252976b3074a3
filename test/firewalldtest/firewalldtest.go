// Package firewalldtest runs a firewalld, with a D-Bus system bus for it, in a
// host of test/netlab.
package firewalldtest

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/cnibox/cnibox/test/netlab"
)

// Where the daemons of a host have their files.
const (
	socket  = "/run/dbus/system_bus_socket"
	address = "unix:path=" + socket
	config  = "/run/firewalld-config"
	log     = "/run/firewalld.log"
)

const (
	name   = "org.fedoraproject.FirewallD1"
	object = "/org/fedoraproject/FirewallD1"
)

// Daemon is a firewalld that runs in a host.
type Daemon struct {
	host *netlab.Host
	cmd  *exec.Cmd
}

// Start starts a system bus in the host, and firewalld with nftables or iptables
// as its backend. It waits until firewalld is ready, some tenths of a second.
func Start(t testing.TB, h *netlab.Host, backend string) *Daemon {
	t.Helper()
	for _, program := range []string{"firewalld", "dbus-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed: run make setup", program)
		}
	}
	netlab.Need(t, netlab.Users)
	h.MustRun(t, "cp", "-a", "/etc/firewalld", config)
	h.MustRun(t, "sed", "-i", "s/^FirewallBackend=.*/FirewallBackend="+backend+"/; s/^IPv6_rpfilter=.*/IPv6_rpfilter=no/", config+"/firewalld.conf")
	d := startBus(t, h)
	d.Run(t)
	return d
}

func startBus(t testing.TB, h *netlab.Host) *Daemon {
	t.Helper()
	netlab.Need(t, netlab.Users)
	h.MustRun(t, "mkdir", "-p", "/run/dbus")
	d := &Daemon{host: h}
	h.Background(t, h.Command("dbus-daemon", "--system", "--nofork", "--nopidfile", "--address="+address))
	d.await(t, "the bus", func() bool {
		_, err := d.call("org.freedesktop.DBus.Peer.Ping")
		return errors.As(err, &dbus.Error{}) // firewalld is not there yet
	})
	return d
}

// Bus gives the host a system bus that is served by a function, which has each connection until it returns.
func Bus(t testing.TB, h *netlab.Host, serve func(net.Conn)) {
	t.Helper()
	h.MustRun(t, "mkdir", "-p", "/run/dbus")
	var listener net.Listener
	var err error
	h.Do(func() { listener, err = net.Listen("unix", socket) })
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
}

// Refuse gives the host a firewalld that lets nobody change a zone, as it does with users who are not root.
func Refuse(t testing.TB, h *netlab.Host) {
	t.Helper()
	d := startBus(t, h)
	conn, err := d.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	refuse := func(_, _ string) (string, *dbus.Error) {
		return "", dbus.NewError(name+".NotAuthorizedException", []any{"Not Authorized: " + name + ".config"})
	}
	methods := map[string]any{
		"addSource": refuse, "removeSource": refuse, "getZoneOfSource": func(string) (string, *dbus.Error) { return "", nil },
	}
	if err := conn.ExportMethodTable(methods, object, name+".zone"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.RequestName(name, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
}

// Run starts firewalld again after Stop, and waits until it is ready.
func (d *Daemon) Run(t testing.TB) {
	t.Helper()
	d.cmd = d.host.Command("firewalld", "--nofork", "--nopid", "--system-config", config, "--log-target", "file", "--log-file", log)
	d.host.Background(t, d.cmd)
	d.await(t, "firewalld", func() bool { return d.state() == "RUNNING" })
}

// Stop kills firewalld. Its rules stay in the kernel.
func (d *Daemon) Stop(t testing.TB) {
	t.Helper()
	_ = d.cmd.Process.Kill()
	d.await(t, "the end of firewalld", func() bool { return d.state() == "" })
}

// Reload makes firewalld read its configuration again.
func (d *Daemon) Reload(t testing.TB) {
	t.Helper()
	d.mustCall(t, "reload")
}

// Sources returns the sources of a zone.
func (d *Daemon) Sources(t testing.TB, zone string) []string {
	t.Helper()
	sources := []string{}
	if err := d.mustCall(t, "zone.getSources", zone).Store(&sources); err != nil {
		t.Fatal("list the sources of zone ", zone, ": ", err)
	}
	return sources
}

// AddSource makes an address a source of a zone.
func (d *Daemon) AddSource(t testing.TB, zone, source string) {
	t.Helper()
	d.mustCall(t, "zone.addSource", zone, source)
}

func (d *Daemon) mustCall(t testing.TB, method string, args ...any) *dbus.Call {
	t.Helper()
	call, err := d.call(name+"."+method, args...)
	if err != nil {
		t.Fatal(method, ": ", err)
	}
	return call
}

func (d *Daemon) call(method string, args ...any) (call *dbus.Call, err error) {
	conn, err := d.connect()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	call = conn.Object(name, object).Call(method, dbus.FlagNoAutoStart, args...)
	return call, call.Err
}

func (d *Daemon) connect() (conn *dbus.Conn, err error) {
	d.host.Do(func() { conn, err = dbus.Connect(address) })
	return conn, err
}

func (d *Daemon) state() (state string) {
	if call, err := d.call("org.freedesktop.DBus.Properties.Get", name, "state"); err == nil {
		_ = call.Store(&state)
	}
	return state
}

func (d *Daemon) await(t testing.TB, what string, ready func() bool) {
	t.Helper()
	netlab.Eventually(t, func() error {
		if ready() {
			return nil
		}
		return fmt.Errorf("waited for %s: %s", what, d.host.MustRun(t, "sh", "-c", "cat "+log+" || true"))
	})
}
