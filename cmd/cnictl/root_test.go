package main

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui/uitest"
	"github.com/cnibox/cnibox/pkg/process/box"
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
		{"run --network demo", "argument is missing"},
		{"run -- true", "--network is missing"},
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
		out := uitest.RunRoot(newRoot(), strings.Fields(test.args)...)
		if out.Code != int(ui.WrongUsage) || out.Stdout != "" {
			t.Errorf("%s: exit code %d, want %d; output %q", test.args, out.Code, ui.WrongUsage, out.Stdout)
		}
		uitest.AssertContains(t, out.Stderr, test.want, "--help")
	}
}

func TestVersion(t *testing.T) {
	out := uitest.RunRoot(newRoot(), "--version")
	uitest.AssertEqual(t, "exit code", out.Code, 0)
	uitest.AssertContains(t, out.Stdout, "cnictl v"+box.Version, box.PluginsVersion)
}

// Whoever is lost finds an example of everything.
func TestHelp(t *testing.T) {
	out := uitest.RunRoot(newRoot())
	uitest.AssertEqual(t, "exit code", out.Code, 0)
	for _, cmd := range newRoot().Commands() {
		uitest.AssertContains(t, out.Stdout, cmd.Name())
		help := uitest.RunRoot(newRoot(), cmd.Name(), "--help")
		uitest.AssertEqual(t, cmd.Name()+" --help: exit code", help.Code, 0)
		if cmd.Name() != "list" {
			uitest.AssertContains(t, help.Stdout, "Examples:")
		}
	}
}
