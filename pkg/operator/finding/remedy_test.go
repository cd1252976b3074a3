package finding_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// hostile are names that somebody could give to a link, a container or a file.
var hostile = []string{"it's;reboot", "$(reboot)", "`reboot`", "", "*", "a b", "a\nreboot", "-rf", "--", "~", "#", "\\", `"`, ">x", "é"}

func TestCommand(t *testing.T) {
	for want, words := range map[string][]string{
		"mv /etc/cni/net.d/10-a.conflist /x":     {"mv", "/etc/cni/net.d/10-a.conflist", "/x"},
		`rm '/var/lib/cni/results/a b'`:          {"rm", "/var/lib/cni/results/a b"},
		`rm 'it'\''s;reboot' '$(reboot)' '' '*'`: {"rm", "it's;reboot", "$(reboot)", "", "*"},
	} {
		if got := finding.Run(words...); got.String() != want || !slices.Equal(got.Commands()[0], words) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestCommandInShell has a shell read what a command prints: it is the same words, whatever is in them.
func TestCommandInShell(t *testing.T) {
	line := finding.Run(append([]string{"printf", `%s\0`}, hostile...)...)
	out, err := exec.Command("sh", "-ec", line.String()).Output()
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); err != nil || !slices.Equal(got, hostile) {
		t.Errorf("%v: a shell reads %q in\n%s", err, got, line)
	}
}

// TestSay has sentences end where they end: nothing of them is a line of its own.
func TestSay(t *testing.T) {
	remedy := finding.Steps(finding.Say("%s", "a\nreboot"), finding.Run("true"), finding.Shell("true >x"))
	if got := remedy.String(); got != "# a reboot\ntrue\ntrue >x" || remedy.InLine() != "# a reboot; true; true >x" {
		t.Errorf("%q", got)
	}
	if got := remedy.Commands(); len(got) != 1 || got[0].String() != "true" {
		t.Errorf("commands %v: what is for a person is none", got)
	}
}

// TestRunAll runs commands without a shell, up to the first that fails.
func TestRunAll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a;$(b) c")
	list := finding.Steps(finding.Run("touch", file), finding.Run("ls", file), finding.Run("rm", file), finding.Run("ls", file), finding.Run("touch", file)).Commands()
	if err := finding.RunAll(t.Context(), list[:3]); err != nil {
		t.Error(err)
	}
	if err := finding.RunAll(t.Context(), list); err == nil || !strings.Contains(err.Error(), "a;$(b) c") {
		t.Errorf("%v", err)
	}
	if err := finding.RunAll(t.Context(), list[1:2]); err == nil {
		t.Error("what comes behind a failure was run")
	}
}
