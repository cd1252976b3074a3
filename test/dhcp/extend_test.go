package dhcp

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/cnibox/cnibox/test/netlab"
)

// holds fails the test unless CHECK finds that the pod holds its lease.
func holds(t testing.TB, host *netlab.Host, conflist string, pod *netlab.Pod) {
	t.Helper()
	if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err != nil {
		t.Error("CHECK:", err)
	}
}

// loses waits until the pod has no address, and CHECK says so.
func loses(t testing.TB, host *netlab.Host, conflist string, pod *netlab.Pod) {
	t.Helper()
	netlab.Until(t, "without the address", func() bool { return addresses(t, pod) == "" })
	if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err == nil {
		t.Error("CHECK succeeds without a lease")
	}
}

// TestRenewsByUnicast has the lease's server asked for more time at T1 by unicast, any server at T2 by broadcast, and the one that answers
// that by unicast again. Others on the segment, who send at the same time as the server, don't draw that to themselves.
func TestRenewsByUnicast(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	outside.MustRun(t, "ip", "link", "add", "other0", "link", netlab.UplinkName, "type", "macvlan", "mode", "bridge")
	outside.MustRun(t, "ip", "address", "add", "192.0.2.77/24", "dev", "other0")
	outside.MustRun(t, "ip", "link", "set", "other0", "up")
	other := listenOn(t, outside, "other0", 6700)
	defer other.Close()
	noise := func() {
		for range 80 {
			_, _ = other.WriteTo([]byte("not an answer"), toClients)
		}
	}
	var renewed, rebound, again atomic.Bool
	serveScript(t, outside, func(m message, send func([]byte)) {
		switch {
		case !m.extends():
			noise() // so that the answer waits to be read, and what comes after it
			send(lease(m, times(1, 3600, 7200)))
			noise()
		case !renewed.Load():
			if m.unicast {
				renewed.Store(true)
				send(lease(m, times(1, 4, 7200)))
			}
		case !rebound.Load():
			if !m.unicast {
				rebound.Store(true)
				send(lease(m, times(1, 3600, 7200)))
			}
		default:
			again.Store(m.unicast)
		}
	})
	host.StartDHCPDaemon(t)
	attach(t, host, network("macvlan", ipv4), "web")
	netlab.Until(t, "asked by unicast", renewed.Load)
	netlab.Until(t, "asked by broadcast", rebound.Load)
	netlab.Until(t, "asked by unicast again", again.Load)
}

// TestTriesAgain has a renewal that is not answered tried again long before T2, when half the time is over that is left of it.
func TestTriesAgain(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	s := serveScript(t, outside, func(m message, send func([]byte)) {
		if !m.extends() {
			send(lease(m, times(1, 41, 3600)))
		}
	})
	host.StartDHCPDaemon(t, "-timeout", "900ms")
	attach(t, host, network("macvlan", ipv4), "web")
	// What goes out within some seconds of the first REQUEST is that one, sent again.
	later := func(m message) bool { return m.extends() && m.NumSeconds >= 15 }
	if again := s.awaits(t, "asked again", 1, later)[0]; !again.unicast {
		t.Errorf("more time is asked for again by broadcast, %d s after the first REQUEST; want unicast, as before T2", again.NumSeconds)
	}
}

// TestSeconds is about how long a client says that it has asked: by this relays and servers see that it needs one.
func TestSeconds(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	var heard atomic.Int32
	s := serveScript(t, outside, func(m message, send func([]byte)) {
		if heard.Add(1) > 1 { // not the first DISCOVER
			send(lease(m))
		}
	})
	host.StartDHCPDaemon(t)
	begin := time.Now()
	attach(t, host, network("macvlan", ipv4), "web")
	discovers := s.got(message.discovers)
	request := s.got(message.selects)[0]
	most := discovers[0].at.Sub(begin)
	if a, b := discovers[0].NumSeconds, discovers[len(discovers)-1].NumSeconds; float64(a) > most.Seconds() || b <= a || request.NumSeconds != b {
		t.Errorf("the first and the last DISCOVER say %d and %d s, the REQUEST %d s; want %v at most, more, and the same", a, b, request.NumSeconds, most)
	}
}

// TestStoppedHalfWay ends an ADD that has not seen an answer to its REQUEST: the server may have given one, so the address is released.
func TestStoppedHalfWay(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	s := serveScript(t, outside, func(m message, send func([]byte)) {
		if m.discovers() {
			send(lease(m))
		}
	})
	host.StartDHCPDaemon(t)
	cmd := host.PluginCommand(t, "macvlan", host.NewPod(t, "web").Call("ADD",
		`{"cniVersion":"1.1.0","name":"lan","type":"macvlan","master":"uplink0","ipam":{"type":"dhcp"}}`))
	if err := host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	s.awaits(t, "a REQUEST", 1, message.selects)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	s.awaits(t, "released", 1, func(m message) bool {
		return m.MessageType() == dhcpv4.MessageTypeRelease && m.ClientIPAddr.Equal(leased4) && m.unicast
	})
}

// TestOptionsLeftOut is about a server that says less when it extends a lease: what it said before holds.
func TestOptionsLeftOut(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	s := serveScript(t, outside, func(m message, send func([]byte)) {
		if m.extends() {
			send(bare(m, times(1, 1800, 3600)))
		} else {
			send(lease(m, times(1, 1800, 3600)))
		}
	})
	host.StartDHCPDaemon(t)
	conflist := network("macvlan", ipv4)
	pod, _ := attach(t, host, conflist, "web")
	add := func() string {
		call := pod.Call("ADD", `{"cniVersion":"1.1.0","name":"lan","type":"dhcp","ipam":{"type":"dhcp"}}`)
		return host.Exec(t, "dhcp", call).Stdout
	}
	was := add()
	s.awaits(t, "extended, and asked again", 2, message.extends)
	holds(t, host, conflist, pod)
	if diff := cmp.Diff(was, add()); diff != "" || !strings.Contains(was, `"gw"`) || !strings.Contains(was, `"nameservers"`) {
		t.Errorf("the result was %s, and is another one: %s", was, diff)
	}
}

