package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// sizes are the most that the binary may have, in KiB, on the architectures that the reference plugins are released for.
// They are what it had when they were written, rounded up to 64; whoever makes it larger for good reason raises them.
var sizes = []struct {
	arch string
	most int64
}{
	{"amd64", 4672},
	{"arm", 4480},
	{"arm64", 4480},
	{"mips64le", 5184},
	{"ppc64le", 4672},
	{"riscv64", 4160},
	{"s390x", 4864},
}

func TestSize(t *testing.T) {
	if testing.Short() {
		t.Skip("the first time, it compiles Go's packages for each architecture")
	}
	for _, s := range sizes {
		t.Run(s.arch, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "cnibox")
			// The Makefile's command, which is what is released.
			build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-buildmode=exe", "-ldflags=-s -w -buildid=", "-o", binary, ".")
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+s.arch)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("go build: %v\n%s", err, out)
			}
			file, err := os.Stat(binary)
			if err != nil {
				t.Fatal(err)
			}
			if size := (file.Size() + 1023) / 1024; size > s.most {
				t.Errorf("cnibox has %d KiB, and may have %d; what is in it: go build -o cnibox . && go tool nm -size -sort size cnibox", size, s.most)
			}
		})
	}
}
