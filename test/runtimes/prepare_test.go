package runtimes

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// preparedEnv tells the test process that all is there which it needs.
const preparedEnv = "RUNTIMES_PREPARED"

// runPrepared runs the tests in namespaces of their own and returns their exit code. netlab adds those of the network, of mounts, and of processes, which
// ends every shim, monitor and container with the tests.
func runPrepared() (code int, err error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("these tests run containers and must be run as root (make e2e-runtimes)")
	}
	if err := findPrograms(); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "runtimes-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := buildCriclient(dir); err != nil {
		return 0, err
	}
	cgroup := "/cnibox-runtimes-" + strconv.Itoa(os.Getpid())
	if err := os.Setenv(cgroupEnv, cgroup); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, removeCgroups(cgroup)) }()

	outcomesFile := filepath.Join(dir, "outcomes")
	if err := errors.Join(os.WriteFile(outcomesFile, nil, 0o644), os.Setenv(outcomesEnv, outcomesFile)); err != nil {
		return 0, err
	}
	if *page != "" {
		partial := flag.Lookup("test.run").Value.String() != ""
		defer func() { err = errors.Join(err, writePage(*page, outcomesFile, partial)) }()
	}

	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), preparedEnv+"=yes")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	// The kernel sends the signal when the thread that started the process ends.
	runtime.LockOSThread()
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// findPrograms says what to do when one of the programs under test is not there.
func findPrograms() error {
	for _, program := range []string{"containerd", "ctr", "runc", "podman", "buildah", "conmon", busybox} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: scripts/setup-runtimes.sh installs what these tests need", err)
		}
	}
	return nil
}
