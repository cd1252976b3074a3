package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// binDirEnv names a directory with prebuilt cnibox and cnictl, for machines without the Go tool and for runs that should
// not build once per test package.
const binDirEnv = "CNIBOX_BIN_DIR"

// Cnibox returns the path of the plugins' binary under test. The first call builds it, unless CNIBOX_BIN_DIR names a
// directory that has it.
func Cnibox(t testing.TB) string {
	t.Helper()
	return program(t, "cnibox", cnibox)
}

// Cnictl returns the path of the operator's tool under test, as Cnibox does.
func Cnictl(t testing.TB) string {
	t.Helper()
	return program(t, "cnictl", cnictl)
}

var (
	cnibox = sync.OnceValues(func() (string, error) { return provide("cnibox") })
	cnictl = sync.OnceValues(func() (string, error) { return provide("cnictl") })
)

// builds is the directory for what is built; empty while nothing has been.
var builds struct {
	sync.Mutex
	dir string
}

// buildDir returns the directory for what is built.
func buildDir() (dir string, err error) {
	builds.Lock()
	defer builds.Unlock()
	if builds.dir == "" {
		builds.dir, err = os.MkdirTemp("", "netlab-bin-")
	}
	return builds.dir, err
}

// removeBuilds removes what has been built.
func removeBuilds() {
	if builds.dir != "" {
		_ = os.RemoveAll(builds.dir)
	}
}

func program(t testing.TB, name string, provided func() (string, error)) string {
	t.Helper()
	path, err := provided()
	if err != nil {
		t.Fatalf("get the %s to test: %v", name, err)
	}
	return path
}

// provide returns the path of a prebuilt program, or builds it.
func provide(name string) (string, error) {
	dir := os.Getenv(binDirEnv)
	if dir == "" {
		return build(name)
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%s=%s must be an absolute path: every test package has its own working directory", binDirEnv, dir)
	}
	path := filepath.Join(dir, name)
	_, err := os.Stat(path)
	return path, err
}

// build compiles a program the way make build does.
func build(name string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := buildDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/"+name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := onMachineNetwork(cmd); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// onMachineNetwork runs cmd in the network the test process came from, since the Go tool may have modules to download.
func onMachineNetwork(cmd *exec.Cmd) (out []byte, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, see Namespace.Do
		if err = setns(machineNetns, unix.CLONE_NEWNET); err == nil {
			out, err = cmd.CombinedOutput()
		}
	}()
	<-done
	return out, err
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
