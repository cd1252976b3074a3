package node

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter/reach"
)

// Reach is what a container may reach, as lists have it.
type Reach struct {
	Allow     *[]string `json:"allow,omitempty"` // nil: all is open
	Deny      []string  `json:"deny,omitempty"`
	Internal  bool      `json:"internal,omitempty"`
	Container *Reach    `json:"container,omitempty"` // of that one, which close more
	Refused   uint64    `json:"refusedPackets"`
}

// String says what is open.
func (r Reach) String() string {
	var parts []string
	switch {
	case r.Internal:
		parts = append(parts, "its own subnets")
	case r.Allow == nil:
		parts = append(parts, "everything")
	case len(*r.Allow) == 0:
		parts = append(parts, "nothing")
	default:
		parts = append(parts, strings.Join(*r.Allow, ", "))
	}
	if len(r.Deny) > 0 {
		parts = append(parts, "but not "+strings.Join(r.Deny, ", "))
	}
	if r.Container != nil {
		parts = append(parts, "and of that only: "+r.Container.String())
	}
	return strings.Join(parts, " ")
}

// OfNetwork says what the network's lists leave open, whatever those of the container close.
func (r Reach) OfNetwork() string {
	r.Container = nil
	return r.String()
}

// Refusals says how many packets were refused.
func (r Reach) Refusals() string { return fmt.Sprintf("%d packets", r.Refused) }

// ReadReach reads lists: of a plugin in a configuration, or of what a runtime sends.
func ReadReach(text []byte) *Reach {
	r := &Reach{}
	_ = json.Unmarshal(text, r) // an ADD has taken it, or it is of another form
	r.Container, r.Refused, r.Deny = nil, 0, asEnforced(r.Deny)
	if r.Allow != nil {
		*r.Allow = asEnforced(*r.Allow)
	}
	return r
}

// asEnforced returns entries in the one spelling that each has, in their order and each once.
func asEnforced(texts []string) []string {
	list := texts[:0]
	for _, text := range texts {
		if e, err := reach.Parse(text); err == nil {
			text = e.String()
		}
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}
