package dhcp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/cnibox/cnibox/test/netlab"
)

// dial connects to the daemon.
func dial(t testing.TB, host *netlab.Host) *net.UnixConn {
	t.Helper()
	var conn net.Conn
	host.Do(func() {
		var err error
		if conn, err = net.Dial("unix", netlab.DHCPSocket); err != nil {
			t.Fatal("the daemon is gone: ", err)
		}
	})
	return conn.(*net.UnixConn)
}

// TestHostileRequests sends the daemon what no plugin does. It refuses each, goes on, and keeps the lease that it has.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	s := outside.ServeDNSMasq(t)
	daemon := host.StartDHCPDaemon(t)
	conflist := network("macvlan", ipv4)
	pod, _ := attach(t, host, conflist, "web")
	host.MustRun(t, "mkfifo", "/run/fifo")
	const web = `"network":"lan","containerID":"web","ifname":"eth0"`
	for name, request := range map[string]string{
		"only a command":              `{"command":"ADD"}`,
		"nothing":                     `{}`,
		"null":                        `null`,
		"a list":                      `[]`,
		"text":                        `"ADD"`,
		"an empty line":               ``,
		"no JSON":                     "\x00\xff{",
		"deep nesting":                strings.Repeat(`{"a":`, 10000),
		"two MiB":                     `{"command":"` + strings.Repeat("x", 2<<20) + `"}`,
		"a command that is unknown":   `{"command":"GC",` + web + `}`,
		"a command in small letters":  `{"command":"add",` + web + `,"netns":"/run/netns/web"}`,
		"a command of another type":   `{"command":7,` + web + `}`,
		"a network outside":           `{"command":"DEL","network":"../lan","containerID":"web","ifname":"eth0"}`,
		"a container outside":         `{"command":"DEL","network":"lan","containerID":"../../web","ifname":"eth0"}`,
		"an interface outside":        `{"command":"DEL","network":"lan","containerID":"web","ifname":"../eth0"}`,
		"no namespace":                `{"command":"ADD",` + web + `}`,
		"a namespace that is a pipe":  `{"command":"ADD",` + web + `,"netns":"/run/fifo"}`,
		"a namespace without end":     `{"command":"ADD",` + web + `,"netns":"/dev/zero"}`,
		"a namespace of another kind": `{"command":"ADD",` + web + `,"netns":"/proc/1/ns/mnt"}`,
		"the host's namespace":        `{"command":"ADD",` + web + `,"netns":"/proc/self/ns/net"}`,
		"no such interface":           `{"command":"ADD","network":"lan","containerID":"web","ifname":"eth7","netns":"/run/netns/web"}`,
		"a long interface":            `{"command":"ADD","network":"lan","containerID":"web","ifname":"` + strings.Repeat("e", 5000) + `","netns":"/run/netns/web"}`,
		"ipam of another type":        `{"command":"ADD",` + web + `,"netns":"/run/netns/web","ipam":"dhcp"}`,
		"ipam that is wrong":          `{"command":"ADD",` + web + `,"netns":"/run/netns/web","ipam":{"families":["ipx"]}}`,
		"args of another type":        `{"command":"ADD",` + web + `,"netns":"/run/netns/web","args":{}}`,
		"CHECK of what is not there":  `{"command":"CHECK",` + web + `}`,
	} {
		conn := dial(t, host)
		_ = conn.SetDeadline(time.Now().Add(netlab.Patience))
		_, _ = io.WriteString(conn, request+"\n") // the daemon may have refused it by now
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if name != "two MiB" && (err != nil || !strings.Contains(answer, `"error"`)) {
			t.Errorf("%s: the answer is %q, error %v; want an error", name, answer, err)
		}
		_ = conn.Close()
	}
	for range 200 { // they say nothing, or not all
		conn := dial(t, host)
		defer conn.Close()
		_, _ = io.WriteString(conn, `{"command":`)
	}
	holds(t, host, conflist, pod)
	if s.Released() > 0 || s.Extended() > 1 {
		t.Errorf("%d leases were got, %d released; want one, none", s.Extended(), s.Released())
	}
	if text := daemon.Log(); strings.Contains(text, "bug:") {
		t.Error(text)
	}
}

