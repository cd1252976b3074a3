package orphan

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also each of the processes that the tests need. Which one,
// the first argument says.
func TestMain(m *testing.M) {
	roles := map[string]func(args []string) error{
		"first": first, "foreign": foreign, "subreaper": subreaper, "runtime": asRuntime, "plugin": asPlugin,
	}
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, os.Args, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// self returns a command that runs this binary in a role.
func self(role string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append([]string{role}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

// first is the first process of a pid namespace, which adopts orphans.
func first(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	return adopt(args)
}

// foreign is a first process that sees the processes of another pid namespace.
func foreign(args []string) error { return adopt(args) }

// subreaper is a process somewhere above a runtime that adopts orphans.
func subreaper(args []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	return adopt(args)
}

// adopt starts the next process and waits until it ends: for all its children,
// or for that one only, as programs do that never heard of orphans.
func adopt(args []string) error {
	next := self(args[1], args[2:]...)
	if err := next.Start(); err != nil {
		return err
	}
	switch args[0] {
	case "waits":
		return next.Wait()
	case "ignores":
		signal.Ignore(unix.SIGCHLD)
		_ = next.Wait()
		return nil
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil || pid == next.Process.Pid {
			return err
		}
	}
}

// calls is how many plugins the runtime calls.
const calls = 20

// asRuntime calls plugins one after the other, and prints how many knew that
// orphans are reaped, what the last one said, and how many zombies there are.
func asRuntime(args []string) error {
	if me, _, err := find(os.Getpid()); err == nil {
		time.Sleep(young - me.age() + time.Second/10)
	}
	known, last := 0, ""
	for range calls {
		out, err := exec.Command("/proc/self/exe", "plugin", args[0]).Output()
		if err != nil {
			return err
		}
		last = string(out)
		if strings.HasPrefix(last, "true") {
			known++
		}
		time.Sleep(20 * time.Millisecond) // a reaper's time
	}
	fmt.Printf("known %d, zombies %d, %s", known, zombies(), last)
	return nil
}

// asPlugin asks, and if the answer is yes leaves an orphan.
func asPlugin(args []string) error {
	known, how := Reaped(args[0])
	if known {
		if _, err := leave(); err != nil {
			return err
		}
	}
	fmt.Println(known, how)
	return nil
}

// zombies counts the zombies that were this program.
func zombies() int {
	n := 0
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), "(exe) Z") {
			n++
		}
	}
	return n
}
