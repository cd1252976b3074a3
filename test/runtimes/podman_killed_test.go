package runtimes

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestPodmanKilled kills podman at many moments of a start and of a removal, and then has it remove what is left.
func TestPodmanKilled(t *testing.T) {
	tried(t, podman, runtimeKilled)
	p := newPodmanNode(t)
	const moments = 10
	start := podmanRunArgs("killed", "--publish", "8080:80")
	remove := []string{"rm", "--force", "--time", "0", "--ignore", "killed"}
	begin := time.Now()
	p.run(t, "podman", start...)
	started := time.Now()
	p.run(t, "podman", remove...)
	removed := time.Now()
	for i := range moments {
		p.killPodman(t, started.Sub(begin)*time.Duration(i+1)/moments, start)
		p.removeAfterKill(t, remove)
		p.collect(t)
		p.checkNothingLeft(t)
	}
	for i := range moments {
		p.run(t, "podman", start...)
		p.killPodman(t, removed.Sub(started)*time.Duration(i+1)/moments, remove)
		p.removeAfterKill(t, remove)
		p.checkNothingLeft(t)
	}
	p.checkUnpublished(t, "8080")
}

// killPodman starts podman and kills it after some time, unless it has ended.
func (p *podmanNode) killPodman(t *testing.T, after time.Duration, args []string) {
	t.Helper()
	cmd := exec.Command("podman", args...)
	if err := p.Start(cmd); err != nil {
		t.Fatal(err)
	}
	netlab.Pause(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// removeAfterKill has podman remove a container, and ends the processes of one that podman had not written down when it was killed.
func (p *podmanNode) removeAfterKill(t *testing.T, remove []string) {
	t.Helper()
	netlab.Eventually(t, func() error { // mounts may be busy at first
		_, err := p.Output(exec.Command("podman", remove...))
		return err
	})
	for pid, line := range processes(t) {
		_, known := p.running[pid]
		for _, program := range []string{"/usr/bin/conmon", "/usr/bin/runc", serveCommand[0]} {
			if !known && strings.HasPrefix(line, program+" ") {
				t.Logf("podman does not know %s", line)
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}

// collect removes what podman never calls DEL for, as it knows nothing of it: namespaces, and by GC what is attached.
func (p *podmanNode) collect(t *testing.T) {
	t.Helper()
	p.run(t, "sh", "-ec", `for netns in /run/netns/*; do [ ! -e $netns ] || ip netns delete ${netns##*/}; done
		find /var/lib/cni -type f -exec touch -d "5 minutes ago" {} +`)
	t.Logf("%s", p.run(t, "sh", "-c", "echo none | "+netlab.Cnictl(t)+" gc "+networkName+" --apply --valid-from -"))
}
