// Package doctor examines a node: what on it keeps containers' networks from working, or will, each as a finding with a code, what it
// means, and the command that mends it. To examine changes nothing on the node; Fix does what is safe.
//
// A check that can't look says so in the report, and the others go on.
package doctor

import (
	"context"
	"slices"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// Options say where to look, and for what.
type Options struct {
	node.Options            // its BinDirs count where no runtime says which are its own
	OwnBinDirs   bool       // they count whatever runtimes say
	Codes        []string   // look for these only; nil is all
	Thorough     bool       // call CHECK for each attachment, and follow a packet of each network, too
	Node         *node.Node // what is on the node, if that has been read already
}

// Report is what an examination found.
type Report struct {
	Findings     []Finding   `json:"findings"` // the worst first
	CouldNotLook []NotLooked `json:"couldNotLook"`

	// How much was looked at.
	Checks      int `json:"checks"`
	Networks    int `json:"networks"`
	Attachments int `json:"attachments"`
}

// NotLooked is something that could not be looked at, so that there may be more than was found.
type NotLooked struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Count returns how many findings of a severity are for a person to read.
func (r *Report) Count(s finding.Severity) (n int) {
	for _, f := range r.Findings {
		if f.Severity == s && f.IsShown() {
			n++
		}
	}
	return n
}

// Healthy reports whether nothing was found that has to be mended.
func (r *Report) Healthy() bool { return r.Count(finding.Error)+r.Count(finding.Warning) == 0 }

// Examine looks at the node.
func Examine(ctx context.Context, o Options) *Report {
	s := newSubject(ctx, o)
	r := &Report{Findings: []Finding{}, CouldNotLook: []NotLooked{}, Networks: len(s.networks), Attachments: len(s.Attachments)}
	for _, c := range checks {
		if !c.isWanted(o) {
			continue
		}
		r.Checks++
		found, err := c.look(ctx, s)
		s.found = append(s.found, found...)
		if err != nil {
			s.couldNot(c.at, err)
		}
	}
	for _, f := range s.found {
		if o.Codes == nil || slices.Contains(o.Codes, f.Code) {
			r.Findings = append(r.Findings, f)
		}
	}
	finding.Trace(r.Findings, Codes())
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return a.Severity.Rank() - b.Severity.Rank() })
	r.CouldNotLook = append(r.CouldNotLook, s.notLooked...)
	return r
}

// Fixed is what Fix did about a finding.
type Fixed struct {
	Finding
	Error string `json:"error,omitempty"` // why it failed
}

// Fix runs the commands of the findings for which that is safe, but for what comes of others: that may be gone then.
func Fix(ctx context.Context, findings []Finding) []Fixed {
	done := []Fixed{}
	for _, f := range findings {
		if !f.Fixable || !f.IsShown() {
			continue
		}
		fixed := Fixed{Finding: f}
		if err := finding.RunAll(ctx, f.Commands); err != nil {
			fixed.Error = err.Error()
		}
		done = append(done, fixed)
	}
	return done
}
