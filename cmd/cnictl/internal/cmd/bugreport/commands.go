package bugreport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/firewalld"
	"github.com/cnibox/cnibox/pkg/netfilter/program"
)

// command is a program whose output is a file of the report, or a part of one.
type command struct{ file, line string }

var (
	versionCommands = commandsOf("versions.txt", "uname -a", "containerd --version", "crio --version", "kubelet --version", "podman --version", "docker --version", "nerdctl --version",
		"buildkitd --version", "k3s --version", "runc --version", "crun --version", "ip -Version", "nft --version", "iptables --version", "ip6tables --version",
		"conntrack --version", "systemctl --version", "firewall-cmd --version", "ufw --version")
	ipCommands = []command{
		{"programs/ip-link.txt", "ip -d -s link"}, {"programs/ip-address.txt", "ip -d address"}, {"programs/ip-route.txt", "ip -d route show table all"},
		{"programs/ip-route-6.txt", "ip -d -6 route show table all"}, {"programs/ip-rule.txt", "ip rule"}, {"programs/ip-rule-6.txt", "ip -6 rule"},
		{"programs/ip-neighbour.txt", "ip -d neighbour"}, {"programs/ip-netns-id.txt", "ip netns list-id"}, {"programs/bridge-link.txt", "bridge -d link"},
		{"programs/bridge-vlan.txt", "bridge vlan"}, {"programs/bridge-fdb.txt", "bridge fdb"}, {"programs/tc-qdisc.txt", "tc -d -s qdisc"},
	}
	iptablesCommands = []command{
		{"programs/iptables.txt", "iptables-save -c"}, {"programs/ip6tables.txt", "ip6tables-save -c"}, {"programs/iptables-legacy.txt", "iptables-legacy-save -c"},
		{"programs/ip6tables-legacy.txt", "ip6tables-legacy-save -c"}, {"programs/iptables-nft.txt", "iptables-nft-save -c"},
		{"programs/ip6tables-nft.txt", "ip6tables-nft-save -c"}, {"programs/ebtables.txt", "ebtables-save"},
	}
	firewalldCommands = []command{
		{"programs/firewalld-zones.txt", "firewall-cmd --list-all-zones"}, {"programs/firewalld-active.txt", "firewall-cmd --get-active-zones"},
		{"programs/firewalld-direct.txt", "firewall-cmd --direct --get-all-rules"},
	}
	journalCommands = []command{
		{"programs/journal-runtimes.txt", "journalctl --no-pager --output=short-iso --lines=200 --since=-7d --grep=cni --unit=containerd --unit=crio --unit=kubelet " +
			"--unit=k3s --unit=docker --unit=podman"},
		{"programs/journal-cnibox.txt", "journalctl --no-pager --output=short-iso --lines=200 --since=-7d --unit=cnibox-*"},
	}
)

func commandsOf(file string, lines ...string) (list []command) {
	for _, line := range lines {
		list = append(list, command{file, line})
	}
	return list
}

// prints makes a part of what commands print, each for some seconds at most. Those that are not there are passed over.
func prints(name string, limit, each time.Duration, commands []command) Part {
	var lines []string
	for _, c := range commands {
		lines = append(lines, c.line)
	}
	return Part{name, "what these print: " + strings.Join(lines, "; "), limit, func(_ *source, ctx context.Context, out *output) { printAll(ctx, out, each, commands) }}
}

func printAll(ctx context.Context, out *output, each time.Duration, commands []command) {
	for _, c := range commands {
		path, err := program.Find(strings.Fields(c.line)[0])
		if err != nil {
			continue
		}
		printed, complained, err := run(ctx, each, path, environment(), strings.Fields(c.line)[1:]...)
		if err != nil {
			out.fail(c.line, err)
		}
		out.add(c.file, slices.Concat([]byte("$ "+c.line+"\n"), printed, complained))
	}
}

// readFirewalld asks firewalld, if it runs: its own program would have D-Bus start it.
func (s *source) readFirewalld(ctx context.Context, out *output) {
	running, err := firewalld.Running(ctx)
	if err != nil {
		out.fail("firewalld", err)
	}
	out.add("firewalld.txt", fmt.Appendf(nil, "running: %v\n", running))
	if running {
		printAll(ctx, out, 5*time.Second, firewalldCommands)
	}
}

// says makes a part of what another command of cnictl prints. Each is a process of its own, so that one that hangs or breaks leaves the others alone.
// The command gets the flag for caches where it has one, and the network that is asked for behind the word that network is.
func says(name string, limit time.Duration, file, line, network string, hasCaches bool) Part {
	return Part{name, "what cnictl " + line + " prints", limit, func(s *source, ctx context.Context, out *output) {
		words := strings.Fields(line)
		for _, dir := range s.CacheDirs {
			if hasCaches {
				words = append(words, "--cache-dir", dir)
			}
		}
		if s.Network != "" && network != "" {
			words = append(words, network, s.Network)
		}
		env := append(os.Environ(), "NETCONFPATH="+s.ConfDir, "CNI_PATH="+strings.Join(s.BinDirs, ":"))
		printed, complained, err := run(ctx, limit, own(), env, words...)
		var code *exec.ExitError
		if errors.As(err, &code) && len(printed) > 0 {
			err = nil // the document says what is wrong
		}
		if text := bytes.TrimSpace(complained); err == nil && len(text) > 0 {
			err = errors.New(string(text))
		}
		if err != nil {
			out.fail("cnictl "+line, err)
		}
		out.add(file, printed)
	}}
}

// own is this program, whatever its file has become.
func own() string {
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err != nil {
		return os.Args[0]
	}
	return running
}

// environment is that of others' programs: what our own has may be secret.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH") + ":/usr/local/sbin:/usr/sbin:/sbin", "LC_ALL=C"}
}

// limited takes the beginning of what is written to it: a little more than goes into a report.
type limited struct{ text []byte }

func (l *limited) Write(text []byte) (int, error) {
	l.text = append(l.text, text[:min(len(text), mostOfFile+1<<16-len(l.text))]...)
	return len(text), nil
}

// run runs a program for some time at most, and returns all that it has printed until then.
func run(ctx context.Context, limit time.Duration, path string, env []string, args ...string) (out, complaints []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var printed, complained limited
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, &printed, &complained, grace/2
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with what it has started it ends
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = errors.New("it did not end in time")
	case err != nil:
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(complained.text))
	}
	return printed.text, complained.text, err
}
