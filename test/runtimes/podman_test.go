package runtimes

import (
	"fmt"
	"testing"
)

// TestPodman runs containers with podman's CNI backend, with a published port.
func TestPodman(t *testing.T) {
	tried(t, podman, onePod)
	n := newNode(t)
	n.setUpPodman(t)
	n.testLifecycle(t, n.podmanContainer, func(t *testing.T, _ container) { n.checkPublished(t, "8080") })
	n.checkUnpublished(t, "8080")
}

// setUpPodman configures podman for the node, with the image.
func (n *node) setUpPodman(t *testing.T) {
	t.Helper()
	n.writeFile(t, workDir+"/containers.conf", podmanConfig)
	n.writeFile(t, workDir+"/storage.conf", podmanStorage)
	t.Setenv("CONTAINERS_CONF", workDir+"/containers.conf")
	t.Setenv("CONTAINERS_STORAGE_CONF", workDir+"/storage.conf")
	t.Logf("podman runs: %s", n.run(t, "podman", "info", "--format",
		"podman {{.Version.Version}}, network backend {{.Host.NetworkBackend}}, {{.Host.OCIRuntime.Name}}, {{.Host.CgroupManager}}"))
	n.run(t, "podman", "load", "--quiet", "--input", imageFile)
}

// podmanConfig chooses CNI, and a runtime and control groups that work in any virtual machine.
const podmanConfig = `[network]
network_backend = "cni"
cni_plugin_dirs = ["/opt/cni/bin"]
network_config_dir = "` + conflistDir + `"
default_network = "` + networkName + `"

[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"

[containers]
apparmor_profile = "unconfined"
oom_score_adj = 0
`

const podmanStorage = `[storage]
driver = "vfs"
runroot = "/run/containers/storage"
graphroot = "` + workDir + `/storage"
`

func (n *node) podmanContainer(t *testing.T, name string) container {
	return n.podmanContainerAt(t, name, 8080)
}

// podmanContainerAt starts a container whose page is published on a port.
func (n *node) podmanContainerAt(t *testing.T, name string, port int) container {
	t.Helper()
	args := append([]string{
		"run", "--detach", "--name", name, "--publish", fmt.Sprintf("%d:80", port), "--cgroup-parent", cgroup(), imageName,
	}, serveCommand...)
	id := n.run(t, "podman", args...)
	return container{
		id:      id,
		address: n.run(t, "podman", "inspect", "--format", "{{.NetworkSettings.IPAddress}}", name),
		exec: func(t *testing.T, commandLine string) string {
			return n.run(t, "podman", "exec", name, "sh", "-c", commandLine)
		},
		remove: func(t *testing.T) {
			n.run(t, "podman", "rm", "--force", "--time", "0", name)
			if got, want := n.calls(t, id), "ADD DEL"; got != want {
				t.Errorf("podman called %s, want %s", got, want)
			}
		},
	}
}
