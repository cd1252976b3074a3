package bench

import (
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
}

// buildPrograms builds them the way cnibox is built. They last as long as b does.
func buildPrograms(b testing.TB) programs {
	b.Helper()
	dir := b.TempDir()
	p := programs{launcher: filepath.Join(dir, "launcher"), empty: filepath.Join(dir, "empty"), noop: filepath.Join(dir, "noop"), noopLanguage: "C"}
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
func goBuild(b testing.TB, dir, output string, packages ...string) {
	b.Helper()
	flags := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", output}
	cmd := exec.Command("go", append(flags, packages...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	netlab.Build(b, cmd)
}
