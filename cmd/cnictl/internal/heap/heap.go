// Package heap has the garbage collector start later than it would, with a heap of 16 MB in place of 4 (runtime/debug,
// SetGCPercent). The libraries of cnictl allocate 4 MB before main is called: to collect that, and find nothing, takes a third of
// a start's processor time.
package heap

import "runtime/debug"

// Go initialises packages in the order of their import paths, as far as these import each other (language specification, "Program
// initialization"): this one comes before the libraries that allocate.
func init() { debug.SetGCPercent(400) }

// Small is for a process that stays: its heap is collected as that of other Go programs.
func Small() { debug.SetGCPercent(100) }
