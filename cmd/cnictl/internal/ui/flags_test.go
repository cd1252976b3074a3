package ui

import (
	"os"
	"path/filepath"
	"testing"
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
