package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
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
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
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
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := n.Run(cmd); err != nil {
		return stdout.String(), fmt.Errorf("%s in %s: %w: %s",
			strings.Join(cmd.Args, " "), n.name, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// MustRun runs a program in the namespace and returns what it printed on its standard output. A failure ends the test.
func (n *Namespace) MustRun(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := n.Output(n.Command(program, args...))
	if err != nil {
		t.Fatal(err)
	}
	return out
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
