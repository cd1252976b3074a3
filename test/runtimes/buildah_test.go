package runtimes

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestBuildah runs steps of a build on a network: one, and another.
func TestBuildah(t *testing.T) {
	tried(t, buildah, onePod)
	n := newNode(t)
	n.setUpPodman(t)
	n.testLifecycle(t, n.buildahRun, func(*testing.T, container) {})
}

// TestBuildahTwo runs two steps at once, each of which asks the other for its page.
func TestBuildahTwo(t *testing.T) {
	p := newPodmanNode(t)
	a, b := p.buildahRun(t, "a"), p.buildahRun(t, "b")
	for _, c := range []container{a, b} {
		p.awaitPage(t, c.address)
		p.checkContainer(t, c)
	}
	pageFrom(t, a, b.address, 80)
	pageFrom(t, b, a.address, 80)
	a.remove(t)
	pageFrom(t, b, b.address, 80)
	b.remove(t)
	p.checkNothingLeft(t)
}

// TestBuildahDualStack runs a step on a network with IPv4 and IPv6, as podman writes it.
func TestBuildahDualStack(t *testing.T) {
	tried(t, buildah, dualStack)
	p := newPodmanNode(t, dual)
	c := p.buildahRunOn(t, "step", "dual")
	p.awaitPage(t, c.address)
	addresses := strings.Fields(c.exec(t, `ip -o address show eth0 scope global | sed 's/.*inet6* \([^/]*\).*/\1/'`))
	if len(addresses) != 2 {
		t.Fatalf("the addresses are %q, want two", addresses)
	}
	for i, side := range []struct{ node, outside string }{{netlab.HostIPv4, netlab.OutsideIPv4}, {netlab.HostIPv6, netlab.OutsideIPv6}} {
		checkPage(t, p.Namespace, net.JoinHostPort(addresses[i], "80"))
		p.checkReaches(t, c, side.outside, side.node)
	}
	c.remove(t)
	p.checkNothingLeft(t)
}

// TestBuildahEdited edits the network's file, or removes it, while a step runs.
func TestBuildahEdited(t *testing.T) {
	tried(t, buildah, edited)
	p := newPodmanNode(t)
	for _, edit := range networkEdits {
		t.Run(edit.name, func(t *testing.T) {
			c := p.buildahRunOn(t, "step", networkName)
			p.awaitPage(t, c.address)
			p.edit(t, edit.command)
			c.remove(t)
			p.writeFile(t, conflistFile, p.conflist)
			p.checkNothingLeft(t)
		})
	}
}

func (n *node) buildahRun(t *testing.T, name string) container {
	t.Helper()
	c := n.buildahRunOn(t, name, networkName)
	remove := c.remove
	c.remove = func(t *testing.T) {
		remove(t)
		if got, want := n.calls(t, c.id), "ADD DEL"; got != want {
			t.Errorf("buildah called %s, want %s", got, want)
		}
	}
	return c
}

// buildahRunOn starts a step of a build that serves the page on a network. The step is a shell, which does what it is told: buildah can't start
// another process in it.
func (n *node) buildahRunOn(t *testing.T, name, network string) container {
	t.Helper()
	n.run(t, "buildah", "from", "--pull-never", "--cgroup-parent", cgroup()+"/buildah-"+name, "--name", name, imageName)
	var stderr strings.Builder
	step := exec.Command("buildah", "run", "--isolation", "oci", "--runtime", "runc", "--network", network, name, "sh")
	step.Stderr = &stderr
	stdin, err := step.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := step.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(step); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	c := container{
		exec: func(t *testing.T, commandLine string) string {
			const end = "end of the answer"
			if _, err := io.WriteString(stdin, commandLine+"\necho\necho "+end+"\n"); err != nil {
				t.Fatal(err)
			}
			var answer []string
			for lines.Scan() && lines.Text() != end {
				answer = append(answer, lines.Text())
			}
			return strings.TrimSpace(strings.Join(answer, "\n"))
		},
		remove: func(t *testing.T) {
			stdin.Close() // the shell ends, and with it the step
			if err := step.Wait(); err != nil {
				t.Errorf("buildah run: %v: %s", err, stderr.String())
			}
			n.run(t, "buildah", "rm", name)
		},
	}
	c.exec(t, strings.Join(serveCommand, " ")+" &")
	c.address = c.exec(t, `ip -4 -o address show eth0 | sed 's/.*inet \([^/]*\).*/\1/'`)
	if c.address == "" {
		t.Fatalf("the step has no address: %s", stderr.String())
	}
	// buildah does not say what id it gives the plugins: the first line of a lease does.
	c.id, _, _ = strings.Cut(n.readFile(t, "/var/lib/cni/networks/"+network+"/"+c.address), "\r\n")
	return c
}
