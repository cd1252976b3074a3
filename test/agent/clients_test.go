package agent

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/agent"
	"github.com/cnibox/cnibox/test/netlab"
)

// dial connects to a socket of the host.
func dial(t testing.TB, host *netlab.Host, path string) (c net.Conn) {
	t.Helper()
	var err error
	host.Do(func() { c, err = net.Dial("unix", path) })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestClients: clients that come and go, that say what they want a byte a second, and that send rubbish keep nobody out for long, and the agent does
// not grow with their number.
func TestClients(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	a := start(t, host)
	before := a.use()
	for range chosen(2_000, 10_000) {
		_ = dial(t, host, socketPath).Close()
	}
	a.status()
	done := make(chan struct{})
	defer close(done)
	for range 400 {
		c := dial(t, host, socketPath)
		go trickle(c, done)
	}
	begun := time.Now()
	a.status()
	t.Logf("beside 400 slow clients the agent answers in %v", time.Since(begun).Round(time.Millisecond))
	during := a.use()
	rubbish := strings.Repeat("rubbish ", 1<<17)
	for range 50 {
		c := dial(t, host, socketPath)
		_, _ = io.WriteString(c, rubbish)
		_ = c.Close()
	}
	a.status()
	netlab.Until(t, "the clients' descriptors to be closed", func() bool { return a.use().descriptors <= before.descriptors+3 })
	after := a.use()
	t.Logf("before: %+v, beside slow clients: %+v, at the end: %+v", before, during, after)
	if during.goroutines > before.goroutines+3*256 || after.goroutines > before.goroutines+10 || after.resident > before.resident+32 {
		t.Error("the agent has grown")
	}
}

// trickle sends a byte a second.
func trickle(c net.Conn, done <-chan struct{}) {
	defer c.Close()
	for _, b := range []byte("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n") {
		if _, err := c.Write([]byte{b}); err != nil {
			return
		}
		netlab.Pause(time.Second)
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestOthers: who is not root of the node is not answered, also if the modes let it in.
func TestOthers(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	a := start(t, host)
	ask := func(program ...string) (code string) {
		words := append(program[1:], "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket", socketPath, "http://localhost/status")
		netlab.Eventually(t, func() error {
			out, err := host.Output(host.Command(program[0], words...))
			if code = out; err != nil {
				code = err.Error()
			}
			if strings.Contains(code, "curl: (52)") || strings.Contains(code, "curl: (56)") {
				return err // the agent has hung up, as it does on others that say nothing for a second
			}
			return nil
		})
		return code
	}
	user := []string{"setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"}
	if got := ask(user...); !strings.Contains(got, "000") {
		t.Errorf("uid 1000 gets %s", got)
	}
	host.MustRun(t, "chmod", "0777", "/run/cnibox-agent", socketPath)
	if got := ask(user...); got != "403" {
		t.Errorf("uid 1000 that the modes let in gets %s", got)
	}
	if got := ask(append(user, "unshare", "--user", "--map-root-user")...); got != "403" {
		t.Errorf("root of a user namespace gets %s", got)
	}
	if got := ask("env"); got != "200" {
		t.Errorf("root gets %s", got)
	}
	if a.log.count("refused a client that is not root") == 0 {
		t.Error("it does not say that it has refused them")
	}
	host.MustRun(t, "chmod", "0700", "/run/cnibox-agent")
	a.stop()
	host.MustRun(t, "chmod", "0711", "/run/cnibox-agent")
	if code, printed := cnictl(t, host, "agent"); code != 1 || !strings.Contains(printed, "mode is 0711") {
		t.Errorf("an agent in a directory that others can use: exit code %d\n%s", code, printed)
	}
}

// TestPassedByAUnit: a socket that systemd passes is used, and stays. The test is systemd.
func TestPassedByAUnit(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	host.MustRun(t, "mkdir", "-m", "0700", "/run/cnibox-agent")
	var listener *net.UnixListener
	var err error
	host.Do(func() { listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: socketPath, Net: "unix"}) })
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 2 {
		cmd := host.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=agent exec "$0" agent`, netlab.Cnictl(t))
		cmd.ExtraFiles = []*os.File{file}
		a := run(t, host, cmd)
		// Whoever connects before the agent is ready waits. curl does so for as long as it takes, and cnictl for 5 s.
		printed := host.MustRun(t, "curl", "-sS", "--unix-socket", socketPath, "http://localhost/status")
		var s agent.Status
		if err := json.Unmarshal([]byte(printed), &s); err != nil || s.PID != a.pid() {
			t.Errorf("status of process %d, error %v:\n%s", a.pid(), err, printed)
		}
		if a.end(unix.SIGTERM); a.cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("the agent ended with %v", a.cmd.ProcessState)
		}
		host.MustRun(t, "test", "-S", socketPath)
	}
}
