package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// TestSignalDuringAdd ends an ADD that waits for its IPAM plugin: it unwinds
// and says so. A DEL goes on.
func TestSignalDuringAdd(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	script := filepath.Join(t.TempDir(), "ipam")
	err := os.WriteFile(script, []byte(`#!/bin/sh
echo "$CNI_COMMAND" >>/run/ipam.log
sleep 2
echo "$CNI_COMMAND ended" >>/run/ipam.log
`), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	host.InstallPlugin(t, "slow", script)
	conf := `{"cniVersion":"1.1.0","name":"slow","type":"bridge","bridge":"slow0","ipam":{"type":"slow"}}`
	pod := host.NewPod(t, "web")
	host.MustRun(t, "ip", "link", "add", "slow0", "type", "bridge")
	host.MustRun(t, "ip", "link", "set", "slow0", "up")
	before, inside := host.Snapshot(t), pod.Snapshot(t)

	interrupt := func(command string) (string, error) {
		call := pod.Call(command, conf)
		call.Env = []string{"PATH=" + os.Getenv("PATH")}
		cmd := host.PluginCommand(t, "bridge", call)
		var out strings.Builder
		cmd.Stdout = &out
		if err := host.Start(cmd); err != nil {
			t.Fatal(err)
		}
		await(t, func() bool {
			log, _ := host.Output(host.Command("cat", "/run/ipam.log"))
			return strings.Contains(log, command+"\n")
		})
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		return out.String(), err
	}

	out, err := interrupt("ADD")
	if err == nil || !strings.Contains(out, `"code"`) || !strings.Contains(out, "terminated") {
		t.Errorf("ADD: %v, %s", err, out)
	}
	left := before.Diff(host.Snapshot(t), "file /run/ipam.log", "link slow0") + inside.Diff(pod.Snapshot(t))
	if left != "" {
		t.Errorf("the interrupted ADD left:\n%s", left)
	}
	host.MustRun(t, "rm", "/run/ipam.log")
	if out, err := interrupt("DEL"); err != nil || out != "" {
		t.Errorf("DEL: %v, %s", err, out)
	}
	if log := host.MustRun(t, "cat", "/run/ipam.log"); !strings.Contains(log, "DEL ended") {
		t.Errorf("DEL did not let the IPAM plugin end: %s", log)
	}
}

// await waits until a condition holds.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come about")
		}
	}
}
