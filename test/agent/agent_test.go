package agent

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/agent"
	"github.com/cnibox/cnibox/test/netlab"
)

// Where an agent has its socket and the lock of it.
const (
	socketPath = agent.DefaultDir + "/" + agent.SocketName
	lockPath   = socketPath + ".lock"
)

// running is an agent that runs.
type running struct {
	testing.TB
	host  *netlab.Host
	cmd   *exec.Cmd
	log   *journal
	ended chan struct{}
}

// start starts an agent, and waits until it is ready. It is stopped at the end of the test, if it runs by then, and has to end well.
func start(t testing.TB, host *netlab.Host, args ...string) *running {
	t.Helper()
	a := begin(t, host, args...)
	a.awaitReady()
	return a
}

// pid returns the number by which the host's processes know the agent.
func (a *running) pid() int { a.Helper(); return a.host.PID(a, a.cmd) }

// awaitReady waits until the agent is ready.
func (a *running) awaitReady() {
	a.Helper()
	netlab.Until(a, "the agent to be ready", func() bool { return a.hasEnded() || a.log.count("msg=ready") > 0 })
	if a.hasEnded() {
		a.Fatalf("the agent has ended:\n%s", a.log)
	}
	if pid := a.status().PID; pid != a.pid() {
		a.Fatalf("the agent that answers is process %d, not %d", pid, a.pid())
	}
}

// begin starts an agent.
func begin(t testing.TB, host *netlab.Host, args ...string) *running {
	t.Helper()
	return run(t, host, host.Command(netlab.Cnictl(t), append([]string{"agent"}, args...)...))
}

// run starts a command that becomes an agent.
func run(t testing.TB, host *netlab.Host, cmd *exec.Cmd) *running {
	t.Helper()
	a := &running{TB: t, host: host, cmd: cmd, log: &journal{}, ended: make(chan struct{})}
	a.cmd.Stderr = a.log
	if err := host.Start(a.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = a.cmd.Wait()
		close(a.ended)
	}()
	t.Cleanup(func() {
		if !a.hasEnded() {
			a.stop()
		}
		if t.Failed() {
			t.Logf("the agent's log:\n%s", a.log)
		}
	})
	return a
}

func (a *running) hasEnded() bool {
	select {
	case <-a.ended:
		return true
	default:
		return false
	}
}

// end sends the agent a signal, and waits for its end.
func (a *running) end(s syscall.Signal) {
	a.Helper()
	_, _ = a.cmd.Process.Signal(s), a.cmd.Process.Signal(syscall.SIGCONT) // a test that failed may have stopped it
	select {
	case <-a.ended:
	case <-time.After(netlab.Patience):
		_ = a.cmd.Process.Kill()
		a.Errorf("the agent has not ended %v after %v", netlab.Patience, s)
	}
}

// signal stops the agent for a while, or lets it go on.
func (a *running) signal(s syscall.Signal) {
	a.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		a.Fatal(err)
	}
}

// kill is kill -9.
func (a *running) kill() { a.Helper(); a.end(syscall.SIGKILL) }

// stop stops the agent as systemd does. It has to leave no socket and no lock.
func (a *running) stop() {
	a.Helper()
	a.end(syscall.SIGTERM)
	if code := a.cmd.ProcessState.ExitCode(); code != 0 {
		a.Errorf("the agent ended with %v", a.cmd.ProcessState)
	}
	if _, err := a.host.Output(a.host.Command("sh", "-c", "test ! -e "+socketPath+" && flock -n "+lockPath+" true")); err != nil {
		a.Errorf("after its end the agent's socket is there, or its lock is taken: %v", err)
	}
}

// status asks the agent what it did.
func (a *running) status() (s agent.Status) {
	a.Helper()
	netlab.Eventually(a, func() error { // cnictl gives the agent 5 s to answer in, and no busy machine promises that
		printed, err := a.host.Output(a.host.Command(netlab.Cnictl(a), "agent", "status", "--json"))
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(printed), &s)
	})
	return s
}

// metric returns the value of one of the agent's metrics.
func (a *running) metric(name string) string {
	a.Helper()
	printed := a.host.MustRun(a, "curl", "-sS", "--unix-socket", socketPath, "http://localhost/metrics")
	for line := range strings.Lines(printed) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	a.Fatalf("there is no metric %s:\n%s", name, printed)
	return ""
}

// journal is what an agent logs.
type journal struct{ netlab.Printed }

// lines returns the lines with a text in them.
func (j *journal) lines(text string) (list []string) {
	for line := range strings.Lines(j.String()) {
		if strings.Contains(line, text) {
			list = append(list, line)
		}
	}
	return list
}

func (j *journal) count(text string) int { return len(j.lines(text)) }

// cnictl runs the tool: its exit code, and all that it prints.
func cnictl(t testing.TB, host *netlab.Host, args ...string) (code int, printed string) {
	t.Helper()
	cmd := host.Command(netlab.Cnictl(t), args...)
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = os.Environ(), &out, &out
	_ = host.Run(cmd)
	if cmd.ProcessState == nil {
		t.Fatalf("cnictl %q did not start", args)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}
