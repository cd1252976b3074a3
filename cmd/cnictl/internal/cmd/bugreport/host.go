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
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// kernelFiles say which kernel runs, how it was started, and what it has loaded.
var kernelFiles = []string{"/proc/version", "/etc/os-release", "/proc/sys/kernel/tainted", "/proc/uptime", "/proc/cmdline", "/proc/modules"}

func (s *source) readKernel(_ context.Context, out *output) {
	for _, path := range kernelFiles {
		text, err := os.ReadFile(path)
		switch {
		case err != nil && (path != "/proc/modules" || !errors.Is(err, fs.ErrNotExist)): // a kernel may have none
			out.fail(path, err)
		case path == "/proc/cmdline":
			text = s.bootParameters(text)
		case path == "/proc/modules":
			text = withoutAddresses(text)
		}
		if err == nil {
			out.add("kernel/"+filepath.Base(path), text)
		}
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
	mounts, err := s.host.Mounts()
	if err != nil {
		out.fail("mounts", err)
	}
	var list bytes.Buffer
	for _, m := range mounts {
		if strings.HasPrefix(m.Root, "net:[") || mountOfInterest.MatchString(m.Mountpoint) {
			fmt.Fprintf(&list, "%s %s %s %s %s %s\n", m.Root, m.Mountpoint, m.Options, m.FSType, m.Source, m.VFSOptions)
		}
	}
	out.add("mounts.txt", list.Bytes())
}

var mountOfInterest = regexp.MustCompile(`^(/|/run|/run/netns|/var|/var/lib|/var/log|/tmp|/etc|/opt|/proc|/proc/sys|/sys|/.*cni.*)$`)

// readDisks says how much space and how many files there may be where state is kept.
func (s *source) readDisks(ctx context.Context, out *output) {
	list := bytes.NewBufferString("directory filesystem bytes free files free\n")
	for _, dir := range append([]string{"/", "/run", "/var/lib/cni", "/var/log", "/etc", "/tmp", s.ConfDir}, s.BinDirs...) {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			fmt.Fprintf(list, "%s: %v\n", dir, err)
			continue
		}
		fmt.Fprintf(list, "%s %#x %d %d %d %d\n", dir, st.Type, st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize), st.Files, st.Ffree)
	}
	out.add("disks.txt", list.Bytes())
}

// daemons are those that make, watch or change networks of containers. Their processes are named here, and nothing else of them is read: command
// lines and environments have secrets.
var daemons = regexp.MustCompile(`^(containerd.*|crio|conmon.*|kubelet|kube-proxy|kube-router|k3s.*|rke2.*|dockerd|podman|buildkitd|nomad|flanneld|multus.*|calico.*|felix|` +
	`cilium.*|ovn.*|ovs.*|firewalld|ufw.*|NetworkManager|systemd-network.*|dnsmasq|dhcp|cnictl|cnibox.*)$`)

func (s *source) readProcesses(_ context.Context, out *output) {
	processes, err := s.host.Processes()
	if err != nil {
		out.fail("/proc", err)
	}
	var list bytes.Buffer
	for _, p := range processes {
		if daemons.MatchString(p.Name) {
			fmt.Fprintf(&list, "%d %s\n", p.PID, p.Name)
		}
	}
	out.add("processes.txt", list.Bytes())
}

func (s *source) readHostNetwork(_ context.Context, out *output) {
	list, _ := node.List(nil)
	out.addJSON("network/host.json", list)
}

// readNamespaces looks into the namespaces of containers.
func (s *source) readNamespaces(ctx context.Context, out *output) {
	n := node.Read(ctx, s.Options.Options)
	for _, ns := range n.Namespaces {
		isOf := func(a *node.Attachment) bool { return a.Network == s.Network && a.Namespace == ns }
		if s.Network != "" && !slices.ContainsFunc(n.Attachments, isOf) {
			continue
		}
		list, err := node.List(ns)
		_, gone := os.Stat(ns.Path())
		switch {
		case ctx.Err() != nil:
			out.fail("namespaces", ctx.Err())
			return
		case err == nil:
			out.addJSON(fmt.Sprintf("network/namespace-%d.json", ns.Inode), list)
		case !errors.Is(gone, fs.ErrNotExist): // else it has ended meanwhile
			out.fail(ns.Path(), err)
		}
	}
}
