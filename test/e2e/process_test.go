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
			if n := strings.Count(string(text), "execve("); n != 1 {
				t.Errorf("%s of %s executes %d programs, want itself only:\n%s", command, step.plugin, n, text)
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
	for _, name := range []string{"bridge", "host-local", "static", "tuning", "portmap", "loopback"} {
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

// TestExternalIPAM has an IPAM plugin that is another program under our
// bridge: a script that looks at the container's interface, which must be there
// in ADD and, for one called dhcp, still in DEL.
func TestExternalIPAM(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	script := filepath.Join(t.TempDir(), "ipam")
	err := os.WriteFile(script, []byte(`#!/bin/sh
ip netns exec "${CNI_NETNS##*/}" ip link show "$CNI_IFNAME" >/dev/null 2>&1 && link=there || link=gone
echo "$CNI_COMMAND $link ${TRACEPARENT:-}" >>/run/ipam.log
case $CNI_COMMAND in
ADD) echo '{"cniVersion":"1.0.0","ips":[{"address":"10.66.0.5/24","gateway":"10.66.0.1"}],"dns":{"nameservers":["10.66.0.53"]}}' ;;
CHECK) echo '{"cniVersion":"1.0.0","code":105,"msg":"lost","details":"ask again"}'; exit 1 ;;
esac
`), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	host.InstallPlugin(t, "script", script)
	conf := `{"cniVersion":"1.0.0","name":"ext","type":"bridge","bridge":"ext0","isGateway":true,"ipam":{"type":"script"}}`
	pod := host.NewPod(t, "web")
	path := "PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"
	run := func(command, config string) netlab.PluginResult {
		call := pod.Call(command, config)
		call.Env = []string{path, "TRACEPARENT=00-abc"}
		return host.Exec(t, "bridge", call)
	}
	before := host.Snapshot(t)
	add := run("ADD", conf)
	result := add.Result(t)
	if len(result.IPs) != 1 || result.IPs[0].Address.String() != "10.66.0.5/24" || len(result.DNS.Nameservers) != 1 {
		t.Errorf("ADD: %s", add.Stdout)
	}
	if err := host.Ping("10.66.0.5", timeout); err != nil {
		t.Error(err)
	}
	if check := run("CHECK", with(t, conf, "prevResult", add.Map(t))); check.Error == nil || check.Error.Code != 105 || check.Error.Msg != "lost" {
		t.Errorf("CHECK does not pass on the IPAM plugin's error: %v", check)
	}
	if del := run("DEL", conf); del.ExitCode != 0 {
		t.Errorf("DEL: %v", del)
	}
	log := host.MustRun(t, "cat", "/run/ipam.log")
	if want := "ADD there 00-abc\nCHECK there 00-abc\nDEL gone 00-abc\n"; log != want {
		t.Errorf("the IPAM plugin saw %q, want %q", log, want)
	}
	if diff := before.Diff(host.Snapshot(t), "link ext0", "address ext0", "route", "sysctl", "qdisc ext0", "file /run/ipam.log"); diff != "" {
		t.Errorf("left behind:\n%s", diff)
	}
}