// TestHostileServers has a server send what none should. The daemon refuses it, or makes the best of it, and goes on.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	var answer atomic.Value
	start := func(flags ...string) (*netlab.Host, *netlab.DHCPDaemon) {
		host, outside := node(t, "bridge")
		serveScript(t, outside, func(m message, send func([]byte)) { answer.Load().(func(message, func([]byte)))(m, send) })
		return host, host.StartDHCPDaemon(t, flags...)
	}
	patient, patientDaemon := start()
	hasty, hastyDaemon := start("-timeout", "200ms", "-resendmax", "200ms", "-resendtimeout", "400ms") // for what is refused after that
	conflist := network("bridge", ipv4)
	raw := func(code uint8, value ...byte) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), value))
	}
	// with changes an answer that is right.
	with := func(more ...dhcpv4.Modifier) func(message, func([]byte)) {
		return func(m message, send func([]byte)) { send(lease(m, more...)) }
	}
	// cut sends a part of one, and each byte of the rest as well.
	cut := func(m message, send func([]byte)) {
		whole := lease(m)
		for i := 1; i < len(whole); i += 7 {
			send(whole[:i])
		}
	}
	i := 0
	for name, c := range map[string]struct {
		answer func(m message, send func([]byte))
		leases bool
	}{
		"noise":                       {func(_ message, send func([]byte)) { send(bytes.Repeat([]byte{0xff}, 1400)) }, false},
		"answers that are cut off":    {cut, false},
		"a NAK":                       {with(dhcpv4.WithMessageType(dhcpv4.MessageTypeNak)), false},
		"an address that is none":     {with(dhcpv4.WithYourIP(net.IPv4zero)), false},
		"an address of many":          {with(dhcpv4.WithYourIP(net.IPv4(224, 0, 0, 5))), false},
		"the address of all":          {with(dhcpv4.WithYourIP(net.IPv4bcast)), false},
		"a loopback address":          {with(dhcpv4.WithYourIP(net.IPv4(127, 0, 0, 1))), false},
		"another client's answers":    {with(dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 1})), false},
		"another exchange's answers":  {with(dhcpv4.WithTransactionID(dhcpv4.TransactionID{1, 2, 3, 4})), false},
		"questions for answers":       {func(m message, send func([]byte)) { send(m.ToBytes()) }, false},
		"no server":                   {with(raw(54)), false},
		"a mask with holes":           {with(raw(1, 255, 0, 255, 0)), false},
		"a router that is cut off":    {with(raw(3, 192, 0)), true},
		"no time":                     {with(raw(51, 0, 0, 0, 0), raw(58, 0, 0, 0, 0), raw(59, 0, 0, 0, 0)), true},
		"all the time":                {with(raw(51, 255, 255, 255, 255), raw(58, 255, 255, 255, 255), raw(59, 255, 255, 255, 255)), true},
		"times that are cut off":      {with(raw(51, 1), raw(58), raw(59, 1, 2, 3)), true},
		"routes that can't be":        {with(raw(121, 77, 1, 2), raw(33, 1, 2, 3)), true},
		"a search list with a circle": {with(raw(119, 1, 'a', 0xc0, 0)), true},
		"a domain with new lines":     {with(raw(15, []byte("lan\nnameserver 192.0.2.66\x1b[2J")...)), true},
		"a domain that ends as in C":  {with(raw(15, []byte("lan.example\x00")...)), true},
		"an MTU of 1":                 {with(raw(26, 0, 1)), true},
		"an MTU that is cut off":      {with(raw(26, 5)), true},
		"name servers by halves":      {with(raw(6, 192, 0, 2, 53, 192, 0)), true},
	} {
		answer.Store(c.answer)
		host := hasty
		if c.leases {
			host = patient
		}
		i++
		pod := host.NewPod(t, fmt.Sprint("pod", i))
		result, err := host.AddList(conflist, pod.RuntimeConf(nil))
		if leased := err == nil; leased != c.leases {
			t.Errorf("%s: leased: %v (%v), want %v", name, leased, err, c.leases)
		}
		if err == nil {
			if domain := result.DNS.Domain; domain != "" && domain != "lan.example" {
				t.Errorf("%s: the domain is %q", name, domain)
			}
			holds(t, host, conflist, pod)
		}
		if err := host.DelList(conflist, pod.RuntimeConf(nil)); err != nil {
			t.Errorf("%s: DEL: %v", name, err)
		}
	}
	for host, daemon := range map[*netlab.Host]*netlab.DHCPDaemon{hasty: hastyDaemon, patient: patientDaemon} {
		dial(t, host).Close()
		if text := daemon.Log(); strings.Contains(text, "bug:") {
			t.Error(text)
		}
	}
}

