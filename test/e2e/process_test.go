package e2e

import (
	"os"
	"path/filepath"
	"regexp"
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
			if n := strings.Count(string(text), "execve(") - strings.Count(string(text), `execve("/proc/self/exe"`); n != 1 {
				t.Errorf("%s of %s executes %d programs, want itself only (DEL a second time, for the kernel's part):\n%s", command, step.plugin, n, text)
			}
			if command == "ADD" && step.plugin == "bridge" {
				prev = netlab.PluginResult{Stdout: out}.Map(t)
			}
		}
	}
}

// TestAbout is what a person sees who starts a plugin, and what nerdctl parses.
func TestAbout(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	line := regexp.MustCompile(`^CNI (\S+) plugin v(1\.9\.1\+cnibox\.\d+\.\d+\.\d+)$`)
	for _, name := range []string{"bridge", "host-local", "static", "dhcp", "tuning", "portmap", "loopback"} {
		r := host.Exec(t, name, netlab.PluginCall{})
		first, _, _ := strings.Cut(r.Stderr, "\n")
		if m := line.FindStringSubmatch(first); r.ExitCode != 0 || r.Stdout != "" || m == nil || m[1] != name {
			t.Errorf("%s without CNI_COMMAND: %v", name, r)
		}
		version := host.Exec(t, name, netlab.PluginCall{Command: "VERSION"})
		if list, _ := version.Map(t)["supportedVersions"].([]any); len(list) != 7 {
			t.Errorf("%s: VERSION: %v", name, version)
		}
	}
	help := host.Exec(t, netlab.Cnibox(t), netlab.PluginCall{})
	if help.ExitCode != 0 || !strings.Contains(help.Stdout, "bridge") || !strings.Contains(help.Stdout, "host-local") {
		t.Errorf("cnibox by itself: %v", help)
	}
}

// TestUnknownName calls the binary by a name that no plugin has.
func TestUnknownName(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	host.InstallPlugin(t, "unknown", netlab.Cnibox(t))
	pod := host.NewPod(t, "web")
	before, inside := host.Snapshot(t), pod.Snapshot(t)
	r := host.Exec(t, "unknown", pod.Call("ADD", bridgeConf))
	if r.ExitCode != 1 || r.Error == nil || r.Error.Code != 4 || !strings.Contains(r.Error.Msg, "unknown") || r.Error.Details == "" {
		t.Errorf("want one error with a remedy, got %v", r)
	}
	if diff := before.Diff(host.Snapshot(t)) + inside.Diff(pod.Snapshot(t)); diff != "" {
		t.Errorf("the failed call changed:\n%s", diff)
	}
}
