package runtimes

import (
	"fmt"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/netlab"
)

// ctr attaches containers to the first network in /etc/cni/net.d. It can't publish ports (see TestCRI for containerd's
// way to do that). It calls DEL for a container that it stays in the foreground with, and from containerd 2.0 on when it kills one.

// TestCtr runs containers in the foreground and has them removed by ctr.
func TestCtr(t *testing.T) {
	for _, c := range containerds {
		t.Run(c.name, func(t *testing.T) {
			c.programs(t) // before the time is taken
			for _, tt := range []struct {
				scenario string
				test     func(t *testing.T, c containerd)
			}{
				{onePod, testCtrContainer},
				{dualStack, testCtrDualStack},
				{fifty, testCtrFifty},
				{runtimeKilled, testCtrKilled},
				{reboot, testCtrReboot},
				{edited, testCtrEdited},
			} {
				t.Run(tt.scenario, func(t *testing.T) {
					tried(t, c.ctrColumn, tt.scenario)
					tt.test(t, c)
				})
			}
		})
	}
}

// TestCtrDetached shows that the runtime, not the plugins, is what keeps the state of a container that ctr has detached
// from, and that the plugins can remove it later, when nothing is left of the container but its id.
func TestCtrDetached(t *testing.T) {
	for _, c := range containerds {
		t.Run(c.name, func(t *testing.T) {
			d := newDaemon(t, c, ctrNamespace)
			d.testLifecycle(t, d.ctrDetached, func(*testing.T, container) {})
		})
	}
}

// ctrNamespace is where ctr keeps its containers when it is not told otherwise.
const ctrNamespace = "default"

// ctrForeground starts a container with a ctr that waits for its end, and then detaches it from the network.
func (d *daemon) ctrForeground(t *testing.T, name string) container {
	t.Helper()
	return d.ctrBegun(t, name, d.ctrBegin(name))
}

// ctrBegin runs a container with a ctr that waits for its end, and returns what tells of the end of this ctr.
func (d *daemon) ctrBegin(name string) <-chan string {
	// ctr's own exit code is the container's, so it tells nothing; its output does.
	ended := make(chan string, 1)
	go func() {
		out, err := d.Output(d.ctrCommand(ctrRun(name, "--rm")...))
		ended <- fmt.Sprintf("%q, %v", out, err)
	}()
	return ended
}

// ctrBegun returns the container of ctrBegin once it runs.
func (d *daemon) ctrBegun(t *testing.T, name string, ended <-chan string) container {
	t.Helper()
	c := d.ctrContainer(t, name, ended)
	c.remove = func(t *testing.T) {
		d.ctr(t, "task", "kill", "--signal", "SIGKILL", name)
		t.Logf("ctr run --rm has ended: %s", <-ended)
		if got, want := d.calls(t, c.id), "ADD DEL"; got != want {
			t.Errorf("ctr run --rm called %s, want %s", got, want)
		}
	}
	return c
}

// ctrDetached starts a container with a ctr that ends at once. Removing the container may leave the attachment.
func (d *daemon) ctrDetached(t *testing.T, name string) container {
	t.Helper()
	d.ctr(t, ctrRun(name, "--detach")...)
	c := d.ctrContainer(t, name, nil)
	c.remove = func(t *testing.T) {
		d.ctr(t, "task", "kill", "--signal", "SIGKILL", name)
		netlab.Eventually(t, func() error {
			_, err := d.Output(d.ctrCommand("task", "rm", name))
			return err
		})
		d.ctr(t, "container", "rm", name)
		if d.ctrDetaches {
			if got, want := d.calls(t, c.id), "ADD DEL"; got != want {
				t.Errorf("ctr run --detach and task kill called %s, want %s", got, want)
			}
			return
		}
		if got, want := d.calls(t, c.id), "ADD"; got != want {
			t.Errorf("ctr run --detach, task kill, task rm and container rm called %s, want %s", got, want)
		}
		lease := "file /var/lib/cni/networks/web/" + c.address + " "
		if len(d.Snapshot(t).Lines(lease)) == 0 {
			t.Errorf("the lease of %s is gone without a DEL", c.address)
		}
		t.Log("ctr has removed the container without a DEL: the address is still leased; calling DEL without a namespace")
		if err := d.DelList(d.conflist, &libcni.RuntimeConf{ContainerID: c.id, IfName: "eth0"}); err != nil {
			t.Errorf("DEL after the container: %v", err)
		}
	}
	return c
}

// ctrRun returns the arguments of a ctr run that serves the page.
func ctrRun(name string, options ...string) []string {
	args := append([]string{"run", "--cni", "--snapshotter", "native", "--cgroup", cgroup() + "/" + name}, options...)
	return append(append(args, imageName, name), serveCommand...)
}

// ctrContainer returns a container once it runs. A ctr in the foreground does not tell when that is; its end, should it
// come before, ends the test.
func (d *daemon) ctrContainer(t *testing.T, name string, ended <-chan string) container {
	t.Helper()
	c := container{
		id:   ctrNamespace + "-" + name,
		exec: func(t *testing.T, commandLine string) string { return d.ctrShell(t, ctrNamespace, name, commandLine) },
	}
	netlab.Eventually(t, func() error {
		select {
		case how := <-ended:
			t.Fatalf("ctr run has ended: %s", how)
		default:
		}
		out, err := d.Output(d.ctrCommand(ctrExec(name, showAddress("eth0", "-4"))...))
		if err == nil {
			c.address, err = addressIn(out)
		}
		return err
	})
	d.awaitPage(t, c.address) // it has an address before all plugins have been called, and runs after that
	return c
}

// ctrShell runs a shell command line in a container, and returns what it printed.
func (d *daemon) ctrShell(t *testing.T, namespace, name, commandLine string) (out string) {
	t.Helper()
	for try := 0; out == "" && try < 3; try++ { // ctr may lose what was printed (containerd's pull request 13931)
		out = d.ctr(t, append([]string{"--namespace", namespace}, ctrExec(name, commandLine)...)...)
	}
	return out
}

func ctrExec(name, commandLine string) []string {
	return []string{"task", "exec", "--exec-id", "shell", name, "sh", "-c", commandLine}
}
