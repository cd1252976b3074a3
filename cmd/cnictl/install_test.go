package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cnibox/cnibox/plugins"
	"github.com/cnibox/cnibox/test/netlab"
)

// newerCnibox returns a cnibox of another release: with something behind what the kernel looks at.
func newerCnibox(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(netlab.Cnibox(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cnibox")
	if err := os.WriteFile(path, append(content, "newer"...), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestInstall(t *testing.T) {
	b := newBench(t)
	const dir = "/opt/cni/bin" // a tmpfs of the host's
	out := b.must("install", "--dir", dir, "--from", netlab.Cnibox(t))
	assertContains(t, out.stdout, "in "+dir)
	for _, p := range plugins.All {
		about := b.host.Command(filepath.Join(dir, p.Name))
		stderr, err := about.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := b.host.Start(about); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 64)
		n, _ := stderr.Read(text)
		assertContains(t, string(text[:n]), "CNI "+p.Name+" plugin v")
		if err := about.Wait(); err != nil {
			t.Error(err)
		}
	}
	assertContains(t, b.must("install", "--dir", dir, "--from", netlab.Cnibox(t)).stdout, "up to date")
	assertContains(t, b.must("uninstall", "--dir", dir).stdout, "removed")
	assertEqual(t, "left", b.host.MustRun(t, "ls", "-A", dir), "")
}

// TestInstallWhileRuntimesExecute upgrades back and forth while plugins are executed: none may ever be missing or half written.
func TestInstallWhileRuntimesExecute(t *testing.T) {
	b := newBench(t)
	for _, link := range []string{"sym", "hard", "copy"} {
		t.Run(link, func(t *testing.T) {
			dir := t.TempDir()
			t.Cleanup(func() { b.must("uninstall", "--dir", dir) })
			versions := []string{netlab.Cnibox(t), newerCnibox(t)}
			b.must("install", "--dir", dir, "--link", link, "--from", versions[0])

			var done atomic.Bool
			var executing sync.WaitGroup
			executing.Go(func() {
				for i := 0; !done.Load(); i++ {
					name := plugins.All[i%len(plugins.All)].Name
					err := exec.Command(filepath.Join(dir, name)).Run()
					var exit *exec.ExitError
					if err != nil && !errors.As(err, &exit) {
						t.Errorf("execute %s: %v", name, err)
					}
				}
			})
			for i := range 6 {
				b.must("install", "--dir", dir, "--link", link, "--from", versions[(i+1)%2])
			}
			done.Store(true)
			executing.Wait()
		})
	}
}
