package runtimes

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func testCtrContainer(t *testing.T, c containerd) {
	d := newDaemon(t, c, ctrNamespace)
	d.testLifecycle(t, d.ctrForeground, func(*testing.T, container) {})
}

func testCtrDualStack(t *testing.T, c containerd) {
	n := newNode(t)
	n.useDual(t, c)
	d := n.startContainerd(t, c, ctrNamespace, 1)
	before := d.settle(t, d.ctrForeground)
	web := d.ctrForeground(t, "web")
	web.address6 = d.addressOf(t, web, "eth0", "-6")
	d.checkContainer(t, web)
	d.checkIPv6(t, web)
	web.remove(t)
	d.checkSettled(t, before)
}

func testCtrFifty(t *testing.T, c containerd) {
	d := newDaemon(t, c, ctrNamespace)
	before := d.settle(t, d.ctrForeground)
	name := func(i int) string { return fmt.Sprint("web", i) }
	var ended [50]<-chan string
	for i := range ended {
		ended[i] = d.ctrBegin(name(i))
	}
	seen := map[string]bool{}
	for i := range ended {
		web := d.ctrBegun(t, name(i), ended[i])
		if seen[web.address] {
			t.Errorf("two containers have the address %s", web.address)
		}
		seen[web.address] = true
		checkPage(t, d.outside.Namespace, web.address+":80")
	}
	var group sync.WaitGroup
	for i := range ended {
		group.Go(func() {
			if _, err := d.Output(d.ctrCommand("task", "kill", "--signal", "SIGKILL", name(i))); err != nil {
				t.Error(err)
			}
			<-ended[i]
		})
	}
	group.Wait()
	d.checkSettled(t, before)
}

// testCtrKilled kills every ctr, which is what calls the plugins, and containerd. What ctr does not detach later is for `cnictl gc`.
func testCtrKilled(t *testing.T, c containerd) {
	d := newDaemon(t, c, ctrNamespace)
	before := d.settle(t, d.ctrForeground)
	for i := range 5 {
		d.ctrForeground(t, fmt.Sprint("old", i))
	}
	added, removed := d.called(t, "ADD"), d.called(t, "DEL")
	var group sync.WaitGroup
	for i := range 5 {
		group.Go(func() { _, _ = d.Output(d.ctrCommand("task", "kill", "--signal", "SIGKILL", fmt.Sprint("old", i))) })
	}
	d.awaitCall(t, "DEL", removed)
	for i := range 5 {
		group.Go(func() { <-d.ctrBegin(fmt.Sprint("new", i)) })
	}
	d.awaitCall(t, "ADD", added)
	d.kill(t)
	for pid, line := range processes(t) {
		if strings.HasPrefix(line, d.programs+"/ctr ") {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	group.Wait()
	d.start(t)
	d.ctrRemoveAll(t)
	before.processes[d.process.Process.Pid] = "containerd"
	killOthers(t, before.processes)
	d.gcAll(t)
	d.runOnce(t, "last", d.ctrForeground, noMore) // makes again what gc may have taken of the network, as nobody used it
	d.checkSettled(t, before)
}

// ctrRemoveAll removes all containers, which may have a task or not.
func (d *daemon) ctrRemoveAll(t *testing.T) {
	t.Helper()
	for _, name := range strings.Fields(d.ctr(t, "container", "ls", "--quiet")) {
		_, _ = d.Output(d.ctrCommand("task", "kill", "--signal", "SIGKILL", name))
		_, _ = d.Output(d.ctrCommand("task", "rm", "--force", name))
		d.ctr(t, "container", "rm", name)
	}
}

// testCtrReboot: ctr removes a container that has no task without a DEL, and `cnictl gc` has the rest.
func testCtrReboot(t *testing.T, c containerd) {
	processesBefore := processes(t)
	d := newDaemon(t, c, ctrNamespace)
	old := []container{d.ctrForeground(t, "web"), d.ctrForeground(t, "other")}
	d = d.reboot(t, processesBefore)
	d.ctrRemoveAll(t)
	again := d.ctrForeground(t, "again")
	d.gc(t)
	d.checkContainer(t, again)
	again.remove(t)
	after := d.Snapshot(t)
	for _, web := range append(old, again) {
		if web.id != again.id && web.address == again.address {
			t.Errorf("%s was given twice", web.address)
		}
		checkForgotten(t, after, web)
	}
	before := d.settle(t, d.ctrForeground)
	if diff := after.Diff(before.snapshot, append(ofAllocation, ofRuntime...)...); diff != "" {
		t.Errorf("a container later:\n%s", diff)
	}
}

// testCtrEdited: a ctr in the foreground goes by the network as it was.
func testCtrEdited(t *testing.T, c containerd) {
	d := newDaemon(t, c, ctrNamespace)
	before := d.settle(t, d.ctrForeground)
	original := d.conflist
	web, ended := d.ctrForeground(t, "web"), d.ctrBegin("other")
	other := d.ctrBegun(t, "other", ended)
	d.use(t, network{version: c.network, bridge: "other0", subnets: []string{"10.99.0.0/24"}})
	web.remove(t)
	checkForgotten(t, d.Snapshot(t), web)
	d.run(t, "rm", conflistFile)
	// From containerd 2.0 on `ctr task kill` wants a network. `ctr task rm` beside the ctr in the foreground, which removes the task too, may leave a shim.
	for pid, line := range processes(t) {
		if line == strings.Join(serveCommand, " ") {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	t.Logf("ctr run --rm has ended: %s", <-ended)
	if got, want := d.calls(t, other.id), "ADD DEL"; got != want {
		t.Errorf("ctr run --rm called %s, want %s", got, want)
	}
	d.writeFile(t, conflistFile, original)
	d.checkSettled(t, before)
}
