package netlab

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// debianDir is where the packages of Debian and its children have the reference plugins.
const debianDir = "/usr/lib/cni"

// Reference returns the directory with the reference plugins that test/reference/go.mod lists, in its version. They are
// built once per machine and version, into the user's cache directory.
func Reference(t testing.TB) string {
	t.Helper()
	dir, err := reference()
	if err != nil {
		t.Fatalf("get the reference plugins: %v", err)
	}
	return dir
}

// Debian returns the directory with the reference plugins of the distribution's package containernetworking-plugins,
// which are older: 1.1.1 in Debian 12.
func Debian(t testing.TB) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(debianDir, "bridge")); err != nil {
		t.Fatalf("the distribution's reference plugins: %v: install containernetworking-plugins (make setup)", err)
	}
	return debianDir
}

// InstallFrom links plugin names to the programs of the same names in dir, in the Host's PluginDir. What has been
// installed by those names before is replaced.
func (h *Host) InstallFrom(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		err := h.do(func() error { return os.Remove(filepath.Join(PluginDir, name)) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		h.InstallPlugin(t, name, filepath.Join(dir, name))
	}
}

var reference = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, "test", "reference")
	cache, err := referenceCache(module)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(cache); !errors.Is(err, fs.ErrNotExist) {
		return cache, err
	}
	return cache, buildReference(module, cache)
})

// referenceCache returns the directory for what is built of the module as it is now.
func referenceCache(module string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		hash.Write(text)
	}
	return filepath.Join(base, "cnibox-test", "reference-"+hex.EncodeToString(hash.Sum(nil))[:16]), nil
}

// buildReference builds the tools of the module into dir, which is there with all of them or not at all, whoever else
// builds them at the same moment.
func buildReference(module, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	cmd := exec.Command("go", "build", "-trimpath", "-o", made+"/", "tool")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := onMachineNetwork(cmd); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	err = os.Rename(made, dir)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	return err
}
