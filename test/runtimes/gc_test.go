package runtimes

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestGCAsksContainerd: libcni has lost its result of a pod that runs, and another container is gone. Only that one goes.
func TestGCAsksContainerd(t *testing.T) {
	for _, c := range containerds {
		t.Run(c.name, func(t *testing.T) {
			d := newDaemon(t, c, criNamespace)
			d.testGC(t, d.criPod(t, "web"), "containerd says that it runs")
		})
	}
}

// TestGCAsksPodman is the same with podman's service.
func TestGCAsksPodman(t *testing.T) {
	n := newNode(t)
	n.setUpPodman(t)
	n.run(t, "mkdir", "/run/podman")
	n.Background(t, exec.Command("podman", "system", "service", "--time", "0", "unix:///run/podman/podman.sock"))
	netlab.Eventually(t, func() error {
		_, err := n.Output(exec.Command("curl", "--silent", "--fail", "--unix-socket", "/run/podman/podman.sock", "http://podman/_ping"))
		return err
	})
	n.testGC(t, n.podmanContainer(t, "web"), "podman says that it runs")
}

func (n *node) testGC(t *testing.T, c container, why string) {
	t.Helper()
	defer c.remove(t)
	n.awaitPage(t, c.address)
	gone := n.NewPod(t, "gone")
	n.run(t, netlab.Cnictl(t), "add", networkName, gone.Path(), "--id", "gone")
	gone.Delete(t)
	n.run(t, "sh", "-ec", `rm /var/lib/cni/results/*-`+c.id+`-*`)
	const asked = "/var/lib/cni/networks/web/10.88.0.99" // of which nothing but the runtime says that it is in use
	n.writeFile(t, asked, c.id+"\r\neth9")
	printed := n.gc(t)
	for _, part := range []string{why, `"outcome": "removed"`, `"containerID": "gone"`} {
		if !strings.Contains(printed, part) {
			t.Errorf("%q is missing", part)
		}
	}
	n.checkContainer(t, c)
	n.checkPublished(t, "8080")
	if left := n.run(t, "ls", "/var/lib/cni/networks/web"); !strings.Contains(left, c.address) || strings.Count(left, "10.88.0.") != 2 {
		t.Errorf("leases:\n%s", left)
	}
	n.run(t, "rm", asked)
}

// gc removes what attachments hold that are gone, some minutes later.
func (n *node) gc(t *testing.T, options ...string) (printed string) {
	t.Helper()
	n.run(t, "find", "/var/lib/cni/networks", "/var/lib/cni/results", "-type", "f", "-exec", "touch", "-d", "5 minutes ago", "{}", "+")
	printed = n.run(t, netlab.Cnictl(t), append([]string{"gc", "--apply", "--json"}, options...)...)
	t.Logf("%s", printed)
	return printed
}

// gcAll is gc when nothing is in use: what an ADD has made that was killed goes too.
func (n *node) gcAll(t *testing.T) {
	t.Helper()
	n.writeFile(t, workDir+"/in-use", "none\n")
	n.gc(t, "--valid-from", workDir+"/in-use")
}
