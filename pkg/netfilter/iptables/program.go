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

	"github.com/containernetworking/cni/pkg/types"

	netfilter "github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The flavours of iptables: where its rules are in the kernel. Programs have them in their names.
const (
	nfTables = "nft"
	legacy   = "legacy"
)

// tableOf returns a table, if there is a program for it.
func tableOf(f *family, name, program string) (*table, error) {
	path, err := netfilter.FindProgram(program)
	if err != nil {
		return nil, &types.Error{
			Code: types.ErrPluginNotAvailable,
			Msg:  fmt.Sprintf("iptables: there is no program %s in PATH", program),
			Details: "install iptables (package iptables of Debian and others has all its programs), " +
				"or use the backend nftables, which needs none",
		}
	}
	return &table{family: f, name: name, program: path}, nil
}

// plainTable returns a table in the flavour of the program with the plain name, whichever that is.
func plainTable(f *family, name string) (*table, error) {
	return tableOf(f, name, f.program+"-restore")
}

// flavouredTable returns a table in a flavour, for the program with its name or the plain one.
func flavouredTable(ctx context.Context, f *family, name, flavour string) (*table, error) {
	t, missing := tableOf(f, name, f.program+"-"+flavour+"-restore")
	if missing == nil {
		return t, nil
	}
	t, err := plainTable(f, name)
	if err != nil {
		return nil, missing
	}
	version, err := netfilter.RunProgram(ctx, t.program, "", "--version")
	switch isNFT := strings.Contains(version, "nf_tables"); { // before 1.8 all were legacy, and some had no --version
	case ctx.Err() != nil:
		return nil, err
	case isNFT != (flavour == nfTables):
		return nil, missing
	}
	return t, nil
}

// lockSeconds is how long iptables may wait for its own lock.
const lockSeconds = 10

// run runs a program of iptables and returns what it prints.
func run(ctx context.Context, path, input string, args ...string) (string, error) {
	out, err := netfilter.RunProgram(ctx, path, input, args...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = newRefusal(filepath.Base(path), exit.ExitCode(), string(exit.Stderr), input)
	}
	return out, err
}

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
	return plugin.Errorf(remedy, "%s failed (exit status %d)%s: %s", name, status, where, strings.Join(strings.Fields(text), " "))
}
