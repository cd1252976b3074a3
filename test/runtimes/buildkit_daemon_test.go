package runtimes

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
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
	eventually(t, func() error {
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
		for pid := range orphans {
			_ = unix.Kill(pid, unix.SIGKILL) // the first of a step takes the others with it
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
		eventually(t, func() error {
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

// build is a build that runs, of steps that run at once.
type build struct {
	*buildKit
	cmd       *exec.Cmd
	steps     int
	printed   safeBuffer
	addresses []string
}

// safeBuffer is what a process is writing while somebody reads.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// build builds an image with one step, from beginning to end, and returns what was printed.
func (b *buildKit) build(t *testing.T) string {
	t.Helper()
	build := b.begin(t, 1)
	build.await(t)
	build.end(t)
	return build.printed.String()
}

// begin begins to build an image. Each step asks a server outside, serves the page, and waits for a connection to port 81 to end it.
func (b *buildKit) begin(t *testing.T, steps int) *build {
	t.Helper()
	b.builds++
	dir := fmt.Sprint(workDir, "/context-", b.builds)
	server := b.outside.ServeTCP(t, netlab.OutsideIPv4+":0")
	b.writeFile(t, dir+"/index.html", pageBody)
	b.run(t, "cp", busybox, dir)
	file := `FROM scratch AS base
COPY busybox /bin/busybox
COPY index.html /www/index.html
SHELL ["/bin/busybox", "sh", "-c"]
`
	last := "FROM scratch\n"
	for i := range steps {
		file += fmt.Sprintf("FROM base AS step%d\nRUN : %d of build %d && echo hello | nc -w 5 %s %d && echo somaxconn is `cat /proc/sys/net/core/somaxconn`"+
			" && httpd -p 80 -h /www && ip -4 -o address show scope global && nc -l -p 81 </dev/null >/done\n", i, i, b.builds, server.Addr(), server.Port())
		last += fmt.Sprintf("COPY --from=step%d /done /%d\n", i, i)
	}
	b.writeFile(t, dir+"/Dockerfile", file+last)
	begun := &build{buildKit: b, steps: steps,
		cmd: b.buildctl("build", "--progress", "plain", "--frontend", "dockerfile.v0", "--local", "context="+dir, "--local", "dockerfile="+dir)}
	begun.cmd.Stdout, begun.cmd.Stderr = &begun.printed, &begun.printed
	if err := b.Start(begun.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("buildctl build printed:\n%s", begun.printed.String())
		}
	})
	return begun
}

var stepAddress = regexp.MustCompile(`inet (10\.\d+\.0\.\d+)/24`)

// await waits until all steps run, and asks each for its page.
func (b *build) await(t *testing.T) {
	t.Helper()
	for i := range b.steps {
		eventually(t, func() error {
			shown := stepAddress.FindAllStringSubmatch(b.printed.String(), -1)
			if len(shown) <= i {
				return fmt.Errorf("%d of %d steps run", len(shown), b.steps)
			}
			b.addresses = append(b.addresses, shown[i][1])
			return nil
		})
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(b.addresses))); len(distinct) != b.steps {
		t.Errorf("%d steps have %d addresses", b.steps, len(distinct))
	}
	for _, address := range b.addresses {
		b.awaitPage(t, address)
		checkPage(t, b.outside.Namespace, address+":80")
	}
}

// end lets the steps end, and waits for the build to.
func (b *build) end(t *testing.T) {
	t.Helper()
	for _, address := range b.addresses {
		eventually(t, func() error {
			conn, err := b.DialContext(t.Context(), "tcp", address+":81")
			if err == nil {
				err = conn.Close()
			}
			return err
		})
	}
	if err := b.cmd.Wait(); err != nil {
		t.Errorf("the build has ended with %v", err)
	}
	if seen := strings.Count(b.printed.String(), "outside saw "+netlab.HostIPv4); seen != b.steps {
		t.Errorf("%d of %d steps were seen outside under the node's address", seen, b.steps)
	}
}
