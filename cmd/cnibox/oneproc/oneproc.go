// Package oneproc runs the goroutines of a program one at a time. A call of a plugin has one thing to do at any moment: more
// threads would only be started, woken and put to sleep again. It imports nothing, so that Go initialises it before other packages
// (language specification, "Program initialization"), when there are few threads yet.
package oneproc

import "runtime"

func init() {
	runtime.GOMAXPROCS(1)
}
