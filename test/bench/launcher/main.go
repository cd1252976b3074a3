// Command launcher runs a program and writes to file descriptor 3 what that used: nanoseconds until it had ended,
// and the peak resident set in KiB of the largest of it and its children.
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

const report = 3

func main() {
	if len(os.Args) < 2 {
		fail("usage: launcher PROGRAM [ARGUMENT]...")
	}
	syscall.CloseOnExec(report)
	start := time.Now()
	pid, err := syscall.ForkExec(os.Args[1], os.Args[1:], &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		fail(os.Args[1] + ": " + err.Error())
	}
	var status syscall.WaitStatus
	var used syscall.Rusage
	for {
		_, err = syscall.Wait4(pid, &status, 0, &used)
		if err != syscall.EINTR {
			break
		}
	}
	took := time.Since(start)
	if err != nil {
		fail("wait: " + err.Error())
	}
	line := strconv.FormatInt(took.Nanoseconds(), 10) + " " + strconv.FormatInt(int64(used.Maxrss), 10) + "\n"
	if _, err := syscall.Write(report, []byte(line)); err != nil {
		fail("write the report: " + err.Error())
	}
	os.Exit(status.ExitStatus())
}

func fail(msg string) {
	os.Stderr.WriteString("launcher: " + msg + "\n")
	os.Exit(125)
}
