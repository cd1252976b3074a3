package bugreport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// readKernel reads which kernel runs, how it was started, and what it has loaded.
func (s *source) readKernel(_ context.Context, out *output) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		out.fail("uname", err)
	}
	out.add("kernel/uname.txt", fmt.Appendf(nil, "%s %s %s %s %s\n", unix.ByteSliceToString(name.Sysname[:]), unix.ByteSliceToString(name.Nodename[:]),
		unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Version[:]), unix.ByteSliceToString(name.Machine[:])))
	for _, path := range []string{"/proc/version", "/etc/os-release", "/proc/sys/kernel/tainted", "/proc/uptime"} {
		if text, err := os.ReadFile(path); err != nil {
			out.fail(path, err)
		} else {
			out.add("kernel/"+filepath.Base(path), text)
		}
	}
	if text, err := os.ReadFile("/proc/cmdline"); err != nil {
		out.fail("/proc/cmdline", err)
	} else {
		out.add("kernel/cmdline", s.bootParameters(text))
	}
	if text, err := os.ReadFile("/proc/modules"); err == nil {
		out.add("kernel/modules", withoutAddresses(text))
	} else if !errors.Is(err, fs.ErrNotExist) { // the kernel has none
		out.fail("/proc/modules", err)
	}
}

// bootParameters returns the kernel's command line without the values of what may be a secret.
func (s *source) bootParameters(text []byte) []byte {
	words := strings.Fields(string(text))
	for i, w := range words {
		if name, value, ok := strings.Cut(w, "="); ok && hides(name) {
			s.secrets.note(value)
			words[i] = name + "=" + leftOut
		}
	}
	return []byte(strings.Join(words, " ") + "\n")
}

// withoutAddresses returns /proc/modules without the last column, where in memory the modules are.
func withoutAddresses(modules []byte) []byte {
	return regexp.MustCompile(`(?m) 0x[0-9a-f]+`).ReplaceAll(modules, nil)
}

// sysctls are the files and directories below /proc/sys that are read. Of those for each interface all and default are enough.
var sysctls = []string{
	"net/core", "net/ipv4", "net/ipv4/conf/all", "net/ipv4/conf/default", "net/ipv4/neigh/default", "net/ipv6", "net/ipv6/conf/all",
	"net/ipv6/conf/default", "net/ipv6/neigh/default", "net/bridge", "net/netfilter", "net/nf_conntrack_max", "user/max_net_namespaces", "fs/inotify",
	"fs/file-nr", "kernel/pid_max", "kernel/modules_disabled", "kernel/unprivileged_bpf_disabled",
}

// secretSysctl are those from which the kernel makes addresses and cookies.
var secretSysctl = regexp.MustCompile(`secret|key`)

func (s *source) readSysctls(ctx context.Context, out *output) {
	var list bytes.Buffer
	missing := 0
	for _, name := range sysctls {
		paths, _ := filepath.Glob("/proc/sys/" + name + "/*")
		if info, err := os.Stat("/proc/sys/" + name); err != nil {
			missing++ // a module that is not loaded
			continue
		} else if !info.IsDir() {
			paths = []string{"/proc/sys/" + name}
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil || info.Mode().Type() != 0 || info.Mode()&0o400 == 0 || secretSysctl.MatchString(filepath.Base(path)) || ctx.Err() != nil {
				continue
			}
			if value, err := os.ReadFile(path); err == nil { // some have no value yet
				fmt.Fprintf(&list, "%s = %s\n", strings.TrimPrefix(path, "/proc/sys/"), bytes.ReplaceAll(bytes.TrimSpace(value), []byte("\n"), []byte(" | ")))
			}
		}
	}
	if missing == len(sysctls) {
		out.fail("/proc/sys", fs.ErrNotExist)
	}
	out.add("kernel/sysctl.txt", list.Bytes())
}

// readMounts lists where network namespaces are mounted, and what is mounted at and below the directories that matter.
func (s *source) readMounts(_ context.Context, out *output) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		out.fail("/proc/self/mountinfo", err)
	}
	var list bytes.Buffer
	for line := range bytes.Lines(text) {
		if mountOfInterest.Match(line) {
			list.Write(line)
		}
	}
	out.add("mounts.txt", list.Bytes())
}

var mountOfInterest = regexp.MustCompile(` net:\[|^\S+ \S+ \S+ \S+ (/|/run|/run/netns|/var|/var/lib|/etc|/opt|/proc|/sys|/\S*cni\S*) `)

// readDisks says how much space and how many files there may be where state is kept.
func (s *source) readDisks(ctx context.Context, out *output) {
	list := bytes.NewBufferString("directory filesystem bytes free files free flags\n")
	for _, dir := range append([]string{"/", "/run", "/var/lib/cni", "/var/log", "/etc", "/tmp", s.ConfDir}, s.BinDirs...) {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			fmt.Fprintf(list, "%s: %v\n", dir, err)
			continue
		}
		fmt.Fprintf(list, "%s %#x %d %d %d %d %s\n", dir, st.Type, st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize), st.Files, st.Ffree, flags(int64(st.Flags)))
	}
	out.add("disks.txt", list.Bytes())
}

func flags(of int64) string {
	text := "rw"
	if of&unix.ST_RDONLY != 0 {
		text = "ro"
	}
	if of&unix.ST_NOEXEC != 0 {
		text += ",noexec"
	}
	return text
}

// daemons are those that make, watch or change networks of containers. Their processes are named here, and nothing else of them is read: command
// lines and environments have secrets.
var daemons = regexp.MustCompile(`^(containerd.*|crio|conmon.*|kubelet|kube-proxy|kube-router|k3s.*|rke2.*|dockerd|podman|buildkitd|nomad|flanneld|multus.*|calico.*|felix|` +
	`cilium.*|ovn.*|ovs.*|firewalld|ufw.*|NetworkManager|systemd-network.*|dnsmasq|dhcp|cnictl|cnibox.*)$`)

func (s *source) readProcesses(_ context.Context, out *output) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil || names == nil {
		out.fail("/proc", fs.ErrNotExist)
	}
	var list bytes.Buffer
	for _, path := range names {
		name, err := os.ReadFile(path)
		if name = bytes.TrimSpace(name); err == nil && daemons.Match(name) {
			fmt.Fprintf(&list, "%s %s\n", strings.Split(path, "/")[2], name)
		}
	}
	out.add("processes.txt", list.Bytes())
}
