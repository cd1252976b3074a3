package runtimes

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestPodmanReboot has the node start again while a container runs, and podman start that container again.
func TestPodmanReboot(t *testing.T) {
	tried(t, podman, reboot)
	p := newPodmanNode(t)
	web := p.podmanContainer(t, "web")
	p.podmanContainerAt(t, "other", 8081)
	p = p.podmanAfterReboot(t)
	p.run(t, "podman", "start", "web")
	web.address = p.podmanAddresses(t, "web")[0]
	t.Logf("it has address %s now", web.address)
	p.awaitPage(t, web.address)
	p.checkPublished(t, "8080")
	p.run(t, "podman", "rm", "--force", "--time", "0", "web", "other")
	p.checkUnpublished(t, "8080")
	p.checkUnpublished(t, "8081")
	// podman calls no DEL for the one that has not run since: GC frees its address.
	p.run(t, "find", netlab.CacheDir, "-type", "f", "-exec", "touch", "-d", "5 minutes ago", "{}", "+")
	t.Logf("%s", p.run(t, netlab.Cnictl(t), "gc", networkName, "--apply"))
	p.checkNothingLeft(t)
}

// podmanAfterReboot returns a node that has of an earlier one only what is on its disk.
func (p *podmanNode) podmanAfterReboot(t *testing.T) *podmanNode {
	t.Helper()
	disk := t.TempDir()
	dirs := []string{workDir, netlab.CacheDir, conflistDir}
	for pid := range processes(t) {
		if _, known := p.running[pid]; !known {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	awaitEnd(t, p.running)
	if err := removeCgroups(cgroup()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		p.run(t, "mkdir", "--parents", filepath.Join(disk, dir))
		p.run(t, "cp", "--archive", dir+"/.", filepath.Join(disk, dir))
	}
	again := &podmanNode{node: newNode(t), kept: ofNetwork, running: p.running}
	again.used = again.Snapshot(t)
	for _, dir := range dirs {
		again.run(t, "cp", "--archive", filepath.Join(disk, dir)+"/.", dir)
	}
	return again
}
