package runtimes

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

func testCRIFifty(t *testing.T, c containerd) {
	d := newDaemon(t, c, criNamespace)
	before := d.settle(t, d.criPod)
	pods, errs := make([]container, 50), make([]error, 50)
	var group sync.WaitGroup
	for i := range pods {
		group.Go(func() { pods[i], errs[i] = d.startPod(fmt.Sprint("web", i), hostPort{port: 9000 + i}) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, pod := range pods {
		if seen[pod.address] {
			t.Errorf("two pods have the address %s", pod.address)
		}
		seen[pod.address] = true
		d.awaitPage(t, pod.address)
		checkPage(t, d.outside.Namespace, netlab.HostIPv4+":"+strconv.Itoa(9000+i))
	}
	for i, pod := range pods {
		group.Go(func() { _, errs[i] = d.criclient("remove", pod.id) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	d.checkSettled(t, before)
}

// testCRIKilled: what containerd has forgotten when it runs again, processes and network namespaces too, is for the operator and
// `cnictl gc`.
func testCRIKilled(t *testing.T, c containerd) {
	d := newDaemon(t, c, criNamespace)
	before := d.settle(t, d.criPod)
	var old []string
	for i := range 5 {
		old = append(old, d.criPodAt(t, fmt.Sprint("old", i), 9000+i).id)
	}
	added, removed := d.called(t, "ADD"), d.called(t, "DEL")
	var group sync.WaitGroup
	for _, id := range old {
		group.Go(func() { _, _ = d.criclient("remove", id) })
	}
	d.awaitCall(t, "DEL", removed)
	for i := range old {
		group.Go(func() { _, _ = d.startPod(fmt.Sprint("new", i), hostPort{port: 9100 + i}) })
	}
	d.awaitCall(t, "ADD", added)
	d.kill(t)
	group.Wait()
	d.start(t)
	for _, id := range strings.Fields(d.cri(t, "list")) {
		netlab.Eventually(t, func() error { _, err := d.criclient("remove", id); return err }) // a kubelet tries again too
	}
	before.processes[d.process.Process.Pid] = "containerd"
	killOthers(t, before.processes)
	if left := d.changes(t, before); left != "" {
		t.Logf("containerd has left:\n%s", left)
		for _, netns := range strings.Fields(d.run(t, "ls", "/run/netns")) {
			d.run(t, "ip", "netns", "delete", netns)
		}
		d.gcAll(t)
		d.runOnce(t, "last", d.criPod, noMore) // makes again what gc may have taken of the network, as nobody used it
	}
	d.checkSettled(t, before)
}

// kill ends containerd as the kernel does when memory is short.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	if err := d.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.process.Wait()
}

// testCRIReboot: as a kubelet does, the pod is started again before its old one is removed.
func testCRIReboot(t *testing.T, c containerd) {
	processesBefore := processes(t)
	d := newDaemon(t, c, criNamespace)
	old := []container{d.criPod(t, "web"), d.criPodAt(t, "other", 8090)}
	d = d.reboot(t, processesBefore)
	ids := strings.Fields(d.cri(t, "list"))
	if len(ids) != len(old) {
		t.Errorf("containerd knows %d pods, want %d", len(ids), len(old))
	}
	again := d.criPod(t, "again")
	d.checkPublished(t, "8080")
	for i, pod := range old {
		d.cri(t, "remove", ids[i])
		if pod.address == again.address {
			t.Errorf("%s was given twice", pod.address)
		}
	}
	d.checkPublished(t, "8080")
	d.checkContainer(t, again)
	again.remove(t)
	after := d.Snapshot(t)
	for _, pod := range append(old, again) {
		checkForgotten(t, after, pod)
	}
	before := d.settle(t, d.criPod)
	if diff := after.Diff(before.snapshot, append(ofAllocation, ofRuntime...)...); diff != "" {
		t.Errorf("a container later:\n%s", diff)
	}
}

// reboot ends all processes that were not there before, and makes another node with the disk of this one. containerd runs there again.
func (d *daemon) reboot(t *testing.T, before map[int]string) *daemon {
	t.Helper()
	d.kill(t)
	killOthers(t, before)
	disk := filepath.Join(t.TempDir(), "disk.tar")
	d.run(t, "tar", "-C", "/", "-cf", disk, "srv", "var/lib/cni", "etc/cni")
	n := newNode(t)
	n.run(t, "tar", "-C", "/", "-xf", disk)
	started := n.newContainerd(t, d.containerd, 1)
	started.start(t)
	return started
}
