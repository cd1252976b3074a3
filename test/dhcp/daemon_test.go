package dhcp

import (
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/cnibox/cnibox/test/netlab"
)

var leasesFlag = flag.Int("leases", 50, "how many leases TestKilled holds")

// TestKilled kills the daemon, whose successors take up all leases, and release those whose containers were deleted meanwhile.
func TestKilled(t *testing.T) {
	t.Parallel()
	const conflist = `{"cniVersion":"1.1.0","name":"lan","plugins":[{"type":"macvlan","master":"uplink0","ipam":{"type":"dhcp"}}]}`
	leases, deleted := *leasesFlag, *leasesFlag*2/5
	host, outside := node(t, "macvlan")
	outside.MustRun(t, "ip", "address", "add", "10.60.0.1/16", "dev", "uplink0")
	s := outside.ServeDNSMasq(t, "--dhcp-range=10.60.1.1,10.60.200.254,255.255.0.0,1h", "--dhcp-lease-max=10000")
	daemon := host.StartDHCPDaemon(t)
	pods := make([]*netlab.Pod, leases)
	inParallel(leases, func(i int) { pods[i], _ = attach(t, host, conflist, fmt.Sprint("pod", i)) })
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d leases: the daemon has %d KiB of memory, %d threads", leases, daemon.Memory()>>10, daemon.Threads())

	daemon.Stop(t, syscall.SIGKILL)
	before := s.Extended()
	daemon = host.StartDHCPDaemon(t)
	netlab.Until(t, "all taken up", func() bool { return s.Extended()-before >= leases })
	t.Logf("killed and started again: %d of %d leases were extended", s.Extended()-before, leases)

	daemon.Stop(t, syscall.SIGKILL)
	inParallel(deleted, func(i int) {
		if err := host.DelList(conflist, pods[i].RuntimeConf(nil)); err != nil {
			t.Error("DEL:", err)
		}
		pods[i].Delete(t)
	})
	before = s.Extended()
	daemon = host.StartDHCPDaemon(t)
	netlab.Until(t, "all taken up or released", func() bool { return s.Released() >= deleted && s.Extended()-before >= leases-deleted })
	t.Logf("killed, %d of them deleted, and started again: %d were released, %d extended", deleted, s.Released(), s.Extended()-before)
	for _, pod := range pods[deleted:] {
		if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err != nil {
			t.Error("CHECK:", err)
		}
	}
	t.Logf("then the daemon has %d KiB of memory, %d threads", daemon.Memory()>>10, daemon.Threads())
}

// inParallel calls f for 0 to n-1, some at a time.
func inParallel(n int, f func(i int)) {
	const atOnce = 8
	next := make(chan int)
	var wait sync.WaitGroup
	for range atOnce {
		wait.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
}

// TestTakenUp6 has a daemon take up a lease of an IPv6 address.
func TestTakenUp6(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	s := outside.ServeDNSMasq(t)
	daemon := host.StartDHCPDaemon(t)
	conflist := network("macvlan", ipv6)
	pod, _ := attach(t, host, conflist, "web")
	daemon.Stop(t, syscall.SIGKILL)
	host.StartDHCPDaemon(t)
	netlab.Until(t, "confirmed", func() bool { return strings.Contains(s.Log(), "DHCPCONFIRM") })
	if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err != nil {
		t.Error("CHECK:", err)
	}
}

// TestExpired stops the server: when the lease's time is over the container must not use the address any more.
func TestExpired(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "bridge")
	s := outside.ServeISC(t, seconds)
	daemon := host.StartDHCPDaemon(t)
	conflist := network("bridge", both)
	pod, result := attach(t, host, conflist, "web")
	s.Stop(t)
	netlab.Until(t, "without addresses", func() bool { return addresses(t, pod) == "" })
	if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err == nil {
		t.Error("CHECK succeeds without a lease")
	}
	if err := host.DelList(conflist, pod.RuntimeConf(nil)); err != nil {
		t.Error("DEL:", err)
	}
	if !strings.Contains(daemon.Log(), result.IPs[0].Address.IP.String()+" was lost") {
		t.Error("the daemon does not log it:", daemon.Log())
	}
}

// TestRefused has the server refuse to extend a lease, since its configuration changed.
func TestRefused(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	s := outside.ServeDNSMasq(t, "--dhcp-range=192.0.2.50,192.0.2.50,255.255.255.0,1h", "--dhcp-option=option:T1,5", "--dhcp-option=option:T2,15")
	host.StartDHCPDaemon(t)
	conflist := network("macvlan", ipv4)
	pod, _ := attach(t, host, conflist, "web")
	s.Stop(t)
	outside.ServeDNSMasq(t, "--dhcp-range=192.0.2.60,192.0.2.60,255.255.255.0,1h")
	netlab.Until(t, "without the address", func() bool { return addresses(t, pod) == "" })
	if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err == nil {
		t.Error("CHECK succeeds without a lease")
	}
}

