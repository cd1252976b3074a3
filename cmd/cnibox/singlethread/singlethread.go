// Package singlethread runs the goroutines of a program one at a time. A call of a plugin has one thing to do at any moment: more
// threads would only be started, woken and put to sleep again. DEL is the exception: it starts a second process beside its work. A
// program that is not called as a plugin, such as the DHCP daemon, has all processors.
// The package imports next to nothing, so that Go initialises it before others (language specification, "Program
// initialization"), when there are few threads yet.
package singlethread

import (
	"runtime"
	"syscall"
)

func init() {
	if command, called := syscall.Getenv("CNI_COMMAND"); called && command != "DEL" {
		runtime.GOMAXPROCS(1)
	}
}
