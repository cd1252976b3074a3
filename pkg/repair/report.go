package repair

import (
	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Outcome is what became of an attachment.
type Outcome string

// The outcomes.
const (
	Right    Outcome = "right"    // nothing is missing
	Repaired Outcome = "repaired" // nothing is missing any more
	Wrong    Outcome = "wrong"    // something is missing, or still is
	Skipped  Outcome = "skipped"  // it can't be looked at, for the reason in Why
	Gone     Outcome = "gone"     // its namespace is gone, or it was deleted meanwhile
)

// Report says how an attachment is, and what was done.
type Report struct {
	Network      string    `json:"network"`
	ContainerID  string    `json:"containerID"`
	IfName       string    `json:"ifname"`
	Outcome      Outcome   `json:"outcome"`
	Why          string    `json:"why,omitempty"`
	Plugins      []Finding `json:"plugins"`           // those of its list that found something
	Foreign      []string  `json:"foreign,omitempty"` // plugins of its list that are not cnibox's, and were not asked
	Milliseconds float64   `json:"milliseconds,omitempty"`
}

// Finding is what one plugin found.
type Finding struct {
	Plugin  string   `json:"plugin"`
	Found   string   `json:"found"`             // what was missing first
	PutBack []string `json:"putBack,omitempty"` // all that was put back
	Left    string   `json:"left,omitempty"`    // what is missing still
	Remedy  string   `json:"remedy,omitempty"`  // what to do about that
}

func newReport(a *node.Attachment) *Report {
	return &Report{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName, Plugins: []Finding{}}
}

// hasChanged reports whether anything was put back.
func (r *Report) hasChanged() bool {
	for _, f := range r.Plugins {
		if len(f.PutBack) > 0 {
			return true
		}
	}
	return false
}

// fail says what of a finding is left.
func (f *Finding) fail(err error) {
	e := plugin.AsError(err)
	f.Left, f.Remedy = e.Msg, e.Details
}
