package ui

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// TestBinDirs has cnictl find the plugins of `cnictl install`, and of the packages.
func TestBinDirs(t *testing.T) {
	defer func(dirs []string) { usualBinDirs = dirs }(usualBinDirs)
	opt, lib, libexec := t.TempDir(), t.TempDir(), t.TempDir()
	usualBinDirs = []string{opt, lib, libexec}
	t.Setenv("CNI_PATH", "")
	for _, c := range []struct{ file, want string }{
		{"", "/opt/cni/bin"},
		{filepath.Join(lib, "bridge"), "/opt/cni/bin"}, // of somebody else
		{filepath.Join(libexec, "cnibox"), libexec},
		{filepath.Join(opt, "cnibox"), opt},
	} {
		if c.file != "" {
			if err := os.WriteFile(c.file, nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if got := BinDirs(); got != c.want {
			t.Errorf("with %s: %s, want %s", c.file, got, c.want)
		}
	}
	t.Setenv("CNI_PATH", "/a:/b")
	if got := BinDirs(); got != "/a:/b" {
		t.Errorf("with CNI_PATH: %s", got)
	}
}

// TestConfDirThatIsNotThere is a mistake, unless a command waits for the directory.
func TestConfDirThatIsNotThere(t *testing.T) {
	for _, c := range []struct {
		name string
		add  func(*cobra.Command, *node.Options)
		want bool
	}{
		{"a command that looks", AddNodeFlags, false},
		{"a command that waits", AddWaitingNodeFlags, true},
	} {
		var o node.Options
		cmd := &cobra.Command{}
		c.add(cmd, &o)
		if err := cmd.ParseFlags([]string{"--conf-dir", filepath.Join(t.TempDir(), "none")}); (err == nil) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
