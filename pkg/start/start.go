// Package start makes a process ready for its work sooner. It is for programs that
// run for milliseconds; they import it for that alone.
//
// Packages are initialised in the order of their paths as far as what they import
// lets them (Go spec, Program initialization). This one imports nothing but the
// runtime, and so comes before the first that would have its stack grow.
package start
