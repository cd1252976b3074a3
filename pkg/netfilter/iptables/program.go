package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/coreos/go-iptables/iptables"

	"github.com/cnibox/cnibox/pkg/netfilter/program"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The flavours of iptables: where its rules are in the kernel. Programs have them in their names.
const (
	nfTables = "nft"
	legacy   = "legacy"
)

// lockSeconds is how long iptables may wait for its own lock.
const lockSeconds = 10

// open finds the program for rules that are handled one by one, and detects its version. Tables are listed and changed as a whole, by
// iptables-save and iptables-restore: the library runs a program for each chain and rule, and knows no deadline.
func open(name string) (*iptables.IPTables, error) {
	path, err := findProgram(name)
	if err != nil {
		return nil, err
	}
	p, err := iptables.New(iptables.Path(path), iptables.Timeout(lockSeconds))
	if err != nil {
		return nil, fmt.Errorf("iptables: %w", err)
	}
	return p, nil
}

func findProgram(name string) (path string, err error) {
	if path, err = program.Find(name); err != nil {
		return "", &types.Error{
			Code: types.ErrPluginNotAvailable,
			Msg:  fmt.Sprintf("iptables: there is no program %s in PATH", name),
			Details: "install iptables (package iptables of Debian and others has all its programs), " +
				"or use the backend nftables, which needs none",
		}
	}
	return path, nil
}

// plainTable returns a table in the flavour of the program with the plain name, whichever that is.
func plainTable(f *family, name string) (*table, error) {
	path, err := findProgram(f.program + "-restore")
	return &table{family: f, name: name, restore: path}, err
}

// usedTable returns a table that new rules go to, and what is in it: that of the plain program or, if that wants nf_tables and the kernel has none,
// that of iptables-legacy beside it.
func usedTable(ctx context.Context, f *family, name string) (*table, error) {
	t, err := plainTable(f, name)
	if err != nil {
		return nil, err
	}
	if err = t.read(ctx); err == nil || !saysNoNFTables(err) {
		return t, err
	}
	other, notFound := flavouredTable(ctx, f, name, legacy)
	if notFound != nil {
		return nil, fmt.Errorf("%w: %w", t.withoutNFTables(), err)
	}
	return other, other.read(ctx)
}

// saysNoNFTables reports whether an error is how iptables-nft says that the kernel has no nf_tables.
func saysNoNFTables(err error) bool {
	const subsystem, protocol = "Could not fetch rule set generation id", "Failed to initialize nft" // the first where there is nfnetlink
	return err != nil && (strings.Contains(err.Error(), subsystem) || strings.Contains(err.Error(), protocol))
}

// withoutNFTables is the error of a program that is good for nothing under this kernel.
func (t *table) withoutNFTables() error {
	name := strings.TrimSuffix(filepath.Base(t.restore), "-restore")
	return plugin.CodeErrorf(types.ErrPluginNotAvailable, fmt.Sprintf("install %s-legacy beside it, or have it be %s: `update-alternatives --set %s /usr/sbin/%s-legacy`", name, name, name, name),
		"the kernel has no nf_tables, without which this %s can't work", name)
}

// flavouredTable returns a table in a flavour, for the program with its name or the plain one.
func flavouredTable(ctx context.Context, f *family, name, flavour string) (*table, error) {
	path, notFound := findProgram(f.program + "-" + flavour + "-restore")
	if notFound == nil {
		return &table{family: f, name: name, restore: path}, nil
	}
	t, err := plainTable(f, name)
	if err != nil {
		return nil, notFound
	}
	version, err := runProgram(ctx, t.restore, "", "--version") // go-iptables reads the flavour, too, but does not tell
	switch isNFT := strings.Contains(version, "nf_tables"); {   // before 1.8 all were legacy, and some had no --version
	case ctx.Err() != nil:
		return nil, err
	case isNFT != (flavour == nfTables):
		return nil, notFound
	}
	return t, nil
}

// runProgram runs a program of iptables and returns what it prints.
func runProgram(ctx context.Context, path, input string, args ...string) (string, error) {
	out, err := program.Run(ctx, path, input, args...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = refusal(filepath.Base(path), exit.ExitCode(), string(exit.Stderr), input)
	}
	return out, err
}

// refusal returns what a program says when it fails, with the line of its input that it is about.
func refusal(name string, status int, text, input string) error {
	if strings.Contains(text, "xtables lock") {
		return &types.Error{
			Code:    types.ErrTryAgainLater,
			Msg:     fmt.Sprintf("%s: another process held the lock of iptables for %d seconds", name, lockSeconds),
			Details: "repeat the call; if that process hangs, end it (fuser /run/xtables.lock tells which it is)",
		}
	}
	where, number, lines := "", 0, strings.Split(input, "\n")
	_, after, _ := strings.Cut(text, "line") // "line 3 failed", "Error occurred at line: 3"
	if _, err := fmt.Sscan(strings.TrimPrefix(after, ":"), &number); err == nil && number > 1 && number < len(lines)-1 {
		where = " at " + strconv.Quote(lines[number-1])
	}
	remedy := fmt.Sprintf("look at the rules with %s; the kernel needs the tables, matches and targets that they name",
		strings.Replace(name, "restore", "save", 1))
	return plugin.Errorf(remedy, "%s failed (exit status %d)%s: %s", name, status, where, strings.Join(strings.Fields(text), " "))
}

// within opens the library's program and does something with it, for as long as the context lasts: the library knows no deadline.
func within(ctx context.Context, name string, do func(*iptables.IPTables) error) error {
	done := make(chan error, 1)
	go func() {
		p, err := open(name)
		if err == nil {
			err = do(p)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
