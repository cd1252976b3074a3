package plugin

import "time"

// Held is one thing that an attachment holds on this node, such as a lease or a link.
type Held struct {
	Key   Key       // whose it is; a part that is not known is ""
	Owner string    // Key.String() of the owner, which may be known where not all parts are; "" if it is not
	What  string    // for people: what kind of thing and which, such as "lease 10.88.0.2"
	Since time.Time // zero if it is not known
	Own   any       // of the store that lists it, for Release
}
