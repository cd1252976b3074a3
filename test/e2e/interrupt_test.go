package e2e

import (
	"fmt"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestKilledAdd kills an ADD of each plugin before each message it sends to the
// kernel. The DEL that follows has to remove whatever is there, and the next ADD
// has to succeed.
func TestKilledAdd(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	warm(t, host, demo)
	pod := host.NewPod(t, "web")
	prev := host.Exec(t, "bridge", pod.Call("ADD", bridgeConf)).Map(t)
	portmap := with(t, with(t, portmapConf, "prevResult", prev), "runtimeConfig", allPorts)
	for _, step := range []struct{ plugin, config string }{{"portmap", portmap}, {"bridge", bridgeConf}} {
		if r := host.Exec(t, step.plugin, pod.Call("DEL", step.config)); r.ExitCode != 0 {
			t.Fatal(r)
		}
		before, inside := host.Snapshot(t), pod.Snapshot(t)
		killed := 0
		for n := 1; ; n++ {
			if n > 50 {
				t.Fatalf("%s: killed at 50 messages, and no end", step.plugin)
			}
			ended := killBefore(t, host, step.plugin, pod.Call("ADD", step.config), n)
			if r := host.Exec(t, step.plugin, pod.Call("DEL", step.config)); r.ExitCode != 0 {
				t.Errorf("%s: DEL after a kill before message %d: %v", step.plugin, n, r)
			}
			if left := before.Diff(host.Snapshot(t), storeFiles...) + inside.Diff(pod.Snapshot(t), "sysctl"); left != "" {
				t.Errorf("%s: killed before message %d, DEL left:\n%s", step.plugin, n, left)
			}
			if ended {
				break
			}
			killed++
		}
		if killed == 0 {
			t.Errorf("%s: no ADD was killed", step.plugin)
		}
		t.Logf("%s: killed before each of %d messages", step.plugin, killed)
		if step.plugin == "bridge" {
			if r := host.Exec(t, "bridge", pod.Call("ADD", step.config)); r.ExitCode != 0 {
				t.Errorf("ADD after all that: %v", r)
			}
		}
	}
}

// killBefore runs a plugin that is killed before its n-th netlink message. It
// returns true if the plugin came to its end, having sent fewer.
func killBefore(t *testing.T, host *netlab.Host, plugin string, call netlab.PluginCall, n int) (ended bool) {
	t.Helper()
	cmd := host.PluginCommand(t, plugin, call)
	args := []string{"-f", "-qq", "-e", "trace=sendto", "-o", "/dev/null", "-e", fmt.Sprintf("inject=sendto:signal=KILL:when=%d", n), cmd.Path}
	strace := host.Command("strace", append(args, cmd.Args[1:]...)...)
	strace.Env, strace.Stdin = cmd.Env, cmd.Stdin
	_, err := host.Output(strace)
	return err == nil
}
