// Package firewalldtest runs a firewalld, with a D-Bus system bus for it, in a
// host of test/netlab.
package firewalldtest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/cnibox/cnibox/test/netlab"
)

// Daemon is a firewalld that runs in a host.
type Daemon struct {
	host *netlab.Host
	stop func()
}

// Where the daemons of a host have their files.
const (
	address = "unix:path=/run/dbus/system_bus_socket"
	config  = "/run/firewalld-config"
	log     = "/run/firewalld.log"
)

// Need fails the test when firewalld or the bus is not installed.
func Need(t testing.TB) {
	t.Helper()
	for _, program := range []string{"firewalld", "dbus-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed: run make setup", program)
		}
	}
}

// StartBus starts a system bus in the host.
func StartBus(t testing.TB, h *netlab.Host) {
	t.Helper()
	StartBusAt(t, h, address)
}

// StartBusAt starts a system bus in the host at an address.
func StartBusAt(t testing.TB, h *netlab.Host, address string) {
	t.Helper()
	Need(t)
	h.MustRun(t, "mkdir", "-p", "/run/dbus")
	cmd := h.Command("dbus-daemon", "--system", "--nofork", "--nopidfile", "--address="+address)
	h.Background(t, cmd)
	await(t, "the bus", func() bool {
		conn, err := connect(h, address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, func() string { return "" })
}

// Start starts firewalld on the host's bus, with nftables or iptables as its
// backend, and waits until it is ready.
func Start(t testing.TB, h *netlab.Host, backend string) *Daemon {
	t.Helper()
	Need(t)
	h.MustRun(t, "cp", "-a", "/etc/firewalld", config)
	h.MustRun(t, "sed", "-i", "s/^FirewallBackend=.*/FirewallBackend="+backend+"/; s/^IPv6_rpfilter=.*/IPv6_rpfilter=no/", config+"/firewalld.conf")
	d := &Daemon{host: h}
	d.start(t)
	return d
}

func (d *Daemon) start(t testing.TB) {
	t.Helper()
	cmd := d.host.Command("firewalld", "--nofork", "--nopid", "--system-config", config, "--log-target", "file", "--log-file", log)
	if err := d.host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	d.stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		d.stop = func() {}
	}
	t.Cleanup(func() { d.stop() })
	await(t, "firewalld", func() bool { return d.state() == "RUNNING" }, d.log)
}

// Stop kills firewalld. Its rules stay in the kernel.
func (d *Daemon) Stop() { d.stop() }

// Restart kills firewalld and starts it anew.
func (d *Daemon) Restart(t testing.TB) {
	t.Helper()
	d.stop()
	d.start(t)
}

// Reload makes firewalld read its configuration again.
func (d *Daemon) Reload(t testing.TB) {
	t.Helper()
	d.call(t, "org.fedoraproject.FirewallD1.reload").done(t)
}

// Sources returns the sources of a zone.
func (d *Daemon) Sources(t testing.TB, zone string) []string {
	t.Helper()
	sources := []string{}
	a := d.call(t, "org.fedoraproject.FirewallD1.zone.getSources", zone)
	if err := a.Store(&sources); err != nil {
		t.Fatal("list the sources of zone ", zone, ": ", err)
	}
	return sources
}

// AddSource makes an address a source of a zone.
func (d *Daemon) AddSource(t testing.TB, zone, source string) {
	t.Helper()
	d.call(t, "org.fedoraproject.FirewallD1.zone.addSource", zone, source).done(t)
}

// answer is that of a call.
type answer struct{ *dbus.Call }

func (a answer) done(t testing.TB) {
	t.Helper()
	if a.Err != nil {
		t.Fatal(a.Method, ": ", a.Err)
	}
}

func (d *Daemon) call(t testing.TB, method string, args ...any) answer {
	t.Helper()
	conn, err := connect(d.host, address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return answer{object(conn).Call(method, 0, args...)}
}

func (d *Daemon) state() string {
	conn, err := connect(d.host, address)
	if err != nil {
		return ""
	}
	defer conn.Close()
	v, err := object(conn).GetProperty("org.fedoraproject.FirewallD1.state")
	if err != nil {
		return ""
	}
	state, _ := v.Value().(string)
	return state
}

func (d *Daemon) log() (text string) {
	d.host.Do(func() {
		content, _ := os.ReadFile(log)
		text = string(content)
	})
	return text
}

func object(conn *dbus.Conn) dbus.BusObject {
	return conn.Object("org.fedoraproject.FirewallD1", "/org/fedoraproject/FirewallD1")
}

// connect connects to a bus of the host.
func connect(h *netlab.Host, address string) (conn *dbus.Conn, err error) {
	h.Do(func() { conn, err = dbus.Connect(address) })
	return conn, err
}

// await waits for a daemon, some tenths of a second.
func await(t testing.TB, name string, ready func() bool, log func() string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ready() {
			return
		}
	}
	t.Fatalf("%s is not ready after 30 s: %s", name, log())
}
