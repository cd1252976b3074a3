package netlab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/invoke"
)

// UseIPTables makes the Host's plugins find one flavour of iptables, "nft" or "legacy", by the plain names of its programs. It is
// to be called before the plugins are.
func (h *Host) UseIPTables(t testing.TB, flavour string) {
	t.Helper()
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			program, err := exec.LookPath(family + "-" + flavour + verb)
			if err != nil {
				t.Fatalf("use iptables-%s: %v", flavour, err)
			}
			if err := os.Symlink(program, filepath.Join(dir, family+verb)); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.programs = dir
}

// searchPath returns the PATH of the Host's plugins.
func (h *Host) searchPath() string {
	path := os.Getenv("PATH")
	if h.programs == "" {
		return path
	}
	return h.programs + string(filepath.ListSeparator) + path
}

// executor is libcni's own, with the PATH of a Host.
type executor struct {
	*invoke.DefaultExec
	path string
}

func (e *executor) ExecPlugin(ctx context.Context, plugin string, stdin []byte, environ []string) ([]byte, error) {
	return e.DefaultExec.ExecPlugin(ctx, plugin, stdin, append(environ, "PATH="+e.path)) // the last of two equal names counts
}
