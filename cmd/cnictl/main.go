// Command cnictl is the operator's side of cnibox: it installs the plugins,
// and does by hand what a container runtime does with them.
package main

import (
	"io"
	"os"
	"runtime"

	"github.com/cnibox/cnibox/pkg/link"
)

// The main thread stays with the main goroutine, so that no other one, which
// may change its thread's namespaces, makes it look as if the process had.
func init() { runtime.LockOSThread() }

func main() {
	link.ServeDeleter()
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs cnictl and returns its exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	return fail(cmd, err)
}
