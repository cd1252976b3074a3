// Package firewalldtest runs a firewalld, with a D-Bus system bus for it, in a
// host of test/netlab.
package firewalldtest

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/cnibox/cnibox/test/netlab"
)

// Where the daemons of a host have their files.
const (
	address = "unix:path=/run/dbus/system_bus_socket"
	config  = "/run/firewalld-config"
	log     = "/run/firewalld.log"
)

const name = "org.fedoraproject.FirewallD1"

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
	h.MustRun(t, "mkdir", "-p", "/run/dbus")
	h.MustRun(t, "cp", "-a", "/etc/firewalld", config)
	h.MustRun(t, "sed", "-i", "s/^FirewallBackend=.*/FirewallBackend="+backend+"/; s/^IPv6_rpfilter=.*/IPv6_rpfilter=no/", config+"/firewalld.conf")
	d := &Daemon{host: h}
	h.Background(t, h.Command("dbus-daemon", "--system", "--nofork", "--nopidfile", "--address="+address))
	d.await(t, "the bus", func() bool {
		_, err := d.call("org.freedesktop.DBus.Peer.Ping")
		return errors.As(err, &dbus.Error{}) // firewalld is not there yet
	})
	d.Run(t)
	return d
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
	var conn *dbus.Conn
	d.host.Do(func() { conn, err = dbus.Connect(address) })
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	call = conn.Object(name, "/org/fedoraproject/FirewallD1").Call(method, dbus.FlagNoAutoStart, args...)
	return call, call.Err
}

func (d *Daemon) state() (state string) {
	if call, err := d.call("org.freedesktop.DBus.Properties.Get", name, "state"); err == nil {
		_ = call.Store(&state)
	}
	return state
}

func (d *Daemon) await(t testing.TB, what string, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ready() {
			return
		}
	}
	t.Fatalf("waited 2 minutes for %s: %s", what, d.host.MustRun(t, "sh", "-c", "cat "+log+" || true"))
}