// TestHostileFiles has a daemon find files that are none of a lease among those of leases. It starts, and takes the others up.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	s := outside.ServeDNSMasq(t)
	daemon := host.StartDHCPDaemon(t)
	conflist := network("macvlan", ipv4)
	pod, _ := attach(t, host, conflist, "web")
	daemon.Stop(t, syscall.SIGTERM)
	// The copy of the lease says that its time has long been over.
	host.MustRun(t, "sh", "-ec", `cd /run/cni/dhcp.leases
		sed -E 's/"(since|uptime)":[0-9]+/"\1":1/' *.json >zz.json
		ln -s /dev/zero zero.json
		mkfifo pipe.json
		truncate -s 4G large.json
		mkdir directory.json
		echo '{' >torn.json
		echo '{"command":"ADD"}' >nobody.json
		: >empty.json`)
	before := s.Extended()
	host.StartDHCPDaemon(t)
	netlab.Until(t, "taken up", func() bool { return s.Extended() > before })
	holds(t, host, conflist, pod)
	if err := host.GCList(conflist, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: pod.ID, IfName: "eth0"}}}); err != nil {
		t.Error("GC:", err)
	}
	holds(t, host, conflist, pod)
	if files := strings.Fields(host.MustRun(t, "sh", "-c", "ls /run/cni/dhcp.leases")); len(files) != 2 {
		t.Errorf("GC leaves %v, want the lock and a lease", files)
	}
}

// TestAtOnce starts two daemons at once where one was killed, of which the first is slow: one of them serves, and goes on to be found at
// the socket.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	host, _ := node(t, "macvlan")
	host.StartDHCPDaemon(t).Stop(t, syscall.SIGKILL)
	daemon := []string{netlab.PluginDir + "/dhcp", "daemon", "-pidfile", "/run/dhcp.pid"}
	slowly := []string{"strace", "-f", "-qq", "-o", "/run/slow", "-e", "trace=unlinkat", "-e", "inject=unlinkat:delay_enter=1000000"}
	ended := make(chan error)
	for _, line := range [][]string{slices.Concat(slowly, daemon), daemon} { // the second comes when the first is about to remove what was left
		cmd := host.Command(line[0], line[1:]...)
		if err := host.Start(cmd); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- cmd.Wait() }()
		netlab.Until(t, "the slow one to be there", func() bool { return host.Run(host.Command("test", "-s", "/run/slow")) == nil })
	}
	if err := <-ended; err == nil {
		t.Error("the daemon that does not serve ends without an error")
	}
	netlab.Until(t, "the other one to serve", func() bool { return host.Run(host.Command("test", "-s", "/run/dhcp.pid")) == nil })
	dial(t, host).Close()
	host.MustRun(t, "sh", "-c", "kill $(cat /run/dhcp.pid)")
	<-ended
}

// TestOtherFile starts a daemon where something else is at its socket's path: it stays, and the daemon says so.
func TestOtherFile(t *testing.T) {
	t.Parallel()
	host, _ := node(t, "macvlan")
	host.MustRun(t, "sh", "-ec", "mkdir /run/directory; echo precious >/run/file; ln -s file /run/link")
	for _, path := range []string{"/run/file", "/run/link", "/run/directory"} {
		before := host.MustRun(t, "ls", "-l", path)
		_, err := host.Output(host.Command("timeout", fmt.Sprint(netlab.Patience.Seconds()), netlab.PluginDir+"/dhcp", "daemon", "-socketpath", path))
		if err == nil || !strings.Contains(err.Error(), path+" is no socket") {
			t.Errorf("%s: %v, want that it is no socket", path, err)
		}
		if diff := cmp.Diff(before, host.MustRun(t, "ls", "-l", path)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

// TestNoReader starts a daemon whose log nobody reads any more.
func TestNoReader(t *testing.T) {
	t.Parallel()
	host, outside := node(t, "macvlan")
	outside.ServeDNSMasq(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := host.Command(netlab.PluginDir+"/dhcp", "daemon")
	cmd.Stderr = w
	host.Background(t, cmd)
	_ = w.Close()
	_, _ = r.Read(make([]byte, 1)) // it has begun
	_ = r.Close()
	netlab.Until(t, "listening", func() bool { return host.Run(host.Command("test", "-S", netlab.DHCPSocket)) == nil })
	conflist := network("macvlan", ipv4)
	pod, _ := attach(t, host, conflist, "web")
	holds(t, host, conflist, pod)
}
