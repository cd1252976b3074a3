package runtimes

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestPodmanPorts publishes ports on all of the node's addresses and on one, and asks for the page from everywhere.
func TestPodmanPorts(t *testing.T) {
	tried(t, podman, publishedPort)
	p := newPodmanNode(t)
	web := p.podmanRun(t, "web", "--publish", "8080:80", "--publish", netlab.HostIPv4+":8081:80", "--publish", "127.0.0.1:8082:80")
	other := p.podmanRun(t, "other")
	p.awaitPage(t, web.address)

	p.checkPublished(t, "8080")
	checkPage(t, p.outside.Namespace, netlab.HostIPv4+":8081")
	checkPage(t, p.Namespace, netlab.HostIPv4+":8081")
	checkNoPage(t, p.Namespace, "127.0.0.1:8081")
	checkPage(t, p.Namespace, "127.0.0.1:8082")
	checkNoPage(t, p.Namespace, netlab.HostIPv4+":8082")
	checkNoPage(t, p.outside.Namespace, netlab.HostIPv4+":8082")
	for _, from := range []container{other, web} {
		pageFrom(t, from, netlab.HostIPv4, 8080)
		pageFrom(t, from, netlab.HostIPv4, 8081)
	}

	// podman, which would bind the port for itself, attaches a container before.
	_, err := p.Output(exec.Command("podman", podmanRunArgs("late", "--publish", "8080:80")...))
	t.Logf("a port in use: %v", err)
	if err == nil || !strings.Contains(err.Error(), web.id) {
		t.Errorf("port 8080 is in use, and podman run ended with %v; want an error that names %s", err, web.id)
	}
	p.run(t, "podman", "rm", "--force", "late")
	p.checkPublished(t, "8080")

	other.remove(t)
	web.remove(t)
	for _, port := range []string{"8080", "8081", "8082"} {
		p.checkUnpublished(t, port)
	}
	p.checkNothingLeft(t)
}

// TestPodmanPod publishes a port of a pod, whose containers share its address, and stops and starts the pod.
func TestPodmanPod(t *testing.T) {
	p := newPodmanNode(t)
	p.run(t, "podman", "pod", "create", "--name", "pod", "--infra-image", imageName, "--infra-command", "/bin/sleep 86400",
		"--cgroup-parent", cgroup(), "--publish", "8080:80")
	p.run(t, "podman", podmanRunArgs("web", "--pod", "pod")...)
	p.run(t, "podman", "run", "--detach", "--pod", "pod", "--name", "beside", imageName)
	for _, again := range []bool{false, true} {
		if again {
			p.run(t, "podman", "pod", "stop", "--time", "0", "pod")
			p.checkUnpublished(t, "8080")
			p.run(t, "podman", "pod", "start", "pod")
		}
		netlab.Eventually(t, func() error {
			_, err := fetch(p.Namespace, "127.0.0.1:8080", silence)
			return err
		})
		p.checkPublished(t, "8080")
		beside := container{exec: func(t *testing.T, commandLine string) string {
			return p.run(t, "podman", "exec", "beside", "sh", "-c", commandLine)
		}}
		pageFrom(t, beside, "127.0.0.1", 80)
		pageFrom(t, beside, netlab.HostIPv4, 8080)
	}
	p.run(t, "podman", "pod", "rm", "--force", "--time", "0", "pod")
	p.checkUnpublished(t, "8080")
	p.checkNothingLeft(t)
}

// checkNoPage checks that nothing answers at an address.
func checkNoPage(t *testing.T, from netlab.Namespace, address string) {
	t.Helper()
	page, err := fetch(from, address, silence)
	if err == nil {
		t.Errorf("from %s, %s answers: %q", from.Name(), address, page)
		return
	}
	t.Logf("from %s, as it should be: %v", from.Name(), err)
}
