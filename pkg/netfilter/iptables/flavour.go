package iptables

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// flavour is where rules of iptables are in the kernel.
type flavour uint8

const (
	nfTables flavour = iota
	legacy
)

func flavours() [2]flavour { return [2]flavour{nfTables, legacy} }

// String returns the flavour as the names of programs have it.
func (f flavour) String() string {
	if f == legacy {
		return "legacy"
	}
	return "nft"
}

// program is one of iptables' programs.
type program struct {
	path    string
	flavour flavour
}

// plainName returns the name of a program in whichever flavour: verb is restore
// or save.
func plainName(f family, verb string) string {
	if f == ipv6 {
		return "ip6tables-" + verb
	}
	return "iptables-" + verb
}

// flavouredName returns the name of a program in one flavour.
func flavouredName(f family, fl flavour, verb string) string {
	return strings.TrimSuffix(plainName(f, verb), verb) + fl.String() + "-" + verb
}

// plainProgram finds a program by its plain name.
func plainProgram(f family, verb string) (program, error) {
	name := plainName(f, verb)
	path, err := find(name)
	if err != nil {
		return program{}, missing(name)
	}
	fl, err := flavourOf(path)
	return program{path, fl}, err
}

// flavouredProgram finds a program of a flavour, by its own name or the plain
// one.
func flavouredProgram(f family, fl flavour, verb string) (program, error) {
	name := flavouredName(f, fl, verb)
	if path, err := find(name); err == nil {
		return program{path, fl}, nil
	}
	p, err := plainProgram(f, verb)
	if err == nil && p.flavour == fl {
		return p, nil
	}
	return program{}, missing(name)
}

// systemDirs are where distributions have the programs, for runtimes that give
// their plugins a PATH for users.
const systemDirs = "/usr/sbin:/sbin:/usr/local/sbin"

func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range filepath.SplitList(systemDirs) {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", err
}

func missing(name string) error {
	return &types.Error{
		Code: types.ErrPluginNotAvailable,
		Msg:  fmt.Sprintf("iptables: there is no program %s in PATH", name),
		Details: "install iptables (package iptables of Debian and others has all its programs), " +
			"or use the backend nftables, which needs none",
	}
}

// flavourOf tells the flavour of a program by the name of what it is a link to
// (xtables-nft-multi, xtables-legacy-multi), or else by what it says itself.
func flavourOf(path string) (flavour, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return 0, err
	}
	switch base := filepath.Base(target); {
	case strings.Contains(base, "nft"):
		return nfTables, nil
	case strings.Contains(base, "legacy"):
		return legacy, nil
	}
	out, err := exec.Command(path, "--version").Output()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed), err == nil && !strings.Contains(string(out), "nf_tables"):
		return legacy, nil // before 1.8 there was no other
	}
	return nfTables, err
}
