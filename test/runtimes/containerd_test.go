package runtimes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// containerd is a version of it. The tests are the same for all, but for what is said here.
type containerd struct {
	name                 string
	criColumn, ctrColumn string // of the page
	module               string // what it is built from; "" for the distribution's programs
	network              string // the version of the networks
	config               string // with a place for the number of networks of a pod
	// ctrDetaches is whether ctr calls DEL for a container that it has detached from, when it kills it.
	ctrDetaches bool
}

var (
	containerdNew = containerd{"containerd 2.4", criNew, ctrNew, "test/runtimes/containerd", "1.1.0", configVersion3, true}
	containerdOld = containerd{"containerd 1.6", criOld, ctrOld, "", "1.0.0", configVersion2, false}
	containerds   = []containerd{containerdNew, containerdOld}
)

// programs returns the directory that has containerd, its shim and ctr. The first call for one that is to be built takes minutes.
func (c containerd) programs(t *testing.T) string {
	t.Helper()
	if c.module != "" {
		return netlab.Module(t, c.module, "tool")
	}
	program, err := exec.LookPath("containerd")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(program)
}

const (
	containerdConfigFile = workDir + "/containerd.toml"
	containerdSocket     = "/run/containerd/containerd.sock"

	// secondPluginDir has the observer, and comes before the directory that has all plugins.
	secondPluginDir = workDir + "/plugins"
)

// The configurations move what containerd writes into workDir. They do without AppArmor and negative OOM scores, which a virtual machine
// may not offer.
const configVersion2 = `version = 2
root = "` + workDir + `/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[debug]
  level = "warn"

[grpc]
  address = "` + containerdSocket + `"

[plugins."io.containerd.internal.v1.opt"]
  path = "` + workDir + `/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + imageName + `"
  disable_apparmor = true
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "native"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "` + netlab.PluginDir + `"
  conf_dir = "` + conflistDir + `"
  max_conf_num = %d
`

const configVersion3 = `version = 3
root = "` + workDir + `/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs"]

[debug]
  level = "warn"

[grpc]
  address = "` + containerdSocket + `"

[plugins."io.containerd.internal.v1.opt"]
  path = "` + workDir + `/opt"

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "native"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "` + imageName + `"

[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["` + secondPluginDir + `", "` + netlab.PluginDir + `"]
  conf_dir = "` + conflistDir + `"
  max_conf_num = %d
`

// daemon is a containerd on a node.
type daemon struct {
	*node
	containerd
	programs string
	process  *exec.Cmd
	log      strings.Builder
}

// newDaemon makes a node with a network of the version that the containerd knows, and runs it there.
func newDaemon(t *testing.T, c containerd, namespace string) *daemon {
	t.Helper()
	n := newNode(t)
	n.use(t, network{version: c.network})
	return n.startContainerd(t, c, namespace, 1)
}

// startContainerd runs containerd on the node until the test ends, with the image imported into a namespace of it. It attaches each pod to so
// many networks.
func (n *node) startContainerd(t *testing.T, c containerd, namespace string, networks int) *daemon {
	t.Helper()
	d := n.newContainerd(t, c, networks)
	d.start(t)
	d.ctr(t, "--namespace", namespace, "image", "import", "--snapshotter", "native", imageFile)
	t.Logf("containerd runs: %s", d.run(t, filepath.Join(d.programs, "containerd"), "--version"))
	return d
}

// newContainerd configures containerd. It runs at most until the test ends.
func (n *node) newContainerd(t *testing.T, c containerd, networks int) *daemon {
	t.Helper()
	d := &daemon{node: n, containerd: c, programs: c.programs(t)}
	n.writeFile(t, containerdConfigFile, fmt.Sprintf(c.config, networks))
	n.run(t, "mkdir", "-p", secondPluginDir)
	n.run(t, "cp", "-d", filepath.Join(netlab.PluginDir, observerName), secondPluginDir)
	before := processes(t)
	t.Cleanup(func() {
		if d.process.ProcessState == nil {
			stop(t, d.process)
		}
		if t.Failed() {
			t.Logf("containerd's log:\n%s", d.log.String())
			return // with containers left, their shims go on
		}
		awaitEnd(t, before)
	})
	return d
}

// start runs containerd, and waits until it answers.
func (d *daemon) start(t *testing.T) {
	t.Helper()
	d.process = exec.Command(filepath.Join(d.programs, "containerd"), "--config", containerdConfigFile)
	d.process.Env = append(os.Environ(), "PATH="+d.programs+":"+os.Getenv("PATH")) // where it finds its shim
	d.process.Stdout, d.process.Stderr = &d.log, &d.log
	d.process.WaitDelay = time.Second // for a shim that keeps the pipe open
	if err := d.Start(d.process); err != nil {
		t.Fatal(err)
	}
	netlab.Eventually(t, func() error {
		_, err := d.criclient("list") // the CRI is the last part of it to be ready
		return err
	})
}

func (d *daemon) ctrCommand(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(d.programs, "ctr"), args...)
}

func (d *daemon) ctr(t *testing.T, args ...string) string {
	t.Helper()
	return d.run(t, filepath.Join(d.programs, "ctr"), args...)
}

// stop ends a process the way an init system does.
func stop(t *testing.T, process *exec.Cmd) {
	t.Helper()
	if err := process.Process.Signal(unix.SIGTERM); err != nil {
		t.Errorf("stop %s: %v", process.Path, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Errorf("wait for %s: %v", process.Path, err)
		}
	case <-time.After(netlab.Patience):
		_ = process.Process.Kill()
		t.Errorf("%s did not stop within %v and was killed: %v", process.Path, netlab.Patience, <-ended)
	}
}
