package netlab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sandboxEnv tells the test process that it is inside the sandbox; its value are the numbers of the file descriptors of machineNetns and machineMounts.
const sandboxEnv = "NETLAB_SANDBOX"

// machineNetns is the network namespace of the machine, which nothing but the Go tool (it may have modules to fetch) and
// the tests that prove it untouched ever enters. It is nil until Main has run.
var machineNetns *os.File

// machineMounts is the machine's list of mounts (proc_pid_mountinfo(5)), whose /proc the sandbox's one hides.
var machineMounts *os.File

// proc is the tests' own /proc, which has the threads of this process also where a Host has another one.
var proc *os.Root

// The main goroutine keeps the main thread to itself: what runInSandbox starts ends with that thread, and a thread that has
// changed its namespaces has to die, which the main thread can't.
func init() { runtime.LockOSThread() }

// Main runs the tests of a package that uses netlab; TestMain calls it, and it does not return.
//
// The tests run in a process of their own, in network, mount and PID namespaces of their own: even a test that forgets to
// enter its Host can't touch the machine, no package sees processes of another one, and what a test leaves ends with them. That needs
// root: without it the run fails, nothing is skipped.
func Main(m *testing.M) {
	code, err := Run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "netlab:", err)
	}
	os.Exit(code)
}

// Run is Main for a program that has something to do before and after: its TestMain runs twice, and is Sandboxed in the inner process. It returns the
// exit code, which is 1 with an error.
func Run(m *testing.M) (code int, err error) {
	if !Sandboxed() {
		return runInSandbox()
	}
	if err := settleInSandbox(); err != nil {
		return 1, err
	}
	code = m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	return code, nil
}

// Sandboxed reports whether the process is the inner one, which Run has not settled yet.
func Sandboxed() bool { return os.Getenv(sandboxEnv) != "" }

// runInSandbox runs the process's program again in new namespaces, and returns its exit code, which is 1 with an error.
func runInSandbox() (int, error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("these tests make network namespaces and must be run as root (make test)")
	}
	program, err := os.Executable()
	if err != nil {
		return 1, err
	}
	// Without O_CLOEXEC, and not as ExtraFiles, whose numbers a fuzz test's worker process has for the pipes that it is started with.
	netns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY, 0)
	if err != nil {
		return 1, err
	}
	mounts, err := unix.Open("/proc/thread-self/mountinfo", unix.O_RDONLY, 0)
	if err != nil {
		return 1, err
	}
	if err := errors.Join(unshareNode(), leaveMounts(program), unsharePIDs()); err != nil {
		return 1, err
	}
	init := exec.Command("sh", "-c", initScript)
	init.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := startInit(init, (*exec.Cmd).Start); err != nil {
		return 1, err
	}
	tests := exec.Command(program, os.Args[1:]...)
	tests.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", sandboxEnv, netns, mounts))
	tests.Stdin, tests.Stdout, tests.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT) // the last one is the Go tool's, for a list of what runs
	if err := tests.Start(); err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			_ = tests.Process.Signal(s)
		}
	}()
	_ = tests.Wait()
	_, _ = init.Process.Kill(), init.Wait()
	if tests.ProcessState.Exited() {
		return tests.ProcessState.ExitCode(), nil
	}
	return 1, fmt.Errorf("the tests: %v", tests.ProcessState)
}

func settleInSandbox() error {
	var netns, mounts int
	_, err := fmt.Sscan(os.Getenv(sandboxEnv), &netns, &mounts)
	if err != nil {
		return fmt.Errorf("%s=%q in the environment: unset it", sandboxEnv, os.Getenv(sandboxEnv))
	}
	if err := os.Unsetenv(sandboxEnv); err != nil {
		return err
	}
	if proc, err = os.OpenRoot("/proc"); err != nil {
		return err
	}
	unix.CloseOnExec(netns)
	unix.CloseOnExec(mounts)
	machineNetns, machineMounts = os.NewFile(uintptr(netns), "the machine's network namespace"), os.NewFile(uintptr(mounts), "the machine's mounts")
	// Tests may use a server on 127.0.0.1 of their own process.
	if err := setLoopbackUp(); err != nil {
		return err
	}
	// Package net finds out once, with its first socket, whether there is IPv6, by the addresses of the loopback link: in a
	// pod, whose loopback is down, it would conclude that there is none.
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		return fmt.Errorf("use IPv6 (does this kernel have it?): %w", err)
	}
	return listener.Close()
}

// unshareNode moves the calling thread to a network and a mount namespace of its own, whose mounts reach no other one.
func unshareNode() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare the network and mount namespaces (is CAP_SYS_ADMIN there?): %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make all mounts private: %w", err)
	}
	return nil
}

// leaveMounts unmounts what others have mounted below the directory of temporary files, but not what the tests themselves are in. When that directory
// is removed such a mount ends here, too, in the middle of a test (mount_namespaces(7), "Restrictions on mount namespaces").
func leaveMounts(program string) error {
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	own := []string{wd, program, os.Getenv("CNIBOX_BIN_DIR"), os.TempDir()}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(os.TempDir()))
	if err != nil {
		return fmt.Errorf("list the mounts: %w", err)
	}
	for _, m := range mounts {
		isAbove := func(path string) bool { return strings.HasPrefix(path+"/", m.Mountpoint+"/") }
		if slices.ContainsFunc(own, isAbove) {
			continue
		}
		err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // it went with the one it was in, or is gone
			return fmt.Errorf("unmount %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}

// setLoopbackUp sets the loopback link of the calling thread's network namespace up.
func setLoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("look up the loopback link: %w", err)
	}
	return netlink.LinkSetUp(lo)
}
