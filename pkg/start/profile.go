package start

import "runtime"

func init() { readProfile(0) }

// readProfile reads the memory profile when told to, which nobody does: it is here
// for the linker to see that somebody may.
//
// For a program that never reads its profile the linker sets a flag, by which the
// runtime turns sampling off in the middle of its own start. The next allocation
// notices that the rate has changed and is sampled on the spot, with the callers
// looked up in tables all over the binary: 45 us of the 2,000 of a VERSION (medians
// of 1,500, Go 1.26). Left on, sampling comes after 512 KiB on average, more than a
// call allocates.
//
//go:noinline
func readProfile(records int) {
	if records > 0 {
		runtime.MemProfile(make([]runtime.MemProfileRecord, records), true)
	}
}
