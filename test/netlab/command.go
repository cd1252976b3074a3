package netlab

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Command returns a command that runs in the namespace when it is started with Start, Run or Output (not with its own
// methods, which would run it outside).
func (n *Namespace) Command(program string, args ...string) *exec.Cmd {
	return exec.Command(program, args...)
}

// Start starts cmd in the namespace. The caller waits for it.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if n.node.init == nil { // else they end with that, and Go takes their parent, which they don't see, for a dead one
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	return n.node.on(n.netns, cmd.Start)
}

// Run runs cmd in the namespace and waits for it.
func (n *Namespace) Run(cmd *exec.Cmd) error {
	if err := n.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// Output runs cmd in the namespace and returns what it printed on its standard output. The error holds what it printed
// on its standard error.
func (n *Namespace) Output(cmd *exec.Cmd) (string, error) {
	out, err := capture(cmd, n.Run)
	if err != nil {
		err = fmt.Errorf("in %s: %w", n.name, err)
	}
	return out, err
}

// MustRun runs a program in the namespace and returns what it printed on its standard output. A failure ends the test.
func (n *Namespace) MustRun(t testing.TB, program string, args ...string) string {
	t.Helper()
	return n.Feed(t, "", program, args...)
}

// Feed is MustRun for a program that reads text.
func (n *Namespace) Feed(t testing.TB, text, program string, args ...string) string {
	t.Helper()
	cmd := n.Command(program, args...)
	cmd.Stdin = strings.NewReader(text)
	out, err := n.Output(cmd)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// Background starts cmd in the namespace and kills it when the test ends, if it has not ended by itself.
func (n *Namespace) Background(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	n.node.kept.Store(n.netns, true)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		err := cmd.Wait()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Errorf("wait for %s: %v", cmd.Path, err)
		}
	})
}

// Ping sends one ICMP echo request from the namespace and waits for the reply.
func (n *Namespace) Ping(target string, timeout time.Duration) error {
	seconds := strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64)
	_, err := n.Output(n.Command("ping", "-n", "-c", "1", "-W", seconds, target))
	return err
}

// capture returns what cmd prints on its standard output when it is run. The error holds what it printed on its standard
// error, or if that is nothing the other.
func capture(cmd *exec.Cmd, run func(*exec.Cmd) error) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := run(cmd); err != nil {
		why := strings.TrimSpace(cmp.Or(stderr.String(), stdout.String()))
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, why)
	}
	return stdout.String(), nil
}

// output runs a program from the calling thread, and so in its namespaces, and returns its standard output.
func output(program string, args ...string) (string, error) {
	return capture(exec.Command(program, args...), (*exec.Cmd).Run)
}

// runIP has ip(8) run commands from the calling thread.
func runIP(commands ...string) error { return runBatch("ip", commands...) }

// runBatch has ip(8) or tc(8) run commands from the calling thread.
func runBatch(program string, commands ...string) error {
	cmd := exec.Command(program, "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	_, err := capture(cmd, (*exec.Cmd).Run)
	return err
}
