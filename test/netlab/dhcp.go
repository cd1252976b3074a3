package netlab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// DHCPServer is a DHCP server in an Outside. It leases addresses of the uplink's networks to whoever is on the uplink.
type DHCPServer struct {
	dir       string // of its files
	logs      []string
	processes []*process
}

// process is one that a test can stop.
type process struct{ *exec.Cmd }

// run starts a process that ends with the test.
func (n *Namespace) run(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	n.node.kept.Store(n.netns, true)
	p := &process{cmd}
	t.Cleanup(func() { p.stop(t, syscall.SIGKILL) })
	return p
}

// stop sends the process a signal, and waits until it has ended.
func (p *process) stop(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if p.ProcessState != nil {
		return
	}
	_ = p.Process.Signal(signal)
	var exit *exec.ExitError
	if err := p.Wait(); err != nil && !errors.As(err, &exit) {
		t.Errorf("wait for %s: %v", p.Path, err)
	}
}

// The addresses that a DHCPServer leases.
const (
	FirstLeased4, LastLeased4 = "192.0.2.50", "192.0.2.150"
	FirstLeased6, LastLeased6 = "2001:db8:2::1000", "2001:db8:2::1fff"
)

// ServeDNSMasq starts dnsmasq for both families, with these options. Without a --dhcp-range among them it leases all addresses, for an
// hour.
func (o *Outside) ServeDNSMasq(t testing.TB, options ...string) *DHCPServer {
	t.Helper()
	s := &DHCPServer{dir: t.TempDir()}
	args := append([]string{"--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=" + UplinkName, "--user=root", "--dhcp-authoritative",
		"--no-ping", "--log-dhcp", "--dhcp-leasefile=" + s.Leases()}, options...)
	if !strings.Contains(strings.Join(options, " "), "--dhcp-range") {
		args = append(args, "--dhcp-range="+FirstLeased4+","+LastLeased4+",255.255.255.0,1h", "--dhcp-range="+FirstLeased6+","+LastLeased6+",64,1h")
	}
	s.start(t, o, "lease time", "dnsmasq", args...)
	return s
}

// ServeISC starts isc-dhcp-server, one process for each family, with leases of that many seconds.
func (o *Outside) ServeISC(t testing.TB, seconds int) *DHCPServer {
	t.Helper()
	s := &DHCPServer{dir: t.TempDir()}
	common := fmt.Sprintf("authoritative; default-lease-time %[1]d; min-lease-time %[1]d; max-lease-time %[1]d; ping-check false;\n", seconds)
	four := common + fmt.Sprintf("subnet 192.0.2.0 netmask 255.255.255.0 { range %s %s; option routers %s; option domain-name-servers %s; }",
		FirstLeased4, LastLeased4, OutsideIPv4, OutsideIPv4)
	six := common + fmt.Sprintf("preferred-lifetime %d; subnet6 2001:db8:2::/64 { range6 %s %s; option dhcp6.name-servers %s; }",
		seconds, FirstLeased6, LastLeased6, OutsideIPv6)
	for family, config := range map[string]string{"4": four, "6": six} {
		leases := s.write(t, "leases"+family, "")
		s.start(t, o, "Server starting service", "dhcpd", "-"+family, "-f", "-d", "-user", "root", "-group", "root", "--no-pid",
			"-cf", s.write(t, "conf"+family, config), "-lf", leases, UplinkName)
	}
	return s
}

// ServeKea starts kea, one process for each family, with leases of that many seconds.
func (o *Outside) ServeKea(t testing.TB, seconds int) *DHCPServer {
	t.Helper()
	s := &DHCPServer{dir: t.TempDir()}
	subnets := map[string]string{
		"4": fmt.Sprintf(`"subnet":"192.0.2.0/24","pools":[{"pool":"%s-%s"}],
			"option-data":[{"name":"routers","data":"%s"},{"name":"domain-name-servers","data":"%s"}]`,
			FirstLeased4, LastLeased4, OutsideIPv4, OutsideIPv4),
		"6": fmt.Sprintf(`"subnet":"2001:db8:2::/64","interface":"%s","pools":[{"pool":"%s-%s"}],"option-data":[{"name":"dns-servers","data":"%s"}]`,
			UplinkName, FirstLeased6, LastLeased6, OutsideIPv6),
	}
	options := map[string]string{"4": `"authoritative":true,`, "6": `"server-id":{"type":"LL","persist":false},`}
	for family, subnet := range subnets {
		config := fmt.Sprintf(`{"Dhcp%[1]s":{"interfaces-config":{"interfaces":["%[2]s"]},
			"lease-database":{"type":"memfile","persist":true,"name":"%[3]s","lfc-interval":0},
			%[8]s"valid-lifetime":%[4]d,"renew-timer":%[5]d,"rebind-timer":%[6]d,"subnet%[1]s":[{"id":1,%[7]s}],
			"loggers":[{"name":"kea-dhcp%[1]s","output_options":[{"output":"stdout"}],"severity":"INFO"}]}}`,
			family, UplinkName, filepath.Join(s.dir, "leases"+family), seconds, seconds/2, seconds*7/8, subnet, options[family])
		s.start(t, o, "DHCP"+family+"_STARTED", "env", "KEA_PIDFILE_DIR="+s.dir, "KEA_LOCKFILE_DIR="+s.dir,
			"kea-dhcp"+family, "-c", s.write(t, "conf"+family, config))
	}
	return s
}

