package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// The flavours of iptables: where its rules are in the kernel. Programs have them in their names.
const (
	nfTables = "nft"
	legacy   = "legacy"
)

// plainProgram finds the iptables-restore of the plain name, of whichever flavour. iptables-save is beside it.
func plainProgram(f *family) (string, error) {
	name := f.program + "-restore"
	path, err := find(name)
	if err != nil {
		return "", missing(name)
	}
	return path, nil
}

// flavouredProgram finds that of a flavour, by its own name or the plain one.
func flavouredProgram(ctx context.Context, f *family, flavour string) (string, error) {
	name := f.program + "-" + flavour + "-restore"
	if path, err := find(name); err == nil {
		return path, nil
	}
	p, err := plainProgram(f)
	if err != nil {
		return "", missing(name)
	}
	version, err := run(ctx, p, "", "--version")
	if isNFT := err == nil && strings.Contains(version, "nf_tables"); isNFT != (flavour == nfTables) {
		return "", missing(name) // before 1.8 all were legacy, and some had no --version
	}
	return p, ctx.Err()
}

// find finds a program in PATH, or where distributions have it: runtimes may give their plugins a PATH for users, or none.
func find(name string) (path string, err error) {
	for _, dir := range []string{"", "/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err = exec.LookPath(filepath.Join(dir, name)); err == nil {
			break
		}
	}
	return path, err
}

func missing(name string) error {
	return &types.Error{
		Code: types.ErrPluginNotAvailable,
		Msg:  fmt.Sprintf("iptables: there is no program %s in PATH", name),
		Details: "install iptables (package iptables of Debian and others has all its programs), " +
			"or use the backend nftables, which needs none",
	}
}

// lockSeconds is how long iptables may wait for its own lock.
const lockSeconds = 10

// run runs a program and returns what it prints.
func run(ctx context.Context, path, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = time.Second
	// The lock of this package is released when we are killed, and must not be before the change is made or dropped.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return string(out), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", filepath.Base(path), context.Cause(ctx))
	case !errors.As(err, &exit):
		return "", fmt.Errorf("run %s: %w", path, err)
	}
	return "", newRefusal(filepath.Base(path), exit.ExitCode(), string(exit.Stderr), input)
}

// refusal is the error of a change that can't be made to what is there.
type refusal struct{ error }

// newRefusal returns what a program says when it fails, with the line of its input that it is about.
func newRefusal(name string, status int, text, input string) error {
	if strings.Contains(text, "xtables lock") {
		return &types.Error{
			Code:    types.ErrTryAgainLater,
			Msg:     fmt.Sprintf("%s: another process held the lock of iptables for %d seconds", name, lockSeconds),
			Details: "repeat the call; if that process hangs, end it (fuser /run/xtables.lock tells which it is)",
		}
	}
	where, lines := "", strings.Split(input, "\n")
	// "line 3 failed", "Error occurred at line: 3"
	if number := regexp.MustCompile(`\bline:? (\d+)`).FindStringSubmatch(text); number != nil {
		if n, _ := strconv.Atoi(number[1]); n > 1 && n < len(lines)-1 {
			where = fmt.Sprintf(" at %q", lines[n-1])
		}
	}
	remedy := fmt.Sprintf("look at the rules with %s; the kernel needs the tables, matches and targets that they name",
		strings.Replace(name, "restore", "save", 1))
	return &refusal{plugin.Errorf(remedy, "%s failed (exit status %d)%s: %s", name, status, where, strings.Join(strings.Fields(text), " "))}
}

func (r *refusal) Unwrap() error { return r.error }
