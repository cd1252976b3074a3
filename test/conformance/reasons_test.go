package conformance

// Why the reference differs, where that is the same for several plugins.
const (
	always999 = "its own errors have the code 999"
	noGC      = "it has no GC"
	noStatus  = "it has no STATUS: the call succeeds whatever is wrong"
)
