package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts cmd inside the namespace at a path. If resolvConf is not "", cmd sees a file of that content as /etc/resolv.conf, in
// a mount namespace of its own.
func Start(cmd *exec.Cmd, path, resolvConf string) error {
	return Inside(path, func() error {
		if resolvConf != "" {
			if err := coverResolvConf(resolvConf); err != nil {
				return err
			}
		}
		return cmd.Start()
	})
}

// Signals catches the signals that Wait passes on. One that was ignored when we started (nohup) stays so. stop ends it.
func Signals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, s := range []os.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}

// Wait waits for a started command, passing signals on to it, and returns its exit code: 128 + the number of the signal that killed it.
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
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 0, fmt.Errorf("wait for %s: %w", cmd.Path, err)
			}
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return cmd.ProcessState.ExitCode(), nil
		}
	}
}

// fromTerminal reports whether a signal most likely comes from the keyboard: then the command, which is in our process group,
// has got it too.
func fromTerminal(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT {
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
