package repair

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Outcome is what became of an attachment.
type Outcome string

// The outcomes.
const (
	Right     Outcome = "right"      // nothing is missing
	LeftAlone Outcome = "left alone" // what differs is not for cnibox to change, for the reason in Why or in the findings
	Repaired  Outcome = "repaired"   // nothing is missing any more
	Unknown   Outcome = "unknown"    // it is not known whether it is there
	Skipped   Outcome = "skipped"    // it is there and can't be looked at, for the reason in Why
	Wrong     Outcome = "wrong"      // something is missing, or still is
	Gone      Outcome = "gone"       // its namespace is gone, or it was deleted meanwhile
)

// Outcomes are all outcomes, the worst but one last: of the two sides of an attachment the later one counts.
var Outcomes = []Outcome{Right, LeftAlone, Repaired, Unknown, Skipped, Wrong, Gone}

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

// codes are the kinds of what is found.
var codes finding.Codes

// Codes returns them. They are among doctor's, which looks as repair does.
func Codes() finding.Codes { return codes.Sorted() }

// Finding is what one plugin found: what was missing first; of a dry run, one thing of all. Its remedy is for what is missing still.
type Finding struct {
	finding.Finding
	Plugin  string   `json:"plugin"`
	PutBack []string `json:"putBack,omitempty"` // all that was put back
	Left    string   `json:"left,omitempty"`    // what is missing still

	LeftAlone bool `json:"leftAlone,omitempty"` // it is not for cnibox to change
}

// MarshalJSON calls what was found as repair has always done, too.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding
	return json.Marshal(struct {
		plain
		Found string `json:"found"`
	}{plain(f), f.Summary})
}

func newReport(a *node.Attachment) *Report {
	return &Report{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName, Plugins: []Finding{}}
}

// add adds what was found later, of the container's side.
func (r *Report) add(later *Report) {
	if slices.Index(Outcomes, later.Outcome) > slices.Index(Outcomes, r.Outcome) {
		r.Outcome = later.Outcome
	}
	for _, f := range later.Plugins {
		isKnown := func(o Finding) bool { return o.Plugin == f.Plugin && o.Summary == f.Summary && o.Left == f.Left }
		if !slices.ContainsFunc(r.Plugins, isKnown) {
			r.Plugins = append(r.Plugins, f)
		}
	}
	r.Why = cmp.Or(r.Why, later.Why)
	r.Milliseconds += later.Milliseconds
}

// fail says what of a finding is left.
func (f *Finding) fail(err error) {
	e := plugin.AsError(err)
	f.Left, f.Remedy = e.Msg, e.Details
}
