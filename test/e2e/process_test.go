package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestOneExecPerPlugin traces an ADD and a DEL of the whole chain: nothing but
// the plugins themselves is executed.
func TestOneExecPerPlugin(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	pod := host.NewPod(t, "web")
	for _, command := range []string{"ADD", "DEL"} {
		prev := map[string]any(nil)
		for _, step := range []struct{ plugin, config string }{{"bridge", bridgeConf}, {"tuning", tuningConf}, {"portmap", portmapConf}} {
			config := with(t, step.config, "runtimeConfig", allPorts)
			if prev != nil {
				config = with(t, config, "prevResult", prev)
			}
			trace := filepath.Join(t.TempDir(), "trace")
			cmd := host.PluginCommand(t, step.plugin, pod.Call(command, config))
			strace := host.Command("strace", append([]string{"-f", "-qq", "-e", "trace=execve", "-o", trace, cmd.Path}, cmd.Args[1:]...)...)
			strace.Env, strace.Stdin = cmd.Env, cmd.Stdin
			out, err := host.Output(strace)
			if err != nil {
				t.Fatalf("%s of %s: %v\n%s", command, step.plugin, err, out)
			}
			text, err := os.ReadFile(trace)
			if err != nil {
				t.Fatal(err)
			}
			if n := executed(string(text)); n != 1 {
				t.Errorf("%s of %s executes %d programs, want itself only (DEL a second time, for the kernel's part):\n%s", command, step.plugin, n, text)
			}
			if command == "ADD" && step.plugin == "bridge" {
				prev = netlab.PluginResult{Stdout: out}.Map(t)
			}
		}
	}
}

// executed counts the programs in a trace: a stub and the cnibox that it becomes are one, and DEL's second process is cnibox itself.
func executed(trace string) int {
	return strings.Count(trace, "execve(") - strings.Count(trace, `execve("`+netlab.PluginDir+`/cnibox"`) - strings.Count(trace, `execve("/proc/self/exe"`)
}
