package netlab

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// binDirEnv names a directory with prebuilt cnibox and cnictl, for machines without the Go tool and for runs that should
// not build once per test package.
const binDirEnv = "CNIBOX_BIN_DIR"

// debianDir is where the packages of Debian and its children have the reference plugins.
const debianDir = "/usr/lib/cni"

var (
	binaries  = sync.OnceValues(provide)
	reference = sync.OnceValues(buildReference)
	// buildDir is the directory of what this process has built; "" while that is nothing.
	buildDir string
)

// Cnibox returns the path of the plugins' binary under test. The first call builds it, unless CNIBOX_BIN_DIR names a
// directory that has it.
func Cnibox(t testing.TB) string {
	t.Helper()
	return filepath.Join(provided(t, "programs", binaries), "cnibox")
}

// Cnictl returns the path of the operator's tool under test, as Cnibox does.
func Cnictl(t testing.TB) string {
	t.Helper()
	return filepath.Join(provided(t, "programs", binaries), "cnictl")
}

// Reference returns the directory with the reference plugins that test/reference/go.mod lists, in its version. They are
// built once per machine and version, into the user's cache directory.
func Reference(t testing.TB) string {
	t.Helper()
	return provided(t, "reference plugins", reference)
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

func provided[T any](t testing.TB, what string, provide func() (T, error)) T {
	t.Helper()
	made, err := provide()
	if err != nil {
		t.Fatalf("get the %s to test: %v", what, err)
	}
	return made
}

// provide returns the directory with prebuilt programs, or builds them the way make build does.
func provide() (dir string, err error) {
	if dir = os.Getenv(binDirEnv); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("%s=%s must be an absolute path: every test package has its own working directory", binDirEnv, dir)
		}
		_, err := os.Stat(filepath.Join(dir, "cnibox"))
		return dir, err
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	if buildDir, err = os.MkdirTemp("", "netlab-bin-"); err != nil {
		return "", err
	}
	return buildDir, goBuild(root, buildDir, "./cmd/...", os.Getenv("GOFLAGS"))
}

// Module returns the directory with what is built of packages of a nested module, named by its path from the root of the repository. It is
// built once per machine and content, into the user's cache directory.
func Module(t testing.TB, path, packages string) string {
	t.Helper()
	return provided(t, path, func() (string, error) { return buildModule(path, packages) })
}

func buildReference() (string, error) { return buildModule("test/reference", "tool") }

// buildModule builds into a directory that is there with all of it or not at all, whoever else builds it at the same moment.
func buildModule(path, packages string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	module, hash := filepath.Join(root, path), sha256.New()
	sources, err := filepath.Glob(filepath.Join(module, "*.go"))
	if err != nil {
		return "", err
	}
	for _, source := range append([]string{filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")}, sources...) {
		text, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		hash.Write(text)
	}
	dir := filepath.Join(base, "cnibox-test", fmt.Sprintf("%s-%.8x", filepath.Base(path), hash.Sum(nil)))
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(made)
	// Without the flags of make, which are not how others' programs are built.
	if err := goBuild(module, made+"/", packages, ""); err != nil {
		return "", err
	}
	if err := os.Rename(made, dir); err != nil && !errors.Is(err, fs.ErrExist) { // it exists where another process was faster
		return "", err
	}
	return dir, nil
}

func goBuild(module, output, packages, flags string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-o", output, packages)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="+flags)
	_, err := capture(cmd, RunOnMachine)
	return err
}

// Build runs a compiler, in the network the test process came from: the Go tool may have modules to download. Nothing
// else is to be run so.
func Build(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if _, err := capture(cmd, RunOnMachine); err != nil {
		t.Fatal(err)
	}
}

// RunOnMachine runs a command in the machine's network namespace. It is for compilers, and for guests that belong to the test.
func RunOnMachine(cmd *exec.Cmd) error {
	return onThread(func() error {
		if err := setns(machineNetns, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return cmd.Run()
	})
}

// moduleRoot returns the directory of the go.mod above the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod above the working directory: set " + binDirEnv + " to a directory with cnibox and cnictl")
}
