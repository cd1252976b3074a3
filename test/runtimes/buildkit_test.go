package runtimes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestBuildKitBridge builds an image on BuildKit's own network. BuildKit finds its plugins under names such as buildkit-cni-bridge, and calls
// them by these.
func TestBuildKitBridge(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"bridge", "loopback", "host-local", "firewall"} {
		n.run(t, "ln", "-s", filepath.Join(netlab.PluginDir, name), filepath.Join(workDir, "buildkit-cni-"+name))
	}
	fresh := n.Snapshot(t)
	b := n.startBuildKit(t, `networkMode = "bridge"
  bridgeName = "`+bridgeName+`"
  bridgeSubnet = "`+podNetwork+`"`)
	b.build(t, "cat /proc/sys/net/ipv4/ip_forward")
	b.stop(t)
	b.leaves(t, fresh, "file /var/lib/cni/networks/buildkit drwx", "file /var/lib/cni/networks/buildkit/lock ",
		"file /var/lib/cni/networks/buildkit/last_reserved_ip.0 ", "file /var/lib/cni/networks/.cnibox/buildkit")
}

// TestBuildKitPool builds an image with namespaces that BuildKit has made before and attached to the network.
func TestBuildKitPool(t *testing.T) {
	n := newNode(t)
	fresh := n.Snapshot(t)
	b := n.startBuildKit(t, `networkMode = "cni"
  cniConfigPath = "`+filepath.Join(conflistDir, "10-web.conflist")+`"
  cniBinaryPath = "`+netlab.PluginDir+`"
  cniPoolSize = 4`)
	if got := b.build(t, "cat /proc/sys/net/core/somaxconn"); !strings.Contains(got, somaxconn) {
		t.Errorf("net.core.somaxconn of the step is not %s:\n%s", somaxconn, got)
	}
	calls := func(verb string) int { return strings.Count(n.readFile(t, observerLog), verb+" ") }
	eventually(t, func() error {
		if added := calls("ADD"); added < 4 {
			return fmt.Errorf("BuildKit has called ADD %d times, want it to fill its pool of 4", added)
		}
		return nil
	})
	b.stop(t)
	if added, removed := calls("ADD"), calls("DEL"); removed < added {
		t.Errorf("BuildKit called ADD %d times, and DEL %d times", added, removed)
	}
	b.leaves(t, fresh)
}

// buildKit is a running buildkitd, and a directory to build an image from.
type buildKit struct {
	*node
	programs string // the directory that has buildkitd and buildctl
	daemon   *exec.Cmd
}

const (
	buildKitSocket = "unix:///run/buildkit/buildkitd.sock"
	buildKitConfig = workDir + "/buildkitd.toml"
	buildContext   = workDir + "/context"
)

// startBuildKit runs buildkitd with these settings of its network, and waits until it answers.
func (n *node) startBuildKit(t *testing.T, network string) *buildKit {
	t.Helper()
	b := &buildKit{n, netlab.Module(t, "test/runtimes/buildkit", "tool"), nil}
	n.writeFile(t, buildKitConfig, `root = "`+workDir+`/buildkit"
[cdi]
  disabled = true
[worker.containerd]
  enabled = false
[worker.oci]
  snapshotter = "native"
  defaultCgroupParent = "`+cgroup()+`"
  `+network+"\n")
	var log strings.Builder
	b.daemon = exec.Command(filepath.Join(b.programs, "buildkitd"), "--config", buildKitConfig, "--addr", buildKitSocket)
	b.daemon.Env = append(os.Environ(), "PATH="+workDir+":"+os.Getenv("PATH"))
	b.daemon.Stdout, b.daemon.Stderr = &log, &log
	b.daemon.WaitDelay = time.Second
	before := processes(t)
	if err := n.Start(b.daemon); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.stop(t)
		awaitEnd(t, before)
		if t.Failed() {
			t.Logf("buildkitd's log:\n%s", log.String())
		}
	})
	eventually(t, func() error {
		_, err := n.Output(b.buildctl("debug", "workers"))
		return err
	})
	return b
}

func (b *buildKit) buildctl(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(b.programs, "buildctl"), append([]string{"--addr", buildKitSocket}, args...)...)
}

// stop ends buildkitd, which detaches what it keeps attached.
func (b *buildKit) stop(t *testing.T) {
	t.Helper()
	if b.daemon.ProcessState == nil {
		stop(t, b.daemon)
	}
}

// leaves makes sure that nothing is left on the node but what the network keeps, some of it under the beginnings of lines that are given.
func (b *buildKit) leaves(t *testing.T, fresh *netlab.Snapshot, network ...string) {
	t.Helper()
	if diff := fresh.Diff(b.Snapshot(t), slices.Concat(ofNetwork, ofRuntime, network)...); diff != "" {
		t.Errorf("left when BuildKit has ended:\n%s", diff)
	}
}

// build builds an image with a step that has the network, runs a command line, and asks a server outside. It returns what was printed.
func (b *buildKit) build(t *testing.T, commandLine string) string {
	t.Helper()
	server := b.outside.ServeTCP(t, netlab.OutsideIPv4+":0")
	b.run(t, "mkdir", "-p", buildContext)
	b.run(t, "cp", busybox, buildContext)
	b.writeFile(t, filepath.Join(buildContext, "Dockerfile"), strings.Join([]string{
		"FROM scratch",
		"COPY busybox /bin/busybox",
		`SHELL ["/bin/busybox", "sh", "-c"]`,
		"RUN /bin/busybox " + strings.Join([]string{commandLine, "ip address", "echo hello | nc -w 5 " + strings.ReplaceAll(server.String(), ":", " ")}, " && /bin/busybox "),
		"",
	}, "\n"))
	var printed strings.Builder
	build := b.buildctl("build", "--progress", "plain", "--frontend", "dockerfile.v0", "--local", "context="+buildContext, "--local", "dockerfile="+buildContext)
	build.Stdout, build.Stderr = &printed, &printed
	err := b.Run(build)
	t.Logf("buildctl build printed:\n%s", printed.String())
	if want := "outside saw " + netlab.HostIPv4; err != nil || !strings.Contains(printed.String(), want) {
		t.Fatalf("the build ended with %v; want it to print %q", err, want)
	}
	return printed.String()
}
