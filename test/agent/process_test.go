package agent

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// process is a container whose namespace is that of its process, and has no other path.
type process struct {
	*harmtest.Container
	cmd *exec.Cmd
}

// ofProcess attaches a container whose namespace ends with its process.
func ofProcess(t testing.TB, host *netlab.Host, name string, number int) *process {
	t.Helper()
	p := &process{cmd: host.Command("unshare", "--net", "sleep", "infinity")}
	if err := host.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	path := fmt.Sprintf("/proc/%d/ns/net", host.PID(t, p.cmd))
	netlab.Until(t, "a namespace of its own", func() bool {
		own, err := host.Output(host.Command("sh", "-c", "test $(readlink "+path+") != $(readlink /proc/self/ns/net) && echo own"))
		return err == nil && own != ""
	})
	pod := host.NewPod(t, name) // for its name and id
	p.Container = &harmtest.Container{Pod: pod, List: usual}
	rt := pod.RuntimeConf(port(number))
	rt.NetNS = path
	if _, err := host.AddList(usual, rt); err != nil {
		t.Fatal(err)
	}
	return p
}

// end ends the process, and its namespace with it.
func (p *process) end() { _, _ = p.cmd.Process.Kill(), p.cmd.Wait() }
