package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// programs are what is built for the benchmark.
type programs struct {
	launcher, empty, noop string
	// noopLanguage is what noop is written in.
	noopLanguage string
	// copies are the paths of the programs' copies, in dir.
	copies map[string]string
	dir    string
}

// buildPrograms builds them the way cnibox is built. They last as long as b does.
func buildPrograms(b testing.TB) programs {
	b.Helper()
	dir := b.TempDir()
	p := programs{launcher: filepath.Join(dir, "launcher"), empty: filepath.Join(dir, "empty"), noop: filepath.Join(dir, "noop"), noopLanguage: "C",
		copies: map[string]string{}, dir: dir}
	goBuild(b, ".", p.launcher, "./launcher")
	goBuild(b, ".", p.empty, "./empty")
	if cc, err := exec.LookPath("cc"); err == nil {
		netlab.Build(b, exec.Command(cc, "-O2", "-static", "-s", "-o", p.noop, "noop/testdata/noop.c"))
		return p
	}
	p.noopLanguage = "Go"
	goBuild(b, ".", p.noop, "./noop")
	return p
}

// goBuild builds packages of the module in dir, with the flags of a release.
func goBuild(b testing.TB, dir, output, packages string) {
	b.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", output, packages)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	netlab.Build(b, cmd)
}

// installed returns the path of a copy of a program, made the way "cnictl install" makes it, and once: by one write. The
// kernel keeps what the linker has written in other pieces, and whoever installs a plugin copies it.
func (p programs) installed(t testing.TB, path string) string {
	t.Helper()
	if p.copies[path] == "" {
		program, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p.copies[path] = filepath.Join(p.dir, fmt.Sprintf("copy%d", len(p.copies)))
		if err := os.WriteFile(p.copies[path], program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p.copies[path]
}
