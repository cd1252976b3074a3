// Command launcher runs a program and prints on standard error what that used: nanoseconds until it had ended, and
// the peak resident set in KiB of the largest of it and its children.
//
// It is small on purpose. A process begins with the peak of the one that starts it, so that started from a test binary
// it would have that one's. For the same reason it imports next to nothing.
package main

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	start := time.Now()
	process, err := os.StartProcess(os.Args[1], os.Args[1:], &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	check(err)
	state, err := process.Wait()
	took := time.Since(start)
	check(err)
	peak := state.SysUsage().(*syscall.Rusage).Maxrss
	os.Stderr.WriteString(strconv.FormatInt(took.Nanoseconds(), 10) + " " + strconv.FormatInt(int64(peak), 10) + "\n")
	os.Exit(state.ExitCode())
}

func check(err error) {
	if err != nil {
		os.Stderr.WriteString("launcher: " + err.Error() + "\n")
		os.Exit(125)
	}
}
