package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	plugins "github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
)

// Start starts cmd inside the namespace. If resolvConf is not "", cmd sees a
// file of that content as /etc/resolv.conf, in a mount namespace of its own.
func (ns *Namespace) Start(cmd *exec.Cmd, resolvConf string) error {
	opened, err := netns.Open(ns.path)
	if err != nil {
		return err
	}
	defer opened.Close()
	done := make(chan error)
	go func() {
		// Never unlocked: the thread's namespaces and its own root and working
		// directory end with it.
		runtime.LockOSThread()
		done <- start(cmd, opened, resolvConf)
	}()
	return <-done
}

func start(cmd *exec.Cmd, ns plugins.NetNS, resolvConf string) error {
	if resolvConf != "" {
		if err := coverResolvConf(resolvConf); err != nil {
			return err
		}
	}
	if err := ns.Set(); err != nil {
		return fmt.Errorf("enter namespace %s: %w", ns.Path(), err)
	}
	return cmd.Start()
}

// forwarded are the signals that a command gets through us.
var forwarded = []os.Signal{
	syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// Wait waits for a started command, passing signals on to it, and returns its
// exit code: 128 + the number of the signal that killed it.
func Wait(cmd *exec.Cmd, signals <-chan os.Signal) (int, error) {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if !fromTerminal(s) {
				_ = cmd.Process.Signal(s)
			}
		case err := <-done:
			return exitCode(cmd, err)
		}
	}
}

func exitCode(cmd *exec.Cmd, err error) (int, error) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("wait for %s: %w", cmd.Path, err)
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// Signals catches the signals that Wait passes on. One that was ignored when we
// started (nohup) stays so. stop ends it.
func Signals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}

// fromTerminal tells whether a signal most likely comes from the keyboard: then
// the command, which is in our process group, has got it too.
func fromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}