// TestForgotten has a server forget the lease: the same address is got again.
func TestForgotten(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	s := outside.ServeDNSMasq(t, "--dhcp-option=option:T1,5", "--dhcp-option=option:T2,15")
	host.StartDHCPDaemon(t)
	conflist := network("macvlan", ipv4)
	pod, _ := attach(t, host, conflist, "web")
	was := addresses(t, pod)
	s.Stop(t)
	s = outside.ServeDNSMasq(t)
	netlab.Until(t, "leased again", func() bool { return s.Extended() >= 1 })
	if is := addresses(t, pod); is != was {
		t.Errorf("the addresses were\n%sand are\n%s", was, is)
	}
	if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err != nil {
		t.Error("CHECK:", err)
	}
}

// TestInterfaceGone has CHECK answer, and ADD get another lease, when the interface of a lease is gone.
func TestInterfaceGone(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	outside.ServeDNSMasq(t)
	host.StartDHCPDaemon(t)
	conflist := network("macvlan", ipv4)
	pod, _ := attach(t, host, conflist, "web")
	pod.MustRun(t, "ip", "link", "del", "eth0")
	if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err == nil || !strings.Contains(err.Error(), "eth0 is not in the container") {
		t.Errorf("CHECK says %v, want that the interface is not there", err)
	}
	if _, err := host.AddList(conflist, pod.RuntimeConf(nil)); err != nil {
		t.Error("ADD again:", err)
	}
	if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err != nil {
		t.Error("CHECK of the new one:", err)
	}
}

// TestCancelled ends an ADD that has one address and waits for another: the first is released.
func TestCancelled(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			host, outside := node(t, "macvlan")
			s := outside.ServeDNSMasq(t, "--dhcp-range=192.0.2.50,192.0.2.150,255.255.255.0,1h")
			silent := serveScript6(t, outside, func(message6, int) bool { return true })
			host.StartDHCPDaemon(t)
			pod := host.NewPod(t, "web")
			call := pod.Call("ADD", `{"cniVersion":"1.1.0","name":"lan","type":"macvlan","master":"uplink0",
				"ipam":{"type":"dhcp","families":["ipv4","ipv6"]}}`)
			call.Path = netlab.PluginDir
			cmd := host.PluginCommand(t, "macvlan", call)
			if err := host.Start(cmd); err != nil {
				t.Fatal(err)
			}
			netlab.Until(t, "an address of the other family to be asked for", func() bool { return len(silent.got(dhcpv6.MessageTypeSolicit)) > 0 })
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			netlab.Until(t, "released", func() bool { return s.Released() == 1 })
		})
	}
}

// TestSocketActivation passes the daemon a socket as systemd does, at a path of its own.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	outside.ServeDNSMasq(t)
	var socket *os.File
	host.Do(func() {
		listener, err := net.Listen("unix", "/run/other.sock")
		if err == nil {
			listener.(*net.UnixListener).SetUnlinkOnClose(false)
			socket, err = listener.(*net.UnixListener).File()
			listener.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	defer socket.Close()
	cmd := host.Command("sh", "-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec "+netlab.PluginDir+"/dhcp daemon")
	cmd.ExtraFiles = []*os.File{socket}
	host.Background(t, cmd)
	conflist := strings.Replace(network("macvlan", ipv4), `"families"`, `"daemonSocketPath":"/run/other.sock","families"`, 1)
	attach(t, host, conflist, "web")
	if files := host.MustRun(t, "ls", "/run/other.leases"); !strings.Contains(files, ".json") {
		t.Errorf("there is no lease beside the socket: %s", files)
	}
}

// TestUnfinishedRelease leaves what a daemon leaves that is killed on the way to forget a lease: it does not end a later one.
func TestUnfinishedRelease(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	s := outside.ServeDNSMasq(t)
	daemon := host.StartDHCPDaemon(t)
	conflist := network("macvlan", ipv4)
	pod, _ := attach(t, host, conflist, "web")
	file := strings.TrimSpace(host.MustRun(t, "sh", "-c", "echo /run/cni/dhcp.leases/*.json"))
	if err := host.DelList(conflist, pod.RuntimeConf(nil)); err != nil {
		t.Fatal("DEL:", err)
	}
	host.MustRun(t, "touch", strings.TrimSuffix(file, ".json")+".release")
	if _, err := host.AddList(conflist, pod.RuntimeConf(nil)); err != nil {
		t.Fatal("ADD:", err)
	}
	daemon.Stop(t, syscall.SIGKILL)
	before := s.Extended()
	host.StartDHCPDaemon(t)
	netlab.Until(t, "taken up", func() bool { return s.Extended() > before })
	if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err != nil || s.Released() != 1 {
		t.Errorf("CHECK: %v; %d leases were released, want the first", err, s.Released())
	}
}

// TestUnits looks at the names of the systemd units: distributions have others for the reference plugin's daemon, cni-dhcp.
func TestUnits(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/plugins/dhcp.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cnibox-dhcp.service", "cnibox-dhcp.socket"} {
		if _, err := os.Stat("../../dist/systemd/" + name); err != nil {
			t.Error(err)
		}
	}
	for _, part := range []string{"dist/systemd/cnibox-dhcp.*", "enable --now cnibox-dhcp.socket"} {
		if !strings.Contains(string(page), part) {
			t.Errorf("docs/plugins/dhcp.md does not have %q", part)
		}
	}
}
