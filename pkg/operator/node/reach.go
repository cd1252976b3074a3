package node

import (
	"encoding/json"
	"fmt"
	"strings"
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

// Refusals says how many packets were refused.
func (r Reach) Refusals() string { return fmt.Sprintf("%d packets", r.Refused) }

// readReach reads lists, of a configuration or of a runtime.
func readReach(text []byte) *Reach {
	r := &Reach{}
	_ = json.Unmarshal(text, r) // an ADD has taken it, or it is of another form
	r.Container, r.Refused = nil, 0
	return r
}
