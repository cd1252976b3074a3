package plugin

import (
	"context"
	"time"
)

// Held is one thing that an attachment holds on this node, such as a lease or a link.
type Held struct {
	Key   Key       // whose it is; a part that is not known is ""
	Owner string    // Key.String() of the owner, which may be known where not all parts are; "" if it is not
	MayBe []string  // the containers that it can be held for, if it is not known for which. Without these, a container and an Owner it is nobody's
	What  string    // for people: what kind of thing and which, such as "lease 10.88.0.2"
	Since time.Time // zero if it is not known
	Own   any       // of the store that lists it, for Release
}

// Store is a place where attachments hold something.
type Store interface {
	// Held lists what is held, at least all of the network's; "" is all networks. With an error the list may lack something.
	Held(ctx context.Context, network string) ([]Held, error)

	// Release lets go of things from such a list, unless they have another owner by now. A thing that is gone is no error. It tries all.
	Release(ctx context.Context, list []Held) error
}

// Noter is a Store that notes what it has made elsewhere. Others can remove that, and leave the note.
type Noter interface {
	// IsNote reports whether nothing is left of a thing but its note.
	IsNote(ctx context.Context, h Held) (bool, error)
}

// Holder is a plugin that holds something for attachments.
type Holder interface {
	// Stores returns where. Of the request it uses the network, which may be "", the configuration and Results.
	Stores(r *Request) []Store
}

// Collector is a plugin that has a GC of its own, because it calls other plugins.
type Collector interface {
	// GC removes what is held by attachments of the request's network that are not in its Valid list.
	GC(ctx context.Context, r *Request) error
}