// TestTakenUpForNewTime has a daemon take up a lease that was extended, for its new time: the server is just asked for more.
func TestTakenUpForNewTime(t *testing.T) {
	t.Parallel()
	netlab.Need(t, netlab.TimeNamespace)
	host, outside := node(t, "macvlan")
	var seen atomic.Bool // the file of the first time
	s := serveScript(t, outside, func(m message, send func([]byte)) {
		if !m.extends() {
			send(lease(m, times(1, 50, 60)))
		} else if seen.Load() {
			send(lease(m))
		}
	})
	daemon := host.StartDHCPDaemon(t)
	conflist := network("macvlan", ipv4)
	pod, _ := attach(t, host, conflist, "web")
	file := func() string { return host.MustRun(t, "sh", "-c", "cat /run/cni/dhcp.leases/*.json") }
	was := file()
	seen.Store(true)
	netlab.Until(t, "the new time to be noted", func() bool { return file() != was })
	daemon.Stop(t, syscall.SIGKILL)
	asked := map[dhcpv4.TransactionID]bool{}
	for _, m := range s.got(message.extends) {
		asked[m.TransactionID] = true
	}
	host.StartDHCPDaemonUnder(t, []string{"unshare", "--time", "--boottime", "1800", "--kill-child"}) // the first time is over
	s.awaits(t, "taken up", 1, func(m message) bool { return (m.extends() || m.reboots()) && !asked[m.TransactionID] })
	if list := s.got(message.reboots); len(list) > 0 {
		t.Error("the daemon takes the lease for one whose time is over")
	}
	holds(t, host, conflist, pod)
}

// TestClockStep has the time of day set while no daemon runs, or the machine sleep: a lease ends when its time is over, and not sooner or
// later.
func TestClockStep(t *testing.T) {
	t.Parallel()
	netlab.Need(t, netlab.TimeNamespace)
	for name, c := range map[string]struct {
		clock int    // the seconds by which the time of day is set on
		slept string // the seconds that the machine has slept
		over  bool
	}{
		"a day forward":                            {clock: 86400, slept: "0"},
		"a day backward":                           {clock: -86400, slept: "0"},
		"a day backward, and the time is over":     {clock: -86400, slept: "3597", over: true},
		"none, and the time is over after a sleep": {slept: "3597", over: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, outside := node(t, "macvlan")
			var silent atomic.Bool
			s := serveScript(t, outside, func(m message, send func([]byte)) {
				if !silent.Load() {
					send(lease(m))
				}
			})
			daemon := host.StartDHCPDaemon(t)
			conflist := network("macvlan", ipv4)
			pod, _ := attach(t, host, conflist, "web")
			daemon.Stop(t, syscall.SIGTERM)
			silent.Store(true)
			// The clock of the machine can't be set here: the file is changed as if it had been set the other way before.
			editLeases(t, host, func(text string) string {
				return since.ReplaceAllStringFunc(text, func(is string) string {
					was, _ := strconv.Atoi(is[len(`"since":`):])
					return fmt.Sprintf(`"since":%d`, was-c.clock)
				})
			})
			host.StartDHCPDaemonUnder(t, []string{"unshare", "--time", "--boottime", c.slept, "--kill-child"}, "-timeout", "1s")
			if c.over {
				loses(t, host, conflist, pod)
				return
			}
			s.awaits(t, "taken up", 3, func(m message) bool { return m.MessageType() == dhcpv4.MessageTypeRequest })
			if list := s.got(message.reboots); len(list) > 0 {
				t.Error("the daemon takes the lease for one whose time is over")
			}
			holds(t, host, conflist, pod)
		})
	}
}

var since = regexp.MustCompile(`"since":\d+`)

// editLeases changes the files of leases.
func editLeases(t testing.TB, host *netlab.Host, edit func(text string) string) {
	t.Helper()
	host.Do(func() {
		paths, err := filepath.Glob("/run/cni/dhcp.leases/*.json")
		for _, path := range paths {
			var text []byte
			if text, err = os.ReadFile(path); err == nil {
				err = os.WriteFile(path, []byte(edit(string(text))), 0o600)
			}
		}
		if err != nil || len(paths) == 0 {
			t.Fatalf("%d leases: %v", len(paths), err)
		}
	})
}

// TestNextBoot starts the machine again: what looks like the container of a lease is another one, whose address stays, and the lease is
// released through the host's link.
func TestNextBoot(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	s := outside.ServeDNSMasq(t)
	daemon := host.StartDHCPDaemon(t)
	pod, _ := attach(t, host, network("macvlan", ipv4), "web")
	daemon.Stop(t, syscall.SIGKILL)
	host.MustRun(t, "sh", "-c", "echo 00000000-0000-4000-8000-000000000000 >/run/boot_id && mount --bind /run/boot_id /proc/sys/kernel/random/boot_id")
	was := addresses(t, pod)
	host.StartDHCPDaemon(t)
	netlab.Until(t, "released", func() bool { return s.Released() == 1 })
	netlab.Until(t, "forgotten", func() bool { return !strings.Contains(host.MustRun(t, "ls", "/run/cni/dhcp.leases"), ".json") })
	if diff := cmp.Diff(was, addresses(t, pod)); diff != "" {
		t.Error("the other container's addresses are changed:", diff)
	}
}
