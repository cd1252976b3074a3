package runtimes

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startContainerd runs containerd on the node until the test ends, with the image imported into a namespace of it.
func (n *node) startContainerd(t *testing.T, namespace string) {
	t.Helper()
	n.writeFile(t, containerdConfigFile, containerdConfig)
	var log strings.Builder
	daemon := exec.Command("containerd", "--config", containerdConfigFile)
	daemon.Stdout, daemon.Stderr = &log, &log
	daemon.WaitDelay = time.Second // for a shim that keeps the pipe open
	before := processes(t)
	if err := n.Start(daemon); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop(t, daemon)
		if t.Failed() {
			t.Logf("containerd's log:\n%s", log.String())
			return // with containers left, their shims go on
		}
		awaitEnd(t, before)
	})
	eventually(t, func() error {
		_, err := n.Output(exec.Command("ctr", "version"))
		return err
	})
	n.run(t, "ctr", "--namespace", namespace, "image", "import", "--snapshotter", "native", imageFile)
	t.Logf("containerd runs: %s", n.run(t, "containerd", "--version"))
}

const (
	containerdConfigFile = workDir + "/containerd.toml"
	containerdSocket     = "/run/containerd/containerd.sock"
)

// containerdConfig moves what containerd writes into workDir. It does without AppArmor and negative OOM scores, which a
// virtual machine may not offer.
const containerdConfig = `version = 2
root = "` + workDir + `/containerd"
state = "/run/containerd"

disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

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
  bin_dir = "/opt/cni/bin"
  conf_dir = "` + conflistDir + `"
`

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
	case <-time.After(20 * time.Second):
		_ = process.Process.Kill()
		t.Errorf("%s did not stop within 20 s and was killed: %v", process.Path, <-ended)
	}
}
