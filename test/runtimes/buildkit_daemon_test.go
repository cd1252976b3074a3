package runtimes

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// buildKit is buildkitd on a node.
type buildKit struct {
	*node
	programs string // the directory that has buildkitd and buildctl
	daemon   *exec.Cmd
	log      bytes.Buffer // of all daemons, one after the other
	builds   int
}

const (
	buildKitSocket = "unix:///run/buildkit/buildkitd.sock"
	buildKitConfig = workDir + "/buildkitd.toml"
)

// startBuildKit runs buildkitd with these settings of its network until the test ends.
func (n *node) startBuildKit(t *testing.T, network string) *buildKit {
	t.Helper()
	b := &buildKit{node: n, programs: netlab.Module(t, "test/runtimes/buildkit", "tool")}
	before := processes(t)
	t.Cleanup(func() {
		if t.Failed() { // with steps that may wait for ever
			_ = b.daemon.Process.Kill()
			_ = b.daemon.Wait()
			t.Logf("buildkitd's log:\n%s", b.log.String())
			return
		}
		awaitEnd(t, before)
	})
	b.configure(t, network)
	b.start(t)
	return b
}

func (b *buildKit) configure(t *testing.T, network string) {
	t.Helper()
	b.writeFile(t, buildKitConfig, `root = "`+workDir+`/buildkit"
[cdi]
  disabled = true
[worker.containerd]
  enabled = false
[worker.oci]
  snapshotter = "native"
  defaultCgroupParent = "`+cgroup()+`"
  `+network+"\n")
}

// start runs buildkitd and waits until it answers.
func (b *buildKit) start(t *testing.T) {
	t.Helper()
	b.daemon = exec.Command(filepath.Join(b.programs, "buildkitd"), "--config", buildKitConfig, "--addr", buildKitSocket)
	b.daemon.Env = append(os.Environ(), "PATH="+workDir+":"+os.Getenv("PATH"))
	b.daemon.Stdout, b.daemon.Stderr = &b.log, &b.log
	b.daemon.WaitDelay = time.Second
	if err := b.Start(b.daemon); err != nil {
		t.Fatal(err)
	}
	netlab.Eventually(t, func() error {
		_, err := b.Output(b.buildctl("debug", "workers"))
		return err
	})
}

func (b *buildKit) buildctl(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(b.programs, "buildctl"), append([]string{"--addr", buildKitSocket}, args...)...)
}

// stop ends buildkitd, which detaches what it keeps attached.
func (b *buildKit) stop(t *testing.T) {
	t.Helper()
	stop(t, b.daemon)
}

// kill ends buildkitd and nothing else: its steps go on. The function that it returns ends them.
func (b *buildKit) kill(t *testing.T, before map[int]string) (endSteps func()) {
	t.Helper()
	if err := b.daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = b.daemon.Wait()
	orphans := processes(t)
	maps.DeleteFunc(orphans, func(pid int, _ string) bool { _, known := before[pid]; return known })
	t.Logf("BuildKit is killed; what goes on: %q", slices.Sorted(maps.Values(orphans)))
	return func() {
		for pid, line := range processes(t) {
			if orphans[pid] == line {
				_ = unix.Kill(pid, unix.SIGKILL) // the first of a step takes the others with it
			}
		}
		awaitEnd(t, before)
	}
}

// called returns how often BuildKit has had the network's plugins called.
func (b *buildKit) called(t *testing.T, verb string) int {
	t.Helper()
	return strings.Count(b.readFile(t, observerLog), verb+" ")
}

// attached returns the ids of namespaces that BuildKit has called ADD for, and not DEL.
func (b *buildKit) attached(t *testing.T) []string {
	t.Helper()
	ids := map[string]bool{}
	for line := range strings.Lines(b.readFile(t, observerLog)) {
		switch call := strings.Fields(line); call[0] {
		case "ADD":
			ids[call[1]] = true
		case "DEL":
			delete(ids, call[1])
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// awaitPool waits until so many namespaces are attached, those of steps that run among them, and no others are.
func (b *buildKit) awaitPool(t *testing.T, size int) {
	t.Helper()
	for attached := b.attached(t); len(attached) != size; attached = b.attached(t) {
		netlab.Eventually(t, func() error {
			if slices.Equal(attached, b.attached(t)) {
				return fmt.Errorf("BuildKit has %d namespaces attached, and goes on to have them, want %d: %q", len(attached), size, attached)
			}
			return nil
		})
	}
}

func (b *buildKit) hasRemovedAll(t *testing.T) {
	t.Helper()
	if attached := b.attached(t); len(attached) > 0 {
		t.Errorf("BuildKit has not called DEL for %q", attached)
	}
	t.Logf("BuildKit has called ADD %d times and DEL %d times", b.called(t, "ADD"), b.called(t, "DEL"))
}

// leaves makes sure that nothing is left on the node but what the network keeps, some of it under the beginnings of lines that are given.
func (b *buildKit) leaves(t *testing.T, fresh *netlab.Snapshot, network ...string) {
	t.Helper()
	if diff := fresh.Diff(b.Snapshot(t), slices.Concat(ofNetwork, ofRuntime, network)...); diff != "" {
		t.Errorf("left when BuildKit has ended:\n%s", diff)
	}
}