func (s *DHCPServer) write(t testing.TB, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// start starts a server's process, and waits until it says that it is ready.
func (s *DHCPServer) start(t testing.TB, o *Outside, ready, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("log%d", len(s.logs))))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.logs = append(s.logs, log.Name())
	cmd := o.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	s.processes = append(s.processes, o.run(t, cmd))
	Eventually(t, func() error {
		text, _ := os.ReadFile(log.Name())
		if strings.Contains(string(text), ready) {
			return nil
		}
		return fmt.Errorf("%s is not ready:\n%s", program, text)
	})
}

// Stop stops the server, which does not get to say so to anybody.
func (s *DHCPServer) Stop(t testing.TB) {
	t.Helper()
	for _, p := range s.processes {
		p.stop(t, syscall.SIGKILL)
	}
}

// Log returns what the server has logged.
func (s *DHCPServer) Log() string {
	var all strings.Builder
	for _, path := range s.logs {
		text, _ := os.ReadFile(path)
		all.Write(text)
	}
	return all.String()
}

// Leases returns the path of dnsmasq's file of leases.
func (s *DHCPServer) Leases() string { return filepath.Join(s.dir, "leases") }

// The lines that servers log of a release, of a declined address, and of a lease that they give for a DHCPREQUEST or extend by DHCPv6.
var (
	released  = regexp.MustCompile(`DHCPRELEASE[ (]|DHCP4_RELEASE |DHCP6_RELEASE_NA |Client .* releases address`)
	declined  = regexp.MustCompile(`DHCPDECLINE[ (]|DHCP6_DECLINE_LEASE |Decline message from`)
	extended4 = regexp.MustCompile(`DHCPACK[ (]|DHCP4_LEASE_ALLOC `)
	extended6 = regexp.MustCompile(`DHCPRENEW\(|DHCPREBIND\(|DHCP6_LEASE_RENEW |Renew message from|Rebind message from`)

	transaction = regexp.MustCompile(`^dnsmasq-dhcp: \d+ |transaction ID`)
)

// Released returns how many releases the server has seen.
func (s *DHCPServer) Released() int { return s.count(released) }

// Declined returns how many declined addresses the server has seen.
func (s *DHCPServer) Declined() int { return s.count(declined) }

// Extended returns how many leases of IPv4 addresses the server has given or extended.
func (s *DHCPServer) Extended() int { return s.count(extended4) }

// Extended6 returns how many leases of IPv6 addresses the server has extended.
func (s *DHCPServer) Extended6() int { return s.count(extended6) }

// count counts lines of the log. What a client sends again when the answer takes long, of the same transaction, counts once where the line
// names that: all lines of dnsmasq do, and most of isc-dhcp-server's for DHCPv6.
func (s *DHCPServer) count(kind *regexp.Regexp) (n int) {
	seen := map[string]bool{}
	for line := range strings.Lines(s.Log()) {
		if kind.MatchString(line) && !seen[line] {
			seen[line] = transaction.MatchString(line)
			n++
		}
	}
	return n
}

// DHCPSocket is where the daemon of the dhcp plugin listens.
const DHCPSocket = "/run/cni/dhcp.sock"

// DHCPDaemon is a running `dhcp daemon`.
type DHCPDaemon struct {
	*process
	log string
}

// StartDHCPDaemon starts the daemon of the plugin dhcp, which is installed, and waits until it listens. It ends with the test.
func (h *Host) StartDHCPDaemon(t testing.TB, args ...string) *DHCPDaemon {
	t.Helper()
	return h.StartDHCPDaemonUnder(t, nil, args...)
}

// StartDHCPDaemonUnder is StartDHCPDaemon by a program that executes the daemon, such as unshare with its arguments.
func (h *Host) StartDHCPDaemonUnder(t testing.TB, program []string, args ...string) *DHCPDaemon {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	line := slices.Concat(program, []string{PluginDir + "/dhcp", "daemon"}, args)
	cmd := h.Command(line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	d := &DHCPDaemon{h.run(t, cmd), log.Name()}
	Eventually(t, func() error {
		if h.listens(DHCPSocket) {
			return nil
		}
		return fmt.Errorf("the DHCP daemon does not listen:\n%s", d.Log())
	})
	return d
}

// listens reports whether somebody listens at a unix socket.
func (h *Host) listens(path string) bool {
	return h.do(func() error {
		conn, err := net.Dial("unix", path)
		if err == nil {
			err = conn.Close()
		}
		return err
	}) == nil
}

// Stop sends the daemon a signal, and waits until it has ended.
func (d *DHCPDaemon) Stop(t testing.TB, signal syscall.Signal) {
	t.Helper()
	d.stop(t, signal)
}

// Memory returns how many bytes the daemon has in memory.
func (d *DHCPDaemon) Memory() int { return d.status("VmRSS") << 10 }

// Threads returns how many threads it has.
func (d *DHCPDaemon) Threads() int { return d.status("Threads") }

func (d *DHCPDaemon) status(key string) (value int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			_, _ = fmt.Sscan(rest, &value)
		}
	}
	return value
}

// Log returns what the daemon has logged.
func (d *DHCPDaemon) Log() string {
	text, _ := os.ReadFile(d.log)
	return string(text)
}
