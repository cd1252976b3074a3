package main

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/box"
)

func TestUsageErrors(t *testing.T) {
	tests := []struct {
		args string
		want string
	}{
		{"frobnicate", `no command "frobnicate"`},
		{"add", "argument is missing: cnictl add NETWORK [NETNS]"},
		{"add demo /run/netns/a b", `"b" is one argument too many`},
		{"add demo", "namespace is missing"},
		{"add demo /run/netns/a --netns /run/netns/b", "two namespaces"},
		{"add demo /run/netns/a -p 80", "-p 80"},
		{"del demo", "--id"},
		{"add --frobnicate", "unknown flag"},
		{"gc demo lan", "one argument too many"},
		{"release", "argument is missing"},
		{"release web", "no IP address"},
		{"purge demo", "one argument too many"},
		{"gc demo --from a", "--from excludes"},
		{"gc demo --valid a", "CONTAINER-ID/INTERFACE"},
		{"run --net demo", "argument is missing"},
		{"run -- true", "--net is missing"},
		{"install", "--dir is missing"},
		{"install --dir /nonexistent --link soft", "--link soft"},
		{"install --dir /nonexistent --only frobnicate", "no such plugin"},
		{"install --dir /nonexistent --for podman", "--dir excludes --for"},
		{"install --for docker", "--for docker: it is one of containerd,"},
		{"new frobnicate", `no kind of network "frobnicate"`},
		{"uninstall", "--dir is missing"},
		{"list all", "too many"},
	}
	for _, test := range tests {
		out := inProcess(strings.Fields(test.args)...)
		if out.code != int(exitUsage) || out.stdout != "" {
			t.Errorf("%s: exit code %d, want %d; output %q", test.args, out.code, exitUsage, out.stdout)
		}
		assertContains(t, out.stderr, test.want, "--help")
	}
}

func TestVersion(t *testing.T) {
	out := inProcess("--version")
	assertEqual(t, "exit code", out.code, 0)
	assertContains(t, out.stdout, "cnictl v"+box.Version, box.PluginsVersion)
}

// Whoever is lost finds an example of everything.
func TestHelp(t *testing.T) {
	out := inProcess()
	assertEqual(t, "exit code", out.code, 0)
	for _, cmd := range newRoot().Commands() {
		assertContains(t, out.stdout, cmd.Name())
		help := inProcess(cmd.Name(), "--help")
		assertEqual(t, cmd.Name()+" --help: exit code", help.code, 0)
		if cmd.Name() != "list" {
			assertContains(t, help.stdout, "Examples:")
		}
	}
}
