package netlab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sandboxEnv tells the re-executed test process that it is inside the sandbox; its value is the number of the file
// descriptor of the network namespace the process came from.
const sandboxEnv = "NETLAB_SANDBOX"

// machineNetns is the network namespace of the machine, which nothing but the Go tool (it may have modules to fetch) and
// the tests that prove it untouched ever enters. It is nil until Main has run.
var machineNetns *os.File

// The main goroutine keeps the main thread to itself: Main needs that thread, and a thread that has changed its
// namespaces has to die, which the main thread can't.
func init() { runtime.LockOSThread() }

// Main runs the tests of a package that uses netlab; TestMain calls it, and it does not return.
//
// The whole test process is first moved to a network and mount namespace of its own, so that even a test that forgets
// to enter its Host can't touch the machine. That needs root: without it the run fails, nothing is skipped.
func Main(m *testing.M) {
	enter := enterSandbox
	if os.Getenv(sandboxEnv) != "" {
		enter = settleInSandbox
	}
	if err := enter(); err != nil {
		fmt.Fprintln(os.Stderr, "netlab:", err)
		os.Exit(1)
	}
	code := m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// enterSandbox replaces the process by itself in new namespaces. Namespaces belong to threads; the exec is what gives the
// ones of this thread to the whole process.
func enterSandbox() error {
	if os.Geteuid() != 0 {
		return errors.New("these tests make network namespaces and must be run as root (make test)")
	}
	// Opened without O_CLOEXEC: the next process needs it.
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("open the network namespace of the machine: %w", err)
	}
	if err := unshareNode(); err != nil {
		return err
	}
	env := append(os.Environ(), sandboxEnv+"="+strconv.Itoa(fd))
	return fmt.Errorf("exec the test binary again: %w", syscall.Exec("/proc/self/exe", os.Args, env))
}

func settleInSandbox() error {
	fd, err := strconv.Atoi(os.Getenv(sandboxEnv))
	if err != nil {
		return fmt.Errorf("%s=%q in the environment is not a file descriptor: unset it", sandboxEnv, os.Getenv(sandboxEnv))
	}
	if err := os.Unsetenv(sandboxEnv); err != nil {
		return err
	}
	unix.CloseOnExec(fd)
	machineNetns = os.NewFile(uintptr(fd), "the machine's network namespace")
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

// setLoopbackUp sets the loopback link of the calling thread's network namespace up.
func setLoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("look up the loopback link: %w", err)
	}
	return netlink.LinkSetUp(lo)
}
