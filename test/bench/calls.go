package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"golang.org/x/sys/unix"
)

// verbs are what a runtime asks of an attachment, in order.
var verbs = []string{"ADD", "CHECK", "DEL"}

// starter runs the command of a plugin, changed as it likes.
type starter func(plugin *exec.Cmd) error

// executor is libcni's own, but for who runs the plugins.
type executor struct {
	*invoke.DefaultExec
	run starter
}

func (e *executor) ExecPlugin(ctx context.Context, plugin string, stdin []byte, environ []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, plugin)
	var stdout bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout = environ, bytes.NewReader(stdin), &stdout
	if err := e.run(cmd); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, stdout.Bytes())
	}
	return stdout.Bytes(), nil
}

// cost is what something took. The CPU is that of processes.
type cost struct{ wall, cpu time.Duration }

// stopwatch runs plugins and notes what each took. It is for one call of libcni, with nothing else under way.
type stopwatch map[string]cost

func (s stopwatch) run(cmd *exec.Cmd) error {
	before, start := childrenCPU(), time.Now()
	err := cmd.Run()
	s[filepath.Base(cmd.Path)] = cost{wall: time.Since(start), cpu: childrenCPU() - before}
	return err
}

// childrenCPU returns the user and system time of all children that have been waited for, and of theirs.
func childrenCPU() time.Duration { return cpuOf(unix.RUSAGE_CHILDREN) }

// ownCPU returns that of this process: what libcni costs a runtime, and starting programs.
func ownCPU() time.Duration { return cpuOf(unix.RUSAGE_SELF) }

func cpuOf(whose int) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(whose, &used); err != nil {
		panic(fmt.Sprint("get CPU time: ", err)) // can't be: it has no reason to fail
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// threadCPU returns that of the calling thread, to which the caller is locked.
func threadCPU() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now) // has no reason to fail
	return time.Duration(now.Nano())
}

// adoptOrphans makes this process the parent of processes that outlive the plugin that started them, so that what they
// use can be told.
func adoptOrphans(b testing.TB) {
	b.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		b.Fatal("become the parent of orphans: ", err)
	}
}

// reapOrphans waits for all children to end. No other child may be waited for at the same time.
func reapOrphans() error {
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for orphans: %w", err)
		}
	}
}

// under makes cmd the argument of another program.
func under(cmd *exec.Cmd, program string, args ...string) {
	cmd.Args = append(append([]string{program}, args...), cmd.Args...)
	cmd.Path = program
}

// usage is what a program used, by the launcher's report.
type usage struct {
	wall time.Duration
	cpu  time.Duration // which the launcher does not tell
	peak float64       // resident set of the largest process, bytes
}

// launch runs cmd with the launcher, whose report is the last line of what is printed on standard error.
func (p programs) launch(cmd *exec.Cmd) (used usage, err error) {
	under(cmd, p.launcher)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return used, fmt.Errorf("%w: %s", err, stderr.String())
	}
	text := strings.TrimSpace(stderr.String())
	text = text[strings.LastIndex(text, "\n")+1:]
	if _, err := fmt.Sscan(text, &used.wall, &used.peak); err != nil {
		return used, fmt.Errorf("read the launcher's report %q: %w", text, err)
	}
	used.peak *= 1024
	return used, nil
}
