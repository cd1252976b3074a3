package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// lockSeconds is how long iptables may wait for its own lock.
const lockSeconds = 10

// restore makes changes to a table, all of them or none.
func (p program) restore(ctx context.Context, table string, lines []string) error {
	input := "*" + table + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
	if strings.Count(input, "\n") != len(lines)+2 || strings.Contains(input, "\x00") {
		return plugin.Errorf("", "bug: a rule of iptables has more than one line: %q", lines)
	}
	_, err := p.run(ctx, input, lines, "--noflush", "--wait", strconv.Itoa(lockSeconds))
	return err
}

// save lists a table. One that is not there is empty.
func (p program) save(ctx context.Context, table string) (string, error) {
	return p.run(ctx, "", nil, "-t", table)
}

// run runs the program. lines are those of a table in its input.
func (p program) run(ctx context.Context, input string, lines []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	// The lock of this package is released when we are killed, and must not be
	// before the change is made or dropped.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return stdout.String(), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", p.name(), context.Cause(ctx))
	case !errors.As(err, &exit):
		return "", fmt.Errorf("run %s: %w", p.path, err)
	}
	return "", newRefusal(p, lines, exit.ExitCode(), stderr.String())
}

func (p program) name() string { return filepath.Base(p.path) }

// refusal is what iptables says when it fails.
type refusal struct {
	program program
	status  int
	text    string
	line    string // of the input, "" if it does not tell
}

func newRefusal(p program, lines []string, status int, text string) *refusal {
	r := &refusal{program: p, status: status, text: strings.Join(strings.Fields(text), " ")}
	if n := lineNumber(text) - 2; n >= 0 && n < len(lines) { // the first is *table, counted from 1
		r.line = lines[n]
	}
	return r
}

// lineNumber reads the number from iptables' words: "line 3 failed",
// "Error occurred at line: 3".
func lineNumber(text string) int {
	_, after, ok := strings.Cut(text, "line")
	if !ok {
		return 0
	}
	after = strings.TrimLeft(after, ": ")
	end := strings.IndexFunc(after, func(c rune) bool { return c < '0' || c > '9' })
	if end < 0 {
		end = len(after)
	}
	n, err := strconv.Atoi(after[:end])
	if err != nil {
		return 0
	}
	return n
}

// locked tells whether another process held iptables' lock all the time.
func (r *refusal) locked() bool { return strings.Contains(r.text, "xtables lock") }

func (r *refusal) Error() string {
	what := fmt.Sprintf("%s failed (exit status %d)", r.program.name(), r.status)
	if r.line != "" {
		what += fmt.Sprintf(" at %q", r.line)
	}
	if r.text == "" {
		return what
	}
	return what + ": " + r.text
}

// explain makes an error that a runtime can show of one that restore or save
// returned.
func explain(err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	if r.locked() {
		return &types.Error{
			Code:    types.ErrTryAgainLater,
			Msg:     fmt.Sprintf("%s: another process held the lock of iptables for %d seconds", r.program.name(), lockSeconds),
			Details: "repeat the call; if that process hangs, end it (fuser /run/xtables.lock tells which it is)",
		}
	}
	return plugin.Errorf(fmt.Sprintf("look at the rules with %s; the kernel needs the tables, matches and targets that they name", strings.Replace(r.program.name(), "restore", "save", 1)), "%v", r)
}
