package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSize keeps all plugins, the DHCP daemon among them, small beside the reference plugins' 66 MB.
func TestSize(t *testing.T) {
	const most = 8 << 20 // bytes
	binary := filepath.Join(t.TempDir(), "cnibox")
	// The Makefile's command, which is what is released.
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-buildmode=exe", "-ldflags=-s -w -buildid=", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	file, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if file.Size() > most {
		t.Errorf("cnibox has %d bytes, and may have %d; what is in it: go build -o cnibox . && go tool nm -size -sort size cnibox", file.Size(), most)
	}
}
