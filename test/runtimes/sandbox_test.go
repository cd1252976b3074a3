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

// partEnv says which part a process of the test binary plays.
const (
	partEnv   = "RUNTIMES_PART"
	partInit  = "init"
	partTests = "tests"
)

// runSandbox runs the tests in namespaces of their own and returns their exit code. netlab adds the network namespace;
// the process namespace is what ends every shim, monitor and container with the tests.
func runSandbox() (code int, err error) {
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

	cmd := again(partInit)
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	// The kernel sends the signal when the thread that started the process ends.
	runtime.LockOSThread()
	return exitCodeOf(cmd.Run())
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

// runInit is process 1: it runs the tests and buries the orphans of the process namespace, for whose end podman and
// containerd wait.
func runInit() (int, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 0, fmt.Errorf("make all mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return 0, fmt.Errorf("mount /proc of the process namespace: %w", err)
	}
	runtime.LockOSThread() // see runSandbox
	tests := again(partTests)
	if err := tests.Start(); err != nil {
		return 0, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, fmt.Errorf("wait for the tests: %w", err)
		case pid == tests.Process.Pid && status.Signaled():
			return 0, fmt.Errorf("the tests were ended by signal %v", status.Signal())
		case pid == tests.Process.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// again returns a command that runs this test binary with the same arguments and ends with the thread that starts it.
func again(part string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), partEnv+"="+part)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func exitCodeOf(err error) (int, error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}
