package runtimes

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
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
	c := n.podmanRun(t, name, "--publish", fmt.Sprintf("%d:80", port))
	remove := c.remove
	c.remove = func(t *testing.T) {
		remove(t)
		if got, want := n.calls(t, c.id), "ADD DEL"; got != want {
			t.Errorf("podman called %s, want %s", got, want)
		}
	}
	return c
}

// podmanRun starts a container that serves the page, with options of podman run.
func (n *node) podmanRun(t *testing.T, name string, options ...string) container {
	t.Helper()
	return container{
		id:      n.run(t, "podman", podmanRunArgs(name, options...)...),
		address: n.podmanAddresses(t, name)[0],
		exec: func(t *testing.T, commandLine string) string {
			return n.run(t, "podman", "exec", name, "sh", "-c", commandLine)
		},
		remove: func(t *testing.T) {
			n.run(t, "podman", "rm", "--force", "--time", "0", name)
		},
	}
}

func podmanRunArgs(name string, options ...string) []string {
	args := append([]string{"run", "--detach", "--name", name, "--cgroup-parent", cgroup()}, options...)
	return append(append(args, imageName), serveCommand...)
}

// podmanAddresses returns the addresses of containers: of one on several networks in the order of the networks' names, and on each network that of
// IPv4 before that of IPv6.
func (n *node) podmanAddresses(t *testing.T, names ...string) []string {
	t.Helper()
	format := "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.GlobalIPv6Address}} {{end}}"
	return strings.Fields(n.run(t, "podman", append([]string{"inspect", "--format", format}, names...)...))
}

// podmanNode is a node with podman, whose networks have had a container.
type podmanNode struct {
	*node
	used    *netlab.Snapshot
	kept    []string // what networks keep
	running map[int]string
}

// newPodmanNode also makes networks, as podman writes them: each is the arguments of podman network create, the last of which is the name. The first
// container is on all of them at once, as the packet filter has the rules of a subnet while somebody uses it.
func newPodmanNode(t *testing.T, networks ...string) *podmanNode {
	t.Helper()
	p := &podmanNode{node: newNode(t), kept: ofAllocation, running: processes(t)}
	p.setUpPodman(t)
	options := []string{"--publish", "8080:80", "--network", networkName}
	for _, args := range networks {
		words := strings.Fields(args)
		name := words[len(words)-1]
		p.run(t, "podman", append([]string{"network", "create"}, words...)...)
		t.Logf("podman has made the network %s:\n%s", name, p.readFile(t, conflistDir+"/"+name+".conflist"))
		options = append(options, "--network", name)
		p.kept = append(p.kept, "file /var/lib/cni/networks/"+name+"/last_reserved_ip.", "file /var/lib/cni/networks/.cnibox/"+name)
	}
	p.podmanRun(t, "first", options...).remove(t)
	awaitEnd(t, p.running)
	p.used = p.Snapshot(t)
	return p
}

// checkNothingLeft checks, when all containers are removed, that nothing is on the node that was not there before them.
func (p *podmanNode) checkNothingLeft(t *testing.T) {
	t.Helper()
	awaitEnd(t, p.running)
	after := p.Snapshot(t)
	if diff := p.used.Diff(after, slices.Concat(p.kept, ofRuntime)...); diff != "" {
		t.Errorf("left by the containers:\n%s", diff)
	}
	// What the very first containers have left, too, is in both.
	for _, attachment := range []string{"link veth", "file /run/netns/", "file /var/lib/cni/results/", "nft table inet cnibox map owners_v1: element"} {
		if left := after.Lines(attachment); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// pageFrom asks for the page from inside a container. busybox's wget does not work when it is linked statically.
func pageFrom(t *testing.T, c container, address string, port int) {
	t.Helper()
	got := c.exec(t, fmt.Sprintf(`printf 'GET / HTTP/1.0\r\n\r\n' | nc -w %v %s %d`, netlab.Patience.Seconds(), address, port))
	t.Logf("from container %s, %s port %d: %q", c.address, address, port, got)
	if !strings.HasSuffix(got, strings.TrimSpace(pageBody)) {
		t.Errorf("container %s was answered %q from %s port %d, want the page", c.address, got, address, port)
	}
}

// checkReaches checks that a container reaches a server at an address of the outside, which sees the node's address.
func (n *node) checkReaches(t *testing.T, c container, outside, node string) {
	t.Helper()
	server := n.outside.ServeTCP(t, net.JoinHostPort(outside, "0"))
	if got, want := c.exec(t, fmt.Sprintf("echo hello | nc -w %v %s %d", netlab.Patience.Seconds(), server.Addr(), server.Port())), "outside saw "+node; got != want {
		t.Errorf("the container was answered %q from outside, want %q", got, want)
	}
}
