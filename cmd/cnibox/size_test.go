package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSize keeps all plugins, the DHCP daemon among them, within 8.2 MB: the reference plugins have 68.5.
func TestSize(t *testing.T) {
	const most = 8_200_000 // bytes
	dir := t.TempDir()
	binary := filepath.Join(dir, "cnibox")
	build := exec.Command("make", "-C", "../..", "build", "BIN="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	file, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if file.Size() > most {
		t.Errorf("cnibox has %d bytes, and may have %d; what is in it: go build -o cnibox . && go tool nm -size -sort size cnibox", file.Size(), most)
	}
}
