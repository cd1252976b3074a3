// Package program runs programs that change the packet filter.
package program

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Find finds a program in PATH, or where distributions have it: runtimes may give their plugins a PATH for users, or none.
func Find(name string) (path string, err error) {
	for _, dir := range []string{"", "/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err = exec.LookPath(filepath.Join(dir, name)); err == nil {
			break
		}
	}
	return path, err
}

// Run runs a program and returns what it prints. If it fails the error is an exec.ExitError, with what it says about that.
func Run(ctx context.Context, path, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = 10 * time.Second // on a node that is busy what it has printed may take long
	// Our lock is released when we are killed, and must not be before the change is made or dropped.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return string(out), nil
}
