package bugreport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/firewalld"
)

// sbin is where the programs are that root's PATH may lack, as after su.
const sbin = ":/usr/local/sbin:/usr/sbin:/sbin"

// mostOfProgram is in bytes how much of a program's output is read.
const mostOfProgram = mostOfFile + 1<<16

// limited takes the beginning of what is written to it.
type limited struct{ text []byte }

func (l *limited) Write(text []byte) (int, error) {
	l.text = append(l.text, text[:min(len(text), mostOfProgram-len(l.text))]...)
	return len(text), nil
}

// find returns the path of a program, "" if it is not there.
func find(program string) string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH") + sbin) {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil && filepath.IsAbs(path) {
			return path
		}
	}
	return ""
}

// run runs a program until ctx ends, and returns all that it has printed until then.
func run(ctx context.Context, words ...string) (text []byte, err error) {
	path := find(words[0])
	if path == "" {
		return nil, errNoProgram
	}
	var printed, complained limited
	cmd := exec.CommandContext(ctx, path, words[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + sbin, "LC_ALL=C"}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &printed, &complained, grace/2
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with what it has started it ends
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = errors.New("it did not end in time")
	case err != nil:
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(complained.text))
	}
	return append(printed.text, complained.text...), err
}

var errNoProgram = errors.New("there is no such program")

// command is a program whose output is a file of the report.
type command struct{ file, line string }

// readAll runs commands, each for some seconds at most. Those that are not there are passed over.
func readAll(ctx context.Context, out *output, each time.Duration, commands []command) {
	for _, c := range commands {
		ctx, cancel := context.WithTimeout(ctx, each)
		text, err := run(ctx, strings.Fields(c.line)...)
		cancel()
		if errors.Is(err, errNoProgram) {
			continue
		}
		if err != nil {
			out.fail(c.line, err)
		}
		out.add("programs/"+c.file, slices.Concat([]byte("$ "+c.line+"\n"), text))
	}
}

func (s *source) readIP(ctx context.Context, out *output) {
	readAll(ctx, out, 5*time.Second, ipCommands)
}

func (s *source) readIPTables(ctx context.Context, out *output) {
	readAll(ctx, out, 5*time.Second, iptablesCommands)
}

func (s *source) readJournal(ctx context.Context, out *output) {
	readAll(ctx, out, 5*time.Second, journalCommands)
}

var (
	ipCommands = []command{
		{"ip-link.txt", "ip -d -s link"}, {"ip-address.txt", "ip -d address"}, {"ip-route.txt", "ip -d route show table all"},
		{"ip-route-6.txt", "ip -d -6 route show table all"}, {"ip-rule.txt", "ip rule"}, {"ip-rule-6.txt", "ip -6 rule"}, {"ip-neighbour.txt", "ip -d neighbour"},
		{"ip-netns-id.txt", "ip netns list-id"}, {"bridge-link.txt", "bridge -d link"}, {"bridge-vlan.txt", "bridge vlan"}, {"bridge-fdb.txt", "bridge fdb"},
		{"tc-qdisc.txt", "tc -d -s qdisc"},
	}
	iptablesCommands = []command{
		{"iptables.txt", "iptables-save -c"}, {"ip6tables.txt", "ip6tables-save -c"}, {"iptables-legacy.txt", "iptables-legacy-save -c"},
		{"ip6tables-legacy.txt", "ip6tables-legacy-save -c"}, {"iptables-nft.txt", "iptables-nft-save -c"}, {"ip6tables-nft.txt", "ip6tables-nft-save -c"},
		{"ebtables.txt", "ebtables-save"},
	}
	firewalldCommands = []command{
		{"firewalld-zones.txt", "firewall-cmd --list-all-zones"}, {"firewalld-active.txt", "firewall-cmd --get-active-zones"},
		{"firewalld-direct.txt", "firewall-cmd --direct --get-all-rules"},
	}
	journalCommands = []command{
		{"journal-runtimes.txt", "journalctl --no-pager --output=short-iso --lines=200 --since=-7d --grep=cni --unit=containerd --unit=crio --unit=kubelet " +
			"--unit=k3s --unit=docker --unit=podman"},
		{"journal-cnibox.txt", "journalctl --no-pager --output=short-iso --lines=200 --since=-7d --unit=cnibox-*"},
	}
)

// readFirewalld asks firewalld, if it runs: its own program would have D-Bus start it.
func (s *source) readFirewalld(ctx context.Context, out *output) {
	running, err := firewalld.Running(ctx)
	if err != nil {
		out.fail("firewalld", err)
	}
	out.add("firewalld.txt", fmt.Appendf(nil, "running: %v\n", running))
	if running {
		readAll(ctx, out, 5*time.Second, firewalldCommands)
	}
}

// versions are asked of programs by these lines.
var versions = []string{
	"containerd --version", "crio --version", "kubelet --version", "podman --version", "docker --version", "nerdctl --version", "buildkitd --version",
	"k3s --version", "runc --version", "crun --version", "ip -Version", "nft --version", "iptables --version", "ip6tables --version",
	"conntrack --version", "systemctl --version", "firewall-cmd --version", "ufw --version",
}

func (s *source) readVersions(ctx context.Context, out *output) {
	var list bytes.Buffer
	for _, line := range versions {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		text, err := run(ctx, strings.Fields(line)...)
		cancel()
		switch {
		case errors.Is(err, errNoProgram):
			continue
		case err != nil:
			out.fail(line, err)
		}
		fmt.Fprintf(&list, "$ %s\n%s\n", line, bytes.TrimSpace(text))
	}
	out.add("versions.txt", list.Bytes())
}
